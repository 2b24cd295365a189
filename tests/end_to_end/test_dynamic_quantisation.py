# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of integers whose zero points are known at run time, models that ONNX Runtime quantised dynamically, and
weights of 8 bits multiplied by reals: on the grid, integers exact."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import QuantType, quantize_dynamic

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
