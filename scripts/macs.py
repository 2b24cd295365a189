#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the multiply-accumulates of an ONNX model from its tensor shapes alone.

    scripts/macs.py MODEL.onnx [--dim name=n]... [--output FILE]

Prints JSON: {"macs_total": n, "by_node": [{"node", "op", "macs"}, ...]}.

What is counted: every contraction whose operands depend on numbers of a graph input (one between
constants or shapes folds away). The dense formula, without any padding to the machine's sizes:
  convolution  N * Ho * Wo * Cout * (Cin / group) * kh * kw, taps on the zero border included
  matmul       batch * M * N * K
  attention    projection B*S*D*(Hq+Hk+Hv) where the operator holds one, then Q K^T and P V over the
               full S x T product, T = past + new keys; a causal mask takes nothing off
Not counted: element-wise work, pooling, normalisation, gathers. Recurrent operators and
contractions inside If, Loop or Scan are errors, never silently left out.
"""
from __future__ import annotations

import argparse
import json
import sys
from math import prod
from pathlib import Path

import onnx
from onnx import helper, inliner, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "models" / "recipes"))
import probe  # noqa: E402
from graph import attribute, parse_dims  # noqa: E402

UNSUPPORTED = {"LSTM", "GRU", "RNN", "DeformConv", "MatMulNBits", "MoE", "QMoE",
               "LongformerAttention", "DecoderAttention", "PackedAttention",
               "PackedMultiHeadAttention", "SparseAttention", "PagedAttention", "QOrderedMatMul",
               "QOrderedAttention", "LinearAttention"}


def convolution(weight_index: int):
    """MACs of Conv and its relatives: outputs times the taps of one output."""
    def count(node, shape):
        return prod(shape(node.output[0])) * prod(shape(node.input[weight_index])[1:])
    return count


def transposed_convolution(node, shape):
    """Each input element meets each tap of its channel's kernels once: W is [Cin, Cout/g, k...]."""
    return prod(shape(node.input[0])) * prod(shape(node.input[1])[1:])


def matmul():
    """Output elements times the common extent (the last one of A, or second-last if transposed)."""
    def count(node, shape):
        a = shape(node.input[0])
        transposed = attribute(node, "transA", 0) and len(a) > 1
        return prod(shape(node.output[0])) * a[-2 if transposed else -1]
    return count


def einsum(node, shape):
    """Product of all extents, for two operands that share a summed index; else 0. Dimensions of an
    ellipsis are numbers, from the right."""
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != 2:
        return 0
    if not arrow:
        right = "..." + "".join(c for c in left if left.count(c) == 1)
    extents, indices = {}, []
    for term, operand in zip(terms, node.input):
        its = shape(operand)
        head, dots, tail = term.partition("...")
        count = len(its) - len(head) - len(tail) if dots else 0
        indices.append([*head, *reversed(range(count)), *tail])
        for index, extent in zip(indices[-1], its):
            extents[index] = max(extent, extents.get(index, 1))
    kept = set(right) | (set(range(len(extents))) if "..." in right else set())
    return prod(extents.values()) if set(indices[0]) & set(indices[1]) - kept else 0


