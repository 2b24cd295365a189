# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""If, Loop and Scan whose decisions follow from constants: turn by turn as ONNX Runtime does them, on the grid."""
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import relative_l2, run, run_millrace, save_model

node = helper.make_node
FLOAT = TensorProto.FLOAT


def value(name, kind=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "body", inputs, outputs, [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()])


def model_of(nodes, inputs, outputs, constants):
    graph = helper.make_graph(
        nodes, "graph", [value(name, FLOAT, array.shape) for name, array in inputs.items()], [value(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_same(millrace, folder, model, inputs, machine="tsp-v1"):
    got = run_millrace(millrace, save_model(model, folder), machine, None, inputs, folder)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    for name, want in run(model, inputs).items():
        assert relative_l2(got.outputs[name], want) < 3e-3, name
    return got.report


WEIGHTS = (np.random.default_rng(0).standard_normal((24, 24)) * 0.2).astype(np.float32)
X = {"x": np.random.default_rng(1).standard_normal((5, 24)).astype(np.float32)}


@pytest.mark.parametrize("rows", [5, 6])
def test_if_takes_the_branch_that_a_shape_names(millrace, tmp_path, rows):
    branches = {"then_branch": body([node("MatMul", ["x", "w"], ["t"])], [], [value("t", FLOAT, [5, 24])]),
                "else_branch": body([node("Mul", ["x", "two"], ["e"])], [], [value("e", FLOAT, [5, 24])], {"two": np.float32(2)})}
    model = model_of([node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["r"]), node("Equal", ["r", "rows"], ["c"]),
                      node("If", ["c"], ["b"], **branches), node("Relu", ["b"], ["y"])], X, ["y"],
                     {"w": WEIGHTS, "zero": np.int64(0), "rows": np.int64(rows)})
    report = assert_same(millrace, tmp_path, model, X)
    assert report["macs_on_grid"] == report["macs_total"] == (5 * 24 * 24 if rows == 5 else 0)


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("turns, stops", [(4, False), (9, True)])
def test_loop_carries_and_collects(millrace, tmp_path, machine, turns, stops):
    """Up to so many turns; with `stops` as long as its number is below 3."""
    nodes = [node("MatMul", ["h", "w"], ["m"]), node("Tanh", ["m"], ["n"]), node("ReduceSum", ["n", "last"], ["collected"], keepdims=0),
             node("Less", ["i", "three"], ["below"]), node("Identity", ["below" if stops else "go"], ["on"]), node("Add", ["n", "x"], ["next"])]
    turn = body(nodes, [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", FLOAT, [5, 24])],
                [value("on", TensorProto.BOOL, []), value("next", FLOAT, [5, 24]), value("collected", FLOAT, [5])],
                {"three": np.int64(3), "last": np.array([1])})
    model = model_of([node("Loop", ["turns", "yes", "x"], ["y", "z"], body=turn)], X, ["y", "z"], {"w": WEIGHTS, "turns": np.int64(turns), "yes": np.array(True)})
    report = assert_same(millrace, tmp_path, model, X, machine)
    assert report["macs_total"] == 4 * 5 * 24 * 24  # in both cases


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_is_a_recurrent_cell(millrace, tmp_path, backwards):
    turn = body([node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "s"], ["a"]), node("Tanh", ["a"], ["next"]), node("Identity", ["next"], ["out"])],
                [value("h", FLOAT, [1, 24]), value("s", FLOAT, [1, 24])], [value("next", FLOAT, [1, 24]), value("out", FLOAT, [1, 24])])
    inputs = {"x": np.random.default_rng(2).standard_normal((1, 6, 24)).astype(np.float32), "h0": np.zeros((1, 24), np.float32)}
    model = model_of([node("Scan", ["h0", "x"], ["last", "y"], body=turn, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
                           scan_input_directions=[backwards], scan_output_directions=[backwards])], inputs, ["last", "y"], {"w": WEIGHTS})
    assert_same(millrace, tmp_path, model, inputs)


@pytest.mark.parametrize("made, words", [
    (node("If", ["c"], ["y"], then_branch=body([node("Neg", ["x"], ["t"])], [], [value("t", FLOAT, [5, 24])]),
          else_branch=body([node("Abs", ["x"], ["e"])], [], [value("e", FLOAT, [5, 24])])), "its condition is known at run time"),
    (node("Loop", ["", "c", "x"], ["y"], body=body(
        [node("Neg", ["h"], ["n"]), node("Identity", ["go"], ["on"])], [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", FLOAT, [5, 24])],
        [value("on", TensorProto.BOOL, []), value("n", FLOAT, [5, 24])])), "how often it turns is known at run time"),
    (node("Loop", ["many", "", "x"], ["y"], body=body(
        [node("Neg", ["h"], ["n"]), node("Identity", ["go"], ["on"])], [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", FLOAT, [5, 24])],
        [value("on", TensorProto.BOOL, []), value("n", FLOAT, [5, 24])])), "more than 100000 nodes"),
])
def test_what_is_decided_at_run_time_is_refused(millrace, tmp_path, made, words):
    model = model_of([node("ReduceMax", ["x"], ["m"], keepdims=0), node("Greater", ["m", "zero"], ["c"]), made], X, ["y"],
                     {"zero": np.float32(0), "many": np.int64(1 << 40)})
    done = subprocess.run([millrace, "run", save_model(model, tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and words in done.stderr, done.stderr
