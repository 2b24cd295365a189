# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of reshapes, transpositions, padding and slices between products and normalisations: values as ONNX Runtime's, whatever
the rewritings of views make of them."""
import numpy as np
import pytest
from onnx import helper

from oracle import relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of

node = helper.make_node


class Views:
    """Nodes that show `name`, of `shape`, in other ways."""

    def __init__(self, draw, name, shape):
        self.draw, self.name, self.shape = draw, name, list(shape)
        self.nodes, self.constants = [], {}

    def call(self, op, constants=(), **attributes):
        names = []
        for value in constants:
            names.append(f"k{len(self.constants)}")
            self.constants[names[-1]] = np.asarray(value, np.int64)
        self.nodes.append(node(op, [self.name, *names], [f"v{len(self.nodes)}"], **attributes))
        self.name = f"v{len(self.nodes) - 1}"

    def reshape(self, shape):
        self.call("Reshape", [shape])
        self.shape = list(shape)

    def cut(self):
        """One dimension becomes two."""
        places = [(d, f) for d, extent in enumerate(self.shape) for f in (2, 3, 4) if extent % f == 0 and extent > f]
        if places:
            d, factor = places[self.draw.integers(len(places))]
            pair = [factor, self.shape[d] // factor]
            self.reshape(self.shape[:d] + (pair if self.draw.random() < 0.5 else pair[::-1]) + self.shape[d + 1:])

    def lengthen(self):
        """A dimension of one more."""
        d = int(self.draw.integers(len(self.shape) + 1))
        self.reshape(self.shape[:d] + [1] + self.shape[d:])

    def join(self):
        if len(self.shape) > 2:
            d = self.draw.integers(len(self.shape) - 1)
            self.reshape(self.shape[:d] + [self.shape[d] * self.shape[d + 1]] + self.shape[d + 2:])

    def move(self):
        order = [int(d) for d in self.draw.permutation(len(self.shape))]
        self.call("Transpose", perm=order)
        self.shape = [self.shape[d] for d in order]

    def pad(self):
        d = self.draw.integers(len(self.shape))
        low, high = (int(v) for v in self.draw.integers(0, 3, 2))
        amounts = [0] * 2 * len(self.shape)
        amounts[d], amounts[d + len(self.shape)] = low, high
        self.call("Pad", [amounts])
        self.shape[d] += low + high

    def slice(self):
        d = self.draw.integers(len(self.shape))
        if self.shape[d] > 3:
            begin = int(self.draw.integers(0, 2))
            self.call("Slice", [[begin], [self.shape[d] - 1], [d]])
            self.shape[d] -= begin + 1


@pytest.mark.parametrize("seed", range(24))
def test_chains_of_views(millrace, tmp_path, seed):
    draw = np.random.default_rng([23, seed])
    rows, lanes = int(draw.choice([4, 6, 12])), int(draw.choice([8, 12, 24, 36, 48]))
    views = Views(draw, "x", [rows, lanes])
    inputs = {"a": draw.standard_normal((rows, 16)).astype(np.float32)}
    kinds = [views.cut, views.cut, views.join, views.join, views.move, views.move, views.lengthen] + ([views.pad, views.slice] if seed % 3 else [])
    for _ in range(draw.integers(3, 8)):
        kinds[draw.integers(len(kinds))]()
    last = views.shape[-1]
    constants = {"w": draw.standard_normal((16, lanes)).astype(np.float32) / 4, **views.constants}
    nodes = [node("MatMul", ["a", "w"], ["x"]), *views.nodes]
    if seed % 4 == 0:
        constants |= {"g": draw.random(last).astype(np.float32) + 1, "s": draw.random(last).astype(np.float32)}
        nodes.append(node("LayerNormalization", [views.name, "g", "s"], ["y"], epsilon=1e-2))
    elif seed % 4 == 1:
        constants["m"] = draw.standard_normal((last, 20)).astype(np.float32) / 4
        nodes.append(node("MatMul", [views.name, "m"], ["y"]))
    elif seed % 4 == 2:
        nodes.append(node("Softmax", [views.name], ["y"]))
    else:
        constants["b"] = draw.standard_normal((last,)).astype(np.float32)
        nodes += [node("Add", [views.name, "b"], ["t"]), node("Relu", ["t"], ["y"])]
    model = model_of(nodes, inputs, constants)
    machine = ("tsp-v1", "tsp-small", "mesh-4x4")[seed % 3]
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 5e-3
