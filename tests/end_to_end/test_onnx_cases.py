# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own test cases are right or refused, each as the table says.

After a change that makes one better: `onnx_cases.py --update` beside this file, with the Python that
`scripts/setup` installs.
"""
import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_cases
from onnx_cases import Case, Options, changes, difference


def test_every_case_is_as_the_table_says(millrace):
    found = changes(onnx_cases.read_table(), onnx_cases.run_all(Options(millrace)))
    assert not found, f"{len(found)} rows:\n" + "\n".join(found[:40])


def test_the_table_has_every_node_test_and_none_is_wrong():
    table = onnx_cases.read_table()
    slow, fast = [], []
    for case in onnx_cases.collect():
        (slow if onnx_cases.SLOW.search(case.name) else fast).append(case.name)
    assert sorted(fast) == sorted(name for name in table if "[" not in name)
    assert {result for result, _ in table.values()} <= {*onnx_cases.RIGHT, "refused"}
    assert all(detail for result, detail in table.values() if result == "refused")
    assert len(slow) == 7 and sum("/" not in name for name in fast + slow) == 1884


CASE = Case("case", onnx.ModelProto(), [], [], 1e-3, 1e-7)
FLOATS = np.float32([1, -2, 0, 300])


@pytest.mark.parametrize("got, expected, isRight", [
    (FLOATS, FLOATS, True),
    (FLOATS * np.float32(1 + 2**-11), FLOATS, True),
    (FLOATS * np.float32(1 + 2**-8), FLOATS, False),
    (FLOATS[:3], FLOATS, False),
    (FLOATS.astype(np.float64), FLOATS, False),
    (np.int8([1, 2]), np.int8([1, 3]), False),
    (np.array([True]), np.array([False]), False),
    (np.float32([np.inf, np.nan]), np.float32([np.inf, np.nan]), True),
    (np.float32([-np.inf]), np.float32([np.inf]), False),
    (np.float32([65504]), np.float32([np.inf]), False),
    (np.float32([np.inf]), np.float32([65504]), False),
    (np.float32([np.nan]), np.float32([1]), False),
    (np.float32([1e-8]), np.float32([0]), True),
    (np.float32([1e-3]), np.float32([0]), False),
])
def test_the_judge_takes_roundings_and_nothing_else(got, expected, isRight):
    nothing = lambda: np.zeros(expected.shape)
    assert (difference(got, expected, nothing, CASE, "fp16") == "") == isRight


def test_roundings_of_inputs_count_as_far_as_they_move_the_result():
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], "g",
                              [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [100])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])])
    x = np.float32([1, -1] * 50)
    case = Case("case", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), [x], [x.sum()], 1e-3, 1e-7)
    (response,) = onnx_cases.response_to_rounding(case, 0, "fp16")
    assert 0.5 * 10 * 2**-11 < response < 2 * 10 * 2**-11  # sqrt(100) errors of 2^-11
    one, reach = np.float32(1).reshape(()), lambda: response
    assert difference(one + np.float32(0.01), one, reach, CASE, "fp16") == ""
    assert difference(one + np.float32(0.03), one, reach, CASE, "fp16") != ""


def test_a_row_that_is_new_gone_or_another_is_a_change():
    table = {"same": ("grid", ""), "gone": ("host", ""), "other": ("refused", "x")}
    rows = {"same": ("grid", ""), "new": ("grid", ""), "other": ("grid", "")}
    assert len(changes(table, rows)) == 3 and changes(table, table) == []
