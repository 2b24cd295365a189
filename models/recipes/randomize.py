# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces the constant weights of an ONNX graph by seeded random ones.

    python models/recipes/randomize.py IN.onnx OUT.onnx [--seed 0] [--dim name=n]...
    python models/recipes/randomize.py light:squeezenet OUT.onnx      # a graph of the onnx package

The light_* graphs of the ONNX backend tests have real structure but constant weights: their
activations overflow fp16 and every output is equal. This recipe gives them weights with which
activations stay of order one (He et al. 2015, "Delving deep into rectifiers": variance 2/fan-in),
and the last convolution of every residual branch is scaled down so that sums do not grow.
Structure is read from the graph, never from names. The same seed gives the same bytes.
"""
from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import probe
from graph import attribute, parse_dims, save

RESIDUAL_SCALE = 0.3
# (operator, input index) -> what the constant there is for.
ROLES = {
    ("Conv", 1): "kernel", ("Conv", 2): "bias", ("ConvTranspose", 1): "kernel",
    ("ConvTranspose", 2): "bias", ("Gemm", 1): "matrix", ("Gemm", 2): "bias",
    ("MatMul", 1): "matrix", ("MatMul", 0): "matrix",
    ("BatchNormalization", 1): "gain", ("BatchNormalization", 2): "bias",
    ("BatchNormalization", 3): "bias", ("BatchNormalization", 4): "gain",
    ("InstanceNormalization", 1): "gain", ("InstanceNormalization", 2): "bias",
    ("LayerNormalization", 1): "gain", ("LayerNormalization", 2): "bias",
    ("Mul", 0): "gain", ("Mul", 1): "gain", ("Add", 0): "bias", ("Add", 1): "bias",
    ("Sum", 0): "bias", ("Sum", 1): "bias", ("PRelu", 1): "slope", ("Gather", 0): "table",
}


@dataclass
class Weight:
    """A constant float tensor: where it is used first and what for."""
    name: str
    shape: tuple[int, ...]
    role: str
    user: onnx.NodeProto


def randomize(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """A copy of `model` (opset unchanged) with seeded random weights.

    Weights become initializers that are no graph inputs (IR version >= 4). Scalars and constants
    that no table row names (shapes, thresholds) stay. Raises ValueError when nothing is replaced.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.ir_version = max(result.ir_version, 4)
    graph = result.graph
    shapes = constant_shapes(graph)
    weights = find_weights(graph, shapes)
    if not weights:
        raise ValueError("the graph has no constant float weights to replace")
    scaled = last_kernels_of_residual_branches(graph)
    fresh = {}
    for index, weight in enumerate(weights):
        rng = np.random.default_rng([seed, index])
        value = draw(rng, weight)
        if weight.name in scaled:
            value *= np.float32(RESIDUAL_SCALE)
        fresh[weight.name] = numpy_helper.from_array(value.astype(np.float32), weight.name)
    replace_constants(graph, fresh)
    return result


