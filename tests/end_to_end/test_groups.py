# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of groups of channels: blocks in a matrix of zeros, which take no memory."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import probe
from oracle import cycles_on_grid, relative_l2, run_millrace, save_model

NUMBERS = np.random.default_rng(5)


def test_zeros_between_groups_do_not_make_a_model_too_large(millrace, tmp_path):
    """Two layers of 1,024 channels in groups of 32: 36 MiB as matrices, 1.1 MiB without their zeros; tsp-small has 22 MiB."""
    channels, each, extent, narrow = 1024, 32, 4, 32
    assert 2 * 9 * channels * channels * 2 > 1.5 * 22 * 2**20
    nodes, weights = [], []
    widths = [(channels, narrow, 1), (channels, each, 3), (channels, each, 3), (narrow, channels, 1)]  # filters, lanes, kernel
    for n, (filters, lanes, kernel) in enumerate(widths):
        values = NUMBERS.normal(0, 1 / (kernel * lanes**0.5), (filters, lanes, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{n}"))
        nodes.append(helper.make_node("Conv", [f"x{n}", f"w{n}"], [f"c{n}"], group=channels // each if kernel > 1 else 1,
                                      pads=[kernel // 2] * 4))
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"x{n + 1}"]))
    shape = [1, narrow, extent, extent]
    graph = helper.make_graph(nodes, "groups", [helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("x4", onnx.TensorProto.FLOAT, shape)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    inputs = {"x0": NUMBERS.normal(0, 1, shape).astype(np.float32)}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-small", "fp16", inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs["x4"], probe.run(model, inputs)["x4"]) < 2e-3


@pytest.mark.parametrize("extents", [(9,), (6, 7), (4, 5, 6)])
@pytest.mark.parametrize("channels, filters, group", [(24, 12, 3), (40, 80, 2)])
def test_groups_in_one_to_three_dimensions(millrace, tmp_path, extents, channels, filters, group):
    rank = len(extents)
    weights = NUMBERS.normal(0, 0.1, (filters, channels // group, *(3,) * rank)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], group=group, pads=[1] * 2 * rank, strides=[2] * rank)], "g",
                              [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, channels, *extents])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) > 0
