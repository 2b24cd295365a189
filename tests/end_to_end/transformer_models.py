# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention blocks and transformer layers drawn at random: the models of random_transformers.py.

`draw_model(n)` is the same wherever it is made: batch, queries, keys, a past, heads and heads of keys,
rotations by positions up to 100,000, norms, feed-forward parts, quantised weights and values, masks of
every kind and shape, and infinities and NaN among inputs.
"""
from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOWEST = float(np.finfo(np.float32).min)
FARTHEST = 100_000  # positions
OPSETS = {"": 23, "com.microsoft": 1}


class Model:
    """A model under construction: nodes, constants and inputs with their values."""

    def __init__(self, number: int = 0):
        self.random = np.random.default_rng([20261122, number])
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.exact: set[str] = set()  # results that are whole numbers or angles: in fp32
        self.steps: dict[str, float] = {}  # results that were rounded to multiples of a scale
        self.outputs: list[str] = []
        self.tags: list[str] = []

    def pick(self, *choices):
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, of: float) -> bool:
        return bool(self.random.random() < of)

    def integer(self, low: int, high: int) -> int:
        """low <= result <= high"""
        return int(self.random.integers(low, high + 1))

    def numbers(self, *shape, scale=1.0) -> np.ndarray:
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    def input(self, array) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = np.asarray(array)
        return name

    def constant(self, array, dtype=None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, dtype)
        return name

    def real(self, value) -> str:
        return self.constant(value, np.float32)

    def whole(self, *values) -> str:
        return self.constant(values, np.int64)

    def node(self, op, *inputs, outputs=1, exact=False, domain="", **attributes):
        """Adds a node; the name of its result, or the names of several."""
        names = [f"n{len(self.nodes)}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], domain=domain, **attributes))
        if exact:
            self.exact.update(names)
        return names[0] if outputs == 1 else names

    def chain(self, value, *ops) -> str:
        for op, *operands in ops:
            value = self.node(op, value, *operands)
        return value

    def taken(self) -> set[str]:
        return {name for node in self.nodes for name in node.input} | set(self.outputs)

    def proto(self) -> onnx.ModelProto:
        taken = self.taken()
        dtype = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            self.nodes, "random",
            [helper.make_tensor_value_info(name, dtype(a.dtype), a.shape)
             for name, a in self.inputs.items() if name in taken],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(a, name) for name, a in self.constants.items() if name in taken])
        domains = {node.domain for node in self.nodes} | {""}
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, OPSETS[d]) for d in sorted(domains)],
                                 ir_version=10)


@dataclasses.dataclass
class Shape:
    batch: int
    queries: int
    past: int
    heads: int
    shared: int  # heads of keys and values
    size: int  # channels of a head

    @property
    def keys(self) -> int:
        return self.past + self.queries

    @property
    def hidden(self) -> int:
        return self.heads * self.size


# --- parts of a layer; every one takes and gives names ---


def linear(m: Model, x: str, rows: int, columns: int) -> str:
    weights = m.numbers(rows, columns, scale=rows**-0.5)
    if m.chance(0.15):  # int8 weights
        scale = float(np.abs(weights).max()) / 127
        eight = np.clip(np.rint(weights / scale), -127, 127).astype(np.int8)
        w = m.node("DequantizeLinear", m.constant(eight), m.real(scale), m.constant(0, np.int8))
    else:
        w = m.constant(weights)
    y = m.node("MatMul", x, w)
    return m.node("Add", y, m.constant(m.numbers(columns, scale=0.1))) if m.chance(0.6) else y


def quantised(m: Model, x: str) -> str:
    """To int8 and back: values in the middle of a mixed graph."""
    scale, zero = m.real(0.05), m.constant(m.integer(-8, 8), np.int8)
    back = m.node("DequantizeLinear", m.node("QuantizeLinear", x, scale, zero), scale, zero)
    m.steps[back] = 0.05
    m.tags.append("qdq")
    return back


def norm(m: Model, x: str, width: int) -> str:
    kind = m.pick("layer", "layer", "steps", "rms", "rms_steps", "skip")
    scale, bias = m.constant(1 + m.numbers(width, scale=0.1)), m.constant(m.numbers(width, scale=0.1))
    m.tags.append("norm_" + kind)
    axis, two, tiny = m.whole(-1), m.real(2), m.real(m.pick(1e-5, 1e-6, 1e-12))
    if kind == "layer":
        return m.node("LayerNormalization", x, scale, bias, epsilon=1e-5)
    if kind == "rms":
        return m.node("RMSNormalization", x, scale, epsilon=1e-6)
    if kind == "skip":
        other = m.constant(m.numbers(width))
        skipped = m.node("Add", x, m.node("Mul", x, other))
        op = m.pick("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        return m.node(op, x, skipped, scale, *([bias] if op.startswith("SkipL") else []), domain="com.microsoft",
                      epsilon=1e-5)
    centred = x if kind == "rms_steps" else m.node("Sub", x, m.node("ReduceMean", x, axis))
    variance = m.node("ReduceMean", m.node("Pow", centred, two), axis)
    deviation = m.node("Sqrt", m.node("Add", variance, tiny))
    return m.node("Mul", m.node("Div", centred, deviation), scale)


def feed_forward(m: Model, x: str, width: int) -> str:
    inner = width * m.pick(1, 2)
    kind = m.pick("gelu", "erf", "tanh", "swiglu", "relu")
    m.tags.append("ffn_" + kind)
    up = linear(m, x, width, inner)
    if kind == "gelu":
        up = m.node("Gelu", up, approximate=m.pick("none", "tanh"))
    elif kind == "erf":
        erf = m.node("Add", m.node("Erf", m.node("Div", up, m.real(2**0.5))), m.real(1))
        up = m.node("Mul", m.node("Mul", up, erf), m.real(0.5))
    elif kind == "tanh":
        cubed = m.node("Add", up, m.node("Mul", m.node("Pow", up, m.real(3)), m.real(0.044715)))
        one = m.node("Add", m.node("Tanh", m.node("Mul", cubed, m.real(0.79788456))), m.real(1))
        up = m.node("Mul", m.node("Mul", up, m.real(0.5)), one)
    elif kind == "swiglu":
        gate = linear(m, x, width, inner)
        up = m.node("Mul", m.node("Mul", gate, m.node("Sigmoid", gate)), up)
    else:
        up = m.node("Relu", up)
    return linear(m, up, inner, width)


def split_heads(m: Model, x: str, s: Shape, heads: int) -> str:
    return m.node("Transpose", m.node("Reshape", x, m.whole(s.batch, s.queries, heads, s.size)), perm=[0, 2, 1, 3])


def angles(m: Model, s: Shape) -> tuple[str, str]:
    """Cosines and sines, batch (or 1) x queries x size / 2."""
    half = s.size // 2
    frequency = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
    first = m.integer(0, m.pick(10, 3000, FARTHEST - s.queries))
    positions = first + np.arange(s.queries)[None] + m.random.integers(0, 3, (s.batch, 1))
    kind = m.pick("product", "matmul", "matmul", "table", "floats")
    m.tags.append("rope_" + kind)
    if kind == "table":
        every = np.outer(np.arange(64), frequency)
        at = m.input(np.int64(positions % 64))
        return tuple(m.node("Gather", m.constant(f(every), np.float32), at) for f in (np.cos, np.sin))
    type_ = m.pick(np.int64, np.int64, np.int32)
    ids = m.input(positions.astype(type_)) if m.chance(0.8) else m.constant(positions, type_)
    if m.chance(0.2):
        ids = m.node("Sub", ids, m.constant(1, type_)) if m.chance(0.5) else m.node(
            "Add", ids, m.constant(7, type_))
    if kind == "matmul":
        row = m.node("Cast", m.node("Unsqueeze", ids, m.whole(1)), to=TensorProto.FLOAT, exact=True)
        column = m.constant(np.broadcast_to(frequency[None, :, None], (s.batch, half, 1)))
        angle = m.node("Transpose", m.node("MatMul", column, row, exact=True), perm=[0, 2, 1], exact=True)
    else:
        real = m.node("Cast", m.node("Unsqueeze", ids, m.whole(2)), to=TensorProto.FLOAT, exact=True)
        angle = m.node("Mul", real, m.constant(frequency), exact=True)
        if kind == "floats":
            angle = m.node("Mul", angle, m.real(0.5), exact=True)
    return m.node("Cos", angle), m.node("Sin", angle)


def rotate(m: Model, x: str, s: Shape, cos: str, sin: str) -> str:
    """x: batch x heads x queries x size."""
    half = s.size // 2
    kind = m.pick("half", "half", "interleaved", "quarters", "operator")
    m.tags.append("rope_" + kind)
    if kind == "operator":
        return m.node("RotaryEmbedding", x, cos, sin, interleaved=m.integer(0, 1))
    cos, sin = (m.node("Unsqueeze", table, m.whole(1)) for table in (cos, sin))
    if kind == "half":
        whole = [m.node("Concat", table, table, axis=-1) for table in (cos, sin)]
        low = m.node("Slice", x, m.whole(0), m.whole(half), m.whole(-1))
        high = m.node("Slice", x, m.whole(half), m.whole(s.size), m.whole(-1))
        turned = m.node("Concat", m.node("Neg", high), low, axis=-1)
        return m.node("Add", m.node("Mul", x, whole[0]), m.node("Mul", turned, whole[1]))
    if kind == "quarters":
        low, high = m.node("Split", x, outputs=2, num_outputs=2, axis=-1)
        return m.node("Concat", m.node("Sub", m.node("Mul", low, cos), m.node("Mul", high, sin)),
                      m.node("Add", m.node("Mul", high, cos), m.node("Mul", low, sin)), axis=-1)
    even = m.node("Slice", x, m.whole(0), m.whole(s.size), m.whole(-1), m.whole(2))
    odd = m.node("Slice", x, m.whole(1), m.whole(s.size), m.whole(-1), m.whole(2))
    a = m.node("Sub", m.node("Mul", even, cos), m.node("Mul", odd, sin))
    b = m.node("Add", m.node("Mul", odd, cos), m.node("Mul", even, sin))
    pair = m.node("Concat", *(m.node("Unsqueeze", v, m.whole(-1)) for v in (a, b)), axis=-1)
    return m.node("Reshape", pair, m.whole(0, 0, 0, -1))


def repeat_heads(m: Model, x: str, s: Shape) -> str:
    """Keys or values of fewer heads, each for its group of queries."""
    times = s.heads // s.shared
    if times == 1:
        return x
    if m.chance(0.5):
        wide = m.node("Expand", m.node("Unsqueeze", x, m.whole(2)), m.whole(1, 1, times, 1, 1))
    else:
        wide = m.node("Tile", m.node("Unsqueeze", x, m.whole(2)), m.whole(1, 1, times, 1, 1))
    return m.node("Reshape", wide, m.whole(s.batch, s.heads, -1, s.size))


# --- masks ---

def hidden_keys(m: Model, shape) -> np.ndarray:
    """True where a key is hidden; some rows may hide all."""
    hidden = m.random.random(shape) < m.pick(0.2, 0.5)
    if m.chance(0.7):
        hidden[..., 0] = False
    else:
        hidden[tuple(m.integer(0, extent - 1) for extent in shape[:-1])] = True
        m.tags.append("rows_hidden")
    return hidden


def lowest(m: Model) -> float:
    return m.pick(-np.inf, -np.inf, LOWEST, LOWEST, -1e4)


def mask_shape(m: Model, s: Shape) -> tuple[int, ...]:
    return m.pick((s.queries, s.keys), (s.batch, 1, s.queries, s.keys), (s.batch, 1, 1, s.keys),
                  (s.batch, s.heads, s.queries, s.keys), (1, 1, s.queries, s.keys), (s.keys,))


def somewhere(m: Model, array, dtype=None) -> str:
    return m.input(np.asarray(array, dtype)) if m.chance(0.75) else m.constant(array, dtype)


def causal(m: Model, s: Shape) -> str:
    """A Boolean node or constant, queries x keys: which are seen."""
    kind = m.pick("trilu", "positions", "constant")
    m.tags.append("causal_" + kind)
    if kind == "constant":
        return m.constant(np.tril(np.ones((s.queries, s.keys), bool), s.past))
    if kind == "trilu":
        ones = m.constant(np.ones((s.queries, s.keys)), np.float32)
        return m.node("Cast", m.node("Trilu", ones, m.constant(s.past, np.int64), upper=0), to=TensorProto.BOOL)
    at = somewhere(m, s.past + np.arange(s.queries)[:, None], np.int64)
    return m.node("LessOrEqual", m.constant(np.arange(s.keys)[None], np.int64), at)


def masked(m: Model, scores: str, s: Shape) -> str:
    kind = m.pick("none", "additive", "additive", "where", "where_add", "causal", "causal_add", "padding_product",
                  "padding_where", "trilu_infinite", "bias")
    m.tags.append("mask_" + kind)
    low = lowest(m)
    if kind == "none":
        return scores
    if kind == "bias":
        return m.node("Add", scores, somewhere(m, m.numbers(*mask_shape(m, s))))
    if kind == "additive":
        shape = mask_shape(m, s)
        return m.node("Add", scores, somewhere(m, np.where(hidden_keys(m, shape), low, 0), np.float32))
    if kind in ("where", "where_add"):
        seen = somewhere(m, ~hidden_keys(m, mask_shape(m, s)))
        if kind == "where":
            return m.node("Where", seen, scores, m.real(low))
        return m.node("Add", scores, m.node("Where", seen, m.real(0), m.real(low)))
    if kind in ("causal", "causal_add"):
        seen = causal(m, s)
        if kind == "causal":
            return m.node("Where", seen, scores, m.real(low))
        return m.node("Add", scores, m.node("Where", seen, m.real(0), m.real(low)))
    if kind == "trilu_infinite":
        full = m.constant(np.full((s.queries, s.keys), low), np.float32)
        return m.node("Add", scores, m.node("Trilu", full, m.constant(s.past + 1, np.int64), upper=1))
    kept = (~hidden_keys(m, (s.batch, s.keys))).astype(m.pick(np.int64, np.int32, np.float32))
    wide = m.node("Unsqueeze", m.input(kept), m.whole(1, 2))
    if kind == "padding_where":
        seen = m.node("Cast", wide, to=TensorProto.BOOL)
        return m.node("Where", seen, scores, m.real(low))
    real = wide if kept.dtype == np.float32 else m.node("Cast", wide, to=TensorProto.FLOAT, exact=True)
    low = m.pick(LOWEST, -1e4)
    return m.node("Add", scores, m.node("Mul", m.node("Sub", m.real(1), real), m.real(low)))


# --- attention ---


def past_and(m: Model, new: str, s: Shape) -> str:
    if not s.past:
        return new
    return m.node("Concat", m.input(strange(m, m.numbers(s.batch, s.shared, s.past, s.size))), new, axis=2)


def steps(m: Model, x: str, s: Shape) -> str:
    """Attention as matmuls and a softmax."""
    q = split_heads(m, linear(m, x, s.hidden, s.hidden), s, s.heads)
    k, v = (split_heads(m, linear(m, x, s.hidden, s.shared * s.size), s, s.shared) for _ in range(2))
    if s.size % 2 == 0 and m.chance(0.6):
        tables = angles(m, s)
        q, k = (rotate(m, t, s, *tables) for t in (q, k))
    k, v = past_and(m, k, s), past_and(m, v, s)
    if m.chance(0.3):
        m.outputs += [k, v]
    k, v = repeat_heads(m, k, s), repeat_heads(m, v, s)
    scores = m.node("MatMul", q, m.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = m.node("Mul", scores, m.real(s.size**-0.5)) if m.chance(0.8) else m.node(
        "Div", scores, m.real(s.size**0.5))
    weights = m.node("Softmax", masked(m, scores, s), axis=-1)
    if m.chance(0.1):  # as PyTorch writes rows that hide all keys
        weights = m.node("Where", m.node("IsNaN", weights), m.real(0), weights)
        m.tags.append("isnan")
    mixed = m.node("Transpose", m.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    return m.node("Reshape", mixed, m.whole(s.batch, s.queries, s.hidden))


def attention23(m: Model, x: str, s: Shape) -> str:
    """The operator of ONNX."""
    flat = s.past == 0 and m.chance(0.3)
    parts = [linear(m, x, s.hidden, heads * s.size) for heads in (s.heads, s.shared, s.shared)]
    if not flat:
        parts = [split_heads(m, part, s, heads) for part, heads in zip(parts, (s.heads, s.shared, s.shared))]
    operands = [*parts]
    mask = m.pick("none", "bool", "float", "float")
    m.tags.append("attention_" + mask)
    if mask != "none":
        hidden = hidden_keys(m, m.pick((s.queries, s.keys), (s.batch, 1, s.queries, s.keys),
                                       (s.batch, s.heads, s.queries, s.keys)))
        operands.append(somewhere(m, ~hidden if mask == "bool" else np.where(hidden, lowest(m), 0),
                                  bool if mask == "bool" else np.float32))
    outputs = 1
    if s.past:
        operands += [""] * (4 - len(operands))
        operands += [m.input(strange(m, m.numbers(s.batch, s.shared, s.past, s.size))) for _ in range(2)]
        outputs = 3
    options = {"q_num_heads": s.heads, "kv_num_heads": s.shared} if flat else {}
    result = m.node("Attention", *operands, outputs=outputs, is_causal=m.integer(0, 1), **options)
    if outputs == 3:
        m.outputs += result[1:]
        result = result[0]
    if flat:
        return result
    return m.node("Reshape", m.node("Transpose", result, perm=[0, 2, 1, 3]), m.whole(s.batch, s.queries, s.hidden))


def microsoft(m: Model, x: str, s: Shape) -> str:
    """com.microsoft's Attention or MultiHeadAttention."""
    if m.chance(0.5):
        m.tags.append("ms_attention")
        mask = m.pick("", "keys", "rows", "counts")
        shape = {"keys": (s.batch, s.keys), "rows": (s.batch, s.queries, s.keys)}.get(mask)
        given = ""
        if mask == "counts":
            given = m.input(m.random.integers(1, s.keys + 1, s.batch).astype(np.int32))
        elif mask:
            given = m.input((~hidden_keys(m, shape)).astype(np.int32))
        options = {"unidirectional": m.integer(0, 1)}
        operands = [x, m.constant(m.numbers(s.hidden, 3 * s.hidden, scale=s.hidden**-0.5)),
                    m.constant(m.numbers(3 * s.hidden, scale=0.1)), given]
        if s.past and mask != "counts":
            operands.append(m.input(strange(m, m.numbers(2, s.batch, s.heads, s.past, s.size))))
            result = m.node("Attention", *operands, outputs=2, domain="com.microsoft", num_heads=s.heads, **options)
            m.outputs.append(result[1])
            return result[0]
        if s.past:
            operands[3] = ""
        return m.node("Attention", *operands, domain="com.microsoft", num_heads=s.heads, **options)
    m.tags.append("ms_multihead")
    q, k, v = (linear(m, x, s.hidden, s.hidden) for _ in range(3))
    bias = m.constant(m.numbers(3 * s.hidden, scale=0.1)) if m.chance(0.5) else ""
    mask = m.input((~hidden_keys(m, (s.batch, s.queries))).astype(np.int32)) if m.chance(0.4) else ""
    extra = ""
    if m.chance(0.5):
        hidden = hidden_keys(m, (m.pick(1, s.batch), m.pick(1, s.heads), s.queries, s.queries))
        extra = somewhere(m, np.where(hidden, lowest(m), 0) if m.chance(0.5) else m.numbers(*hidden.shape), np.float32)
    return m.node("MultiHeadAttention", q, k, v, bias, mask, extra, domain="com.microsoft", num_heads=s.heads,
                  unidirectional=m.integer(0, 1))


