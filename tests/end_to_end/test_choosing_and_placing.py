# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The k best elements of a row, and updates at given places, are ONNX Runtime's: indices exactly, ties by the lower index."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from graph import Graph
from oracle import relative_l2, run_millrace, save_model

NUMBERS = np.random.default_rng(5)


def model_of(op, inputs, constants, outputs, before=None, **attributes):
    """The operation on inputs and constants in the order in which they are named; `before` is applied to the first."""
    first = next(iter(inputs))
    nodes = [helper.make_node(before, [first], ["before"])] if before else []
    names = sorted([*inputs, *constants])
    nodes.append(helper.make_node(op, ["before" if before and name == first else name for name in names], list(outputs), name="node",
                                  **attributes))
    typed = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in inputs.items()]
    graph = helper.make_graph(nodes, "graph", typed, [helper.make_empty_tensor_value_info(name) for name in outputs],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def run(millrace, tmp_path, model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip([o.name for o in model.graph.output], session.run(None, inputs)))
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    return expected, got


def halves(*shape):
    """Numbers that fp16 holds, of which few are equal."""
    return (NUMBERS.integers(-900, 900, shape) / 8).astype(np.float32)


BEST = {  # of which tensor, how many, attributes, a node before
    "two of four": (halves(6, 4), 2, {}, None),
    "all of a row": (halves(5, 7), 7, {}, None),
    "the least along a middle axis": (halves(3, 10, 5), 3, {"axis": 1, "largest": 0}, None),
    "few of many": (halves(2, 300), 5, {}, None),
    "the least of many": (halves(3, 200), 4, {"largest": 0}, None),
    "one": (halves(4, 33), 1, {"sorted": 0}, None),
    "of rows full of ties": (halves(5, 12), 4, {}, "Sign"),
    "of long rows full of ties": (halves(2, 400), 9, {}, "Sign"),
    "of integers": (NUMBERS.integers(-9, 9, (4, 7)).astype(np.int32), 3, {}, None),
    "of infinities": (np.float32([[-np.inf, 3, -np.inf, -np.inf, 1, np.inf]]), 5, {}, None),
    "of a softmax that fp16 would round to equal numbers": ((halves(4, 64) / 1000).astype(np.float32), 6, {}, "Softmax"),
}


@pytest.mark.parametrize("case", BEST)
def test_the_k_best_are_onnx_runtimes(millrace, tmp_path, case):
    x, k, attributes, before = BEST[case]
    model = model_of("TopK", {"a": x}, {"k": np.int64([k])}, ["values", "indices"], before, **attributes)
    expected, got = run(millrace, tmp_path, model, {"a": x})
    np.testing.assert_array_equal(got.outputs["indices"], expected["indices"])
    finite = np.isfinite(expected["values"])
    np.testing.assert_array_equal(np.isfinite(got.outputs["values"]), finite)
    np.testing.assert_array_equal(got.outputs["values"][~finite], expected["values"][~finite])
    assert relative_l2(got.outputs["values"][finite], expected["values"][finite]) < 5e-4


ROWS = np.int64([[1], [2], [5], [-1]])
AGAIN = np.int64([[1], [2], [1], [1]])
ELEMENTS = np.int64([[0, 1], [3, -2], [3, 5]])
BOX = np.stack(np.meshgrid([1, 2], [2, 3, 4], indexing="ij"), -1).astype(np.int64)
PLACES = {  # data, indices, updates, reduction
    "rows": (halves(8, 16), ROWS, halves(4, 16), "none"),
    "rows that get several updates": (halves(8, 16), AGAIN, halves(4, 16), "add"),
    "rows of which the greater stays": (halves(4, 6, 8), ELEMENTS, halves(3, 8), "max"),
    "elements": (halves(4, 6), ELEMENTS, halves(3), "mul"),
    "a box": (halves(4, 6, 8), BOX, halves(2, 3, 8), "none"),
    "a box that is added": (halves(4, 6, 8), BOX, halves(2, 3, 8), "add"),
    "a box backwards": (halves(4, 6, 8), BOX[::-1].copy(), halves(2, 3, 8), "none"),
    "a box to the end": (halves(4, 6), BOX + np.int64([1, 1]), halves(2, 3), "max"),
    "everything": (halves(4, 6), np.stack(np.meshgrid(np.arange(4), np.arange(6), indexing="ij"), -1), halves(4, 6), "none"),
    "one row that gets more updates than are joined": (halves(3, 2), np.zeros((300, 1), np.int64), halves(300, 2) / 64, "add"),
    "more runs than are joined": (halves(600, 2), np.arange(0, 600, 2, dtype=np.int64)[:, None], halves(300, 2), "min"),
}


@pytest.mark.parametrize("fixed", (True, False), ids=("constant", "computed"))
@pytest.mark.parametrize("case", PLACES)
def test_updates_go_to_their_places(millrace, tmp_path, case, fixed):
    data, indices, updates, reduction = PLACES[case]
    inputs, given = {"a": data, "c": updates}, {"b": indices}
    model = model_of("ScatterND", {**inputs, **({} if fixed else given)}, given if fixed else {}, ["y"], reduction=reduction)
    inputs.update({} if fixed else given)
    expected, got = run(millrace, tmp_path, model, inputs)
    assert relative_l2(got.outputs["y"], expected["y"]) < 5e-4


def test_places_that_follow_from_constants_are_known_however_many(millrace, tmp_path):
    """As torch exports x[:, 2:, 3:] = y: the places are ranges, expanded and joined, more of them than fold in any case."""
    data, updates = halves(3, 70, 90), halves(3, 68, 87)
    graph = Graph("assigned", 1)
    x, y = graph.input("x", list(data.shape)), graph.input("y", list(updates.shape))
    shape, last = graph.constant(np.int64(updates.shape)), graph.constant(np.int64([-1]))
    places = [graph.add("Unsqueeze", graph.add("Expand", graph.constant(numbers.astype(np.int64)), shape), last)
              for numbers in (np.arange(3)[:, None, None], np.arange(2, 70)[:, None], np.arange(3, 90))]
    graph.output(graph.add("ScatterND", x, graph.add("Concat", *places, axis=-1), y), list(data.shape))
    expected, got = run(millrace, tmp_path, graph.model(), {"x": data, "y": updates})
    [name] = expected
    np.testing.assert_array_equal(got.outputs[name], expected[name])
    assert got.report["host_ops"] == []
    assert got.report["measured_cycles"] < 10 * data.size / 90  # each row is moved, none looks through all updates


@pytest.mark.parametrize("fixed", (True, False), ids=("constant", "computed"))
@pytest.mark.parametrize("axis, reduction", ((0, "none"), (1, "add"), (-2, "max")))
def test_updates_go_to_their_places_along_an_axis(millrace, tmp_path, axis, reduction, fixed):
    data, updates = halves(5, 6, 4), halves(3, 2, 4)
    indices = np.stack([NUMBERS.permutation(5)[:3] for _ in range(8)], axis=-1).reshape(3, 2, 4).astype(np.int64)
    inputs, given = {"a": data, "c": updates}, {"b": indices}
    model = model_of("ScatterElements", {**inputs, **({} if fixed else given)}, given if fixed else {}, ["y"], axis=axis,
                     reduction=reduction)
    inputs.update({} if fixed else given)
    expected, got = run(millrace, tmp_path, model, inputs)
    assert relative_l2(got.outputs["y"], expected["y"]) < 5e-4


def test_many_single_elements_are_not_joined_one_by_one(millrace, tmp_path):
    """Constant places of 120 elements in no order: a piece for each took minutes to lay out."""
    data, updates = halves(6, 6, 6, 2), halves(2, 5, 6, 2)
    indices = NUMBERS.integers(-6, 6, updates.shape).astype(np.int64)
    model = model_of("ScatterElements", {"a": data, "c": updates}, {"b": indices}, ["y"], axis=0, reduction="min")
    expected, got = run(millrace, tmp_path, model, {"a": data, "c": updates})
    assert relative_l2(got.outputs["y"], expected["y"]) < 5e-4
    assert got.report["predicted_cycles"] < 100_000


@pytest.mark.parametrize("sizes", ((1, 8, 10, 6), (1, 8, 15, 9), (1, 8, 2, 1)))
def test_a_resize_whose_steps_are_even_is_no_product(millrace, tmp_path, sizes):
    x = halves(1, 8, 5, 3) if sizes[2] > 4 else halves(1, 8, 4, 2)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", nearest_mode="floor",
                          coordinate_transformation_mode="asymmetric")], "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, sizes)], [numpy_helper.from_array(np.int64(sizes), "sizes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    expected, got = run(millrace, tmp_path, model, {"x": x})
    np.testing.assert_array_equal(got.outputs["y"], expected["y"])
    assert got.report["macs_on_grid"] == 0
    assert got.report["host_ops"] == []
