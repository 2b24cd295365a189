# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts graphs: the model up to its final Softmax, whose small differences say nothing."""
from __future__ import annotations

import onnx
from onnx import helper

import probe

SOFTMAX = {"Softmax", "LogSoftmax"}


def final_softmax(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """The Softmax whose result is a graph output, maybe through views; None if there is none.

    A Softmax inside attention is never one: its result goes into a MatMul.
    """
    producer = {name: node for node in model.graph.node for name in node.output}
    for output in model.graph.output:
        node = producer.get(output.name)
        while node is not None and node.op_type in probe.VIEW_OPS:
            node = producer.get(node.input[0])
        if node is not None and node.op_type in SOFTMAX:
            return node
    return None


def cut_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that ends before its final Softmax: the Softmax's input takes the place of the graph
    output behind it. A model without one is copied as it is."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    softmax = final_softmax(copy)
    if softmax is None:
        return copy
    behind = {softmax.output[0]}
    for node in copy.graph.node:
        if node.input and node.input[0] in behind:
            behind.update(node.output)
    for output in copy.graph.output:
        if output.name in behind:
            kind = output.type.tensor_type.elem_type
            output.CopyFrom(helper.make_tensor_value_info(softmax.input[0], kind, None))
    drop_unread_nodes(copy.graph)
    inferred = onnx.shape_inference.infer_shapes(copy)
    for output, found in zip(copy.graph.output, inferred.graph.output):
        output.CopyFrom(found)
    return copy


def drop_unread_nodes(graph: onnx.GraphProto) -> None:
    """Removes nodes that no graph output depends on, and initializers that no node reads."""
    needed, kept = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            needed.update(node.input)
            kept.append(node)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
    constants = [onnx.TensorProto.FromString(t.SerializeToString())
                 for t in graph.initializer if t.name in needed]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(constants)
