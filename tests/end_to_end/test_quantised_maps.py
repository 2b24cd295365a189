# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scales and zero points between quantised maps become part of each other: a product of two dequantised values is scaled
once, a normalisation per channel takes in what dequantises before it and what quantises behind it, and parts that several
concatenations read are joined as integers. No rounding is left out."""
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graph import Graph
from oracle import largest_unit_difference, relative_l2, run_millrace, save_model

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests/zoo")]
from rounding import without_dropped_roundings  # noqa: E402

SIZE = 12
# Scales whose ratios are no short decimals: hardly a value lies half-way between two integers, where last bits decide.
SCALES = dict(input=0.0307, made=0.0619, output=0.0513, joined=0.0487, ready=0.0211)


class Quantised(Graph):
    """A graph whose values are rounded to int8 where it is asked for."""

    def rounded(self, x: str, scale: float, zero: int) -> str:
        scheme = self.constant(np.float32(scale)), self.constant(np.int8(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *scheme), *scheme)

    def conv(self, x: str, given: int, made: int, kernel: int = 1, **kind) -> str:
        shape = made, given // kind.get("group", 1), kernel, kernel
        weights = self.constant(self.rng().integers(-90, 90, shape).astype(np.int8))
        real = self.add("DequantizeLinear", weights, self.constant(np.float32(0.01 / kernel)), self.constant(np.int8(0)))
        return self.add("Conv", x, real, self.normal([made], 0.5), kernel_shape=[kernel, kernel],
                        **{"pads": [kernel // 2] * 4, **kind})


def integers_of(millrace, model, folder, flags: list[str], meant=None) -> list[np.ndarray]:
    """What a model makes whose output was rounded last, and what it, or the one that is meant, makes by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    inputs = {"x": np.random.default_rng(5).normal(size=[1, 16, SIZE, SIZE]).astype(np.float32)}
    session = onnxruntime.InferenceSession((meant or model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    [right] = session.run(None, inputs)
    got = run_millrace(millrace, save_model(model, folder), "tsp-v1", "int8", inputs, folder, flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    [output] = got.outputs.values()
    integers = [np.rint(values / SCALES["output"]).astype(np.int32) for values in (output, right)]
    assert np.unique(integers[1]).size > 20
    return integers


def check(millrace, model, folder, flags: list[str], meant=None) -> None:
    """Runs a model whose output was rounded last: to the integers of ONNX Runtime."""
    assert largest_unit_difference(*integers_of(millrace, model, folder, flags, meant)) == 0


def operations(millrace, folder) -> dict[str, list[str]]:
    """Of each kernel without a product."""
    text = subprocess.run([millrace, "compile", folder / "model.onnx", "--precision", "int8", "--to", "spatial", "-o", "-"],
                          capture_output=True, text=True, check=True).stdout
    kernels = {}
    for name, body in re.findall(r'spatial\.kernel "([^"]*)"(.*?)\n    }', text, re.DOTALL):
        if "spatial.term" not in body:
            kernels[name] = re.findall(r"spatial\.alu ([\w.]+)\(", body)
    return kernels


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("zeros", [(0, 0, 0), (-11, -128, -116), (-10, 3, 7)], ids=str)
@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
def test_a_gate_is_scaled_once(millrace, tmp_path, gate, zeros, flags):
    graph = Quantised("gate", 3)
    x = graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 0)
    made = graph.rounded(graph.conv(x, 16, 32), SCALES["made"], zeros[0])
    gated = graph.add("Mul", made, graph.rounded(graph.add(gate, made), 0.00797 if zeros[1] > -100 else 0.00393, zeros[1]))
    graph.output(graph.rounded(gated, SCALES["output"], zeros[2]), [1, 32, SIZE, SIZE])
    model = graph.model()
    check(millrace, model, tmp_path, flags, None if flags else without_dropped_roundings(model))  # of the gate
    kernels = operations(millrace, tmp_path)
    # The scale of what the gate takes, that of the gate, the product and its scale, that of the output.
    assert sum(ops.count("mul.f32") for ops in kernels.values()) <= 5, kernels
    assert all(len(ops) <= 13 for ops in kernels.values()), kernels


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("zeros", [(0, 0, 0, 0), (5, -128, -3, 64)], ids=str)
def test_shared_parts_are_joined_as_integers(millrace, tmp_path, zeros, flags):
    graph = Quantised("dense", 4)
    parts = [graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 0)]
    for k, zero in enumerate(zeros[:3]):
        given = 16 + 24 * k
        both = graph.rounded(graph.add("Concat", *parts, axis=1), SCALES["joined"], -7) if k else parts[0]
        scale, shift, mean = (graph.normal([given], 0.3, at) for at in (1, 0.1, 0.2))
        normal = graph.add("BatchNormalization", both, scale, shift, mean, graph.uniform([given], 0.5, 2), epsilon=1e-3)
        ready = graph.rounded(graph.add("Relu", normal), SCALES["ready"], -128)
        parts.append(graph.rounded(graph.conv(ready, given, 24, kernel=3), 0.0213 + 0.01317 * k, zero))
    last = graph.rounded(graph.add("Concat", *parts, axis=1), SCALES["output"], zeros[3])
    graph.output(last, [1, 88, SIZE, SIZE])
    check(millrace, graph.model(), tmp_path, flags)
    kernels = operations(millrace, tmp_path)
    assert not [name for name in kernels if name.endswith(".parts")], kernels  # no fp32 is moved across lanes
    assert not any("div.f32" in ops for ops in kernels.values()), kernels  # normalised by what is constant


@pytest.mark.parametrize("zero", [0, -11, 7])
@pytest.mark.parametrize("axes", [[1], [3], [1, 3]], ids=str)
def test_integers_are_summed_over_lanes(millrace, tmp_path, axes, zero):
    graph = Quantised("mean", 5)
    x = graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 0)
    made = graph.rounded(graph.conv(x, 16, 32), SCALES["made"], zero)
    mean = graph.add("ReduceMean", made, axes=axes, keepdims=1)
    graph.output(graph.rounded(graph.add("Sub", made, mean), SCALES["output"], 3), [1, 32, SIZE, SIZE])
    check(millrace, graph.model(), tmp_path, [])
    kernels = operations(millrace, tmp_path)
    assert not [name for name in kernels if name.endswith(".parts")], kernels


