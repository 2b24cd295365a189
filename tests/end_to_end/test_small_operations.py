# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single operations of few channels, and of integers, give on the machine what ONNX Runtime gives."""
import json
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import relative_l2, run_millrace, save_model

NUMBERS = np.random.default_rng(0)


def reals(*shape):
    return NUMBERS.standard_normal(shape).astype(np.float32)


def model_of(op, inputs, constants=None, element=None, **attributes):
    """One operation on inputs x0, x1, ... and initializers named by `constants`."""
    element = element or helper.np_dtype_to_tensor_dtype(next(iter(inputs.values())).dtype)
    graph = helper.make_graph(
        [helper.make_node(op, [*inputs, *(constants or {})], ["y"], name="node", **attributes)], "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in inputs.items()],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


BYTES = np.int8([[-128, -5, -1, 100], [127, 100, 3, 1]])
CASES = {
    "an average over padding of two channels":
        ("AveragePool", {"x0": reals(1, 2, 6, 6)}, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
    "an average over padding that reaches past the window's end":
        ("AveragePool", {"x0": reals(1, 2, 7, 7)}, {}, {"kernel_shape": [3, 3], "strides": [5, 5], "pads": [1] * 4}),
    "an average of SAME_UPPER": ("AveragePool", {"x0": reals(1, 2, 6, 6)}, {},
                                 {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "a maximum of bytes": ("MaxPool", {"x0": NUMBERS.integers(-128, 128, (1, 2, 5, 5)).astype(np.int8)}, {},
                           {"kernel_shape": [2, 2], "pads": [1] * 4}),
    "bytes wrap around": ("Add", {"x0": BYTES, "x1": BYTES[::-1].copy()}, {}, {}),
    "squares of integers are summed": ("ReduceSumSquare", {"x0": np.int32([[3, -4, 5, 200]])}, {}, {}),
    "a sum of one tensor": ("Einsum", {"x0": reals(2, 3)}, {}, {"equation": "ij->j"}),
    "an ellipsis": ("Einsum", {"x0": reals(2, 3, 4), "x1": reals(4, 5)}, {}, {"equation": "...ij, jk -> ...ik"}),
    "ellipses that repeat": ("Einsum", {"x0": reals(2, 1, 3, 4), "x1": reals(1, 5, 4, 2)}, {}, {"equation": "...ij,...jk->...ik"}),
    "an ellipsis of nothing": ("Einsum", {"x0": reals(3, 4), "x1": reals(4, 2)}, {}, {"equation": "...ij,...jk"}),
    "an ellipsis that is summed": ("Einsum", {"x0": reals(2, 3, 4)}, {}, {"equation": "i...->..."}),
    "products of doubles": ("MatMul", {"x0": np.ones((2, 3)), "x1": np.ones((3, 2))}, {}, {}),
    "the greatest of all": ("ReduceMax", {"x0": reals(4, 8)}, {"axes": np.array([0, 1])}, {}),
    "the greatest of a row that is a vector": ("ReduceMax", {"x0": reals(7)}, {"axes": np.array([0])}, {}),
    "the least of the lanes": ("ReduceMin", {"x0": reals(1, 8)}, {"axes": np.array([1])}, {}),
    "the least of lanes and rows": ("ReduceMin", {"x0": reals(3, 1, 4)}, {"axes": np.array([0, 2])}, {}),
    "the greatest of three dimensions": ("ReduceMax", {"x0": reals(2, 3, 4, 5)}, {"axes": np.array([0, 1, 2])}, {}),
    "a sum over three dimensions": ("ReduceSum", {"x0": reals(2, 3, 4, 5)}, {"axes": np.array([0, 1, 3])}, {}),
    "a reduction whose result is taken twice":
        ("ReduceLogSumExp", {"x0": reals(2, 3, 5)}, {"axes": np.array([0, 1])}, {}),
    "a reduction of more rows than the VXM has ALUs":
        ("ReduceLogSumExp", {"x0": reals(100, 5)}, {"axes": np.array([0])}, {}),
    "a sum of exponentials over the lanes": ("ReduceLogSumExp", {"x0": reals(4, 8)}, {"axes": np.array([1])}, {}),
    "a window of which some taps see only padding, of several images":
        ("Conv", {"x0": reals(5, 8, 1, 26)}, {"w": reals(3, 8, 3, 1)}, {"pads": [1, 0, 1, 0], "strides": [3, 2]}),
    "an average of which some taps see only padding, of several images":
        ("AveragePool", {"x0": reals(17, 15, 16, 1)}, {}, {"kernel_shape": [1, 3], "pads": [0, 1, 0, 1]}),
    "an activation that takes its input at its end": ("Mish", {"x0": reals(3, 15, 16)}, {}, {}),
    "a maximum of windows of one row": ("MaxPool", {"x0": reals(16, 2, 33)}, {}, {"kernel_shape": [1], "strides": [2]}),
    "filters of one channel each whose taps lie along the lanes":
        ("Conv", {"x0": reals(1, 3, 3)}, {"w": reals(3, 1, 3)}, {"group": 3, "pads": [1, 0], "strides": [2]}),
    "a tensor of eleven dimensions": ("Relu", {"x0": reals(2, 1, 2, 1, 2, 1, 2, 1, 2, 2, 3)}, {}, {}),
    "filters of a group that are inputs":
        ("Conv", {"x0": reals(1, 3, 5), "x1": reals(3, 1, 2)}, {}, {"group": 3}),
    "a window of one channel that steps over padding":
        ("Conv", {"x0": reals(1, 1, 4, 4)}, {"w": reals(4, 1, 2, 2)}, {"strides": [2, 2], "pads": [1] * 4}),
    "such a window of filters that are inputs":
        ("Conv", {"x0": reals(1, 1, 4, 4), "x1": reals(1, 1, 2, 2)}, {}, {"strides": [1, 2], "pads": [0, 1, 0, 0]}),
    "an average of one channel that counts padding":
        ("AveragePool", {"x0": reals(1, 1, 4, 4)}, {},
         {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}),
    "an average along the lanes of every other element":
        ("AveragePool", {"x0": reals(2, 3, 7)}, {},
         {"kernel_shape": [2], "dilations": [2], "pads": [0, 1], "strides": [2], "count_include_pad": 1}),
    "a maximum of one window that leaves lanes out":
        ("MaxPool", {"x0": reals(16, 1, 5)}, {}, {"kernel_shape": [3], "strides": [3]}),
    "a maximum of one channel":
        ("MaxPool", {"x0": reals(1, 1, 4, 4)}, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    "padding along the lanes": ("Pad", {"x0": reals(2, 3)}, {"p": np.array([1, 0, 0, 2])}, {}),
    "lanes backwards":
        ("Slice", {"x0": reals(4, 9)},
         {"s": np.array([3, 8]), "e": np.array([-9, 0]), "a": np.array([0, 1]), "st": np.array([-1, -3])}, {}),
    "every other lane of some rows":
        ("Slice", {"x0": reals(4, 9)},
         {"s": np.array([0]), "e": np.array([9]), "a": np.array([1]), "st": np.array([2])}, {}),
    "an average whose divisor differs by row":
        ("AveragePool", {"x0": reals(7, 5, 8)}, {}, {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 0}),
    "a tensor of one integer":
        ("ConstantOfShape", {}, {"shape": np.array([2, 3])},
         {"element": TensorProto.INT32, "value": numpy_helper.from_array(np.int32([7]))}),
}


def check_values(millrace, tmp_path, model, inputs):
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    expected = onnxruntime.InferenceSession(model.SerializeToString(), quiet).run(None, inputs)[0]
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path).outputs["y"]
    assert got.dtype == expected.dtype
    if expected.dtype.kind == "f":
        assert relative_l2(got, expected) <= 2e-3
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("claim", CASES)
def test_it_gives_the_values_of_onnx_runtime(claim, millrace, tmp_path):
    op, inputs, constants, options = CASES[claim]
    check_values(millrace, tmp_path, model_of(op, inputs, constants, **options), inputs)


VIEWS = {  # claim: shape of x, the view and its constants, the operation on it and its
    "rows beside a slice": ((6, 16), "Slice", [[1], [5], [0]], "Pad", [[1, 0, 1, 0]], {}),
    "lanes beside a slice": ((6, 16), "Slice", [[1], [15], [1]], "Pad", [[0, 1, 0, 1]], {}),
    "a window over a slice": ((1, 16, 8, 8), "Slice", [[1], [5], [2]], "Conv", [reals(4, 16, 3, 3)],
                              {"pads": [1, 1, 1, 1]}),
    "a window over split columns": ((1, 16, 12), "Reshape", [[1, 16, 3, 4]], "Conv", [reals(4, 16, 3, 3)],
                                    {"pads": [1, 1, 1, 1]}),
    "a window over dimensions of one": ((16, 3), "Reshape", [[16, 3, 1, 1]], "Conv", [reals(3, 3, 3, 2)],
                                        {"pads": [2, 1, 0, 0], "strides": [2, 2]}),
    "a window over a column repeated along the lanes": ((7, 1, 3, 8), "Expand", [[7, 16, 3, 8]], "MaxPool", [],
                                                        {"kernel_shape": [2, 2], "pads": [1, 0, 1, 0]}),
    "a window over a scalar": ((1, 2, 5, 7), "ReduceMax", [], "Conv", [reals(8, 1, 2, 3)], {"pads": [0, 2, 1, 2]}),
    "a mean of repeated values": ((1, 30), "Tile", [[1, 2]], "ReduceMean", [[0, 1]], {"keepdims": 1}),
    "a product over a lane read backwards": ((3, 40), "Slice", [[35], [5], [1], [-1]], "MatMul", [reals(30, 7)], {}),
    "a least of means": ((16, 12, 32), "ReduceMean", [[2]], "ReduceMin", [[1]], {}),
    "padding of padding": ((4, 16), "Pad", [[1, 0, 0, 0], np.float32(2)], "Pad", [[1, 0, 1, 0]], {}),
}


@pytest.mark.parametrize("claim", VIEWS)
def test_an_operation_over_a_view_finds_what_the_view_shows(claim, millrace, tmp_path):
    shape, view, constants, op, others, attributes = VIEWS[claim]
    arrays = {f"c{i}": array if isinstance(array, (np.ndarray, np.float32)) else np.int64(array)
              for i, array in enumerate([*constants, *others])}
    names = list(arrays)
    nodes = [helper.make_node(view, ["x", *names[:len(constants)]], ["t"], name="view"),
             helper.make_node(op, ["t", *names[len(constants):]], ["y"], name="node", **attributes)]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()])
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    check_values(millrace, tmp_path, model, {"x": np.abs(reals(*shape))})


EVERYWHERE = np.float32([0, 1e-4, 3e-3, 0.1, 0.24, 0.26, 0.49, 0.51, 0.9, 1, 1.1, 1.5, 3, 20, 80, 88.9, 400, 60000, np.inf])
WITHIN_ONE = np.float32([0, 1e-4, 3e-3, 0.1, 0.24, 0.26, 0.5, 0.75, 0.999, 1, 1.5])
FUNCTIONS = {**{op: EVERYWHERE for op in ("Tan", "Atan", "Sinh", "Cosh", "Asinh", "Acosh")},
             **{op: WITHIN_ONE for op in ("Asin", "Acos", "Atanh")}}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_that_no_alu_computes_are_made_of_others(millrace, tmp_path, op, precision):
    """On the grid, near the result beside its own size, however small it is; infinities and NaN where they are ONNX Runtime's."""
    x = np.concatenate([FUNCTIONS[op], -FUNCTIONS[op], np.float32([np.nan])])
    x = x.astype(np.float16).astype(np.float32) if precision == "fp16" else (x.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)
    model = model_of(op, {"x0": x[None]})
    with np.errstate(invalid="ignore"):
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x[None]})[0]
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", precision, {"x0": x[None]}, tmp_path).outputs["y"]
    assert json.loads((tmp_path / "report.json").read_text())["host_ops"] == []
    largest, rounding, least = {"fp16": (65504, 2.0**-11, 2.0**-25), "bf16": (3e38, 2.0**-8, 0)}[precision]
    held = ~np.isfinite(x) | (np.abs(expected[0]) <= largest) | np.isnan(expected[0])
    np.testing.assert_allclose(got[0, held], expected[0, held], rtol=rounding + 1e-5, atol=least)