def strange(m: Model, array) -> np.ndarray:
    """Sometimes with infinities or NaN in a few places."""
    if m.chance(0.15):
        for _ in range(m.integer(1, 3)):
            array[tuple(m.integer(0, extent - 1) for extent in array.shape)] = m.pick(np.inf, -np.inf, np.nan)
        m.tags.append("strange")
    return array


def start(m: Model, s: Shape) -> str:
    if m.chance(0.25):
        ids = m.input(m.random.integers(0, 50, (s.batch, s.queries)))
        return m.node("Gather", m.constant(m.numbers(50, s.hidden)), ids)
    return m.input(strange(m, m.numbers(s.batch, s.queries, s.hidden)))


def draw_model(number: int) -> Model:
    m = Model(number)
    heads = m.pick(1, 2, 3, 4)
    s = Shape(m.pick(1, 1, 2, 3), m.pick(1, 2, 3, 4, 5, 8, 16, 17), m.pick(0, 0, 0, 1, 3, 6), heads,
              m.pick(*[n for n in range(1, heads + 1) if heads % n == 0]), m.pick(2, 4, 6, 8, 8, 16))
    kind = m.pick(steps, steps, steps, attention23, microsoft)
    if kind is microsoft:
        s.shared = s.heads
    elif s.past == 0 or kind is attention23:
        m.tags.append(f"group_{s.heads // s.shared}")
    m.tags.append(kind.__name__)
    x = start(m, s)
    y = norm(m, x, s.hidden) if m.chance(0.4) else x
    if m.chance(0.1):
        y = quantised(m, y)
    y = kind(m, y, s)
    if m.chance(0.85):
        y = m.node("Add", x, linear(m, y, s.hidden, s.hidden))
    if m.chance(0.4):
        z = norm(m, y, s.hidden) if m.chance(0.7) else y
        y = m.node("Add", y, feed_forward(m, z, s.hidden))
    m.outputs.append(y)
    return m
