# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an ONNX model costs at least: bytes when packed densely, cycles of the MXM in a good layout.

Both need only the graph and the extents of its values, no machine and nothing that the compiler made.
"""
from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

import probe

LANES = 320  # of a vector of tsp-v1, and columns of a plane
VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
ELEMENTWISE = {"Add", "BatchNormalization", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish",
               "LeakyRelu", "Log", "Mul", "Neg", "Pow", "PRelu", "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub",
               "Tanh"}
BYTES = {TensorProto.FLOAT: 2, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.DOUBLE: 2,
         TensorProto.INT8: 1, TensorProto.UINT8: 1, TensorProto.BOOL: 1, TensorProto.INT32: 4, TensorProto.INT64: 4}


@dataclass
class Value:
    """A tensor's extents and type (TensorProto.DataType)."""
    shape: tuple[int, ...]
    kind: int

    def bytes(self) -> int:
        return math.prod(self.shape) * BYTES.get(self.kind, 4)


def values_of(path: str | Path) -> tuple[onnx.ModelProto, dict[str, Value]]:
    """The model without external data, and all values whose extents are known from the file or follow by inference."""
    model = shape_inference.infer_shapes(onnx.load(path, load_external_data=False), data_prop=True)
    graph, found = model.graph, {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kind = value.type.tensor_type
        if all(dim.HasField("dim_value") for dim in kind.shape.dim):
            found[value.name] = Value(tuple(dim.dim_value for dim in kind.shape.dim), kind.elem_type)
    found.update({tensor.name: Value(tuple(tensor.dims), tensor.data_type) for tensor in graph.initializer})
    return model, found


def values_by_running(model: onnx.ModelProto, path: str | Path, inputs: dict[str, np.ndarray]) -> dict[str, Value]:
    """All values that a node of the model writes, as ONNX Runtime computes them."""
    names = [name for node in model.graph.node for name in node.output if name]
    found = probe.run(onnx.load(path), inputs, names)
    return {name: Value(array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in found.items()}


# Dense bytes

@dataclass
class Dense:
    """Bytes with every value packed densely: weights, the most that is live at once beside them, and values whose extents are
    not known (counted as nothing)."""
    weights: int
    activations: int
    unknown: list[str]

    def total(self) -> int:
        return self.weights + self.activations


def dense_bytes(model: onnx.ModelProto, values: dict[str, Value]) -> Dense:
    """Weights, and the peak of a walk over the nodes in the model's order.

    A value takes place from the node that writes it to the last that reads it. A float takes 2 bytes (fp16, bf16), an
    8-bit integer one, others 4. Views take no place of their own; an element-wise operation writes over an operand that
    nobody else reads; what is quantised at once, or was just dequantised, counts as its integers. Constants count as they are
    read at run time, quantised ones before they are dequantised, and integers of 64 bits (extents, axes) not at all.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    varying = {value.name for value in graph.input if value.name not in constants}
    inputs, steps, dequantised = list(varying), [], {}
    for node in graph.node:
        if any(name in varying for name in node.input):
            varying.update(name for name in node.output if name)
            steps.append(node)
        elif node.op_type == "DequantizeLinear":
            dequantised[node.output[0]] = node.input[0]
    unknown: list[str] = []

    def size(name: str) -> int:
        if name not in values:
            unknown.append(name)
            return 0
        return values[name].bytes()

    weights = {dequantised.get(name, name) for node in steps for name in node.input if name and name not in varying}
    weight_bytes = sum(size(name) for name in weights if name not in values or values[name].kind != TensorProto.INT64)

    readers = Counter(name for node in steps for name in set(node.input) if name in varying)
    readers.update(output.name for output in graph.output)
    quantised = {node.input[0]: node.output[0] for node in steps
                 if node.op_type == "QuantizeLinear" and readers[node.input[0]] == 1}
    place: dict[str, str] = {}  # of a value: the first value that lay there
    live: dict[str, int] = {}
    pending: Counter[str] = Counter()

    def put(name: str, where: str | None = None) -> None:
        if where is None:
            where = name
            live[name] = size(quantised.get(name, name))
        place[name] = where
        pending[where] += readers[name]

    def reused(node: onnx.NodeProto) -> str | None:
        """Where the first result of a node lies, if not in a place of its own."""
        first = place.get(node.input[0])
        if node.op_type in VIEWS | {"DequantizeLinear"} or node.input[0] in quantised:
            return first
        if node.op_type in ELEMENTWISE:
            needed = size(quantised.get(node.output[0], node.output[0]))
            operands = Counter(place[name] for name in set(node.input) if name in place)
            return next((where for where, count in operands.items()
                         if pending[where] == count and live[where] == needed), None)
        return None

    for name in inputs:
        put(name)
    peak = sum(live.values())
    for node in steps:
        for i, name in enumerate(filter(None, node.output)):
            put(name, reused(node) if i == 0 else None)
        peak = max(peak, sum(live.values()))
        for name in set(node.input) & set(place):
            pending[place[name]] -= 1
        for where in [where for where in live if pending[where] <= 0]:
            del live[where]
    return Dense(weight_bytes, peak, sorted(set(unknown)))


# MXM cycles of a good layout

@dataclass(frozen=True)
class Planes:
    """How the MXM multiplies a format: rows of a plane (products summed at once), and vectors that enter each cycle."""
    rows: int
    engines: int


PLANES = {"fp16": Planes(LANES // 2, 2), "bf16": Planes(LANES // 2, 2), "int8": Planes(LANES, 4)}


def mxm_bound(model: onnx.ModelProto, values: dict[str, Value], precision: str) -> float:
    """Cycles in which the MXM takes all vectors of the model's convolutions and products, in an optimistic layout.

    For each convolution the best pair of blocks is taken: pixels that share a vector on the way in, and on the way out,
    whatever its neighbours want. No floor, as another packing may beat it, and not always to be reached; a yardstick for
    tsp-v1 that no part of the compiler shares.
    """
    planes, vectors = PLANES[precision], 0.0
    for node in model.graph.node:
        known = [values.get(name) for name in (*node.input[:2], node.output[0])]
        if None in known or any(0 in value.shape for value in known):
            continue
        if node.op_type == "Conv":
            vectors += convolution_vectors(node, known, planes)
        elif node.op_type in ("MatMul", "Gemm"):
            vectors += product_vectors(node, known, planes)
    return vectors / planes.engines


def convolution_vectors(node: onnx.NodeProto, known: list[Value], planes: Planes) -> float:
    options = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    image, weight, result = (value.shape for value in known)
    groups, stride = options.get("group", 1), (options.get("strides") or [1])[0]
    height, width = result[2], result[3] if len(result) > 3 else 1
    window = (weight[2], weight[3] if len(weight) > 3 else 1)
    channels, filters = image[1], result[1]
    if channels <= 4 and groups == 1:
        # Of an image the host writes windows: five pixels share a vector if there are few filters.
        passes = 2 if planes.rows == LANES else 4
        return height * math.ceil(width / (5 if filters <= 64 else 1)) * passes
    if groups > 1 and channels == groups == filters:
        return 0.0  # the VXM multiplies each channel alone
    rounds = 1
    if groups > 1:  # groups lie side by side along the diagonal of a plane
        each_in, each_out = channels // groups, filters // groups
        beside = max(1, min(groups, LANES // max(each_in * (LANES // planes.rows), each_out)))
        rounds = math.ceil(groups / beside)
        channels, filters = each_in * beside, each_out * beside
    return rounds * blocked_vectors(channels, filters, window, stride, (height, width), planes)


@functools.lru_cache(maxsize=None)
def blocked_vectors(channels: int, filters: int, window: tuple[int, int], stride: int, pixels: tuple[int, int],
                    planes: Planes) -> float:
    """Least vectors over all blocks of pixels that fit into the rows and the columns of a plane."""
    tiles = math.ceil(channels / planes.rows) * math.ceil(filters / LANES)
    best = math.inf
    for out_y, out_x in blocks(LANES // filters):
        emitted = math.ceil(pixels[0] / out_y) * math.ceil(pixels[1] / out_x) * tiles
        for in_y, in_x in blocks(planes.rows // channels):
            best = min(best, emitted * touched(in_y, out_y, stride, window[0]) * touched(in_x, out_x, stride, window[1]))
    return best


def blocks(area: int) -> list[tuple[int, int]]:
    """Extents of all rectangles of at most `area` pixels, and of one."""
    area = max(1, area)
    return [(y, x) for y in range(1, area + 1) for x in range(1, area // y + 1)]


@functools.lru_cache(maxsize=None)
def touched(read: int, written: int, stride: int, window: int) -> float:
    """How many blocks of `read` pixels the window of `written` results touches along one dimension, on average."""
    span, step = (written - 1) * stride + window, written * stride
    if step % read == 0:
        return math.ceil(span / read)
    return sum(len({(i * step + j) // read for j in range(span)}) for i in range(read)) / read


def product_vectors(node: onnx.NodeProto, known: list[Value], planes: Planes) -> float:
    options = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    _, right, result = (value.shape for value in known)
    inner, columns = (right[-1] if options.get("transB") else right[-2]), result[-1]
    batch = math.prod(result[:-2]) if math.prod(right[:-2]) > 1 else 1
    vectors = math.prod(result[:-1]) * math.ceil(inner / planes.rows) * math.ceil(columns / LANES)
    if batch > 1 and columns * 2 <= LANES:
        vectors /= min(batch, LANES // columns)  # heads lie side by side
    return vectors