def refusal(millrace, tmp_path, model):
    done = subprocess.run([millrace, "compile", save_model(model, tmp_path), "-o", tmp_path / "model.mrp"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    return done.stderr


def test_a_sum_over_nothing_is_refused(millrace, tmp_path):
    assert "'node' reads a tensor that has a dimension of 0" in \
        refusal(millrace, tmp_path, model_of("Gemm", {"x0": reals(2, 0), "x1": reals(0, 4), "x2": reals(4)}))


@pytest.mark.parametrize("type", [np.int16, np.uint16])
def test_integers_of_16_bits_are_held_as_32(millrace, tmp_path, type):
    values = np.array([[-32768, 32767, 0], [-1, 255, 256]], np.int32).astype(type)
    got = run_millrace(millrace, save_model(model_of("Transpose", {"x0": values}), tmp_path), "tsp-v1", "fp16",
                       {"x0": values}, tmp_path).outputs
    [output] = got.values()
    assert output.dtype == type
    np.testing.assert_array_equal(output, values.T)


@pytest.mark.parametrize("zero", [-300, 0])
def test_a_product_is_quantised_to_16_bits(millrace, tmp_path, zero):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("QuantizeLinear", ["y", "s", "z"], ["q"]),
             helper.make_node("Greater", ["q", "z"], ["above"])]
    info = helper.make_tensor_value_info
    weights = np.random.default_rng(3).integers(-8, 9, (8, 16)).astype(np.float32)
    initializers = [onnx.numpy_helper.from_array(each, name) for name, each in
                    [("w", weights), ("s", np.float32(0.03125)), ("z", np.int16(zero))]]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [4, 8])],
                              [info("q", TensorProto.INT16, [4, 16]), info("above", TensorProto.BOOL, [4, 16])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inputs = {"x": np.random.default_rng(4).integers(-8, 9, (4, 8)).astype(np.float32) / 4}  # exact in fp16, as products are
    right = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path).outputs
    assert np.abs(right[0]).max() > 300
    np.testing.assert_array_equal(got["q"], right[0])
    np.testing.assert_array_equal(got["above"], right[1])


