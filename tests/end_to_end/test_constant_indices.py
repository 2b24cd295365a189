# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gathers at constant indices are slices where these step evenly, and rolled windows are copied by boxes: no step of the host."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from oracle import relative_l2, run, run_millrace, save_model

NUMBERS = np.random.default_rng(17)


def model_of(nodes: list, shape: list[int], result: list[int], **constants: np.ndarray) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, result)
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return helper.make_model(helper.make_graph(nodes, "graph", [x], [y], initializers),
                             opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run_on_grid(millrace, model: onnx.ModelProto, folder) -> int:
    """Cycles of a model that has no step of the host: values of its kernels bit for bit, and near those of ONNX Runtime."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    inputs = {"x": NUMBERS.normal(0, 1, shape).astype(np.float32)}
    got = run_millrace(millrace, save_model(model, folder), "tsp-v1", "fp16", inputs, folder, ["--check"])
    assert got.report["host_ops"] == []
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3
    return got.report["measured_cycles"]


def gathered(operation: str, shape: list[int], indices, axis: int, reads: str) -> onnx.ModelProto:
    """relu(x) at `indices` of an axis; then what `reads` says of the result."""
    indices = np.int64(indices)
    at = axis % len(shape)
    if operation == "GatherElements":
        sizes = shape[:at] + [indices.size] + shape[at + 1:]
        indices = np.broadcast_to(indices.reshape([-1 if d == at else 1 for d in range(len(shape))]), sizes).copy()
        result = sizes
    else:
        result = shape[:at] + list(indices.shape) + shape[at + 1:]
    nodes = [helper.make_node("Relu", ["x"], ["positive"]),
             helper.make_node(operation, ["positive", "indices"], ["gathered"], axis=axis)]
    constants = {"indices": indices}
    if reads == "Add":
        constants["other"] = NUMBERS.normal(0, 1, result).astype(np.float32)
    elif reads == "MatMul":
        constants["other"] = NUMBERS.normal(0, 0.3, (result[-1], 8)).astype(np.float32)
        result = result[:-1] + [8]
    nodes.append(helper.make_node(reads, ["gathered", "other"][:1 + ("other" in constants)], ["y"]))
    return model_of(nodes, shape, result, **constants)


EVERY = {
    "a run": [3, 4, 5, 6], "every second": [0, 2, 4, 6], "backwards": [5, 4, 3], "backwards by two": [7, 5, 3, 1],
    "from the end": [-4, -3, -2], "one": 2, "the last": -1, "one in a tensor": [[-2]], "rows of a table": [[0, 1, 2], [3, 4, 5]],
    "windows": [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], "windows by two": [[0, 1, 2], [2, 3, 4], [4, 5, 6]],
    "windows turned": [[0, 2, 4], [1, 3, 5], [2, 4, 6]], "windows backwards": [[5, 4], [4, 3], [3, 2]],
    "spread windows": [[0, 3], [2, 5], [4, 7]], "the same for each row": [[1, 2, 3], [1, 2, 3]],
    "a roll": [5, 6, 7, 0, 1, 2, 3, 4], "three runs": [4, 5, 6, 0, 2, 1, 2, 3],
    "repeated": [0, 0, 0, 1, 2, 2, 2, 2], "windows of bins": [[0, 1, 2], [2, 3, 4], [3, 4, 5], [5, 6, 7]],
}


@pytest.mark.parametrize("reads", ["Identity", "Add", "MatMul"])
@pytest.mark.parametrize("indices", EVERY.values(), ids=EVERY.keys())
def test_a_gather_at_constant_steps_is_a_slice(millrace, tmp_path, indices, reads):
    for axis in (0, 1, -1):
        run_on_grid(millrace, gathered("Gather", [8, 8, 8], indices, axis, reads), tmp_path)


@pytest.mark.parametrize("indices", ([3, 4, 5], [0, 2, 4, 6], [5, 4, 3], [-1, -3, -5], [2], [6, 7, 0, 1]))
def test_elements_gathered_at_constant_steps_are_a_slice(millrace, tmp_path, indices):
    for axis in (0, 1, -2):
        run_on_grid(millrace, gathered("GatherElements", [8, 9, 16], indices, axis, "Add"), tmp_path)


def test_elements_are_gathered_of_a_part_of_the_data(millrace, tmp_path):
    """The indices' shape cuts the other dimensions."""
    indices = np.broadcast_to(np.int64([6, 4, 2])[None, :, None], (2, 3, 5)).copy()
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("GatherElements", ["r", "indices"], ["y"], axis=1)]
    run_on_grid(millrace, model_of(nodes, [4, 8, 6], [2, 3, 5], indices=indices), tmp_path)


