# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantised models as they come: zero points known at run time, what ONNX Runtime quantises in its several forms, weights that
a model quantises itself, and weights of 8 bits multiplied by reals: on the grid, integers exact."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from families import FAMILIES
from oracle import relative_l2, run, run_millrace, save_model
from quantize import quantize
from small import convnet

node = helper.make_node


def model_of(nodes, inputs, constants, output="y", opset=18):
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def numbers(draw, kind, *shape):
    low, high = (-128, 128) if kind == "int8" else (0, 256)
    return draw.integers(low, high, shape).astype(kind)


def assert_exact(millrace, folder, machine, model, inputs):
    got = run_millrace(millrace, save_model(model, folder), machine, None, inputs, folder)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    # ONNX Runtime's own product of uint8 and int8 saturates at 16 bits on processors without VNNI
    np.testing.assert_array_equal(got.outputs["y"], ReferenceEvaluator(model).run(None, inputs)[0])


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4", "tsp-small"])
@pytest.mark.parametrize("a, w", [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("is_constant", [True, False])
def test_matmul_integer_is_exact(millrace, tmp_path, machine, a, w, is_constant):
    draw = np.random.default_rng(3)
    for rows, lanes, columns, zeros in ((5, 40, 33, "all"), (1, 700, 9, "columns"), (12, 96, 64, "a"), (7, 31, 5, "none")):
        inputs = {"x": numbers(draw, a, 2, rows, lanes)}
        constants = {"w": numbers(draw, w, lanes, columns)}
        names = ["x", "w"]
        if zeros != "none":
            (constants if is_constant else inputs)["za"] = np.array(numbers(draw, a))
            names.append("za")
        if zeros in ("all", "columns"):
            # 255 - 0 takes three parts of 8 bits
            constants["zw"] = np.array(numbers(draw, w)) if zeros == "all" else np.resize(np.array([0, 255, 7], np.uint8), columns).astype(w)
            names.append("zw")
        assert_exact(millrace, tmp_path, machine, model_of([node("MatMulInteger", names, ["y"])], inputs, constants), inputs)


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("attributes", [
    {}, {"pads": [1, 2, 0, 1]}, {"pads": [1] * 4, "strides": [2, 2]}, {"pads": [2] * 4, "dilations": [2, 2]}, {"group": 2, "pads": [1] * 4},
    {"group": 6, "pads": [1] * 4}])
def test_conv_integer_is_exact(millrace, tmp_path, attributes, is_constant):
    draw = np.random.default_rng(4)
    group = attributes.get("group", 1)
    inputs = {"x": numbers(draw, "uint8", 1, 6, 9, 11)}
    constants = {"w": numbers(draw, "uint8", 6 if group == 6 else 12, 6 // group, 3, 3), "zw": np.uint8(120)}
    (constants if is_constant else inputs)["zx"] = np.array(130, np.uint8)
    model = model_of([node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], **attributes)], inputs, constants)
    assert_exact(millrace, tmp_path, "tsp-v1", model, inputs)


def layers(kind):
    """Two layers with a residual sum."""
    draw = np.random.default_rng(5)
    weights = lambda *shape: (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    if kind == "Conv":
        inputs = {"x": draw.standard_normal((1, 16, 12, 12)).astype(np.float32)}
        constants = {"w1": weights(24, 16, 3, 3), "w2": weights(16, 24, 1, 1), "b1": weights(24, 1)[:, 0], "b2": weights(16, 1)[:, 0]}
        nodes = [node("Conv", ["x", "w1", "b1"], ["h"], pads=[1] * 4), node("Relu", ["h"], ["r"]), node("Conv", ["r", "w2", "b2"], ["s"])]
    else:
        inputs = {"x": draw.standard_normal((1, 20, 64)).astype(np.float32)}
        constants = {"w1": weights(96, 64).T.copy(), "w2": weights(64, 96).T.copy(), "b1": weights(96, 1)[:, 0], "b2": weights(64, 1)[:, 0]}
        nodes = [node("MatMul", ["x", "w1"], ["m"]), node("Add", ["m", "b1"], ["h"]), node("Relu", ["h"], ["r"]),
                 node("MatMul", ["r", "w2"], ["n"]), node("Add", ["n", "b2"], ["s"])]
    return model_of([*nodes, node("Add", ["s", "x"], ["y"])], inputs, constants, opset=17), inputs


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
def test_models_quantised_dynamically(millrace, tmp_path, kind, weights, machine):
    model, inputs = layers(kind)
    quantised = tmp_path / "quantised.onnx"
    quantize_dynamic(save_model(model, tmp_path), quantised, weight_type=weights)
    got = run_millrace(millrace, quantised, machine, None, inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert all(name.startswith("x_") for name in got.report["host_ops"])  # the input, by its own range
    assert got.report["macs_on_grid"] == got.report["macs_total"]
    assert relative_l2(got.outputs["y"], run(onnx.load(quantised), inputs)["y"]) < 5e-3


def test_the_precision_is_the_models(millrace, tmp_path):
    """A model that quantises by constant scales runs in int8 unless told otherwise, and with reals, too, without the host."""
    model = convnet()
    inputs = {model.graph.input[0].name: np.random.default_rng(6).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]).astype(np.float32)}
    quantised = quantize(model)
    output = model.graph.output[0].name
    for given, precision, wanted in ((model, None, "fp16"), (quantised, None, "int8"), (quantised, "auto", "int8"), (quantised, "fp16", "fp16"),
                                     (quantised, "bf16", "bf16")):
        got = run_millrace(millrace, save_model(given, tmp_path), "tsp-v1", precision, inputs, tmp_path)
        assert got.report["precision"] == wanted
        assert got.report["host_ops"] == []
        assert relative_l2(got.outputs[output], run(given, inputs)[output]) < (2e-2 if wanted == "bf16" else 1e-2)


def test_weights_of_8_bits_are_multiplied_by_reals(millrace, tmp_path):
    draw = np.random.default_rng(7)
    inputs = {"x": draw.standard_normal((1, 16, 10, 10)).astype(np.float32)}
    constants = {"w": numbers(draw, "int8", 32, 16, 3, 3), "s": (draw.random(32) * 0.002 + 0.001).astype(np.float32), "z": np.zeros(32, np.int8)}
    model = model_of([node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0), node("Conv", ["x", "d"], ["y"], pads=[1] * 4)], inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    assert (got.report["precision"], got.report["host_ops"]) == ("fp16", [])
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weights, activations", [("QInt8", "QInt8"), ("QInt8", "QUInt8"), ("QUInt8", "QUInt8"), ("QInt8", "QInt16"), ("QInt8", "QUInt16")])
def test_static_forms_of_onnxruntime(millrace, tmp_path, weights, activations, per_channel, form):
    """Weights of uint8 have zero points, which take sums of several products; activations of 16 bits are reals."""
    if "16" in activations and form == "QOperator":
        pytest.skip("ONNX Runtime has no such operators")
    model = convnet()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    name, output = model.graph.input[0].name, model.graph.output[0].name

    class Feeds(CalibrationDataReader):
        def __init__(self):
            self.rest = iter([{name: np.random.default_rng(i).standard_normal(shape).astype(np.float32)} for i in range(2)])

        def get_next(self):
            return next(self.rest, None)

    quantised = tmp_path / "quantised.onnx"
    quantize_static(save_model(model, tmp_path), quantised, Feeds(), quant_format=QuantFormat[form], per_channel=per_channel,
                    weight_type=QuantType[weights], activation_type=QuantType[activations])
    inputs = {name: np.random.default_rng(8).standard_normal(shape).astype(np.float32)}
    got = run_millrace(millrace, quantised, "tsp-v1", None, inputs, tmp_path, ["--exact-qdq", "--check=reference"])
    assert got.report["precision"] == ("fp16" if "16" in activations else "int8")
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs[output], run(model, inputs)[output]) < 2e-2


def scheme(tag, scale, zero):
    return {tag + "s": np.asarray(scale, np.float32), tag + "z": np.asarray(zero, np.int8)}


def rounded(value, tag, made, **attributes):
    return [node("QuantizeLinear", [value, tag + "s", tag + "z"], [made + "q"], **attributes),
            node("DequantizeLinear", [made + "q", tag + "s", tag + "z"], [made], **attributes)]


@pytest.mark.parametrize("most", [3, 600])  # elements of a filter: 600 takes what is folded beyond 4,096 elements
def test_weights_that_the_model_quantises_itself(millrace, tmp_path, most):
    """As training with quantisation leaves them: reals, then QuantizeLinear and DequantizeLinear."""
    draw = np.random.default_rng(9)
    inputs = {"x": draw.standard_normal((1, most, 8, 8)).astype(np.float32)}
    w = (draw.standard_normal((16, most, 3, 3)) * 0.1).astype(np.float32)
    constants = {"w": w, **scheme("x", 0.03, 5), **scheme("w", np.abs(w).max((1, 2, 3)) / 127, np.zeros(16))}
    model = model_of([*rounded("x", "x", "d"), *rounded("w", "w", "v", axis=0), node("Conv", ["d", "v"], ["y"], pads=[1] * 4)], inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    assert (got.report["precision"], got.report["host_ops"]) == ("int8", [])
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 1e-5


def test_a_mean_of_what_has_no_product_of_integers(millrace, tmp_path):
    """Weights known at run time with a zero point: tried within the kernel of the mean, and left."""
    draw = np.random.default_rng(10)
    inputs = {"x": draw.standard_normal((1, 16, 8, 8)).astype(np.float32), "w": (draw.standard_normal((24, 16, 1, 1)) * 0.2).astype(np.float32),
              "r": draw.standard_normal((1, 24, 8, 8)).astype(np.float32)}
    constants = {"g": np.float32(0.7), **scheme("x", 0.03, 5), **scheme("w", 0.006, 3), **scheme("c", 0.05, 1), **scheme("a", 0.05, -2),
                 **scheme("m", 0.02, 0), **scheme("r", 0.03, 0)}
    model = model_of(
        [*rounded("x", "x", "xd"), *rounded("w", "w", "wd"), *rounded("r", "r", "rd"), node("Conv", ["xd", "wd"], ["c"]), *rounded("c", "c", "cd"),
         node("Mul", ["cd", "g"], ["gc"]), *rounded("gc", "c", "gd"), node("Add", ["gd", "rd"], ["a"]), *rounded("a", "a", "ad"),
         node("ReduceMean", ["ad"], ["m"], axes=[2, 3]), *rounded("m", "m", "y")], inputs, constants, opset=17)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path, ["--exact-qdq"])
    want = run(model, inputs)["y"]
    assert np.abs(got.outputs["y"] - want).max() <= 0.0201  # a step


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("varies", [False, True])
def test_a_normalisation_of_a_whole_image(millrace, tmp_path, varies, machine):
    """Rounded in the shape in which all of an image is one row: stored as an image all the same."""
    draw = np.random.default_rng(11)
    pixels = 24 * 12 * 12
    inputs = {"x": draw.standard_normal((1, 16, 12, 12)).astype(np.float32)}
    constants = {"w": (draw.standard_normal((24, 16, 1, 1)) * 0.2).astype(np.float32), **scheme("x", 0.03, 5), **scheme("w", 0.006, 0),
                 **scheme("c", 0.04, 1), **scheme("n", 0.04, -2), **scheme("p", 0.03, 0),
                 "row": np.array([1, 1, pixels], np.int64), "image": np.array([1, 24, 12, 12], np.int64),
                 "g": (1 + draw.random(pixels if varies else 1) / 4).astype(np.float32),
                 "b": (draw.random(pixels if varies else 1) / 8).astype(np.float32), "m": (1 + draw.random((24, 1, 1))).astype(np.float32)}
    norm = (node("LayerNormalization", ["rd", "g", "b"], ["n"], axis=2, epsilon=1e-5) if varies
            else node("InstanceNormalization", ["rd", "g", "b"], ["n"], epsilon=1e-5))
    model = model_of(
        [*rounded("x", "x", "xd"), *rounded("w", "w", "wd"), node("Conv", ["xd", "wd"], ["c"]), *rounded("c", "c", "cd"),
         node("Reshape", ["cd", "row"], ["r"]), *rounded("r", "c", "rd"), norm, *rounded("n", "n", "nd"),
         node("Reshape", ["nd", "image"], ["i"]), *rounded("i", "n", "id"), node("Mul", ["id", "m"], ["p"]), *rounded("p", "p", "y")],
        inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert (got.report["precision"], got.report["host_ops"]) == ("int8", [])
    assert got.report["measured_cycles"] < 6_000  # a row for each element takes more
    wrong = np.abs(got.outputs["y"] - run(model, inputs)["y"])
    assert (wrong > 0.02).mean() < 2e-3 and wrong.mean() < 1e-3  # ties in sums of another order


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4", "lp30"])
def test_what_a_host_step_gives_is_written_as_windows(millrace, tmp_path, machine):
    """An image that the host quantises by its own range, read in windows: as it writes an input, zero points around it and all."""
    draw = np.random.default_rng(12)
    inputs = {"x": draw.standard_normal((1, 3, 32, 40)).astype(np.float32)}
    constants = {"w": numbers(draw, "int8", 16, 3, 7, 7), "zw": np.int8(3)}
    model = model_of([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("ConvInteger", ["q", "w", "z", "zw"], ["y"], strides=[2, 2], pads=[3] * 4)],
                     inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert set(got.report["host_ops"]) == {"DynamicQuantizeLinear_0"}
    assert any(line.startswith("DynamicQuantizeLinear_0: ") and " a row " in line for line in got.report["packed"]), got.report["packed"]
    np.testing.assert_array_equal(got.outputs["y"], ReferenceEvaluator(model).run(None, inputs)[0])


def test_quantising_a_reshaped_tensor_leaves_the_reshape_to_its_reader(millrace, tmp_path):
    """Groups of channels are reshaped, quantised, normalised: sums over them must find the channels. It took 13 times the cycles."""
    cycles = []
    for precision, model in (("fp16", FAMILIES["diffusion"]()), ("int8", quantize(FAMILIES["diffusion"]()))):
        cycles.append(run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", precision, {}, tmp_path, ["--cycles-only"])
                      .report["predicted_cycles"])
    assert cycles[1] < 1.5 * cycles[0]


@pytest.mark.parametrize("precision", ["int8", "fp16"])
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_part_of_the_channels_is_pooled_on_the_grid(millrace, tmp_path, precision, op):
    """What is made of some of the channels keeps channels along the lanes (Res2Net pools the last of eight parts)."""
    draw = np.random.default_rng(4)
    inputs = {"x": draw.standard_normal((1, 16, 20, 20)).astype(np.float32)}
    w = (draw.standard_normal((112, 16, 1, 1)) * 0.2).astype(np.float32)
    constants = {"w": w, **scheme("x", 0.03, 5), **scheme("w", np.abs(w).max() / 127, 0), **scheme("r", 0.02, -128),
                 "from": np.array([98]), "to": np.array([112]), "axis": np.array([1])}
    pool = node(op, ["sd"], ["a"], kernel_shape=[3, 3], pads=[1] * 4, **({"count_include_pad": 1} if op[0] == "A" else {}))
    model = model_of([*rounded("x", "x", "d"), *rounded("w", "w", "v"), node("Conv", ["d", "v"], ["c"]), node("Relu", ["c"], ["r"]), *rounded("r", "r", "rd"),
                      node("Slice", ["rd", "from", "to", "axis"], ["s"]), *rounded("s", "r", "sd"), pool, *rounded("a", "r", "y")], inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", precision, inputs, tmp_path)
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 1.5e-2


@pytest.mark.parametrize("columns", [16, 17])
@pytest.mark.parametrize("zeros", [(-128, 0), (-128, -90)])
def test_activations_with_zero_points_are_multiplied_on_the_grid(millrace, tmp_path, columns, zeros):
    """Linear attention of quantised models: rectified queries times a product of keys and values, padded by a quantised constant."""
    draw = np.random.default_rng(6)
    inputs = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in
              {"x": (1, 8, 64, 16), "k": (1, 8, 16, 64), "v": (1, 8, 64, columns - 1)}.items()}
    constants = {**scheme("a", 0.02, zeros[0]), **scheme("b", 0.4, zeros[1]), **scheme("z", 0.03, 5), **scheme("m", 2.0, 5),
                 "pads": np.array([0] * 7 + [1]), "byte": np.int8(38)}
    model = model_of(
        [*rounded("x", "z", "xd"), node("Relu", ["xd"], ["r"]), *rounded("r", "a", "q"), *rounded("k", "z", "kd"), *rounded("v", "z", "vd"),
         node("DequantizeLinear", ["byte", "zs", "zz"], ["one"]), node("Pad", ["vd", "pads", "one"], ["p"]), *rounded("p", "z", "pd"),
         node("MatMul", ["kd", "pd"], ["kv"]), *rounded("kv", "b", "kvd"), node("MatMul", ["q", "kvd"], ["o"]), *rounded("o", "m", "y")], inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path)
    assert got.report["host_ops"] == []
    want = run(model, inputs)["y"]
    assert got.report["macs_on_grid"] == got.report["macs_total"]
    assert np.abs(got.outputs["y"] - want).max() <= 2 * 2.0001  # steps: of the sum, and what a step of kv moves
    assert relative_l2(got.outputs["y"], want) < 3e-2


@pytest.mark.parametrize("tall, wide", ((7, 7), (3, 5), (6, 1), (1, 4)))
def test_a_small_image_that_is_flattened_before_it_is_quantised(millrace, tmp_path, tall, wide):
    """A product takes all of it: in rows of channels, as the image lies, a pixel or more to a tile of weights. Of rows of pixels
    there would be as many tiles as channels."""
    draw, channels, columns = np.random.default_rng(5), 64, 96
    x = draw.normal(0, 1, (1, 16, tall, wide)).astype(np.float32)
    constants = {"w": draw.integers(-127, 128, (channels, 16, 1, 1)).astype(np.int8),
                 "v": draw.integers(-127, 128, (channels * tall * wide, columns)).astype(np.int8),
                 # no sum lies half way between two numbers of this scale, where the last bit of a product would decide
                 "sx": np.float32(0.02), "sw": np.float32(0.005), "sv": np.float32(0.01), "sh": np.float32(0.0314159),
                 "half": np.float32(0.5), "zero": np.int8(0)}
    nodes = [node("QuantizeLinear", ["x", "sx", "zero"], ["qx"]), node("DequantizeLinear", ["qx", "sx", "zero"], ["dx"]),
             node("DequantizeLinear", ["w", "sw", "zero"], ["dw"]), node("Conv", ["dx", "dw"], ["c"]),
             node("Mul", ["c", "half"], ["h"]), node("Flatten", ["h"], ["flat"]),
             node("QuantizeLinear", ["flat", "sh", "zero"], ["qh"]), node("DequantizeLinear", ["qh", "sh", "zero"], ["dh"]),
             node("DequantizeLinear", ["v", "sv", "zero"], ["dv"]), node("MatMul", ["dh", "dv"], ["y"])]
    model = model_of(nodes, {"x": x}, constants, opset=19)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", {"x": x}, tmp_path, ["--exact-qdq"])
    assert got.report["host_ops"] == []
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], ReferenceEvaluator(model).run(None, {"x": x})[0]) < 1e-3
    product, = (kernel for kernel in got.report["kernels"] if kernel["macs"] == channels * tall * wide * columns)
    assert product["mxm_tiles_installed"] <= tall * wide