@pytest.mark.parametrize("zero", [0, 4])
@pytest.mark.parametrize("kind", [{}, {"dilations": [2, 2], "pads": [2] * 4}, {"group": 4}, {"group": 16}], ids=str)
def test_pixels_behind_tokens_end_where_their_rows_do(millrace, tmp_path, kind, zero):
    graph = Quantised("pixels", 8)
    tokens = graph.add("Transpose", graph.add("Reshape", graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], zero),
                                              graph.constant(np.array([1, 16, SIZE * SIZE]))), perm=[0, 2, 1])
    normal = graph.rounded(graph.add("Mul", tokens, tokens), SCALES["joined"], zero)
    image = graph.add("Reshape", normal, graph.constant(np.array([1, SIZE, SIZE, 16])))
    image = graph.rounded(image, SCALES["joined"], zero)
    image = graph.rounded(graph.add("Transpose", image, perm=[0, 3, 1, 2]), SCALES["joined"], zero)
    made = graph.rounded(graph.conv(image, 16, 16, kernel=3, **kind), SCALES["output"], 3)
    graph.output(made, [1, 16, SIZE, SIZE])
    check(millrace, graph.model(), tmp_path, [])


@pytest.mark.parametrize("zero", [0, 5])
def test_a_table_is_quantised_before_it_is_looked_up(millrace, tmp_path, zero):
    graph = Quantised("table", 7)
    rows = graph.add("Gather", graph.normal([60, 48], 1.0), graph.input("ids", [1, 5], np.int64))
    known = graph.rounded(rows, 0.0211, zero)
    graph.output(graph.rounded(graph.add("Mul", known, known), SCALES["output"], 0), [1, 5, 48])
    model, inputs = graph.model(), {"ids": np.array([[3, 59, 0, 17, 3]])}
    [right] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, [])
    [output] = got.outputs.values()
    assert np.unique(right).size > 20
    assert relative_l2(output, right) <= 1e-6
    assert "cvt.f16.f32" not in sum(operations(millrace, tmp_path).values(), [])


def test_wider_integers_are_left_alone(millrace, tmp_path):
    graph = Quantised("wide", 6)
    kind = np.int16

    def rounded(value: str, scale: float) -> str:
        scheme = graph.constant(np.float32(scale)), graph.constant(kind(0))
        return graph.add("DequantizeLinear", graph.add("QuantizeLinear", value, *scheme), *scheme)

    a = rounded(graph.input("x", [1, 16, SIZE, SIZE]), 0.00031)
    b = rounded(graph.conv(a, 16, 24), 0.00062)
    both = rounded(graph.add("Concat", a, b, axis=1), 0.00051)  # its second part is read by others, too
    mean = graph.add("ReduceMean", b, axes=[1], keepdims=1)
    graph.output(rounded(graph.add("Sub", graph.conv(both, 40, 24), mean), 0.0009), [1, 24, SIZE, SIZE])
    axes = graph.constant(np.array([1]))
    model = graph.model()
    for node in model.graph.node:
        if node.op_type == "ReduceMean":  # an input since opset 18
            node.attribute.remove(next(each for each in node.attribute if each.name == "axes"))
            node.input.append(axes)
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", 21))  # the first that quantises to int16
    model.ir_version = 10
    inputs = {"x": np.random.default_rng(6).normal(size=[1, 16, SIZE, SIZE]).astype(np.float32)}
    [right] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, ["--exact-qdq"])
    [output] = got.outputs.values()
    assert relative_l2(output, right) <= 3e-3


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("groups, channels", [(3, 24), (4, 32), (1, 16), (2, 6)])
def test_groups_are_normalised_where_their_channels_lie(millrace, tmp_path, groups, channels, flags):
    """As PyTorch exports GroupNorm: an InstanceNormalization of [1, groups, the rest], rounded in that shape. What is left
    without the mean is stored in fp16, an error of up to 2^-11 * 3 / 0.0487, a thirtieth of a step."""
    graph = Quantised("groups", 8)
    x = graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 0)
    made = graph.rounded(graph.conv(x, 16, channels, 3), SCALES["made"], -11)
    ones, zeros = graph.constant(np.ones(groups, np.float32)), graph.constant(np.zeros(groups, np.float32))
    normed = graph.add("InstanceNormalization", graph.add("Reshape", made, graph.constant(np.array([0, groups, -1]))), ones, zeros)
    back = graph.add("Reshape", graph.rounded(normed, SCALES["joined"], 3), graph.constant(np.array([1, channels, SIZE, SIZE])))
    scaled = graph.add("Add", graph.add("Mul", back, graph.normal([channels, 1, 1], 1.0)), graph.normal([channels, 1, 1], 0.3))
    graph.output(graph.rounded(scaled, SCALES["output"], 5), [1, channels, SIZE, SIZE])
    integers = integers_of(millrace, graph.model(), tmp_path, flags)
    assert largest_unit_difference(*integers) <= 2
    assert np.count_nonzero(integers[0] != integers[1]) <= integers[0].size / 30
    text = subprocess.run([millrace, "compile", tmp_path / "model.onnx", "--precision", "int8", "--to", "spatial", "-o", "-"],
                          capture_output=True, text=True, check=True).stdout
    stored = re.findall(r"spatial\.tensor intermediate .*: tensor<([0-9x]+)x", text)
    assert not [shape for shape in stored if f"x{groups}x{channels // groups * SIZE * SIZE}" in f"x{shape}"], stored


