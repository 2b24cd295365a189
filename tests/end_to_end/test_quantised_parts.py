# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a quantised concatenation, each rounded by a scheme of its own and again by that of all, are made with both
roundings at once, wherever what reads the concatenation can take them one by one."""
import onnx
import pytest

import probe
from graph import Graph
from oracle import relative_l2, run_millrace, save_model
from quantize import quantize


def expanding(channels: int, size: int = 18) -> onnx.ModelProto:
    """Two convolutions of one tensor, rectified and concatenated, then a maximum of windows and a convolution."""
    graph = Graph("expanding", 3)
    x = graph.input("x", [1, 16, size, size])
    parts = []
    for kernel in (1, 3):
        weights = graph.normal([channels, 16, kernel, kernel], 0.1)
        part = graph.add("Conv", x, weights, graph.normal([channels], 0.1), kernel_shape=[kernel, kernel],
                         pads=[kernel // 2] * 4)
        parts.append(graph.add("Relu", part))
    both = graph.add("Concat", *parts, axis=1)
    pooled = graph.add("MaxPool", both, kernel_shape=[3, 3], strides=[2, 2])
    y = graph.add("Conv", pooled, graph.normal([24, 2 * channels, 1, 1], 0.1), kernel_shape=[1, 1])
    graph.output(y, [1, 24, (size - 3) // 2 + 1, (size - 3) // 2 + 1])
    return graph.model()


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("activations", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("channels", [
    64,   # five pixels of a part to a row
    192,  # a part of whole vectors, which lies across two of the concatenation's
])
def test_a_part_is_rounded_where_it_is_made(millrace, tmp_path, channels, activations, flags):
    model = quantize(expanding(channels), activations)
    schemes = {node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    assert len(schemes) >= 5  # of the input, each part, the concatenation, the output
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    alone = {kernel["name"].split(".")[0] for kernel in got.report["kernels"] if not kernel["mxm_vectors"]}
    assert all(name.startswith("maxpool") for name in alone), alone  # no map beside the maxima
    for name, value in probe.run(model, inputs).items():
        assert relative_l2(got.outputs[name], value) <= 5e-3, name