def test_a_sum_along_a_diagonal_is_refused(millrace, tmp_path):
    assert "(a diagonal)" in refusal(millrace, tmp_path, model_of("Einsum", {"x0": reals(3, 3)}, equation="ii->"))


def test_scalars_that_the_host_makes_are_outputs_and_inputs_of_host_steps(millrace, tmp_path):
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", TensorProto.FLOAT, [4, 8])],
                              [info("scale", TensorProto.FLOAT, []), info("zero", TensorProto.UINT8, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    inputs = {"x": np.linspace(-1, 3, 32, dtype=np.float32).reshape(4, 8)}
    scale, zero = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path).outputs
    assert got["scale"].shape == got["zero"].shape == ()
    assert relative_l2(got["scale"], scale) <= 2e-3
    assert 0 < zero < 128 and abs(int(got["zero"]) - zero) <= 1


def test_scalars_have_no_dimension(millrace, tmp_path):
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0), helper.make_node("Mul", ["x", "s"], ["z"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [4, 33]), info("s", TensorProto.FLOAT, [])],
                              [info("y", TensorProto.FLOAT, []), info("z", TensorProto.FLOAT, [4, 33])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = {"x": reals(4, 33), "s": np.asarray(np.float32(1.25))}
    for machine in ("tsp-v1", "mesh-4x4"):
        got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path).outputs
        for name, value in zip(("y", "z"), onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)):
            assert got[name].shape == value.shape
            assert relative_l2(got[name], value) <= 2e-3


