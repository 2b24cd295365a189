# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer normalisation of rows whose mean is many deviations: no more is lost than rounding each element to 16 bits loses, and
nothing where there is no rounding."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

node = helper.make_node


def error_of(millrace, tmp_path, width, nodes, inputs, constants, flags=()):
    draw = np.random.default_rng(width)
    constants = {"gain": draw.uniform(0.8, 1.2, width), "bias": draw.standard_normal(width) / 10, **constants}
    shape = next(iter(inputs.values())).shape if inputs else [1, 32, 128]
    graph = helper.make_graph([*nodes, node("LayerNormalization", ["q" if nodes else "x", "gain", "bias"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = inputs or probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, list(flags))
    assert got.report["host_ops"] == []
    return relative_l2(got.outputs["y"], probe.run(model, inputs)["y"])


@pytest.mark.parametrize("width", [64, 768])
@pytest.mark.parametrize("mean", [0, 10, 100, 300])
def test_behind_a_product(millrace, tmp_path, width, mean):
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "offset"], ["q"])]
    constants = {"w": np.random.default_rng(1).standard_normal((128, width)) / 128**0.5, "offset": np.full(width, mean)}
    # Sixteen bits of a number of the mean's size are half a unit of 2^-11 of it off, uniformly.
    rounding = mean * 2**-11 / 12**0.5 if mean else 0
    assert error_of(millrace, tmp_path, width, nodes, {}, constants) < 2e-3 + 2 * rounding
    assert error_of(millrace, tmp_path, width, nodes, {}, constants, ["--keep-fp32", "q"]) < 2e-3


@pytest.mark.parametrize("width", [64, 768])
def test_of_an_input_that_16_bits_hold(millrace, tmp_path, width):
    draw = np.random.default_rng(2)
    noisy = draw.normal(1000, 1, (1, 32, width)).astype(np.float16).astype(np.float32)
    in_turn = np.full((1, 32, width), 1000, np.float32)
    in_turn[..., ::2] = 1001
    for x in (noisy, in_turn):
        assert error_of(millrace, tmp_path, width, [], {"x": x}, {}) < 1e-3