def spatial(millrace, folder) -> str:
    return subprocess.run([millrace, "compile", folder / "model.onnx", "--precision", "int8", "--to", "spatial", "-o", "-"],
                          capture_output=True, text=True, check=True).stdout


def outputs_of(millrace, model, folder, inputs, flags, precision="int8", meant=None) -> tuple[list[np.ndarray], list[np.ndarray], dict]:
    """What a model makes, what it, or the one that is meant, makes by ONNX Runtime, and the report."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession((meant or model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    right = session.run(None, inputs)
    got = run_millrace(millrace, save_model(model, folder), "tsp-v1", precision, inputs, folder, flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    return [got.outputs[each.name] for each in session.get_outputs()], right, got.report


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("mode", ["cubic", "linear"])
def test_an_image_beside_quantised_weights_is_resized_on_the_grid(millrace, tmp_path, mode, flags):
    """As CrossViT: what is quantised is resized, a product with reals, and convolved with weights of int8 besides."""
    graph = Quantised("resized", 9)
    x = graph.rounded(graph.input("x", [1, 3, 40, 40]), 0.0428, 3)  # up to 5.6
    none, sizes = graph.constant(np.array([], np.float32)), graph.constant(np.array([1, 3, 32, 32]))
    small = graph.add("Resize", x, none, "", sizes, mode=mode, coordinate_transformation_mode="half_pixel")
    small = graph.rounded(small, 0.0431, 0)
    graph.output(graph.conv(small, 3, 16, 4, strides=[4, 4], pads=[0] * 4), [1, 16, 8, 8])
    graph.output(graph.conv(x, 3, 16, 4, strides=[4, 4], pads=[0] * 4), [1, 16, 10, 10])
    inputs = {"x": np.random.default_rng(7).normal(size=[1, 3, 40, 40]).astype(np.float32)}
    got, right, report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert relative_l2(got[0], right[0]) <= 1e-2  # halves of a step that fp16 moves
    assert relative_l2(got[1], right[1]) <= 1e-3
    assert "spatial.call" not in spatial(millrace, tmp_path)


def test_a_quantised_product_is_turned_rather_than_made_twice(millrace, tmp_path):
    """As ResMLP: products of channels, whose sum with what came before is read along the tokens, too."""
    tokens, channels, hidden = 196, 384, 1536
    graph = Quantised("mixed", 10)

    def weights(given: int, made: int) -> str:
        integers = graph.constant(graph.rng().integers(-90, 90, [given, made]).astype(np.int8))
        scales = graph.constant(graph.rng().uniform(0.5, 1.5, made).astype(np.float32) * np.float32(0.02 / given**0.5))
        return graph.add("DequantizeLinear", integers, scales, graph.constant(np.zeros(made, np.int8)), axis=1)

    def mixed(x: str) -> str:
        turned = graph.add("Transpose", x, perm=[0, 2, 1])
        back = graph.add("Transpose", graph.rounded(graph.add("MatMul", turned, weights(tokens, tokens)), 0.0307, 0), perm=[0, 2, 1])
        return graph.rounded(graph.add("Add", x, back), 0.0419, 0)

    x = mixed(graph.rounded(graph.input("x", [1, tokens, channels]), 0.0307, 0))
    wide = graph.rounded(graph.add("Relu", graph.add("MatMul", x, weights(channels, hidden))), 0.0229, 0)
    fc2 = graph.add("MatMul", wide, weights(hidden, channels))
    x = graph.rounded(graph.add("Add", x, graph.rounded(fc2, 0.0307, 0)), 0.0513, 0)
    graph.output(mixed(x), [1, tokens, channels])
    inputs = {"x": np.random.default_rng(8).normal(size=[1, tokens, channels]).astype(np.float32)}
    [got], [right], _ = outputs_of(millrace, graph.model(), tmp_path, inputs, ["--exact-qdq"])
    assert largest_unit_difference(*[np.rint(each / 0.0419).astype(np.int32) for each in (got, right)]) == 0
    deep = re.findall(rf"spatial\.kernel [^{{]*contracted {hidden}\b", spatial(millrace, tmp_path))
    assert len(deep) == 1, deep


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_what_is_added_to_quantised_scores_is_joined_instead_of_cutting_them(millrace, tmp_path, flags):
    """As MViT: scores of pixels, to which something of their rows and something of their columns is added."""
    heads, side, depth = 2, 6, 16
    graph = Quantised("beside", 11)
    q = graph.rounded(graph.input("q", [1, heads, side * side, depth]), SCALES["input"], 0)
    k = graph.rounded(graph.input("k", [1, heads, depth, side * side]), SCALES["input"], 0)
    scores = graph.rounded(graph.add("MatMul", q, k), 0.1307, 0)
    cut = graph.add("Reshape", scores, graph.constant(np.array([1, heads, side, side, side, side])))
    rows = graph.rounded(graph.input("rows", [1, heads, side, side, side, 1]), SCALES["made"], 0)
    columns = graph.rounded(graph.input("columns", [1, heads, side, side, 1, side]), SCALES["made"], 0)
    both = graph.rounded(graph.add("Add", graph.rounded(graph.add("Add", cut, rows), 0.1409, 0), columns), 0.1511, 0)
    joined = graph.add("Reshape", both, graph.constant(np.array([1, heads, side * side, side * side])))
    graph.output(graph.add("Softmax", joined, axis=-1), [1, heads, side * side, side * side])
    rng = np.random.default_rng(9)
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in [
        ("q", [1, heads, side * side, depth]), ("k", [1, heads, depth, side * side]),
        ("rows", [1, heads, side, side, side, 1]), ("columns", [1, heads, side, side, 1, side])]}
    [got], [right], _ = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    # What is fused rounds scores, of steps of 0.15, once instead of three times. Exact: a few scores, products in fp16,
    # are rounded to the other side.
    assert relative_l2(got, right) <= (1e-2 if flags else 0.15)
    stored = re.findall(r"spatial\.tensor intermediate .*: tensor<([0-9x]+)x", spatial(millrace, tmp_path))
    assert not [shape for shape in stored if f"x{side}x{side}x{side}x{side}" in f"x{shape}"], stored


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("shape", [(1, 2, 6, 6, 6, 1), (1, 2, 6, 6, 1, 6)], ids=["rows", "columns"])
def test_a_quantised_input_is_repeated_along_lanes(millrace, tmp_path, shape, flags):
    """It comes as int8 from the host, although the model's input may be infinite: there are no two bytes to take apart."""
    graph = Quantised("repeated", 12)
    x = graph.rounded(graph.input("x", [1, 2, 36, 36]), 0.1307, 0)
    added = graph.add("Expand", graph.rounded(graph.input("added", list(shape)), SCALES["made"], 0),
                      graph.constant(np.array([1, 2, 6, 6, 6, 6])))
    graph.output(graph.add("Add", x, graph.add("Reshape", added, graph.constant(np.array([1, 2, 36, 36])))), [1, 2, 36, 36])
    rng = np.random.default_rng(10)
    inputs = {"x": 4 * rng.normal(size=[1, 2, 36, 36]).astype(np.float32), "added": rng.normal(size=shape).astype(np.float32)}
    [got], [right], _ = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    # What is fused leaves out a rounding of the side that nothing else uses: steps of 0.1307 beside values of 4.
    assert relative_l2(got, right) <= (5e-4 if flags else 0.1307 / 12**0.5 / 4 * 1.1)


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("zero, likely_zero", [(0, -128), (3, -128), (0, 0)])
@pytest.mark.parametrize("tokens, heads", [(40, 4), (300, 2), (324, 2), (577, 2)])
def test_quantised_attention_is_on_the_grid(millrace, tmp_path, tokens, heads, zero, likely_zero, flags):
    """Over more tokens than a vector has lanes, too, and with zero points or without."""
    depth = 32
    graph = Quantised("attention", 13)
    q = graph.rounded(graph.input("q", [1, heads, tokens, depth]), SCALES["input"], 0)
    k = graph.rounded(graph.input("k", [1, heads, tokens, depth]), SCALES["input"], 0)
    v = graph.rounded(graph.input("v", [1, heads, tokens, depth]), SCALES["input"], zero)
    scores = graph.rounded(graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2])), 0.2307, 5)
    scaled = graph.rounded(graph.add("Mul", scores, graph.constant(np.float32(depth**-0.5))), 0.0409, 5)
    step = 0.12 / tokens
    likely = graph.rounded(graph.add("Softmax", scaled, axis=-1), step, likely_zero)
    graph.output(graph.rounded(graph.add("MatMul", likely, v), 12 * step, 0), [1, heads, tokens, depth])
    rng = np.random.default_rng(11)
    inputs = {name: rng.normal(size=[1, heads, tokens, depth]).astype(np.float32) for name in "qkv"}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and report["macs_on_grid"] == report["macs_total"]
    # Fused, probabilities of few steps are rounded a last bit sooner or later, and scores once instead of twice.
    assert relative_l2(got, right) <= (2e-2 if flags else 6e-2)


