# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An image at places that the model computes: gathered by the host, the rest on the grid."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

node = helper.make_node


@pytest.mark.parametrize("mode, bound", [("linear", 1.5e-2), ("nearest", 0.2)])  # a place that is rounded may have another nearest
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligns", [0, 1])
def test_a_batch_between_convolutions(millrace, tmp_path, mode, bound, padding, aligns):
    draw = np.random.default_rng(5)
    constants = {"w0": draw.standard_normal((16, 4, 3, 3)) / 6, "w1": draw.standard_normal((8, 16, 1, 1)) / 4,
                 "turn": draw.standard_normal((6, 2)) * 0.6}
    nodes = [node("Conv", ["x", "w0"], ["p"], pads=[1] * 4), node("MatMul", ["g", "turn"], ["places"]),
             node("GridSample", ["p", "places"], ["q"], "sampled", mode=mode, padding_mode=padding, align_corners=aligns),
             node("Conv", ["q", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 12]),
                                           helper.make_tensor_value_info("g", TensorProto.FLOAT, [2, 7, 5, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, [])
    assert set(got.report["host_ops"]) == {"sampled"}
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < bound
