# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far roundings to fp16 alone take a model: ONNX Runtime in fp32, every value and weight rounded to fp16.

    python tests/zoo/rounding.py FOLDER NAME ...

prints for each model the largest relative L2 distance of an output from ONNX Runtime's without any rounding.
"""
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import judge


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


def outputs_of(model: onnx.ModelProto, folder: Path) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # keep the casts
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {value.name: np.load(folder / f"{value.name}.npy") for value in session.get_inputs()})


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    for name in sys.argv[2:]:
        folder = Path(sys.argv[1]) / name
        model = onnx.load(str(folder / "model.onnx"))
        exact = outputs_of(model, folder)
        apart = max(judge.distance(got, right) for got, right in zip(outputs_of(rounded(model), folder), exact))
        print(f"{name}: {apart:.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
