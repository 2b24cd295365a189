# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of which slices are negated, dealt in turn, turned over or put side by side again, as rotary positions do.

Each of them is one product with a constant matrix where numbers are finite; an infinity stays in its own place where they need not be.
"""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import probe
from oracle import cycles_on_grid
from test_infinities import check as check_places
from test_infinities import strange
from test_masks_and_windows import check

node = helper.make_node
NUMBERS = np.random.default_rng(21)
FINITE = [node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT), node("Mul", ["f", "step"], ["a"])]


class Slices:
    """Nodes that move what lies along the last dimension, and the constants that they take."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def constant(self, value):
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def call(self, op, *operands, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, list(operands), [name], **attributes))
        return name

    def slice(self, x, begin, end, step=1, axis=-1):
        return self.call("Slice", x, *(self.constant(np.int64([v])) for v in (begin, end, axis, step)))

    def deal(self, parts, shape):
        """The parts' lanes in turn: the first of each, the second of each."""
        last = self.constant(np.int64([len(shape)]))
        stacked = self.call("Concat", *(self.call("Unsqueeze", part, last) for part in parts), axis=-1)
        return self.call("Reshape", stacked, self.constant(np.int64(shape)))


def pairs(s, x, shape):
    return s.deal([s.call("Neg", s.slice(x, 1, 2**40, 2)), s.slice(x, 0, 2**40, 2)], shape)


def halves(s, x, shape):
    half = shape[-1] // 2
    return s.call("Concat", s.call("Neg", s.slice(x, half, 2**40)), s.slice(x, 0, half), axis=-1)


def thirds(s, x, shape):
    third = shape[-1] // 3
    return s.deal([s.slice(x, k * third, (k + 1) * third) for k in (2, 0, 1)], shape)