@pytest.mark.parametrize("is_rounded", [True, False], ids=["int8", "fp16"])
def test_scores_of_many_pixels_and_what_their_rows_and_columns_add_are_on_the_grid(millrace, tmp_path, is_rounded):
    """As MViT and SAM: more pixels ask than a vector has lanes, and the greatest score of each is found along the others."""
    heads, side, pooled, depth = 2, 18, 7, 16
    graph = Quantised("positions", 14)
    rounded = graph.rounded if is_rounded else lambda x, scale, zero: x
    q = rounded(graph.input("q", [1, heads, side**2, depth]), SCALES["input"], 0)
    k = rounded(graph.input("k", [1, heads, depth, pooled**2]), SCALES["input"], 0)
    scores = rounded(graph.add("MatMul", q, k), 0.1307, 0)
    cut = graph.add("Reshape", scores, graph.constant(np.array([1, heads, side, side, pooled, pooled])))
    for i, shape in enumerate([[pooled, 1], [1, pooled]]):
        made = graph.add("MatMul", q, graph.normal([depth, pooled], 0.5))
        added = rounded(graph.add("Reshape", made, graph.constant(np.array([1, heads, side, side, *shape]))), 0.0819, 0)
        cut = rounded(graph.add("Add", cut, added), 0.1409 + i / 100, 0)
    joined = graph.add("Reshape", cut, graph.constant(np.array([1, heads, side**2, pooled**2])))
    likely = rounded(graph.add("Softmax", joined, axis=-1), 1 / 255, -128)
    v = rounded(graph.input("v", [1, heads, pooled**2, depth]), SCALES["input"], 0)
    graph.output(graph.add("MatMul", likely, v), [1, heads, side**2, depth])
    rng = np.random.default_rng(12)
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in [
        ("q", [1, heads, side**2, depth]), ("k", [1, heads, depth, pooled**2]), ("v", [1, heads, pooled**2, depth])]}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, [],
                                         "int8" if is_rounded else "fp16")
    assert report["host_ops"] == [] and report["macs_on_grid"] == report["macs_total"]
    assert relative_l2(got, right) <= (6e-2 if is_rounded else 2e-3)  # scores of steps of 0.15 are rounded once, not three times
    if is_rounded:  # the scores are turned once, not what makes them up
        text = spatial(millrace, tmp_path)
        assert len(re.findall(r'spatial\.kernel "[^"]*transposed', text)) == 1