@pytest.mark.parametrize("first, second", ((range(5, 1, -1), range(4)), (range(0, 8, 2), [3] * 4), ([-1, -2, -3], [1] * 3)))
def test_points_gathered_at_constant_steps_are_a_slice(millrace, tmp_path, first, second):
    """GatherND at the points of a grid, backwards too."""
    rows, columns = np.int64(list(first)), np.int64(sorted(set(second)))
    indices = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("GatherND", ["r", "indices"], ["y"])]
    run_on_grid(millrace, model_of(nodes, [8, 6, 10], [*indices.shape[:2], 10], indices=indices), tmp_path)


def bins(extent: int, count: int) -> np.ndarray:
    """Where an adaptive pooling reads `extent` elements for `count` results, (count, longest): the last of each window again
    where it is shorter."""
    first = np.arange(count) * extent // count
    last = -(-np.arange(1, count + 1) * extent // count) - 1
    return np.minimum(first[:, None] + np.arange((last - first).max() + 1), last[:, None])


@pytest.mark.parametrize("rows, columns, tall, wide", ((2, 2, 7, 7), (7, 5, 3, 2), (13, 9, 6, 4), (7, 7, 1, 6)))
def test_windows_of_adaptive_pooling_are_slices(millrace, tmp_path, rows, columns, tall, wide):
    """As PyTorch writes a pooling whose windows differ: GatherND at windows of both dimensions, then the greatest of each."""
    row, column = bins(rows, tall), bins(columns, wide)
    indices = np.stack(np.broadcast_arrays(row[:, :, None, None], column[None, None]), -1)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Transpose", ["r"], ["turned"], perm=[1, 2, 0]),
             helper.make_node("GatherND", ["turned", "indices"], ["windows"]),
             helper.make_node("ReduceMax", ["windows", "axes"], ["y"], keepdims=0)]
    run_on_grid(millrace, model_of(nodes, [24, rows, columns], [tall, wide, 24], indices=indices, axes=np.int64([1, 3])), tmp_path)


@pytest.mark.parametrize("batch", (0, 1))
def test_points_on_a_diagonal_are_right(millrace, tmp_path, batch):
    """Both indices change along one dimension: nothing that slices give, so that the host reads them."""
    indices = np.int64([[0, 1], [1, 3], [2, 0]])
    indices = np.broadcast_to(indices, (4, 3, 2)).copy() if batch else indices
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("GatherND", ["r", "indices"], ["y"], batch_dims=batch)]
    model = model_of(nodes, [4] * (3 + batch), [4, 3, 4] if batch else [3, 4], indices=indices)
    inputs = {"x": NUMBERS.normal(0, 1, [4] * (3 + batch)).astype(np.float32)}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, ["--check"])
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3


