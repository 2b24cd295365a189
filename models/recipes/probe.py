# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a model in ONNX Runtime, unoptimised, on seeded inputs; every intermediate can be read.

Used by the recipes (activation bounds, calibration), by scripts/macs.py (shapes of contrib
operators) and by tests/end_to_end/oracle.py.
"""
from __future__ import annotations

import zlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

CONTRIB = "com.microsoft"
# Operators through which a value keeps its elements: a consumer behind them is the real consumer.
VIEW_OPS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Cast",
            "Dropout"}
# (domain, operator, index input) -> inputs whose first extent (or that of `axis`) bounds the index.
INDEXED_BY = {
    ("", "Gather", 1): 0,
    (CONTRIB, "EmbedLayerNormalization", 0): 2,
    (CONTRIB, "EmbedLayerNormalization", 1): 4,
    (CONTRIB, "EmbedLayerNormalization", 8): 3,
}
# (domain, operator, input) of integer masks, where 1 keeps and 0 hides.
MASKS = {(CONTRIB, "Attention", 3), (CONTRIB, "MultiHeadAttention", 4),
         (CONTRIB, "EmbedLayerNormalization", 7)}


def session(model: onnx.ModelProto | str) -> ort.InferenceSession:
    """An ONNX Runtime session on the CPU with every graph optimisation off, two threads.

    Raises onnxruntime's own exception when the model does not load.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto | str, inputs: dict[str, np.ndarray],
        fetch: list[str] | None = None) -> dict[str, np.ndarray]:
    """Outputs by name. `fetch` asks for further tensors, which are exposed in a copy first."""
    if fetch:
        model = expose(model, fetch)
    ready = session(model)
    names = [output.name for output in ready.get_outputs()]
    return dict(zip(names, ready.run(names, inputs)))


def expose(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """A copy of `model` whose graph outputs also hold `names` (types left to ONNX Runtime)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    present = {output.name for output in copy.graph.output}
    for name in names:
        if name not in present:
            present.add(name)
            copy.graph.output.append(onnx.ValueInfoProto(name=name))
    return copy


def node_outputs(model: onnx.ModelProto) -> list[str]:
    """Names of all tensors that a node of the main graph writes, in graph order."""
    return [name for node in model.graph.node for name in node.output if name]


def run_all(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor that some node writes, by name."""
    return run(model, inputs, node_outputs(model))


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that the user must give: those without an initializer (IR < 4 lists both)."""
    constant = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constant]


def input_shape(value: onnx.ValueInfoProto, dims: dict[str, int]) -> tuple[int, ...]:
    """Static shape of a graph input, its named extents taken from `dims` (extents in elements).

    Raises ValueError naming the input and the extent that `dims` lacks.
    """
    shape = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif dim.dim_param in dims:
            shape.append(dims[dim.dim_param])
        else:
            name = dim.dim_param or f"(unnamed axis {axis})"
            raise ValueError(f"input '{value.name}' has no extent for '{name}'; "
                             f"give --dim {name}=n")
    return tuple(shape)


def seeded_inputs(model: onnx.ModelProto, dims: dict[str, int] | None = None,
                  seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name, the same for the same (name, shape, seed) on every machine.

    Floats are standard normal; index inputs lie below the extent that they index; integer masks
    are all ones; other integers lie in [0, 2) (64- and 32-bit) or span the type (8-bit). An extent
    of 0 (an empty past) gives an empty array. Raises ValueError for an unknown extent.
    """
    found = {}
    for value in real_inputs(model.graph):
        shape = input_shape(value, dims or {})
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        rng = np.random.default_rng([seed, zlib.crc32(value.name.encode())])
        if np.issubdtype(dtype, np.integer):
            low, high = integer_range(model.graph, value.name, dtype)
            found[value.name] = rng.integers(low, high, shape).astype(dtype)
        elif dtype == np.bool_:
            found[value.name] = rng.integers(0, 2, shape).astype(dtype)
        else:
            found[value.name] = rng.standard_normal(shape).astype(dtype)
    return found


def integer_range(graph: onnx.GraphProto, name: str, dtype: np.dtype) -> tuple[int, int]:
    """[low, high) of the integer graph input `name`: see `seeded_inputs`."""
    extents = []
    for node, index in consumers(graph, name):
        key = (node.domain, node.op_type, index)
        if key in MASKS:
            return 1, 2
        if key in INDEXED_BY:
            extents.append(indexed_extent(graph, node, INDEXED_BY[key]))
    if extents:
        return 0, min(extents)
    if dtype.itemsize == 1:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1
    return 0, 2


def consumers(graph: onnx.GraphProto, name: str):
    """Yields (node, input index) for every use of tensor `name`, looking through views."""
    for node in graph.node:
        for index, operand in enumerate(node.input):
            if operand != name:
                continue
            if node.op_type in VIEW_OPS and index == 0:
                yield from consumers(graph, node.output[0])
            else:
                yield node, index


def indexed_extent(graph: onnx.GraphProto, node: onnx.NodeProto, table: int) -> int:
    """Extent of the axis that `node` indexes in its input number `table` (a constant)."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    for tensor in graph.initializer:
        if tensor.name == node.input[table]:
            return tensor.dims[axis]
    raise ValueError(f"node '{node.name}' indexes '{node.input[table]}', whose extent is not "
                     "constant; give this input as a file")


def check_bounded(model: onnx.ModelProto, inputs: dict[str, np.ndarray],
                  limit: float = 1e4) -> float:
    """Largest |activation| over all float tensors of one run.

    Raises ValueError naming the first tensor that reaches `limit` or holds a NaN.
    """
    largest = 0.0
    for name, value in run_all(model, inputs).items():
        if value.size == 0 or not np.issubdtype(value.dtype, np.floating):
            continue
        peak = float(np.abs(value).max())
        if not peak < limit:
            raise ValueError(f"tensor '{name}' reaches {peak:g}, the limit is {limit:g}; "
                             "use another seed or a smaller weight scale")
        largest = max(largest, peak)
    return largest
