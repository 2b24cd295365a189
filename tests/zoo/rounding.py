# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What roundings alone do to a model, by ONNX Runtime: every value and weight rounded to fp16 (`rounded`), or a quantised
model without the roundings that a run leaves out if it need not keep all (`without_dropped_roundings`)."""
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


ELEMENTWISE = set("""Abs Add BatchNormalization Cast Ceil Celu Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu
    Log Max Min Mish Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Swish Tanh
    ThresholdedRelu Where""".split())


class _Roundings:
    """The pairs of a QuantizeLinear and a DequantizeLinear of one scale, for a single reader each, of a model."""

    def __init__(self, model: onnx.ModelProto):
        self.graph = model.graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        inferred = onnx.shape_inference.infer_shapes(model).graph
        self.shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                       for values in (inferred.value_info, inferred.input, inferred.output) for value in values}
        self.shapes.update({name: list(array.shape) for name, array in self.constants.items()})
        self._index()

    def _index(self) -> None:
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.readers = Counter(name for node in self.graph.node for name in node.input)
        self.readers.update(output.name for output in self.graph.output)
        self.reader = {name: node for node in self.graph.node for name in node.input}

    def _made_for_one(self, name: str, kind: str) -> onnx.NodeProto | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type == kind and self.readers[name] == 1 else None

    def _pair(self, name: str) -> tuple[onnx.NodeProto, onnx.NodeProto] | None:
        dequantise = self._made_for_one(name, "DequantizeLinear")
        quantise = dequantise and self._made_for_one(dequantise.input[0], "QuantizeLinear")
        if not quantise or quantise.input[1] not in self.constants or self.constants[quantise.input[1]].size != 1:
            return None
        return (quantise, dequantise) if self._scheme(quantise) == self._scheme(dequantise) else None

    def _scheme(self, node: onnx.NodeProto) -> list:
        return [self.constants[name].tolist() if name in self.constants else name for name in node.input[1:]]

    def clamp(self, name: str) -> bool:
        """Leaves a dequantised value unrounded, if it is one of such a pair."""
        pair = self._pair(name)
        if not pair:
            return False
        quantise, dequantise = pair
        scale = self.constants[quantise.input[1]]
        zero = self.constants[quantise.input[2]] if len(quantise.input) > 2 else np.zeros_like(scale, np.uint8)
        ends = np.iinfo(zero.dtype)
        bounds = [numpy_helper.from_array(np.float32((end - float(zero)) * float(scale)), f"{name}.{end}")
                  for end in (ends.min, ends.max)]
        self.graph.initializer.extend(bounds)
        self.constants.update({bound.name: numpy_helper.to_array(bound) for bound in bounds})
        quantise.CopyFrom(helper.make_node("Clip", [quantise.input[0], *(bound.name for bound in bounds)], [name]))
        self.graph.node.remove(dequantise)
        self._index()
        return True

    def _is_of_elements(self, name: str) -> bool:
        """Computed element by element, of what is dequantised or read by others, too; not behind a sum of products."""
        node = self.makers.get(name)
        if node is None or node.op_type not in ELEMENTWISE | {"DequantizeLinear"}:
            return False
        operands = node.input[:1] if node.op_type == "BatchNormalization" else node.input
        return node.op_type == "DequantizeLinear" or all(
            not operand or operand in self.constants or self.readers[operand] > 1 or self._is_of_elements(operand)
            for operand in operands)

    def _is_read_as_reals(self, name: str) -> bool:
        """By a map of elements, one for each, or by a convolution of each channel by itself."""
        reader = self.reader.get(name)
        if reader is not None and reader.op_type == "Pad":
            name = reader.output[0]
            reader = self.reader.get(name) if self.readers[name] == 1 else None
        if reader is None:
            return False
        if reader.op_type in ELEMENTWISE:
            return self.shapes.get(name) == self.shapes.get(reader.output[0])
        group = next((attribute.i for attribute in reader.attribute if attribute.name == "group"), 1)
        return reader.op_type == "Conv" and name == reader.input[0] and group > 1 and group == self.shapes[name][1]

    def clamp_first(self) -> None:
        """What is clamped between two equal roundings is rounded once: the integers are the same."""
        for node in [node for node in self.graph.node if node.op_type in ("Relu", "Clip")]:
            pair, reader = self._pair(node.input[0]), self.reader.get(node.output[0])
            if (pair and self.readers[node.output[0]] == 1 and reader is not None and reader.op_type == "QuantizeLinear"
                    and self._scheme(reader) == self._scheme(pair[0])):
                node.input[0] = pair[0].input[0]
                for gone in pair:
                    self.graph.node.remove(gone)
                self._index()

    def drop(self) -> None:
        self.clamp_first()
        for node in [node for node in self.graph.node if node.op_type == "Add"]:
            any(self.clamp(side) for side in node.input)
        for name in [node.output[0] for node in self.graph.node if node.op_type == "DequantizeLinear"]:
            pair = self._pair(name)
            if pair and self._is_read_as_reals(name) and self._is_of_elements(pair[0].input[0]):
                self.clamp(name)


def without_dropped_roundings(model: onnx.ModelProto) -> onnx.ModelProto:
    """The quantised model as a run without --exact-qdq means it: what is quantised and dequantised, by one scale, for a single
    reader is clamped to what its integers stand for, but not rounded, where it is one side of a sum (one of each), or where
    maps of elements made it and one, or a depthwise convolution, reads it (decisions.md, 2026-11-21, -22 and -30)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Roundings(copy).drop()
    return copy


def outputs_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keep the casts
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})
