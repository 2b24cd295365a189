# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over windows whose queries and keys are divided by their norms, at least 1e-12: 16 bits would round that to 0."""
import re
import subprocess

import numpy as np
import pytest

from families import Net
from oracle import judge_on_grid, run, save_model


def normalised(g: Net, x: str, least: float) -> str:
    return g.add("Div", x, g.add("Max", g.add("ReduceL2", x, axes=[-1]), g.constant(np.float32(least))))


def attention(draw: np.random.Generator, seed: int) -> tuple[object, dict]:
    """A drawn attention over windows with a scale for each head; some tokens are zero."""
    depth, heads = int(draw.choice([8, 16, 32])), int(draw.integers(1, 13))
    windows, places = int(draw.choice([1, 4, 9])), int(draw.choice([4, 16, 49, 64]))
    width = depth * heads
    g = Net(f"cosine attention {seed}", seed)
    x = g.input("x", [windows, places, 24])
    part = lambda y: g.transpose(g.reshape(y, windows, places, heads, depth), 0, 2, 1, 3)
    q, k, v = (part(g.linear(x, 24, width, bias=False)) for _ in range(3))
    least = float(draw.choice([1e-12, 1e-6, 1e-9]))
    scores = g.add("MatMul", normalised(g, q, least), g.transpose(normalised(g, k, least), 0, 1, 3, 2))
    scores = g.add("Mul", scores, g.uniform((heads, 1, 1), 5.0, 15.0))
    scores = g.add("Add", scores, g.normal((1, heads, places, places), 0.5))
    y = g.transpose(g.add("MatMul", g.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
    g.output(g.linear(g.reshape(y, windows, places, width), width, 24), [windows, places, 24])
    values = draw.standard_normal((windows, places, 24)).astype(np.float32)
    values[:, draw.integers(places)] = 0
    return g.model(), {"x": values}


@pytest.mark.parametrize("seed, machine", [(seed, "tsp-v1") for seed in range(8)] +
                         [(seed, machine) for machine in ("tsp-small", "lp30", "mesh-4x4") for seed in (2, 5)])
def test_values_are_onnxruntimes(millrace, tmp_path, seed, machine):
    judge_on_grid(millrace, *attention(np.random.default_rng(seed), seed), tmp_path, machine)


def test_divisors_that_are_stored_do_not_vanish(millrace, tmp_path):
    """Norms of columns lie in memory before they are divided by: those of zero columns as 1e-12, not as 0."""
    g = Net("stored divisors", 5)
    x = g.add("Relu", g.linear(g.input("x", [6, 24]), 24, 24, bias=False))
    norms = g.add("Max", g.add("ReduceL2", x, axes=[-1]), g.constant(np.float32(1e-12)))
    g.output(g.add("Div", g.add("MatMul", x, g.transpose(x, 1, 0)), g.transpose(norms, 1, 0)), [6, 6])
    g.output(g.add("Div", x, g.add("CumSum", norms, g.constant(np.int64(0)))), [6, 24])
    values = np.random.default_rng(5).standard_normal((6, 24)).astype(np.float32)
    values[[2, 4]] = 0
    assert all(np.isfinite(array).all() for array in run(g.model(), {"x": values}).values())
    judge_on_grid(millrace, g.model(), {"x": values}, tmp_path)


def test_divisors_that_are_multiplied_stay_on_the_grid(millrace, tmp_path):
    """Products take 16 bits: what they multiply is no wider for the sake of what else divides by it."""
    g = Net("multiplied divisors", 6)
    x = g.add("Add", g.relu(g.linear(g.input("x", [12, 24]), 24, 24)), g.constant(np.float32(1e-9)))
    total = g.add("ReduceSum", x, g.constant(np.int64([-1])))
    g.output(g.add("Div", g.linear(x, 24, 32), total), [12, 32])
    g.output(g.add("Softmax", g.add("Sqrt", x), axis=-1), [12, 24])
    judge_on_grid(millrace, g.model(), {"x": np.random.default_rng(6).standard_normal((12, 24)).astype(np.float32)}, tmp_path)


def test_heads_stay_side_by_side(millrace, tmp_path):
    """What follows a quotient of bounded values is bounded, so that in a second layer, too, four heads of 32 lanes lie in a
    vector: a sum over the lanes of one may meet the zeros of the others."""
    heads, windows, places, width = 12, 4, 64, 384
    g = Net("twelve heads", 1)
    x = g.add("Gather", g.normal((50, width), 1.0), g.input("ids", [windows, places], np.int64))
    for _ in range(2):
        q, k, v = (g.transpose(g.reshape(g.linear(x, width, width), windows, places, heads, 32), 0, 2, 1, 3) for _ in range(3))
        scores = g.add("MatMul", normalised(g, q, 1e-12), g.transpose(normalised(g, k, 1e-12), 0, 1, 3, 2))
        y = g.transpose(g.add("MatMul", g.add("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        x = g.linear(g.reshape(y, windows, places, width), width, width)
    g.output(g.add("Identity", x), [windows, places, width])
    text = subprocess.run([millrace, "compile", save_model(g.model(), tmp_path), "-m", "tsp-v1", "--to", "spatial", "-o", "-"],
                          check=True, capture_output=True, text=True).stdout
    shapes = re.findall(r'spatial.tensor intermediate "Div_?\d*" lanes 3 .*tensor<(\S+)xf16>', text, re.IGNORECASE)
    assert len(shapes) == 4 and all(shape.endswith("x128") for shape in shapes), shapes