def constant_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shape of every float constant: initializers, Constant and ConstantOfShape nodes."""
    shapes, integers = {}, {}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            shapes[tensor.name] = tuple(tensor.dims)
        elif tensor.data_type == onnx.TensorProto.INT64:
            integers[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        value = attribute(node, "value", None)
        if node.op_type == "Constant" and value is not None:
            if value.data_type == onnx.TensorProto.FLOAT:
                shapes[node.output[0]] = tuple(value.dims)
            elif value.data_type == onnx.TensorProto.INT64:
                integers[node.output[0]] = numpy_helper.to_array(value)
        elif node.op_type == "ConstantOfShape" and node.input[0] in integers:
            if value is None or value.data_type == onnx.TensorProto.FLOAT:
                shapes[node.output[0]] = tuple(int(n) for n in integers[node.input[0]])
    return shapes


def find_weights(graph: onnx.GraphProto, shapes: dict[str, tuple[int, ...]]) -> list[Weight]:
    """Constants with a known role, in order of first use. Scalars are no weights."""
    found = []
    for name, shape in shapes.items():
        if int(np.prod(shape)) <= 1:
            continue
        for user, index in probe.consumers(graph, name):
            role = ROLES.get((user.op_type, index))
            if role:
                found.append(Weight(name, shape, role, user))
                break
    order = {id(node): place for place, node in enumerate(graph.node)}
    return sorted(found, key=lambda w: (order[id(w.user)], w.name))


def draw(rng: np.random.Generator, weight: Weight) -> np.ndarray:
    """Random values for one weight, same shape. Kernels and matrices: normal, variance
    2/fan-in; gains around 1; biases around 0."""
    if weight.role == "kernel":
        fan_in = int(np.prod(weight.shape[1:]))
        return rng.normal(0.0, np.sqrt(2.0 / fan_in), weight.shape)
    if weight.role == "matrix":
        transposed = weight.user.op_type == "Gemm" and attribute(weight.user, "transB", 0)
        axis = -1 if transposed or len(weight.shape) == 1 else -2
        fan_in = weight.shape[axis]
        return rng.normal(0.0, np.sqrt(2.0 / fan_in), weight.shape)
    if weight.role == "gain":
        return rng.uniform(0.8, 1.2, weight.shape)
    if weight.role == "slope":
        return rng.uniform(0.1, 0.3, weight.shape)
    if weight.role == "table":
        return rng.normal(0.0, 1.0, weight.shape)
    return rng.normal(0.0, 0.1, weight.shape)


def last_kernels_of_residual_branches(graph: onnx.GraphProto) -> set[str]:
    """Kernel names of the last convolution of each residual branch.

    At a sum of two or more computed tensors, the branch is the operand with the most convolutions
    behind it that no other operand shares; its last convolution is the first one met backwards
    through one-input operators (BatchNormalization and the like).
    """
    producer = {name: node for node in graph.node for name in node.output}
    behind: dict[str, frozenset[str]] = {}
    for node in graph.node:  # graph order is topological
        sets = [behind.get(name, frozenset()) for name in node.input]
        own = {node.output[0]} if node.op_type == "Conv" else set()
        for name in node.output:
            behind[name] = frozenset().union(own, *sets)
    kernels = set()
    for node in graph.node:
        computed = [name for name in node.input if behind.get(name)]
        if node.op_type not in ("Add", "Sum") or len(computed) < 2:
            continue
        shared = frozenset.intersection(*(behind[name] for name in computed))
        branch = max(computed, key=lambda name: len(behind[name] - shared))
        step = producer[branch]
        while step.op_type != "Conv" and step.input[0] in producer and behind.get(step.input[0]):
            step = producer[step.input[0]]
        if step.op_type == "Conv":
            kernels.add(step.input[1])
    return kernels


def replace_constants(graph: onnx.GraphProto, fresh: dict[str, onnx.TensorProto]) -> None:
    """Puts `fresh` in the place of the constants of those names, as initializers; drops nodes,
    initializers and graph inputs that nothing reads afterwards."""
    nodes = [n for n in graph.node if not (len(n.output) == 1 and n.output[0] in fresh)]
    used = {name for node in nodes for name in node.input}
    kept = [t for t in graph.initializer if t.name in used and t.name not in fresh]
    constant = {t.name for t in graph.initializer} | set(fresh)
    inputs = [value for value in graph.input if value.name not in constant]
    for field, values in ((graph.node, nodes), (graph.input, inputs),
                          (graph.initializer, kept + list(fresh.values()))):
        copies = [type(v).FromString(v.SerializeToString()) for v in values]
        del field[:]
        field.extend(copies)


def load(source: str) -> onnx.ModelProto:
    """The model of file `source`; `light:NAME` is a light_NAME graph of the onnx package's backend
    tests. Raises FileNotFoundError."""
    if source.startswith("light:"):
        folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        source = str(folder / f"light_{source.removeprefix('light:')}.onnx")
    return onnx.load(source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="file, or light:NAME")
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dim", action="append", default=[], help="extent of a named axis: name=n")
    arguments = parser.parse_args()
    model = randomize(load(arguments.model), arguments.seed)
    inputs = probe.seeded_inputs(model, parse_dims(arguments.dim), arguments.seed)
    largest = probe.check_bounded(model, inputs)
    save(model, arguments.output)
    print(f"{arguments.output}: largest |activation| {largest:.3g}")


if __name__ == "__main__":
    main()
