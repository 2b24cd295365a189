# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/macs.py counts unpadded multiply-accumulates; the formulas stand beside the numbers."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import probe
from graph import Graph
from macs import count_macs
from resnet50 import resnet50


def test_resnet50_v1_5_has_4_089_184_256_macs():
    assert count_macs(resnet50())["macs_total"] == 4_089_184_256


def test_a_grouped_strided_convolution_counts_its_border_taps():
    g = Graph("conv")
    x = g.input("x", [2, 6, 9, 9])
    y = g.add("Conv", x, g.normal((4, 3, 3, 3), 1.0), group=2, strides=[2, 2], pads=[1, 1, 1, 1])
    g.output(y, [2, 4, 5, 5])
    assert count_macs(g.model())["macs_total"] == 2 * 5 * 5 * 4 * (6 // 2) * 3 * 3


def test_gemm_and_matmul_count_m_times_n_times_k_and_constants_fold():
    g = Graph("matmul")
    x = g.input("x", ["batch", 5, 7])
    folded = g.add("MatMul", g.normal((7, 4), 1.0), g.normal((4, 3), 1.0))
    y = g.add("MatMul", x, folded)
    z = g.add("Gemm", g.add("Reshape", y, g.constant(np.array([-1, 15]))),
              g.normal((2, 15), 1.0), transB=1)
    g.output(z, ["batch", 2])
    rows = count_macs(g.model(), {"batch": 3})["by_node"]
    assert [row["macs"] for row in rows] == [3 * 5 * 7 * 3, 3 * 15 * 2]


def contrib_attention(past: bool) -> onnx.ModelProto:
    g = Graph("attention")
    x, width = g.input("x", [1, "s", 32]), 32
    operands = [x, g.normal((width, 3 * width), 0.1), g.normal((3 * width,), 0.1)]
    if past:
        operands += ["", g.input("past", [2, 1, 4, "p", 8])]
    y, present = g.add("Attention", *operands, domain=probe.CONTRIB, outputs=2, num_heads=4,
                       unidirectional=1)
    g.output(g.add("MatMul", y, g.normal((width, 5), 1.0)), [1, "s", 5])
    g.output(present, [2, 1, 4, "total", 8])
    return g.model()


@pytest.mark.parametrize("length, past", [(6, 0), (1, 9)])
def test_contrib_attention_counts_projection_and_the_full_score_square(length, past):
    """The shape behind the contrib operator, which ONNX cannot infer, comes from ONNX Runtime."""
    counted = count_macs(contrib_attention(past=True), {"s": length, "p": past})["by_node"]
    projection = length * 32 * 96
    square = 2 * length * (length + past) * 32
    assert [row["macs"] for row in counted] == [projection + square, length * 32 * 5]


def test_a_missing_extent_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="input 'x' has no extent for 's'; give --dim s=n"):
        count_macs(contrib_attention(past=False))


def test_a_recurrent_operator_is_refused_not_left_out():
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="cell", hidden_size=2)
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph([lstm], "g", [value("x", [3, 1, 2])], [value("y", None)],
                              [helper.make_tensor(n, 1, [1, 8, 2], [0.0] * 16) for n in "wr"])
    with pytest.raises(ValueError, match="node 'cell' is a LSTM"):
        count_macs(helper.make_model(graph, ir_version=8))