@pytest.mark.parametrize("op, constants, attributes", [
    ("Resize", {"roi": np.float32([]), "scales": np.float32([1, 1, 2, 1.5])}, {"mode": "linear"}),
    ("AveragePool", {}, {"kernel_shape": [3, 3], "pads": [1] * 4})])
def test_doubles_are_computed_as_floats_are(millrace, tmp_path, op, constants, attributes):
    """ONNX Runtime has these operations for floats alone."""
    floats = {"x0": reals(1, 2, 6, 6)}
    session = onnxruntime.InferenceSession(model_of(op, floats, constants, **attributes).SerializeToString())
    doubles = {"x0": floats["x0"].astype(np.float64)}
    model = save_model(model_of(op, doubles, constants, **attributes), tmp_path)
    got = run_millrace(millrace, model, "tsp-v1", "fp16", doubles, tmp_path).outputs["y"]
    assert got.dtype == np.float64 and relative_l2(got, session.run(None, floats)[0]) <= 2e-3


@pytest.mark.parametrize("shape", [(1, 4, 18), (3, 4, 5, 5), (4, 6)], ids=str)
def test_a_batch_norm_in_training_mode_takes_the_statistics_of_the_batch(millrace, tmp_path, shape):
    channels = shape[1]
    constants = {"scale": 1 + reals(channels) / 4, "bias": reals(channels), "mean": reals(channels),
                 "var": 1 + np.abs(reals(channels))}
    inputs = {"x": (reals(*shape) + np.arange(channels).reshape([-1] + [1] * (len(shape) - 2)) / 4).astype(np.float32)}
    info = helper.make_tensor_value_info
    node = helper.make_node("BatchNormalization", ["x", *constants], ["y", "m", "v"], training_mode=1, momentum=0.75)
    graph = helper.make_graph([node], "g", [info("x", TensorProto.FLOAT, shape)],
                              [info("y", TensorProto.FLOAT, shape), info("m", TensorProto.FLOAT, [channels]),
                               info("v", TensorProto.FLOAT, [channels])],
                              [numpy_helper.from_array(each.astype(np.float32), name) for name, each in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    x, along = inputs["x"].astype(np.float64), [-1] + [1] * (len(shape) - 2)
    axes = (0, *range(2, len(shape)))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(var + 1e-5) * constants["scale"].reshape(along) + constants["bias"].reshape(along)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path).outputs
    assert relative_l2(got["y"], y) <= 1e-3
    assert relative_l2(got["m"], 0.75 * constants["mean"] + 0.25 * mean.ravel()) <= 1e-3
    assert relative_l2(got["v"], 0.75 * constants["var"] + 0.25 * var.ravel()) <= 1e-3


def test_weights_that_are_standardised_are_constants(millrace, tmp_path):
    """As PyTorch exports ScaledStdConv2d: the weights, as a batch of one, through a BatchNormalization in training mode."""
    made, given = 16, 8
    weights = np.random.default_rng(5).normal(size=(made, given, 3, 3)).astype(np.float32)
    constants = {"w": weights.reshape(1, made, -1), "gain": 0.2 + reals(made) / 40, "zero": np.zeros(made), "one": np.ones(made)}
    nodes = [helper.make_node("BatchNormalization", ["w", "gain", "zero", "zero", "one"], ["n", "m", "v"], training_mode=1),
             helper.make_node("Reshape", ["n", "shape"], ["weights"]),
             helper.make_node("Conv", ["x", "weights"], ["y"], pads=[1] * 4)]
    info = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in constants.items()]
    initializers.append(numpy_helper.from_array(np.array(weights.shape), "shape"))
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [1, given, 10, 10])],
                              [info("y", TensorProto.FLOAT, [1, made, 10, 10])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    inputs = {"x": reals(1, given, 10, 10)}
    flat = constants["w"].astype(np.float64)
    flat = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + 1e-5)
    flat = (flat * constants["gain"].reshape(-1, 1)).reshape(weights.shape)
    padded = np.pad(inputs["x"].astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded[0], (3, 3), axis=(1, 2))
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    assert relative_l2(got.outputs["y"][0], np.einsum("chwij,ocij->ohw", windows, flat)) <= 1e-3
    text = subprocess.run([millrace, "compile", tmp_path / "model.onnx", "--precision", "fp16", "--to", "spatial", "-o", "-"],
                          capture_output=True, text=True, check=True).stdout
    names = re.findall(r'spatial\.kernel "([^"]*)"', text)
    assert names and all(name.startswith("Conv_") for name in names), names
