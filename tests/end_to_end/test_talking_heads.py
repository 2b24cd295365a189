# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scores of heads that are mixed with each other, before and behind their softmax: rows stay rows."""
import numpy as np
import pytest

from oracle import relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of, node
from test_quantised_maps import SCALES, Quantised, outputs_of


@pytest.mark.parametrize("machine, heads, more, tokens, most", [
    ("tsp-v1", 4, 4, 50, 2_500), ("tsp-v1", 6, 3, 200, 10_000), ("mesh-4x4", 3, 8, 40, 6_500), ("lp30", 2, 5, 64, 2_500)])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Conv"])
def test_heads_are_mixed(millrace, tmp_path, kind, machine, heads, more, tokens, most):
    """`heads` become `more` before the softmax, and as many again behind it; with biases, and weights in either order."""
    draw = np.random.default_rng(31)
    numbers = lambda *shape: draw.standard_normal(shape).astype(np.float32)
    inputs = {"q": numbers(1, heads, tokens, 16), "k": numbers(1, heads, 16, tokens) / 4}
    constants = {"flat": np.array([tokens * tokens, -1], np.int64), "m0": numbers(heads, more), "m1": numbers(more, heads), "b0": numbers(more), "b1": numbers(heads),
                 "s0": np.array([1, tokens, tokens, more], np.int64), "s1": np.array([1, tokens, tokens, heads], np.int64)}
    nodes = [node("MatMul", ["q", "k"], ["scores"])]

    def mix(x, i, made):
        if kind == "Conv":
            constants[f"w{i}"] = constants[f"m{i}"].T[:, :, None, None].copy()
            nodes.append(node("Conv", [x, f"w{i}", f"b{i}"], [made]))
            return
        nodes.append(node("Transpose", [x], [f"t{i}"], perm=[0, 2, 3, 1]))
        if kind == "Gemm":
            constants[f"w{i}"] = constants[f"m{i}"].T.copy()
            nodes.extend([node("Reshape", [f"t{i}", "flat"], [f"f{i}"]), node("Gemm", [f"f{i}", f"w{i}", f"b{i}"], [f"p{i}"], transB=1),
                          node("Reshape", [f"p{i}", f"s{i}"], [f"a{i}"])])
        else:
            nodes.extend([node("MatMul", [f"t{i}", f"m{i}"], [f"p{i}"]), node("Add", [f"p{i}", f"b{i}"], [f"a{i}"])])
        nodes.append(node("Transpose", [f"a{i}"], [made], perm=[0, 3, 1, 2]))

    mix("scores", 0, "mixed")
    nodes.append(node("Softmax", ["mixed"], ["shares"], axis=-1))
    mix("shares", 1, "y")
    model = model_of(nodes, inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    assert got.report["macs_on_grid"] == got.report["macs_total"]
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 4e-3
    assert got.report["measured_cycles"] < most  # scores in rows of their own took 24,914 for the first


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("kind", ["MatMul", "Conv", "each step rounded"])
def test_quantised_heads_are_mixed(millrace, tmp_path, kind, flags):
    """By weights of int8, whose scales differ from result to result."""
    heads, tokens, depth = 4, 96, 16
    graph = Quantised("mixed", 15)

    def mixed(x: str, before: tuple[float, int], after: tuple[float, int]) -> str:
        step = lambda value, its: graph.rounded(value, *its) if kind == "each step rounded" else value
        integers = graph.rng().integers(-90, 90, [heads, heads, 1, 1]).astype(np.int8)
        scales, zeros = graph.constant(np.float32([0.003, 0.005, 0.007, 0.011])), graph.constant(np.zeros(heads, np.int8))
        if kind == "Conv":
            weights = graph.add("DequantizeLinear", graph.constant(integers), scales, zeros, axis=0)
            return graph.add("Conv", x, weights, graph.normal([heads], 0.1), kernel_shape=[1, 1])
        weights = graph.add("DequantizeLinear", graph.constant(integers[:, :, 0, 0].T.copy()), scales, zeros, axis=1)
        turned = step(graph.add("Transpose", x, perm=[0, 2, 3, 1]), before)
        return graph.add("Transpose", step(graph.add("MatMul", turned, weights), after), perm=[0, 3, 1, 2])

    q = graph.rounded(graph.input("q", [1, heads, tokens, depth]), SCALES["input"], 0)
    k = graph.rounded(graph.input("k", [1, heads, depth, tokens]), SCALES["input"], 0)
    of_product, of_scores, of_softmax, of_shares = (0.1307, 3), (0.0313, 5), (0.0029, -128), (0.0011, 0)
    scores = graph.rounded(mixed(graph.rounded(graph.add("MatMul", q, k), *of_product), of_product, of_scores), *of_scores)
    shares = graph.rounded(mixed(graph.rounded(graph.add("Softmax", scores, axis=-1), *of_softmax), of_softmax, of_shares), *of_shares)
    graph.output(shares, [1, heads, tokens, tokens])
    rng = np.random.default_rng(13)
    inputs = {"q": rng.normal(size=[1, heads, tokens, depth]).astype(np.float32),
              "k": rng.normal(size=[1, heads, depth, tokens]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and report["macs_on_grid"] == report["macs_total"]
    assert relative_l2(got, right) < 2e-2  # of shares a few steps large some are rounded to the other side
    assert report["measured_cycles"] < 20 * heads * tokens  # rows of scores; one for each element is refused or takes ten times that