def test_what_is_upsampled_beside_a_quantised_convolution_has_channels_along_lanes(millrace, tmp_path):
    """As LowFormer. What is dequantised of constants makes no scores of a product, beside which other rules hold."""
    given, made, side = 32, 64, 10
    graph = Quantised("upsampled", 16)
    x = graph.rounded(graph.input("x", [1, given, side, side]), SCALES["input"], 0)
    low = graph.rounded(graph.conv(x, given, given, 3, strides=[2, 2]), SCALES["made"], 0)
    integers = graph.constant(graph.rng().integers(-90, 90, [given, made, 4, 4]).astype(np.int8))
    weights = graph.add("DequantizeLinear", integers, graph.constant(np.float32(0.001)), graph.constant(np.int8(0)))
    high = graph.add("ConvTranspose", low, weights, graph.normal([made], 0.5), kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)
    both = graph.add("Add", graph.rounded(high, SCALES["joined"], 0), graph.rounded(graph.conv(x, given, made, 3), SCALES["joined"], 0))
    graph.output(graph.rounded(both, SCALES["output"], 0), [1, made, side, side])
    inputs = {"x": np.random.default_rng(14).normal(size=[1, given, side, side]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, [])
    assert relative_l2(got, right) <= 1e-2
    assert report["measured_cycles"] < 2000


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_quantised_heads_of_one_product_are_multiplied_as_integers(millrace, tmp_path, flags):
    """As ViT writes it, without zero points: queries, keys and values are chosen from one tensor that has heads behind them."""
    heads, tokens, depth = 4, 50, 16
    width = heads * depth
    graph = Quantised("heads", 17)
    x = graph.rounded(graph.input("x", [1, tokens, width]), SCALES["input"], 0)
    integers = graph.constant(graph.rng().integers(-90, 90, [width, 3 * width]).astype(np.int8))
    weights = graph.add("DequantizeLinear", integers, graph.constant(np.float32(0.0025)), graph.constant(np.int8(0)))
    all_three = graph.rounded(graph.add("MatMul", x, weights), SCALES["made"], 0)
    cut = graph.rounded(graph.add("Reshape", all_three, graph.constant(np.array([1, tokens, 3, heads, depth]))), SCALES["made"], 0)
    turned = graph.rounded(graph.add("Transpose", cut, perm=[2, 0, 3, 1, 4]), SCALES["made"], 0)
    q, k, v = [graph.rounded(graph.add("Gather", turned, graph.constant(np.array(i)), axis=0), SCALES["made"], 0) for i in range(3)]
    scores = graph.rounded(graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2])), 0.2307, 0)
    likely = graph.rounded(graph.add("Softmax", graph.add("Mul", scores, graph.constant(np.float32(depth**-0.5))), axis=-1), 0.0047, 0)
    graph.output(graph.rounded(graph.add("MatMul", likely, v), 0.0307, 0), [1, heads, tokens, depth])
    inputs = {"x": np.random.default_rng(15).normal(size=[1, tokens, width]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and report["macs_on_grid"] == report["macs_total"]
    assert relative_l2(got, right) <= 3e-2


@pytest.mark.parametrize("precision, flags", [("int8", []), ("int8", ["--exact-qdq"]), ("fp16", [])], ids=["int8", "exact", "fp16"])
@pytest.mark.parametrize("gates", [3, 12])
def test_gates_alone_are_brought_into_the_lanes_of_what_they_scale(millrace, tmp_path, gates, precision, flags):
    """As FocalNet: the last channels of a convolution scale all others. All of its channels in all lanes took 14 times the cycles."""
    width, side = 48, 16
    graph = Quantised("gates", 18)
    rounded = graph.rounded if precision == "int8" else lambda x, *_: x
    cut = lambda x, begin, end: graph.add("Slice", x, *[graph.constant(np.array([i])) for i in (begin, end, 1)])
    x = rounded(graph.input("x", [1, width, side, side]), SCALES["input"], 0)
    made = rounded(graph.conv(x, width, width + gates), SCALES["made"], 3)
    values, tail = [rounded(cut(made, begin, end), SCALES["made"], 3) for begin, end in ((0, width), (width, width + gates))]
    parts = []
    for gate in range(gates):
        parts.append(rounded(graph.add("Mul", values, rounded(cut(tail, gate, gate + 1), SCALES["made"], 3)), 0.01, 0))
        values = rounded(graph.add("Relu", graph.conv(values, width, width, 3, group=width)), SCALES["made"], 0)
    sums = parts[0]
    for part in parts[1:]:
        sums = graph.add("Add", sums, part)
    graph.output(rounded(sums, SCALES["output"], 0), [1, width, side, side])
    inputs = {"x": np.random.default_rng(16).normal(size=[1, width, side, side]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags, precision)
    assert report["host_ops"] == [] and relative_l2(got, right) <= (2e-3 if precision == "fp16" else 1.5e-2)
    shapes = re.findall(r'spatial\.tensor intermediate "[^"]*rows"[^:]*: tensor<([0-9x]*)x', spatial(millrace, tmp_path))
    assert 0 < sum(np.prod([int(size) for size in shape.split("x")]) for shape in shapes) <= gates * side**2 * width


def test_windows_of_every_block_have_bands_however_many_blocks_there_are(millrace, tmp_path):
    """As GhostNetV3: windows of what is added to their results, so that both have one layout unless one is moved. Of all
    tensors that may be moved the first 24 were asked: eight blocks took 28,168 cycles, four 5,459."""
    blocks, width, side = 8, 8, 32
    graph = Quantised("branches", 19)
    x = graph.rounded(graph.input("x", [1, width, side, side]), SCALES["input"], 0)
    for _ in range(blocks):
        made = graph.rounded(graph.add("Relu", graph.conv(x, width, width // 2)), SCALES["made"], -128)
        total = graph.rounded(graph.add("Mul", made, graph.normal([width // 2, 1, 1], 1)), SCALES["made"], 3)
        for branch in [graph.rounded(graph.conv(made, width // 2, width // 2, 3, group=width // 2), SCALES["made"], 0) for _ in range(3)]:
            total = graph.rounded(graph.add("Add", total, branch), SCALES["joined"], 0)
        x = graph.rounded(graph.add("Concat", made, total, axis=1), SCALES["joined"], 0)
    graph.output(graph.rounded(graph.conv(x, width, width), SCALES["output"], 0), [1, width, side, side])
    inputs = {"x": np.random.default_rng(17).normal(size=[1, width, side, side]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, [])
    assert relative_l2(got, right) <= 4e-2
    assert report["measured_cycles"] < 12_000


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("clamp", [(0.0, None), (0.0, 1.5), (-0.7, 0.9)], ids=["relu", "relu6", "clip"])
@pytest.mark.parametrize("zero", [0, -9])
def test_what_is_clamped_between_two_equal_roundings_is_rounded_once(millrace, tmp_path, zero, clamp, flags):
    """As ONNX Runtime quantises symmetrically: a convolution, rounded, a Relu, rounded in the same way. To its integers, but fewer operations."""
    graph = Quantised("clamped", 20)
    x = graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 3)
    made = graph.rounded(graph.conv(x, 16, 24, 3), SCALES["output"], zero)
    low, high = [[] if bound is None else [graph.constant(np.float32(bound))] for bound in clamp]
    clamped = graph.add("Clip", made, *low, *high) if high else graph.add("Relu", made)
    graph.output(graph.rounded(clamped, SCALES["output"], zero), [1, 24, SIZE, SIZE])
    check(millrace, graph.model(), tmp_path, flags)
    products = [text for text in spatial(millrace, tmp_path).split("spatial.kernel")[1:] if "spatial.accumulator" in text]
    assert [text.count("cvt.f32.i8") for text in products] == [1] * len(products)


@pytest.mark.parametrize("pad, padding", [(-10.0, 6), (0.0, 6), (-10.0, 1)])
@pytest.mark.parametrize("behind", ["Identity", "Sigmoid"])
def test_maxima_of_padding_alone(millrace, tmp_path, behind, pad, padding):
    """Of what is not negative the padding of a maximum may as well be zero, where every window reaches an element beside it: where none did
    zeros came out, 0.83 in relative L2."""
    graph = Quantised("padded", 21)
    x = graph.add("Relu", graph.input("x", [1, 4, 9, 9]))
    wide = graph.add("Pad", x, graph.constant(np.array([0, 0, padding, padding] * 2)), graph.constant(np.float32(pad)))
    pooled = graph.add("MaxPool", wide, kernel_shape=[3, 3], strides=[3, 3])
    extent = (9 + 2 * padding) // 3
    graph.output(graph.add(behind, pooled), [1, 4, extent, extent])
    inputs = {"x": np.random.default_rng(18).normal(size=[1, 4, 9, 9]).astype(np.float32)}
    [got], [right], _ = outputs_of(millrace, graph.model(), tmp_path, inputs, [], "fp16")
    assert relative_l2(got, right) <= 1e-3


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_the_first_of_many_tokens_is_turned_alone(millrace, tmp_path, flags):
    """As CoaT: a convolution over three class tokens, whose channels are rows. All tokens had a row for each channel: 71,829 cycles."""
    tokens, width = 200, 96
    graph = Quantised("tokens", 23)
    weights = lambda shape, scale: graph.add("DequantizeLinear", graph.constant(graph.rng().integers(-90, 90, shape).astype(np.int8)),
                                             graph.constant(np.float32(scale)), graph.constant(np.int8(0)))
    first = []
    for i in range(3):
        x = graph.rounded(graph.input(f"x{i}", [1, tokens, width]), SCALES["input"], 0)
        made = graph.rounded(graph.add("MatMul", x, weights([width, width], 0.002)), SCALES["made"], 0)
        total = graph.rounded(graph.add("Add", x, made), SCALES["made"], 1)
        scale, shift = graph.constant(np.ones(width, np.float32)), graph.constant(np.zeros(width, np.float32))
        normal = graph.rounded(graph.add("LayerNormalization", total, scale, shift, axis=2), 0.03, -2)
        first.append(graph.rounded(graph.add("Slice", normal, *[graph.constant(np.array([at])) for at in (0, 1, 1)]), 0.03, -2))
    joined = graph.rounded(graph.add("Concat", *first, axis=1), 0.03, -2)
    graph.output(graph.rounded(graph.add("Conv", joined, weights([1, 3, 1], 0.01), kernel_shape=[1]), 0.03, 0), [1, 1, width])
    inputs = {f"x{i}": np.random.default_rng(19 + i).normal(size=[1, tokens, width]).astype(np.float32) for i in range(3)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and relative_l2(got, right) <= 4e-2
    assert report["measured_cycles"] < 3_000


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_constant_joins_what_lies_between_transposes(millrace, tmp_path, axis):
    """As CoaT beside its class tokens: the transposes undo each other around a concatenation, whose constant part none of them made. The compiler crashed."""
    graph = Quantised("joined", 24)
    turned = graph.add("Transpose", graph.input("x", [1, 4, 6, 6]), perm=[0, 2, 3, 1])
    shape = [1, 6, 6, 4]
    shape[axis] = 2
    joined = graph.add("Relu", graph.add("Concat", turned, graph.normal(shape, 1), axis=axis))
    image = graph.add("Transpose", joined, perm=[0, 3, 1, 2])
    channels = 6 if axis == 3 else 4
    made = graph.add("Conv", image, graph.normal([5, channels, 3, 3], 0.2), pads=[1] * 4, kernel_shape=[3, 3])
    graph.output(made, [1, 5, 8 if axis == 1 else 6, 8 if axis == 2 else 6])
    inputs = {"x": np.random.default_rng(22).normal(size=[1, 4, 6, 6]).astype(np.float32)}
    [got], [right], _ = outputs_of(millrace, graph.model(), tmp_path, inputs, [], "fp16")
    assert relative_l2(got, right) <= 1e-3


@pytest.mark.parametrize("kind, zero, most", [("silu", 3, 8), ("hardswish", 0, 7), ("hardswish", 3, 9), ("gelu", 0, 7), ("gelu", 3, 9)])
def test_an_activation_takes_few_operations(millrace, tmp_path, kind, zero, most):
    """Of eight operations two rows are computed a cycle. Scales become part of what is multiplied anyway, of bounds, and of what functions take."""
    graph = Quantised("activation", 26)
    x = graph.rounded(graph.input("x", [1, 16, SIZE, SIZE]), SCALES["input"], 0)
    made = graph.rounded(graph.conv(x, 16, 32, 3), SCALES["made"], zero)
    if kind == "gelu":
        gate = graph.rounded(graph.add("Erf", graph.add("Div", made, graph.constant(np.float32(2**0.5)))), 0.0081, 0)
        gate = graph.rounded(graph.add("Add", gate, graph.constant(np.float32(1))), 0.0163, 0)
        y = graph.add("Mul", graph.rounded(graph.add("Mul", made, gate), 0.1313, 0), graph.constant(np.float32(0.5)))
    else:
        gate = graph.add("Sigmoid", made) if kind == "silu" else graph.add("HardSigmoid", made, alpha=1 / 6, beta=0.5)
        y = graph.add("Mul", made, graph.rounded(gate, 0.0083, 0))
    graph.output(graph.rounded(y, SCALES["output"], zero), [1, 32, SIZE, SIZE])
    model = graph.model()
    meant = without_dropped_roundings(model)
    integers = integers_of(millrace, model, tmp_path, [], meant)
    assert largest_unit_difference(*integers) <= 1 and np.count_nonzero(integers[0] != integers[1]) <= integers[0].size / 500
    [ops] = [ops for ops in operations(millrace, tmp_path).values() if "mul.f32" in ops]
    assert len(ops) <= most + (3 if zero else 2), ops  # of which the last dequantise the output


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_means_are_turned_rather_than_what_they_are_of(millrace, tmp_path, flags):
    """As ECA: a convolution along channels of the means of channels, whose channels are rows. All pixels had a row for each: 50,166 cycles."""
    width, side = 64, 32
    graph = Quantised("channels", 25)
    x = graph.rounded(graph.input("x", [1, 16, side, side]), SCALES["input"], 0)
    made = graph.rounded(graph.conv(x, 16, width), SCALES["made"], 3)
    means = graph.add("Reshape", graph.add("ReduceMean", made, axes=[2, 3], keepdims=1), graph.constant(np.array([1, 1, -1])))
    weights = graph.add("DequantizeLinear", graph.constant(graph.rng().integers(-90, 90, [1, 1, 3]).astype(np.int8)), graph.constant(np.float32(0.01)))
    along = graph.add("Conv", graph.rounded(means, 0.0113, 4), weights, kernel_shape=[3], pads=[1, 1])
    gate = graph.add("Reshape", graph.add("Sigmoid", graph.rounded(along, 0.0107, 0)), graph.constant(np.array([1, -1, 1, 1])))
    graph.output(graph.rounded(graph.add("Mul", made, graph.rounded(gate, 0.00393, -128)), SCALES["output"], 0), [1, width, side, side])
    inputs = {"x": np.random.default_rng(23).normal(size=[1, 16, side, side]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and relative_l2(got, right) <= 1e-2
    assert report["measured_cycles"] < 5_000


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_a_quantised_number_for_each_head_does_not_turn_the_scores(millrace, tmp_path, flags):
    """As ConViT: what a constant that is dequantised scales lies as it lay. Heads came to lie along the lanes, 196 rows of 196 pixels each."""
    heads, tokens, depth = 4, 96, 16
    graph = Quantised("gated", 27)
    q = graph.rounded(graph.input("q", [1, heads, tokens, depth]), SCALES["input"], 0)
    k = graph.rounded(graph.input("k", [1, heads, depth, tokens]), SCALES["input"], 0)
    v = graph.rounded(graph.input("v", [1, heads, tokens, depth]), SCALES["input"], 0)
    likely = graph.rounded(graph.add("Softmax", graph.rounded(graph.add("MatMul", q, k), 0.1307, 0), axis=-1), 1 / 255, -128)
    integers = graph.constant(graph.rng().integers(20, 90, [1, heads, 1, 1]).astype(np.int8))
    gate = graph.add("DequantizeLinear", integers, graph.constant(np.float32(0.01)), graph.constant(np.int8(0)))
    gated = graph.rounded(graph.add("Mul", gate, likely), 1 / 255, -128)
    total = graph.add("ReduceSum", gated, graph.constant(np.array([-1])), keepdims=1)
    shares = graph.rounded(graph.add("Div", gated, total), 1 / 255, -128)
    graph.output(graph.add("MatMul", shares, v), [1, heads, tokens, depth])
    inputs = {name: np.random.default_rng(24).normal(size=shape).astype(np.float32) for name, shape in [
        ("q", [1, heads, tokens, depth]), ("k", [1, heads, depth, tokens]), ("v", [1, heads, tokens, depth])]}
    [got], [right], report = outputs_of(millrace, graph.model(), tmp_path, inputs, flags)
    assert report["host_ops"] == [] and relative_l2(got, right) <= 4e-2
    assert report["measured_cycles"] < 8_000


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_windows_of_a_grid_are_copied_where_their_pixels_are_columns(millrace, tmp_path, flags):
    """As MaxViT: a window takes every eighth pixel of an image. Values of attention lay in vectors of 8 lanes, as sums in fp32 were turned."""
    cells, side, width, heads = 4, 8, 32, 2
    graph = Quantised("grid", 28)
    x = graph.rounded(graph.input("x", [1, cells * side, cells * side, width]), SCALES["input"], 0)
    scale, shift = graph.constant(np.ones(width, np.float32)), graph.constant(np.zeros(width, np.float32))
    normal = graph.rounded(graph.add("LayerNormalization", x, scale, shift, axis=3), 0.03, 0)
    cut = graph.rounded(graph.add("Reshape", normal, graph.constant(np.array([1, side, cells, side, cells, width]))), 0.03, 0)
    turned = graph.rounded(graph.add("Transpose", cut, perm=[0, 2, 4, 1, 3, 5]), 0.03, 0)
    windows = graph.rounded(graph.add("Reshape", turned, graph.constant(np.array([cells**2, side, side, width]))), 0.03, 0)
    integers = graph.constant(graph.rng().integers(-90, 90, [width, 3 * width]).astype(np.int8))
    weights = graph.add("DequantizeLinear", integers, graph.constant(np.float32(0.003)), graph.constant(np.int8(0)))
    both = graph.rounded(graph.add("MatMul", windows, weights), SCALES["made"], 0)
    both = graph.rounded(graph.add("Add", graph.normal([3 * width], 0.3), both), SCALES["made"], 0)
    apart = graph.rounded(graph.add("Reshape", both, graph.constant(np.array([cells**2, side**2, heads, 3 * width // heads]))), SCALES["made"], 0)
    turned = graph.rounded(graph.add("Transpose", apart, perm=[0, 2, 1, 3]), SCALES["made"], 0)
    depth = width // heads
    q, k, v = [graph.rounded(graph.add("Slice", turned, *[graph.constant(np.array([at])) for at in (i * depth, (i + 1) * depth, 3)]),
                             SCALES["made"], 0) for i in range(3)]
    scores = graph.rounded(graph.add("MatMul", q, graph.rounded(graph.add("Transpose", k, perm=[0, 1, 3, 2]), SCALES["made"], 0)), 0.2307, 0)
    likely = graph.rounded(graph.add("Softmax", scores, axis=-1), 1 / 127, 0)
    graph.output(graph.add("MatMul", likely, v), [cells**2, heads, side**2, depth])
    inputs = {"x": np.random.default_rng(25).normal(size=[1, cells * side, cells * side, width]).astype(np.float32)}
    model = graph.model()
    [got], [right], report = outputs_of(millrace, model, tmp_path, inputs, flags, meant=None if flags else without_dropped_roundings(model))
    assert report["host_ops"] == [] and relative_l2(got, right) <= 4e-2
    assert report["measured_cycles"] < 20_000


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
@pytest.mark.parametrize("again", [False, True], ids=["one scheme", "schemes"])
def test_rows_that_are_moved_by_their_number_are_multiplied(millrace, tmp_path, again, flags):
    """As BoTNet makes relative positions absolute: padded, reshaped to rows that are longer by one, and cut, rounded in between. Every lane was
    copied by itself: SE-BoTNet wanted 1,048,576 rows and was refused."""
    rows, width, depth = 128, 32, 24
    graph = Quantised("moved", 29)
    scale = lambda step: 0.0413 * (1.07**step if again else 1)
    q = graph.rounded(graph.input("q", [rows, width, depth]), SCALES["input"], 0)
    integers = graph.constant(graph.rng().integers(-90, 90, [depth, 2 * width - 1]).astype(np.int8))
    table = graph.add("DequantizeLinear", integers, graph.constant(np.float32(0.004)), graph.constant(np.int8(0)))
    ends = lambda *sizes: graph.constant(np.array(sizes))
    x = graph.rounded(graph.add("MatMul", q, table), scale(0), 3)
    x = graph.rounded(graph.add("Pad", x, ends(0, 0, 0, 0, 0, 1)), scale(1), 3)
    x = graph.rounded(graph.add("Reshape", x, ends(rows, 2 * width * width)), scale(1), 3)
    x = graph.rounded(graph.add("Pad", x, ends(0, 0, 0, width - 1)), scale(2), 3)
    x = graph.rounded(graph.add("Reshape", x, ends(rows, width + 1, 2 * width - 1)), scale(2), 3)
    x = graph.rounded(graph.add("Slice", x, ends(0), ends(width), ends(1)), scale(2), 3)
    x = graph.rounded(graph.add("Slice", x, ends(width - 1), ends(2 * width - 1), ends(2)), scale(2), 3)
    graph.output(graph.rounded(graph.add("Mul", x, graph.normal([width], 1)), SCALES["output"], 0), [rows, width, width])
    model = graph.model()
    inputs = {"q": np.random.default_rng(26).normal(size=[rows, width, depth]).astype(np.float32)}
    [got], [right], report = outputs_of(millrace, model, tmp_path, inputs, flags, meant=None if flags else without_dropped_roundings(model))
    assert report["host_ops"] == [] and relative_l2(got, right) <= 1e-3
    assert report["memory_peak_bytes"] < 10 * 320 * rows * width  # ten vectors for each row