def complex_pairs(s, x, shape):
    """(a + ib)(c + id) with a and b in turn."""
    a, b = s.slice(x, 0, 2**40, 2), s.slice(x, 1, 2**40, 2)
    angle = NUMBERS.standard_normal((shape[-2], shape[-1] // 2))
    c, d = s.constant(np.float32(np.cos(angle))), s.constant(np.float32(np.sin(angle)))
    return s.deal([s.call("Sub", s.call("Mul", a, c), s.call("Mul", b, d)), s.call("Add", s.call("Mul", a, d), s.call("Mul", b, c))], shape)


def backwards(s, x, shape):
    return s.call("Concat", *(s.slice(x, at, at + 1) for at in reversed(range(shape[-1]))), axis=-1)


def repeats(s, x, shape):
    """One slice, as it is and negated: what makes it goes only when both are gone."""
    part = s.slice(x, 0, shape[-1] // 2)
    return s.call("Concat", s.call("Neg", part), part, axis=-1)


def twice(s, x, shape):
    return pairs(s, halves(s, x, shape), shape)


# heads of a vector and less; rows of several vectors, whose pairs stay in blocks; one row alone
SHAPES = [(1, 3, 50, 60), (2, 24, 96), (40, 768), (3, 5, 6), (1, 1, 1, 48)]


@pytest.mark.parametrize("form", [pairs, halves, thirds, complex_pairs, repeats, twice])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_numbers(millrace, tmp_path, form, shape):
    s = Slices()
    moved = form(s, "a", shape)
    cosine, sine = (s.constant(NUMBERS.standard_normal(shape[-2:]).astype(np.float32)) for _ in range(2))
    nodes = [*FINITE, *s.nodes, node("Mul", ["a", cosine], ["u"]), node("Mul", [moved, sine], ["v"]), node("Add", ["u", "v"], ["y"])]
    data = NUMBERS.normal(0, 32, shape).clip(-128, 127).astype(np.int8)
    report = check(millrace, tmp_path, nodes, {"x": data}, {**s.constants, "step": np.float32(1 / 32)})
    assert report["host_ops"] == []


@pytest.mark.parametrize("form", [pairs, halves, thirds, repeats, backwards])
def test_infinities_stay_in_their_places(millrace, tmp_path, form):
    shape = (2, 9, 12)
    s = Slices()
    moved = form(s, "x", shape)
    check_places(millrace, tmp_path, [*s.nodes, node("Add", [moved, "one"], ["y"])], {"x": strange(*shape)},
                 {**s.constants, "one": np.float32(1)})


def test_pairs_of_a_head_take_a_vector_a_row(millrace, tmp_path):
    """The product of rows with what turns them takes as many vectors as there are rows (two halves of the MXM share them)."""
    shape, s = (1, 4, 128, 64), Slices()
    moved = pairs(s, "a", shape)
    report = check(millrace, tmp_path, [*FINITE, *s.nodes, node("Sigmoid", [moved], ["y"])],
                   {"x": NUMBERS.normal(0, 32, shape).clip(-128, 127).astype(np.int8)}, {**s.constants, "step": np.float32(1 / 32)})
    assert sum(kernel["mxm_vectors"] for kernel in report["kernels"]) <= 2 * 4 * 128


def test_tokens_of_large_values_are_channels(millrace, tmp_path):
    """One row of each value becomes a channel of a convolution: no reason to compute all of each value a number a row (13 times)."""
    tokens, width = 64, 96
    nodes, stacked = list(FINITE), []
    constants = {"step": np.float32(1 / 32), "row": np.int64([0]), "end": np.int64([1]), "axis": np.int64([1]),
                 "mix": NUMBERS.standard_normal((5, 3, 1)).astype(np.float32)}
    for k in range(3):
        constants[f"w{k}"] = (NUMBERS.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        nodes += [node("MatMul", ["a" if k == 0 else f"t{k - 1}", f"w{k}"], [f"m{k}"]), node("Tanh", [f"m{k}"], [f"t{k}"]),
                  node("Slice", [f"t{k}", "row", "end", "axis"], [f"s{k}"])]
        stacked.append(f"s{k}")
    nodes += [node("Concat", stacked, ["tokens"], axis=1), node("Conv", ["tokens", "mix"], ["mixed"]),
              node("ReduceMean", ["t2"], ["mean"], axes=[1]), node("Add", ["mixed", "mean"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.normal(0, 32, (1, tokens, width)).clip(-128, 127).astype(np.int8)}, constants,
                   opset=17)
    assert report["host_ops"] == []
    assert sum(kernel["mxm_vectors"] for kernel in report["kernels"]) < 3000


@pytest.mark.parametrize("count, most", [(700, 2_000), (640, 1_600), (322, 1_200), (200, 900)])
def test_a_value_for_each_row_comes_from_lanes_vector_by_vector(millrace, tmp_path, count, most):
    """As many rows as values, of one vector each; all lanes of all of them took 2,795 cycles for 700."""
    nodes = [node("Tanh", ["t"], ["s"]), node("MatMul", ["s", "w"], ["sums"]), node("Reshape", ["s", "column"], ["each"]),
             node("Mul", ["x", "each"], ["scaled"]), node("Add", ["scaled", "sums"], ["y"])]
    weights = NUMBERS.standard_normal((count, 14)).astype(np.float32) / count**0.5
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [1, count]),
                                           helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [count, 14])],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.int64([count, 1]), "column")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) < most


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small", "mesh-4x4"])
@pytest.mark.parametrize("run", [2, 3])
def test_what_is_the_same_in_short_runs_of_lanes_does_not_cut_the_lanes_that_it_meets(millrace, tmp_path, machine, run):
    """The angles of interleaved rotary positions are computed once for each pair: the product that is multiplied by them is as
    many vectors as there are rows."""
    rows, lanes = 24, 48
    inputs = {"x": NUMBERS.standard_normal((rows, 16)).astype(np.float32),
              "t": NUMBERS.standard_normal((rows, lanes // run)).astype(np.float32)}
    constants = {"w": NUMBERS.standard_normal((16, lanes)).astype(np.float32) / 4, "one": np.int64([2]),
                 "runs": np.int64([rows, lanes // run, run]), "whole": np.int64([rows, lanes])}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["t"], ["angle"]),
             node("Unsqueeze", ["angle", "one"], ["column"]), node("Expand", ["column", "runs"], ["repeated"]),
             node("Reshape", ["repeated", "whole"], ["angles"]), node("Mul", ["a", "angles"], ["y"])]
    report = check(millrace, tmp_path, nodes, inputs, constants, machine)
    vectors = {kernel["name"]: kernel["vxm_vectors"] for kernel in report["kernels"]}
    assert max(vectors.values()) <= 3 * rows, vectors
    assert report["host_ops"] == []
