# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attentions of any size and many kinds, as they are and quantised at random, run on the grid alone and give what ONNX Runtime
gives: more tokens than a vector has lanes, or just as many, cross attention, shared keys, masks, positions, mixed heads."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from graph import Graph
from oracle import relative_l2, run_millrace, save_model

LANES = 320  # of tsp-v1 and lp30


class Attention(Graph):
    """Attention number `number`; quantised if the ranges of its values are given."""

    def __init__(self, number: int, ranges: dict[str, np.ndarray] | None = None):
        super().__init__(f"attention_{number}", number)
        self.draw, self.ranges, self.given = np.random.default_rng(number), ranges, {}
        self.type = self.draw.choice([np.int8, np.uint8])
        self.is_symmetric, self.is_per_channel = self.draw.random(2) < 0.4
        self.build()

    def happens(self, probability: float) -> bool:
        return self.draw.random() < probability

    def size(self) -> int:
        ranges = [(1, 40), (40, LANES), (LANES - 2, LANES + 6), (LANES + 6, 2 * LANES + 4)]
        return int(self.draw.integers(*ranges[self.draw.integers(len(ranges))]))

    def rounded(self, x: str) -> str:
        if self.ranges is None:
            return x
        low, high = min(0, self.ranges[x].min()), max(0, self.ranges[x].max())
        least, most = np.iinfo(self.type).min, np.iinfo(self.type).max
        if self.is_symmetric:
            scale, zero = max(-low, high) * 2 / 254, (least + most + 1) // 2
        else:
            scale = (high - low) / 255
            zero = round(least - low / scale) if scale else 0
        scheme = self.constant(np.float32(scale or 1)), self.constant(self.type(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *scheme), *scheme)

    def entry(self, name: str, *shape: int) -> str:
        self.given[name] = self.rng().standard_normal(shape).astype(np.float32)
        self.input(name, list(shape))
        return self.rounded(name) if self.ranges is None or name in self.ranges else name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *operands: str, **attributes) -> str:
        return self.rounded(self.add(kind, *operands, **attributes))

    def weights(self, given: int, made: int, *more: int) -> str:
        reals = (self.rng().standard_normal([given, made, *more]) / given**0.5).astype(np.float32)
        if self.ranges is None:
            return self.constant(reals)
        axes = (0, *range(2, reals.ndim)) if self.is_per_channel else None
        scales = np.float32(np.abs(reals).max(axes) / 127)
        shape = (1, -1) + (1,) * len(more) if self.is_per_channel else ()
        integers = np.rint(reals / scales.reshape(shape)).astype(np.int8)
        return self.add("DequantizeLinear", self.constant(integers), self.constant(scales), self.constant(np.zeros(scales.shape, np.int8)), axis=1)

    def heads_of(self, x: str, tokens: int, heads: int, depth: int) -> str:
        x = self.op("MatMul", x, self.weights(self.width, heads * depth))
        return self.op("Transpose", self.op("Reshape", x, self.ints(1, tokens, heads, depth)), perm=[0, 2, 1, 3])

    def shared(self, x: str, heads: int, tokens: int, depth: int) -> str:
        """Half as many heads, each for two."""
        half = self.op("Slice", x, self.ints(0), self.ints(heads // 2), self.ints(1))
        wide = self.op("Expand", self.op("Unsqueeze", half, self.ints(2)), self.ints(1, heads // 2, 2, tokens, depth))
        return self.op("Reshape", wide, self.ints(1, heads, tokens, depth))

    def positioned(self, s: str, q: str, heads: int, queries: int, keys: int, depth: int) -> str:
        """Scores with a mask or with positions, of one kind of many."""
        kind = self.draw.integers(9)
        side, below = int(queries**0.5), int(keys**0.5)
        if kind == 0:
            return self.op("Add", s, self.entry("mask", 1, 1, 1, keys))
        if kind == 1:
            return self.op("Add", s, self.entry("mask", 1, 1, queries, keys))
        if kind == 2:
            return self.op("Add", s, self.rounded_constant((heads, queries, keys)))
        if kind == 3:
            return self.op("Where", self.constant(np.tri(queries, keys, dtype=bool)), s, self.constant(np.float32(-1e4)))
        if kind == 4:
            return self.op("Add", s, self.op("MatMul", q, self.weights(depth, keys)))
        if kind == 5 and side**2 == queries and below**2 == keys:
            s = self.op("Reshape", s, self.ints(1, heads, side, side, below, below))
            for shape in ((below, 1), (1, below)):
                beside = self.op("Reshape", self.op("MatMul", q, self.weights(depth, below)), self.ints(1, heads, side, side, *shape))
                s = self.op("Add", s, beside)
            return self.op("Reshape", s, self.ints(1, heads, queries, keys))
        return s

    def rounded_constant(self, shape) -> str:
        name = self.normal(shape, 0.5)
        return name if self.ranges is None else self.rounded(name)

    def build(self) -> None:
        heads, depth = int(self.draw.choice([1, 2, 3, 4, 8])), int(self.draw.choice([8, 16, 20, 32, 64]))
        queries = self.size()
        if self.happens(0.25):
            queries = int(self.draw.integers(3, 24)) ** 2
        keys = queries if self.happens(0.6) else self.size()
        if self.happens(0.2):
            keys = int(self.draw.integers(2, 20)) ** 2
        while heads * queries * keys > 400_000:
            heads = 1 if heads > 1 else heads
            keys = keys if heads * queries * keys <= 400_000 else keys // 2
        self.width = heads * depth
        x = self.entry("x", 1, queries, self.width)
        y = x if keys == queries else self.entry("y", 1, keys, self.width)
        q, k, v = [self.heads_of(of, n, heads, depth) for of, n in ((x, queries), (y, keys), (y, keys))]
        if heads % 2 == 0 and self.happens(0.2):
            k, v = [self.shared(each, heads, keys, depth) for each in (k, v)]
        elif self.happens(0.1):
            k, v = [self.op("Concat", self.entry(f"past_{i}", 1, heads, 40, depth), each, axis=2) for i, each in enumerate((k, v))]
            keys += 40
        is_scaled_first = self.happens(0.3)
        if is_scaled_first:
            q = self.op("Mul", q, self.constant(np.float32(depth**-0.5)))
        s = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        if not is_scaled_first:
            s = self.op(*(("Mul", s, self.constant(np.float32(depth**-0.5))) if self.happens(0.5) else ("Div", s, self.constant(np.float32(depth**0.5)))))
        s = self.positioned(s, q, heads, queries, keys, depth)
        mixes = heads > 1 and self.happens(0.15)
        s = self.op("Conv", s, self.weights(heads, heads, 1, 1)) if mixes else s
        s = self.op("Softmax", s, axis=-1)
        s = self.op("Conv", s, self.weights(heads, heads, 1, 1)) if mixes and self.happens(0.5) else s
        o = self.op("Transpose", self.op("MatMul", s, v), perm=[0, 2, 1, 3])
        o = self.add("MatMul", self.op("Reshape", o, self.ints(1, queries, self.width)), self.weights(self.width, self.width))
        self.output(o, [1, queries, self.width])


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))


def ranges_of(attention: Attention) -> dict[str, np.ndarray]:
    """What every value of the model as it is has for its inputs, the inputs and weights among them."""
    model = attention.model()
    names = [name for node in model.graph.node for name in node.output if name not in {o.name for o in model.graph.output}]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    return {**weights, **attention.given, **run(model, attention.given)}


@pytest.mark.parametrize("machine", ["tsp-v1", "lp30"])
@pytest.mark.parametrize("form", ["fp16", "int8", "exact"])
@pytest.mark.parametrize("number", range(12))
def test_attention_of_any_size_is_on_the_grid(millrace, tmp_path, number, form, machine):
    number += 0 if machine == "tsp-v1" else 1000
    attention = Attention(number)
    right = near = next(iter(run(attention.model(), attention.given).values()))
    bound = 4e-3
    if form != "fp16":
        attention = Attention(number, ranges_of(attention))
        right = next(iter(run(attention.model(), attention.given).values()))
        bound = 1.5 * relative_l2(right, near) + 1e-2  # as far as its own roundings lead
    flags = ["--effort", "0", *(["--exact-qdq"] if form == "exact" else [])]
    got = run_millrace(millrace, save_model(attention.model(), tmp_path), machine, "fp16" if form == "fp16" else "int8", attention.given, tmp_path,
                       flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == [] and got.report["macs_on_grid"] == got.report["macs_total"]
    [output] = got.outputs.values()
    assert relative_l2(output, right) <= bound