@pytest.mark.parametrize("seed", range(25))
def test_random_gathers_at_constant_indices(millrace, tmp_path, seed):
    """Whatever steps and shapes: the values are right, also where indices follow no rule and the host looks them up."""
    numbers = np.random.default_rng([23, seed])
    rank = int(numbers.integers(1, 5))
    shape = [int(extent) for extent in numbers.choice([1, 3, 6, 8, 13], rank)]
    axis = int(numbers.integers(0, rank))
    shape[axis] = extent = int(numbers.choice([5, 8, 14]))
    outer, inner = (int(n) for n in numbers.integers(1, 5, 2))
    steps = numbers.integers(-2, 3, 2)
    points = np.arange(outer)[:, None] * steps[0] + np.arange(inner)[None] * steps[1]
    indices = np.clip(points - points.min(), 0, extent - 1) - (extent if numbers.random() < 0.3 else 0)
    axis -= rank if numbers.random() < 0.3 else 0
    model = gathered("Gather", shape, indices, axis, str(numbers.choice(["Identity", "Add"])))
    inputs = {"x": numbers.normal(0, 1, shape).astype(np.float32)}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, ["--check"])
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3


def rolled(rows: int, columns: int, window: int, by: tuple[int, int], channels: int) -> onnx.ModelProto:
    """Windows, a product in each, the image made of them again and rolled: Swin's way back."""
    extent = [1, rows * window, columns * window, channels]
    constants = {"w": NUMBERS.normal(0, 0.3, (channels, channels)).astype(np.float32),
                 "windows": np.int64([1, rows, columns, window, window, channels]), "image": np.int64(extent)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Reshape", ["product", "windows"], ["apart"]),
             helper.make_node("Transpose", ["apart"], ["turned"], perm=[0, 1, 3, 2, 4, 5]),
             helper.make_node("Reshape", ["turned", "image"], ["at0"])]
    for axis, shift in ((1, by[0]), (2, by[1])):
        constants |= {f"from{axis}": np.int64([extent[axis] - shift if shift > 0 else -shift]), f"axis{axis}": np.int64([axis]),
                      "zero": np.int64([0]), "end": np.int64([2**62])}
        source, result = f"at{axis - 1}", f"at{axis}"
        nodes += [helper.make_node("Slice", [source, f"from{axis}", "end", f"axis{axis}"], [f"last{axis}"]),
                  helper.make_node("Slice", [source, "zero", f"from{axis}", f"axis{axis}"], [f"first{axis}"]),
                  helper.make_node("Concat", [f"last{axis}", f"first{axis}"], [result], axis=axis)]
    nodes.append(helper.make_node("Relu", ["at2"], ["y"]))
    return model_of(nodes, [rows * columns, window * window, channels], extent, **constants)


@pytest.mark.parametrize("rows, columns, window, by, channels",
                         ((8, 8, 7, (3, 3), 32), (4, 3, 4, (2, 2), 48), (2, 5, 7, (-3, 2), 16), (3, 3, 5, (1, 4), 24),
                          (2, 2, 4, (5, -3), 320)))
def test_rolled_windows_are_copied_by_boxes(millrace, tmp_path, rows, columns, window, by, channels):
    run_on_grid(millrace, rolled(rows, columns, window, by, channels), tmp_path)


@pytest.mark.parametrize("begin, end", ((3, 20), (1, 27), (6, 9), (5, 14), (7, 21)))
def test_a_part_of_joined_windows_is_read_by_boxes(millrace, tmp_path, begin, end):
    """Rows of an image that lies in windows of 7, from within one to within another, in both dimensions."""
    constants = {"apart": np.int64([4, 4, 7, 7, 16]), "joined": np.int64([28, 28, 16]),
                 "begin": np.int64([begin, 4]), "end": np.int64([end, 26]), "axes": np.int64([0, 1])}
    nodes = [helper.make_node("Reshape", ["x", "apart"], ["windows"]),
             helper.make_node("Transpose", ["windows"], ["turned"], perm=[0, 2, 1, 3, 4]),
             helper.make_node("Reshape", ["turned", "joined"], ["image"]),
             helper.make_node("Slice", ["image", "begin", "end", "axes"], ["part"]), helper.make_node("Relu", ["part"], ["y"])]
    run_on_grid(millrace, model_of(nodes, [16, 49, 16], [end - begin, 22, 16], **constants), tmp_path)