def packed_attention(past_index: int):
    """com.microsoft Attention / QAttention: projection of [B,S,D] by W [D, Hq+Hk+Hv], then scores
    over T = past + S keys. `past_index` is the input holding past [2,B,N,P,h]."""
    def count(node, shape):
        batch, length, width = shape(node.input[0])
        columns = shape(node.input[1])[1]
        sizes = attribute(node, "qkv_hidden_sizes", [columns // 3] * 3)
        has_past = len(node.input) > past_index and node.input[past_index]
        past = shape(node.input[past_index])[3] if has_past else 0
        keys = length + past
        return batch * length * (width * columns + keys * (sizes[0] + sizes[2]))
    return count


def scores(batch, heads, length, keys, key_width, value_width):
    """MACs of Q K^T and P V."""
    return batch * heads * length * keys * (key_width + value_width)


def operand_shape(node, index, shape):
    """Shape of input `index`, or None where it is left out."""
    return shape(node.input[index]) if len(node.input) > index and node.input[index] else None


def multi_head_attention(node, shape):
    """com.microsoft MultiHeadAttention: query [B,S,H], key [B,L,H] or [B,N,L,h], value likewise;
    packed QKV [B,S,N,3,h]; packed KV [B,L,N,2,h]; past_key [B,N,P,h] is input 6."""
    heads = attribute(node, "num_heads", 0)
    query, key, value, past = (operand_shape(node, i, shape) for i in (0, 1, 2, 6))
    if len(query) == 5:
        batch, length, heads, _, width = query
        return scores(batch, heads, length, length + (past[2] if past else 0), width, width)
    batch, length, hidden = query
    width = hidden // heads
    if key is None or len(key) == 5:
        keys, value_width = (key[1] if key else length), width
    elif len(key) == 4:
        return scores(batch, heads, length, key[2], width, value[3])
    else:
        keys, value_width = key[1], value[2] // heads
    return scores(batch, heads, length, keys + (past[2] if past else 0), width, value_width)


def onnx_attention(node, shape):
    """ONNX Attention (opset 23 on): Q [B,Hq,S,h] or [B,S,Hq*h], K and V likewise, past_key 4."""
    query, key, value, past = (operand_shape(node, i, shape) for i in (0, 1, 2, 4))
    if len(query) == 4:
        batch, heads, length, width = query
        keys, value_width = key[2], value[3]
    else:
        heads, kv_heads = attribute(node, "q_num_heads", 0), attribute(node, "kv_num_heads", 0)
        batch, length, width = query[0], query[1], query[2] // heads
        keys, value_width = key[1], value[2] // kv_heads
    return scores(batch, heads, length, keys + (past[2] if past else 0), width, value_width)


def grouped_query_attention(node, shape):
    """com.microsoft GroupQueryAttention: query [B,S,Hq*h] (or QKV packed into it); keys are the
    extent of present_key [B,Hkv,T,h]."""
    query, key = operand_shape(node, 0, shape), operand_shape(node, 1, shape)
    heads, kv_heads = attribute(node, "num_heads", 0), attribute(node, "kv_num_heads", 0)
    width = query[2] // (heads if key is not None else heads + 2 * kv_heads)
    return scores(query[0], heads, query[1], shape(node.output[1])[2], width, width)


MS = probe.CONTRIB
COUNTERS = {
    ("", "Conv"): convolution(1), ("", "ConvInteger"): convolution(1),
    ("", "QLinearConv"): convolution(3), (MS, "QLinearConv"): convolution(3),
    (MS, "FusedConv"): convolution(1), ("", "ConvTranspose"): transposed_convolution,
    ("", "Gemm"): matmul(), ("", "MatMul"): matmul(), ("", "MatMulInteger"): matmul(),
    ("", "QLinearMatMul"): matmul(), (MS, "QGemm"): matmul(), (MS, "FusedMatMul"): matmul(),
    (MS, "FusedGemm"): matmul(), (MS, "DynamicQuantizeMatMul"): matmul(),
    (MS, "MatMulIntegerToFloat"): matmul(), ("", "Einsum"): einsum,
    (MS, "Attention"): packed_attention(4), (MS, "QAttention"): packed_attention(8),
    (MS, "MultiHeadAttention"): multi_head_attention, ("", "Attention"): onnx_attention,
    (MS, "GroupQueryAttention"): grouped_query_attention,
}


def count_macs(model: onnx.ModelProto, dims: dict[str, int] | None = None) -> dict:
    """{"macs_total": n, "by_node": [{"node", "op", "macs"}, ...]} for extents `dims` of named axes.

    Raises ValueError for a missing extent or an operator that cannot be counted.
    """
    if any(node.domain not in ("", MS) for node in model.graph.node) and model.functions:
        model = inliner.inline_local_functions(model)
    shape = Shapes(model, dims or {})
    rows = []
    for node in varying_nodes(model.graph):
        refuse_uncountable(node)
        counter = COUNTERS.get((node.domain, node.op_type))
        if counter:
            rows.append({"node": node.name or node.output[0], "op": node.op_type,
                         "macs": int(counter(node, shape))})
    return {"macs_total": sum(row["macs"] for row in rows), "by_node": rows}


def varying_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Nodes that depend on numbers of a graph input the user gives; the rest folds to constants."""
    varying = {value.name for value in probe.real_inputs(graph)}
    found = []
    for node in graph.node:
        if node.op_type in ("Shape", "Size") and not node.domain:
            continue
        if any(name in varying for name in node.input) or nested_graphs(node):
            varying.update(node.output)
            found.append(node)
    return found


def nested_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [entry.g for entry in node.attribute if entry.type == onnx.AttributeProto.GRAPH]


def refuse_uncountable(node: onnx.NodeProto) -> None:
    """Raises ValueError if `node` multiplies and accumulates in a way that is not counted here."""
    inside = [inner for graph in nested_graphs(node) for inner in graph.node]
    for inner in inside:
        refuse_uncountable(inner)
        if (inner.domain, inner.op_type) in COUNTERS:
            raise ValueError(f"node '{node.name}' ({node.op_type}) holds a {inner.op_type}; "
                             "contractions in nested graphs are not counted")
    if node.op_type in UNSUPPORTED:
        raise ValueError(f"node '{node.name}' is a {node.op_type}, which is not counted; "
                         "add a formula to scripts/macs.py")


class Shapes:
    """Shape of any tensor: constants, ONNX shape inference, and where that stops short (contrib
    operators) one run of ONNX Runtime on seeded inputs."""

    def __init__(self, model: onnx.ModelProto, dims: dict[str, int]):
        self.model, self.dims, self.ran = model, dims, False
        self.known = {t.name: tuple(t.dims) for t in model.graph.initializer}
        for node in model.graph.node:
            value = attribute(node, "value", None)
            if node.op_type == "Constant" and value is not None:
                self.known[node.output[0]] = numpy_helper.to_array(value).shape
        self.infer()

    def infer(self) -> None:
        """Fixes the inputs' extents, forgets stored shapes, keeps what inference finds static."""
        fixed = onnx.ModelProto()
        fixed.CopyFrom(self.model)
        del fixed.graph.value_info[:]
        for value in probe.real_inputs(fixed.graph):
            shape = probe.input_shape(value, self.dims)
            self.known[value.name] = shape
            elem_type = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, elem_type, shape))
        for output in fixed.graph.output:
            output.type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
        for value in [*inferred.graph.value_info, *inferred.graph.output]:
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
                self.known[value.name] = tuple(d.dim_value for d in tensor.shape.dim)

    def __call__(self, name: str) -> tuple[int, ...]:
        if name not in self.known and not self.ran:
            self.ran = True
            values = probe.run_all(self.model, probe.seeded_inputs(self.model, self.dims))
            self.known.update({key: value.shape for key, value in values.items()})
        return self.known[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", default=[], help="extent of a named axis: name=n")
    parser.add_argument("--output", help="file for the JSON (default: standard output)")
    arguments = parser.parse_args()
    try:
        counted = count_macs(onnx.load(arguments.model), parse_dims(arguments.dim))
    except ValueError as error:
        sys.exit(f"macs.py: {arguments.model}: {error}")
    text = json.dumps(counted, indent=1) + "\n"
    if arguments.output:
        Path(arguments.output).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
