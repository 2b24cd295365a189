# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What roundings alone do to a model, by ONNX Runtime: every value and weight rounded to fp16 (`rounded`), or a quantised
model without the roundings that a run leaves out if it need not keep all (`without_residual_roundings`)."""
from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def distance(got: np.ndarray, right: np.ndarray) -> float:
    """Relative L2; infinite where shapes, infinities or NaN differ."""
    got, right = got.astype(np.float64), right.astype(np.float64)
    if got.shape != right.shape or (np.isfinite(got) != np.isfinite(right)).any():
        return np.inf
    finite = np.isfinite(right)
    return float(np.linalg.norm(got[finite] - right[finite]) / max(np.linalg.norm(right[finite]), 1e-30))


def distance_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> float:
    """The largest relative L2 distance of an output of the rounded model from that of the model."""
    exact = outputs_of(model, inputs)
    return max(distance(got, right) for got, right in zip(outputs_of(rounded(model), inputs), exact))


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with casts to fp16 and back behind every value."""
    model = onnx.shape_inference.infer_shapes(model)
    graph = model.graph
    real = {value.name for values in (graph.value_info, graph.output) for value in values
            if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16).astype(np.float32), tensor.name))
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for i, name in enumerate(node.output):
            if name in real and node.op_type != "Constant":
                node.output[i] = name + ".exact"
                nodes += [helper.make_node("Cast", [name + ".exact"], [name + ".half"], to=TensorProto.FLOAT16),
                          helper.make_node("Cast", [name + ".half"], [name], to=TensorProto.FLOAT)]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def without_residual_roundings(model: onnx.ModelProto) -> onnx.ModelProto:
    """The quantised model as a run without --exact-qdq means it: what is quantised and dequantised, by one scale, for a side
    of a sum alone is clamped to what its integers stand for, but not rounded; one side of each sum (decisions.md,
    2026-11-21 and -22)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(output.name for output in graph.output)

    def made_for_one(name: str, kind: str) -> onnx.NodeProto | None:
        node = makers.get(name)
        return node if node is not None and node.op_type == kind and readers[name] == 1 else None

    def clamp(side: str) -> bool:
        dequantise = made_for_one(side, "DequantizeLinear")
        quantise = dequantise and made_for_one(dequantise.input[0], "QuantizeLinear")
        if not quantise or quantise.input[1] not in constants or constants[quantise.input[1]].size != 1:
            return False
        scale = constants[quantise.input[1]]
        zero = constants[quantise.input[2]] if len(quantise.input) > 2 else np.zeros_like(scale, np.uint8)
        ends = np.iinfo(zero.dtype)
        bounds = [numpy_helper.from_array(np.float32((end - float(zero)) * float(scale)), f"{side}.{end}")
                  for end in (ends.min, ends.max)]
        graph.initializer.extend(bounds)
        quantise.CopyFrom(helper.make_node("Clip", [quantise.input[0], *(bound.name for bound in bounds)], [side]))
        graph.node.remove(dequantise)
        return True

    for sum_ in [node for node in graph.node if node.op_type == "Add"]:
        any(clamp(side) for side in sum_.input)
    return copy


def outputs_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keep the casts
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})
