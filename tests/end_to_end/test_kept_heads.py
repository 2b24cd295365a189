# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention whose queries and keys are normalised by head and turned by their positions: heads stay side by side through that."""
import numpy as np
import pytest

from families import Net, rotated
from oracle import relative_l2, run, run_millrace, save_model


def attention(draw: np.random.Generator, seed: int) -> tuple[object, dict]:
    """A drawn attention behind an embedding, perhaps with keys as a result, and its inputs."""
    depth = int(draw.choice([8, 16, 24, 32, 64]))
    groups = int(draw.integers(1, 7))
    heads = groups * int(draw.choice([1, 1, 1, 2, 3]))
    count = int(draw.choice([1, 7, 24, 64, 96]))
    width = 48
    g = Net(f"kept heads {seed}", seed)
    ids = g.input("ids", [1, count], np.int64)
    x = g.rms_norm(g.add("Gather", g.normal((50, width), 1.0), ids), width)
    norm = [lambda y: y, lambda y: g.rms_norm(y, depth), lambda y: g.layer_norm(y, depth)][draw.integers(3)]
    turn = [lambda y: y, lambda y: rotated(g, y, 3, count, depth)][min(1, draw.integers(4))]
    part = lambda number: g.heads(g.linear(x, width, number * depth, bias=bool(draw.integers(2))), count, number, depth)
    q, k, v = turn(norm(part(heads))), turn(norm(part(groups))), part(groups)
    g.output(g.add("Identity", k, name="keys"), [1, groups, count, depth]) if draw.integers(2) else None
    wide = []
    for y in (k, v):
        y = g.reshape(y, 1, groups, 1, count, depth)
        y = g.add("Expand", y, g.constant(np.int64([1, groups, heads // groups, count, depth])))
        wide.append(g.reshape(y, 1, heads, count, depth))
    y = g.joined(g.attend(q, *wide, depth), count, heads * depth)
    g.output(g.linear(y, heads * depth, width), [1, count, width])
    return g.model(), {"ids": draw.integers(0, 50, (1, count)).astype(np.int64)}


@pytest.mark.parametrize("seed, machine", [(seed, "tsp-v1") for seed in range(9)] +
                         [(seed, machine) for machine in ("tsp-small", "lp30", "mesh-4x4") for seed in (5, 8)])
def test_values_are_onnxruntimes(millrace, tmp_path, seed, machine):
    model, inputs = attention(np.random.default_rng(seed), seed)
    wanted = run(model, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    for name, array in wanted.items():
        assert relative_l2(got.outputs[name], array) < 3e-3, name
