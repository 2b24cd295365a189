# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A quantised network is integer arithmetic: near ONNX Runtime, and layer by layer equal to it."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from compare_layers import compare_layers
from fixtures import FOLDER
from macs import count_macs
from oracle import largest_unit_difference, relative_l2, run_millrace, save_model
from quantize import quantize
from small import convnet


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_a_quantised_network_stays_near_onnx_runtime(millrace, tmp_path, flags):
    model = onnx.load(FOLDER / "convnet_int8.onnx")
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, FOLDER / "convnet_int8.onnx", "tsp-v1", "int8", inputs, tmp_path,
                       flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["macs_on_grid"] == count_macs(model)["macs_total"]
    for name, value in probe.run(model, inputs).items():
        assert np.abs(got.outputs[name] - value).max() <= 0.05, name


@pytest.mark.parametrize("activations", ["symmetric", "asymmetric"])
def test_each_layer_alone_equals_onnx_runtime_within_a_unit(millrace, activations):
    model = quantize(convnet(seed=1), activations)
    result = compare_layers(millrace, model, "tsp-v1", ["--exact-qdq"])
    assert result.failed == {} and result.host_ops == {}
    assert result.integer_layers >= 12 and result.elements > 10_000
    assert result.largest_unit_difference <= 1
    assert result.differing_elements <= result.elements // 100
    assert result.holds()


@pytest.mark.parametrize("width", [200, 250, 1000, 1001])
def test_a_long_softmax_of_int8_input(millrace, tmp_path, width):
    """Its maximum is met in parts, where the lane tiles of the input are cut, too, and what comes
    after the maximum is read once, not once per element."""
    scale, zero = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1]), helper.make_tensor(
        "zero", TensorProto.INT8, [], [0])
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
         helper.make_node("Softmax", ["f"], ["y"])], "softmax",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width])], [scale, zero])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, [])
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    for name, value in probe.run(model, inputs).items():
        assert relative_l2(got.outputs[name], value) <= 2e-3, name


@pytest.mark.parametrize("zero", [0, 5, -128])
@pytest.mark.parametrize("counts_padding", [0, 1])
def test_an_average_over_padding_is_scaled_once(millrace, tmp_path, zero, counts_padding):
    """Its terms are read from memory, dequantised already, as padding is no integer of theirs."""
    constants = [numpy_helper.from_array(np.array(value, kind), name) for name, value, kind in
                 [("scale", 0.02, np.float32), ("zero", zero, np.int8), ("smaller", 0.011, np.float32)]]
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
         helper.make_node("AveragePool", ["f"], ["a"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=counts_padding),
         helper.make_node("QuantizeLinear", ["a", "smaller", "zero"], ["y"])], "average",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 8, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 8, 6, 6])], constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, [])
    assert largest_unit_difference(got.outputs["y"], probe.run(model, inputs)["y"]) <= 1
