# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far roundings to fp16 alone take a model: ONNX Runtime in fp32, every value and weight rounded to fp16."""
from __future__ import annotations

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


def outputs_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keep the casts
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})
