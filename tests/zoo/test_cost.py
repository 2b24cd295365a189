# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the zoo says that a model costs at least is what can be counted by hand."""
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/zoo", "models/recipes")]
import cost  # noqa: E402
from graph import Graph, save  # noqa: E402
from quantize import quantize  # noqa: E402
from small import conv, gemm  # noqa: E402


def costs(model, tmp_path, precision="fp16"):
    save(model, tmp_path / "model.onnx")
    found, values = cost.values_of(tmp_path / "model.onnx")
    return cost.dense_bytes(found, values), cost.mxm_bound(found, values, precision)


@pytest.mark.parametrize("precision, options, cycles", [
    # 100 pixels, each a vector for each of two tiles of 160 channels; two of them enter in a cycle.
    ("fp16", dict(c=320, h=10, w=10, filters=320, kernel=1), 100),
    ("int8", dict(c=320, h=10, w=10, filters=320, kernel=1), 25),
    # Two pixels of 80 channels share a vector, and four of 80 filters: 5 x 5 blocks of 2 x 2 pixels, two vectors each.
    ("fp16", dict(c=80, h=10, w=10, filters=80, kernel=1), 25),
    # No product where each channel is filtered alone.
    ("fp16", dict(c=40, h=10, w=10, filters=40, kernel=3, group=40), 0),
    # Four groups of 40 channels side by side are one product of 160: a vector for each pixel.
    ("fp16", dict(c=160, h=10, w=10, filters=160, kernel=1, group=4), 50),
    # Windows of an image, written by the host: four rows of weights, five pixels a vector.
    ("fp16", dict(c=3, h=20, w=20, filters=64, kernel=3), 160),
    ("int8", dict(c=3, h=20, w=20, filters=65, kernel=3), 200),
])
def test_cycles_of_a_convolution(tmp_path, precision, options, cycles):
    assert costs(conv(**options), tmp_path, precision)[1] == cycles


def test_blocks_that_drift_touch_a_fraction_more():
    assert cost.touched(read=1, written=1, stride=1, window=3) == 3
    assert cost.touched(read=2, written=2, stride=1, window=3) == 2
    assert cost.touched(read=2, written=1, stride=1, window=2) == 1.5


def test_cycles_of_a_product(tmp_path):
    assert costs(gemm(m=64, k=320, n=321), tmp_path)[1] == 64 * 2 * 2 / 2


def test_dense_bytes_of_a_residual_block(tmp_path):
    """The input stays until the sum; the ReLU writes over the convolution's result, and the sum over an operand."""
    g = Graph("block")
    x = g.input("x", [1, 8, 4, 4])
    y = g.add("Relu", g.add("Conv", x, g.normal((8, 8, 1, 1), 1.0), g.normal((8,), 1.0)))
    y = g.add("Conv", y, g.normal((8, 8, 3, 3), 1.0), pads=[1] * 4)
    g.output(g.add("Add", x, y, name="y"), [1, 8, 4, 4])
    dense, _ = costs(g.model(), tmp_path)
    value = 8 * 16 * 2
    assert (dense.weights, dense.activations, dense.unknown) == (2 * (64 + 8 + 576), 3 * value, [])


def test_quantised_values_take_a_byte(tmp_path):
    float_model = conv(c=8, h=4, w=4, filters=8, kernel=1)
    dense, _ = costs(quantize(float_model), tmp_path)
    assert dense.weights >= 8 * 8 + 4 * 8  # int8 weights, int32 bias
    assert dense.weights < costs(float_model, tmp_path)[0].weights
    assert dense.activations == 2 * 8 * 16  # integers of the input and of the result, whoever makes them


def test_extents_found_by_running_are_those_inferred(tmp_path):
    model = conv()
    save(model, tmp_path / "model.onnx")
    found, values = cost.values_of(tmp_path / "model.onnx")
    ran = cost.values_by_running(found, tmp_path / "model.onnx", {"x": np.zeros((1, 16, 14, 14), np.float32)})
    assert ran["y"] == values["y"]
