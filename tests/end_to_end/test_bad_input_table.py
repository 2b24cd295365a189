# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/bad-input.md is true: every kind of bad input gets its exit code and its exact words."""
import pytest

from bad_inputs import CASES
from bad_inputs.render import DOCUMENT, row, rows_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind.replace(" ", "_"))
def test_bad_input_gets_the_answer_of_the_table_and_makes_no_file(millrace, tmp_path, case):
    answer, made = case.answer(millrace, tmp_path)
    assert made == [], "a file was left behind"
    assert 1 <= answer.code <= 5
    for line in answer.message.splitlines():
        assert line.startswith("millrace: error: "), "an answer is a line for each thing that is wrong"
    assert row(case.kind, answer) == rows_of(DOCUMENT.read_text()).get(case.kind)


def test_the_table_has_a_row_for_every_case_and_no_other():
    kinds = {case.kind for case in CASES}
    assert set(rows_of(DOCUMENT.read_text())) - {"what is wrong"} == kinds
    assert len(kinds) >= 50
