#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes docs/bad-input.md: every kind of bad input with the answer of build/bin/millrace.

usage: python tests/end_to_end/bad_inputs/render.py     (the Python of scripts/setup)
"""
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/end_to_end"))

from bad_inputs import CASES, GROUPS  # noqa: E402
from bad_inputs.case import Answer  # noqa: E402

DOCUMENT = ROOT / "docs/bad-input.md"
HEAD = """# Bad input

What `millrace` answers to each kind of bad input: the exit code, and the exact words on the standard error, a line for
each thing that is wrong. A test runs
every row (`tests/end_to_end/test_bad_input_table.py`) and sees that no file was made; `bad_inputs/render.py` beside it
wrote this page. TREE stands for the folder of the source tree.

| exit code | means |
|---|---|
| 1 | the simulator found a violation, or another count of cycles than predicted, or a judge other values |
| 2 | bad command line |
| 3 | bad input file, or an operation that is not supported |
| 4 | the model does not fit the machine |
| 5 | an output cannot be written |
"""


def row(kind: str, answer: Answer) -> str:
    lines = [line.removeprefix("millrace: error: ") for line in answer.message.splitlines()]
    message = "<br>".join(lines).replace("|", "\\|")
    return f"| {kind} | {answer.code} | {message} |"


def rows_of(document: str) -> dict[str, str]:
    """Rows of the page by the kind of bad input."""
    rows = [line for line in document.splitlines() if line.startswith("| ") and line.count(" | ") >= 2]
    return {line[2:].split(" | ")[0]: line for line in rows}


def main() -> None:
    page = HEAD
    for group, title in GROUPS.items():
        page += f"\n## {title}\n\n| what is wrong | exit code | message |\n|---|---|---|\n"
        for case in CASES:
            if case.group == group:
                with tempfile.TemporaryDirectory() as folder:
                    answer, _ = case.answer(ROOT / "build/bin/millrace", Path(folder))
                page += row(case.kind, answer) + "\n"
    DOCUMENT.write_text(page)


if __name__ == "__main__":
    main()
