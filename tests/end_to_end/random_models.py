# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random ONNX models of one to five nodes, compared on a machine with ONNX Runtime.

    python tests/end_to_end/random_models.py FIRST COUNT MACHINE [BINARY [TYPE]]

TYPE: fp16 (default) or bf16, in which real numbers are computed; or int8, uint8, int32, for models of
such integers, which are compared exactly.
Model number n is the same wherever it is made. Every node takes values that are there: inputs and
results of earlier nodes, so that diamonds, several outputs and constants come about. Of a model
that fails, nodes are taken away as long as it still fails in the same way, and what is left is
printed. Exit code 1 when a value differs or a run fails otherwise than by a refusal (exit code 4).
"""
from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from campaigns import effort_of

OPSET = 20
# Extents on both sides of a vector of 16 lanes, and of what two of them hold.
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33)
LARGEST = 4096  # elements of a value


@dataclasses.dataclass
class Value:
    name: str
    shape: tuple[int, ...]
    type: int = TensorProto.FLOAT


class Draw:
    """One random model under construction, of numbers of one `kind`."""

    def __init__(self, number: int, kind: str = "float32"):
        self.random = np.random.default_rng([20261121, number] if kind == "float32" else
                                            [20261121, number, INTEGERS.index(kind)])
        self.kind = np.dtype(kind)
        self.values: list[Value] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []

    def pick(self, choices):
        return choices[int(self.random.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """low <= result <= high"""
        return int(self.random.integers(low, high + 1))

    def numbers(self, shape) -> np.ndarray:
        if self.kind == np.float32:
            return self.random.standard_normal(shape).astype(np.float32)
        limits = np.iinfo(self.kind)
        low, high = max(limits.min, -1000), min(limits.max, 1000)
        return np.asarray(self.random.integers(low, high, shape, endpoint=True), self.kind)

    def number(self, value: float) -> np.ndarray:
        return np.asarray(value if self.kind == np.float32 else int(value)).astype(self.kind)

    def shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(self.pick(EXTENTS) for _ in range(rank))
            if np.prod(shape) <= LARGEST:
                return shape

    def input(self, shape) -> Value:
        value = Value(f"x{len(self.inputs)}", tuple(shape), helper.np_dtype_to_tensor_dtype(self.kind))
        self.inputs[value.name] = self.numbers(shape)
        self.values.append(value)
        return value

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def value(self, ranks=(1, 2, 3, 4)) -> Value:
        """A value of one of these ranks; a new input where there is none, and sometimes anyway."""
        known = [value for value in self.values if len(value.shape) in ranks and self.has_kind(value)]
        if known and self.random.random() < 0.85:
            return self.pick(known[-3:])
        return self.input(self.shape(self.pick(ranks)))

    def has_kind(self, value: Value) -> bool:
        return value.type == helper.np_dtype_to_tensor_dtype(self.kind)

    def operand(self, shape) -> str:
        """Something of exactly this shape: a value, an input or a constant."""
        known = [value for value in self.values if value.shape == tuple(shape) and self.has_kind(value)]
        if known and self.random.random() < 0.5:
            return self.pick(known).name
        if self.random.random() < 0.3:
            return self.input(shape).name
        return self.constant(self.numbers(shape))

    def node(self, op: str, inputs, **attributes) -> None:
        """Adds a node of one output; ONNX says its shape."""
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        inferred = onnx.shape_inference.infer_shapes(self.model(), data_prop=True, strict_mode=True)
        for info in inferred.graph.value_info:
            if info.name == name:
                type_ = info.type.tensor_type
                self.values.append(Value(name, tuple(d.dim_value for d in type_.shape.dim), type_.elem_type))

    def taken_inputs(self) -> dict[str, np.ndarray]:
        taken = {name for node in self.nodes for name in node.input}
        return {name: array for name, array in self.inputs.items() if name in taken}

    def model(self, outputs=()) -> onnx.ModelProto:
        """Of the inputs, those that a node takes."""
        taken = {name for node in self.nodes for name in node.input}
        types = {value.name: value.type for value in self.values}
        graph = helper.make_graph(
            self.nodes, "random",
            [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in self.inputs.items() if name in taken],
            [helper.make_tensor_value_info(name, types[name], None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in taken])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def unary(draw: Draw) -> None:
    op = draw.pick(["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "LeakyRelu", "HardSwish", "Gelu", "Softplus", "Elu",
                    "Exp", "Erf", "Clip", "Sin", "HardSigmoid", "Mish", "Identity"])
    value = draw.value()
    if op == "Exp":
        draw.node("Tanh", [value.name])  # keeps it in bounds
        value = draw.values[-1]
    bounds = [draw.constant(np.float32(-1)), draw.constant(np.float32(0.5))] if op == "Clip" else []
    draw.node(op, [value.name, *bounds])


def binary(draw: Draw) -> None:
    value = draw.value()
    shape = list(value.shape)
    for dim in range(len(shape)):
        if draw.random.random() < 0.25:
            shape[dim] = 1
    if draw.random.random() < 0.3:
        shape = shape[draw.integer(0, len(shape) - 1):]
    operands = [value.name, draw.operand(shape)]
    if draw.random.random() < 0.5:
        operands.reverse()
    draw.node(draw.pick(["Add", "Sub", "Mul", "Max", "Min"]), operands)


def divide(draw: Draw) -> None:
    value = draw.value()
    draw.node("Div", [value.name, draw.constant(1 + np.abs(draw.numbers(value.shape[-1:])))])


def matmul(draw: Draw) -> None:
    value = draw.value((2, 3, 4))
    shape = (value.shape[-1], draw.pick(EXTENTS))
    if draw.random.random() < 0.3:
        shape = (*value.shape[:-2], *shape)
    draw.node("MatMul", [value.name, draw.operand(shape)])


def gemm(draw: Draw) -> None:
    value = draw.value((2,))
    ta, tb = draw.integer(0, 1), draw.integer(0, 1)
    rows, inner = value.shape[::-1] if ta else value.shape
    columns = draw.pick(EXTENTS)
    w = draw.operand((columns, inner) if tb else (inner, columns))
    bias = draw.operand(draw.pick([(columns,), (rows, columns), (rows, 1), (1,)]))
    draw.node("Gemm", [value.name, w, bias], transA=ta, transB=tb, alpha=draw.pick([1.0, 0.5]))


def window(draw: Draw, extents) -> dict | None:
    """Kernel, strides, dilations and pads for these extents; nothing where none fits."""
    kernel = [draw.integer(1, 3) for _ in extents]
    dilations = [draw.integer(1, 2) if draw.random.random() < 0.2 else 1 for _ in extents]
    pads = [draw.integer(0, (k - 1)) for k in kernel] + [draw.integer(0, (k - 1)) for k in kernel]
    for i, extent in enumerate(extents):
        if extent + pads[i] + pads[i + len(extents)] < (kernel[i] - 1) * dilations[i] + 1:
            return None
    return {"kernel_shape": kernel, "strides": [draw.integer(1, 3) for _ in extents], "pads": pads,
            "dilations": dilations}


def conv(draw: Draw) -> None:
    value = draw.value((3, 4))
    options = window(draw, value.shape[2:])
    if options is None:
        return
    channels = value.shape[1]
    group = draw.pick([g for g in range(1, channels + 1) if channels % g == 0]) if draw.random.random() < 0.4 else 1
    filters = group * draw.pick([1, 2, 3, 8, 17])
    w = draw.constant(draw.numbers((filters, channels // group, *options["kernel_shape"])))
    bias = [draw.constant(draw.numbers((filters,)))] if draw.random.random() < 0.5 else []
    draw.node("Conv", [value.name, w, *bias], group=group, **options)


def conv_transpose(draw: Draw) -> None:
    value = draw.value((4,))
    kernel = [draw.integer(1, 3), draw.integer(1, 3)]
    w = draw.constant(draw.numbers((value.shape[1], draw.pick([1, 2, 5]), *kernel)))
    draw.node("ConvTranspose", [value.name, w], strides=[draw.integer(1, 2), draw.integer(1, 2)])


def pool(draw: Draw) -> None:
    value = draw.value((3, 4))
    options = window(draw, value.shape[2:])
    if options is None:
        return
    op = draw.pick(["MaxPool", "AveragePool"])
    if op == "AveragePool":
        options["count_include_pad"] = draw.integer(0, 1)
    draw.node(op, [value.name], **options)


def global_pool(draw: Draw) -> None:
    draw.node(draw.pick(["GlobalAveragePool", "GlobalMaxPool"]), [draw.value((3, 4)).name])


def reduce(draw: Draw) -> None:
    value = draw.value()
    rank = len(value.shape)
    axes = sorted(draw.random.choice(rank, draw.integer(1, rank), replace=False).tolist())
    op = draw.pick(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare",
                    "ReduceLogSumExp"])
    keep = 1 if len(axes) == rank else draw.integer(0, 1)
    draw.node(op, [value.name, draw.constant(np.int64(axes))], keepdims=keep)


def softmax(draw: Draw) -> None:
    value = draw.value()
    draw.node(draw.pick(["Softmax", "LogSoftmax"]), [value.name], axis=draw.integer(-len(value.shape), -1))


def layer_norm(draw: Draw) -> None:
    value = draw.value((2, 3, 4))
    if value.shape[-1] < 4:
        return
    scale, bias = (draw.constant(draw.numbers(value.shape[-1:])) for _ in range(2))
    draw.node("LayerNormalization", [value.name, scale, bias])


def batch_norm(draw: Draw) -> None:
    value = draw.value((2, 3, 4))
    each = (value.shape[1],)
    draw.node("BatchNormalization",
              [value.name, draw.constant(draw.numbers(each)), draw.constant(draw.numbers(each)),
               draw.constant(draw.numbers(each)), draw.constant(0.5 + np.abs(draw.numbers(each)))])


def transpose(draw: Draw) -> None:
    value = draw.value((2, 3, 4))
    draw.node("Transpose", [value.name], perm=draw.random.permutation(len(value.shape)).tolist())


def reshape(draw: Draw) -> None:
    value = draw.value()
    factors = []
    for extent in value.shape:
        inner = draw.pick([f for f in range(1, extent + 1) if extent % f == 0])
        factors += [extent // inner, inner]
    shape = [1]
    for factor in factors:
        if draw.random.random() < 0.5 and len(shape) < 4:
            shape.append(factor)
        else:
            shape[-1] *= factor
    draw.node("Reshape", [value.name, draw.constant(np.int64(shape))])


def slice_(draw: Draw) -> None:
    value = draw.value()
    starts, ends, axes, steps = [], [], [], []
    for axis, extent in enumerate(value.shape):
        if draw.random.random() < 0.5:
            continue
        first, last = sorted((draw.integer(0, extent - 1), draw.integer(0, extent - 1)))
        step = draw.pick([1, 1, 2, 3, -1, -2])
        starts.append(first if step > 0 else last)
        ends.append(last + 1 if step > 0 else first - 1 if first else -extent - 1)
        axes.append(axis)
        steps.append(step)
    if axes:
        draw.node("Slice", [value.name, *(draw.constant(np.int64(x)) for x in (starts, ends, axes, steps))])


def pad(draw: Draw) -> None:
    value = draw.value()
    amounts = [draw.integer(0, 2) if draw.random.random() < 0.5 else 0 for _ in range(2 * len(value.shape))]
    draw.node("Pad", [value.name, draw.constant(np.int64(amounts)),
                      draw.constant(draw.number(draw.pick([0, 0, 1.5, -2])))],
              mode=draw.pick(["constant", "constant", "edge"]))


def concat(draw: Draw) -> None:
    value = draw.value()
    axis = draw.integer(0, len(value.shape) - 1)
    parts = [value.name]
    for _ in range(draw.integer(1, 2)):
        shape = list(value.shape)
        shape[axis] = draw.pick([shape[axis], 1, 3, 16])
        parts.append(draw.operand(shape))
    draw.node("Concat", draw.random.permutation(parts).tolist(), axis=axis)


def split(draw: Draw) -> None:
    value = draw.value()
    axis = draw.integer(0, len(value.shape) - 1)
    if value.shape[axis] < 2:
        return
    cut = draw.integer(1, value.shape[axis] - 1)
    for part in ((0, cut), (cut, value.shape[axis])):
        draw.node("Slice", [value.name, draw.constant(np.int64([part[0]])), draw.constant(np.int64([part[1]])),
                            draw.constant(np.int64([axis]))])


def gather(draw: Draw) -> None:
    value = draw.value()
    axis = draw.integer(0, len(value.shape) - 1)
    extent = value.shape[axis]
    rank = draw.integer(0, 2 if len(value.shape) < 4 else 1)
    indices = draw.random.integers(-extent, extent, tuple(draw.integer(1, 4) for _ in range(rank)))
    draw.node("Gather", [value.name, draw.constant(np.int64(indices))], axis=axis)


def expand(draw: Draw) -> None:
    value = draw.value()
    shape = [draw.pick([1, 3, 16]) if extent == 1 else extent for extent in value.shape]
    draw.node("Expand", [value.name, draw.constant(np.int64(shape))])


def tile(draw: Draw) -> None:
    value = draw.value()
    draw.node("Tile", [value.name, draw.constant(np.int64([draw.integer(1, 2) for _ in value.shape]))])


def resize(draw: Draw) -> None:
    value = draw.value((4,))
    sizes = np.int64([*value.shape[:2], value.shape[2] * draw.pick([1, 2, 3]), value.shape[3] * draw.pick([1, 2])])
    draw.node("Resize", [value.name, "", "", draw.constant(sizes)], mode=draw.pick(["nearest", "linear"]),
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def select(draw: Draw) -> None:
    value = draw.value()
    other = draw.operand(value.shape)
    mask = draw.constant(draw.random.random(value.shape) < 0.5)
    draw.node("Where", [mask, value.name, other])


def cumulate(draw: Draw) -> None:
    value = draw.value()
    axis = draw.integer(0, len(value.shape) - 1)
    if value.shape[axis] <= 8:
        draw.node("CumSum", [value.name, draw.constant(np.int64(axis))])


def instance_norm(draw: Draw) -> None:
    value = draw.value((3, 4))
    if np.prod(value.shape[2:]) >= 4:
        draw.node("InstanceNormalization", [value.name, draw.constant(draw.numbers(value.shape[1:2])),
                                            draw.constant(draw.numbers(value.shape[1:2]))])


def shuffle(draw: Draw) -> None:
    value = draw.value((4,))
    n, c, h, w = value.shape
    if c % 4 == 0 and draw.random.random() < 0.5:
        draw.node("DepthToSpace", [value.name], blocksize=2, mode=draw.pick(["DCR", "CRD"]))
    elif h % 2 == 0 and w % 2 == 0:
        draw.node("SpaceToDepth", [value.name], blocksize=2)


STEPS = [unary, unary, binary, binary, divide, matmul, matmul, gemm, conv, conv, conv, conv_transpose, pool, pool,
         global_pool, reduce, reduce, softmax, layer_norm, batch_norm, transpose, transpose, reshape, reshape, slice_,
         pad, concat, split, gather, expand, tile, resize, select, cumulate, instance_norm, shuffle]


def broadcast(draw: Draw, shape) -> str:
    """An operand of this shape or one that is spread to it."""
    return draw.operand(draw.pick([shape, shape, shape[-1:], (), (*shape[:-1], 1), tuple(1 for _ in shape)]))


def integer_binary(draw: Draw) -> None:
    value = draw.value()
    op = draw.pick(["Add", "Sub", "Mul"] if draw.kind == np.int8 else ["Add", "Sub", "Mul", "Max", "Min"])
    draw.node(op, draw.random.permutation([value.name, broadcast(draw, value.shape)]).tolist())


def integer_compare(draw: Draw) -> None:
    value = draw.value()
    draw.node(draw.pick(["Equal", "Greater", "Less", "LessOrEqual"]), [value.name, broadcast(draw, value.shape)])
    flags = draw.values[-1].name
    if draw.random.random() < 0.5:
        draw.node("Cast", [flags], to=helper.np_dtype_to_tensor_dtype(draw.kind))
    else:
        draw.node("Where", [flags, broadcast(draw, value.shape), value.name])


def integer_reduce(draw: Draw) -> None:
    value = draw.value()
    op = draw.pick(["ReduceMax", "ReduceMin"] + (["ReduceSum"] if draw.kind == np.int32 else []))
    axes = [axis for axis in range(len(value.shape)) if draw.random.random() < 0.5] or [0]
    draw.node(op, [value.name, draw.constant(np.int64(axes))], keepdims=draw.integer(0, 1))


def integer_cast(draw: Draw) -> None:
    kinds = [TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8]
    draw.node("Cast", [draw.value().name], to=draw.pick(kinds))


def dequantise(draw: Draw) -> None:
    value = draw.value()
    if draw.kind != np.int32:
        draw.node("DequantizeLinear", [value.name, draw.constant(np.float32(0.05)), draw.constant(draw.numbers(()))])


INTEGERS = ["int8", "uint8", "int32"]
INTEGER_STEPS = [integer_binary] * 4 + [integer_compare] * 2 + [integer_reduce] * 2 + [
    integer_cast, dequantise, transpose, transpose, reshape, slice_, pad, concat, split, gather, expand, tile, select]


def draw_model(number: int, kind: str = "float32") -> Draw:
    draw = Draw(number, kind)
    wanted = draw.integer(1, 5)
    for _ in range(40):
        if len(draw.nodes) >= wanted:
            break
        nodes, values = len(draw.nodes), len(draw.values)
        draw.pick(STEPS if kind == "float32" else INTEGER_STEPS)(draw)
        shapes = [value.shape for value in draw.values[values:]]
        if any(np.prod(shape) > LARGEST or 0 in shape or len(shape) > 5 for shape in shapes):
            del draw.nodes[nodes:], draw.values[values:]
    return draw


def outputs_of(draw: Draw) -> list[str]:
    """Results that no node takes."""
    taken = {name for node in draw.nodes for name in node.input}
    return [node.output[0] for node in draw.nodes if node.output[0] not in taken]


def evaluate(model: onnx.ModelProto, inputs) -> list[np.ndarray]:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), quiet)
    return session.run([output.name for output in model.graph.output], inputs)


# A unit of the last place, relative to values of 1 to 2.
UNIT = {"fp16": 2.0**-10, "bf16": 2.0**-7}


def rounded(draw: Draw, seed: int, unit: float) -> Draw:
    """The model with every real number off by up to one unit of the last place."""
    random = np.random.default_rng(seed)

    def factor(shape):
        return (1 + random.uniform(-1, 1, shape) * unit).astype(np.float32)

    def disturb(array):
        return array * factor(array.shape) if array.dtype == np.float32 else array

    result = Draw(0)
    result.values = draw.values
    result.inputs = {name: disturb(array) for name, array in draw.inputs.items()}
    result.constants = {name: disturb(array) for name, array in draw.constants.items()}
    shapes = {value.name: value.shape for value in draw.values}
    for node in draw.nodes:
        exact = onnx.NodeProto()
        exact.CopyFrom(node)
        name = node.output[0]
        exact.output[0] = name + ".exact"
        result.constants[name + ".factor"] = factor(shapes[name])
        result.nodes += [exact, helper.make_node("Mul", [name + ".exact", name + ".factor"], [name])]
    return result


def largest(array) -> float:
    return float(np.max(np.abs(array), initial=0))


@dataclasses.dataclass
class Verdict:
    kind: str  # "agrees", "refused", "differs", "fails", "skipped"
    detail: str = ""


# Of the largest error that roundings cause: they meet in more ways than a few draws of noise show.
NOISES, SAFETY = 3, 4


def judge(draw: Draw, machine: str, millrace: str, folder: Path, precision: str = "fp16",
          effort: int = 1) -> Verdict:
    outputs = outputs_of(draw)
    model = draw.model(outputs)
    inputs = draw.taken_inputs()
    try:
        expected = evaluate(model, inputs)
    except (onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented) as refusal:
        return Verdict("skipped", f"ONNX Runtime: {refusal}")
    is_real = [array.dtype == np.float32 for array in expected]
    if any(real and (not np.all(np.isfinite(array)) or largest(array) > 1e4) for real, array in zip(is_real, expected)):
        return Verdict("skipped", "values beyond fp16")
    bounds = [2 * UNIT[precision] * largest(array) if real else 0 for real, array in zip(is_real, expected)]
    for seed in range(NOISES if draw.kind == np.float32 else 0):
        noisy = rounded(draw, seed, UNIT[precision])
        for i, array in enumerate(evaluate(noisy.model(outputs), noisy.taken_inputs())):
            bounds[i] = max(bounds[i], SAFETY * largest(array - expected[i]))
    onnx.save(model, folder / "model.onnx")
    command = [millrace, "run", str(folder / "model.onnx"), "--machine", machine, "--check",
               "--precision", precision, "--effort", str(effort), "--output-dir", str(folder / "outputs")]
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        command += ["--input", f"{name}={folder / name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 4:
        return Verdict("refused", done.stderr.strip().splitlines()[-1])
    if done.returncode:
        return Verdict("fails", f"exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    for name, array, bound in zip(outputs, expected, bounds):
        got = np.load(folder / "outputs" / f"{name}.npy")
        if (got.shape, got.dtype) != (array.shape, array.dtype):
            return Verdict("differs", f"{name} is {got.dtype}{list(got.shape)}, not {array.dtype}{list(array.shape)}")
        error = largest(got.astype(np.float64) - array)
        if not error <= bound:
            return Verdict("differs", f"{name} by {error:.2e} (bound {bound:.2e}, values up to {largest(array):.2e})")
    return Verdict("agrees")


def without(draw: Draw, index: int) -> Draw:
    """The model without node `index`, whose result becomes an input."""
    less = Draw(0, draw.kind.name)
    less.values, less.constants = draw.values, draw.constants
    less.nodes = draw.nodes[:index] + draw.nodes[index + 1:]
    name = draw.nodes[index].output[0]
    used = {name for node in less.nodes for name in node.input}
    value = next(value for value in draw.values if value.name == name)
    less.inputs = {n: a for n, a in draw.inputs.items() if n in used}
    if name in used:
        stand_in = Draw(0, "float32" if value.type == TensorProto.BOOL else helper.tensor_dtype_to_np_dtype(value.type).name)
        less.inputs[name] = stand_in.numbers(value.shape).astype(helper.tensor_dtype_to_np_dtype(value.type))
    return less


def reduced(draw: Draw, verdict: Verdict, judged) -> tuple[Draw, Verdict]:
    """As few nodes as fail in the same way."""
    index = 0
    while index < len(draw.nodes) and len(draw.nodes) > 1:
        less = without(draw, index)
        again = judged(less)
        if again.kind == verdict.kind:
            draw, verdict, index = less, again, 0
        else:
            index += 1
    return draw, verdict


def text(draw: Draw) -> str:
    """The model for people: a line per node with shapes, attributes and small constants."""
    shapes = {value.name: value.shape for value in draw.values}
    shapes |= {name: array.shape for name, array in draw.inputs.items()}

    def operand(name):
        constant = draw.constants.get(name)
        if constant is None:
            return f"{name}{list(shapes.get(name, ()))}"
        small = constant.size <= 8 and constant.dtype != np.float32
        return str(constant.tolist()) if small else f"{name}={list(constant.shape)}"

    lines = []
    for node in draw.nodes:
        options = " ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
        operands = ", ".join(operand(name) for name in node.input)
        lines.append(f"    {operand(node.output[0])} = {node.op_type}({operands}) {options}")
    return "\n".join(lines)


def campaign(first: int, count: int, machine: str, millrace: str, report=print, type_="fp16",
             effort: int | None = None) -> dict[str, int]:
    """Judges `count` models from number `first` on; how many of each verdict. `effort`: of the compiler; none: that of the
    model's number."""
    kind, precision = (type_, "fp16") if type_ in INTEGERS else ("float32", type_)
    counts = dict.fromkeys(("agrees", "refused", "skipped", "differs", "fails"), 0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            def judged(draw, own=effort_of(number) if effort is None else effort):
                return judge(draw, machine, millrace, Path(folder), precision, own)
            draw = draw_model(number, kind)
            if not draw.nodes:
                continue
            verdict = judged(draw)
            counts[verdict.kind] += 1
            if verdict.kind in ("differs", "fails", "refused"):
                draw, verdict = reduced(draw, verdict, judged)
                report(f"model {number} {verdict.kind}: {verdict.detail}\n{text(draw)}")
    return counts


def main() -> int:
    if len(sys.argv) not in (4, 5, 6) or sys.argv[5:] not in ([], *([known] for known in [*UNIT, *INTEGERS])):
        print(__doc__, file=sys.stderr)
        return 2
    first, count, machine = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    binary, type_ = (sys.argv[4:] + ["build/bin/millrace", "fp16"][len(sys.argv) - 4:])
    counts = campaign(first, count, machine, binary, lambda line: print(line, flush=True), type_)
    print(f"{count} models on {machine} in {type_}: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 1 if counts["differs"] or counts["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
