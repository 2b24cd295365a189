# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantisers saturate wherever the graph says so, fused or not.

Random integer blocks whose scales cover only a part of what they quantise, held to ONNX Runtime's
integers. A residual sum whose one side is not rounded by itself differs by at most half a step of
that side's scale and the rounding of the sum: `s / (2 t) + 1` units of the sum's scale t, as
docs/howto/quantise-a-model.md says; everything else by one unit.
"""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import largest_unit_difference, run_millrace, save_model


class Block:
    """Builds one graph; every value that is quantised gets a scale that covers `coverage` of it."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.dtype = self.rng.choice([np.int8, np.uint8])
        self.nodes, self.constants, self.opset = [], [], 17
        self.bound = 1.0  # units of the last quantiser
        self.feeds = {}
        self.inputs = []

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def value(self, name: str) -> np.ndarray:
        """What `name` holds in ONNX Runtime."""
        return probe.run(self.model(name), self.feeds)[name]

    def model(self, output: str) -> onnx.ModelProto:
        info = onnx.ValueInfoProto(name=output)
        graph = helper.make_graph(self.nodes, "block", self.inputs, [info], self.constants)
        made = helper.make_model(graph, ir_version=8,
                                 opset_imports=[helper.make_opsetid("", self.opset)])
        return onnx.shape_inference.infer_shapes(made)

    def given(self, name: str, shape: list[int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.feeds[name] = self.rng.normal(0, 2, shape).astype(np.float32)
        return name

    def quantise(self, name: str, coverage: float) -> tuple[str, float, str, str]:
        """The integers, the step and the names of scale and zero point."""
        value = self.value(name)
        info = np.iinfo(self.dtype)
        low, high = min(float(value.min()), 0.0) * coverage, max(float(value.max()), 0.1) * coverage
        if self.rng.random() < 0.5:  # as after a Relu: what is negative saturates
            low = 0.0
        if self.rng.random() < 0.4:  # symmetric
            step, zero = max(-low, high) / 127, (info.min + info.max + 1) // 2
        else:
            step = (high - low) / 255
            zero = int(np.clip(info.min - round(low / step), info.min, info.max))
        scale = self.constant(np.float32(step))
        point = self.constant(np.array(zero, self.dtype))
        return self.node("QuantizeLinear", name, scale, point), float(np.float32(step)), scale, point

    def pair(self, name: str, coverage: float) -> tuple[str, float]:
        integers, step, scale, point = self.quantise(name, coverage)
        return self.node("DequantizeLinear", integers, scale, point), step

    def product(self, x: str, channels: int) -> str:
        """A convolution or matrix product with int8 weights of one scale per output channel."""
        rank = len(self.value(x).shape)
        width = self.value(x).shape[1]
        shape, axis = ([channels, width, 3, 3], 0) if rank == 4 else ([width, channels], 1)
        weights = self.constant(self.rng.integers(-127, 128, shape).astype(np.int8))
        scales = self.constant(self.rng.uniform(0.001, 0.01, channels).astype(np.float32))
        zeros = self.constant(np.zeros(channels, np.int8))
        w = self.node("DequantizeLinear", weights, scales, zeros, axis=axis)
        if rank == 4:
            return self.node("Conv", x, w, pads=[1, 1, 1, 1])
        return self.node("MatMul", x, w)

    def coverage(self) -> float:
        return float(self.rng.choice([0.1, 0.3, 0.6, 1.0]))


def residual(seed: int) -> tuple[Block, str]:
    """[product, Relu?, quantised] + [quantised input], Relu?, quantised, perhaps pooled or joined."""
    block = Block(seed)
    rng = block.rng
    channels, isImage = int(rng.choice([8, 16])), rng.random() < 0.5
    shape = [1, channels, 6, 6] if isImage else [channels, channels]
    x, _ = block.pair(block.given("x", shape), block.coverage())
    left = block.product(x, channels)
    if rng.random() < 0.3:
        left = block.node("Relu", left)
    left, step = block.pair(left, block.coverage())
    right = x
    if rng.random() < 0.5:
        right, other = block.pair(block.product(x, channels), block.coverage())
        step = max(step, other)
    sides = [left, right] if rng.random() < 0.5 else [right, left]
    total = block.node("Add", *sides)
    if rng.random() < 0.5:
        total = block.node("Relu", total)
    integers, result, scale, point = block.quantise(total, block.coverage())
    block.bound = step / (2 * result) + 1
    tail = rng.choice(["none", "pool", "join"]) if isImage else "none"
    if tail == "pool":  # maxima of integers
        real = block.node("DequantizeLinear", integers, scale, point)
        pooled = block.node("MaxPool", real, kernel_shape=[2, 2], pads=[1, 1, 0, 0], strides=[2, 2])
        integers = block.node("QuantizeLinear", pooled, scale, point)
    elif tail == "join":
        real = block.node("DequantizeLinear", integers, scale, point)
        joined = block.node("Concat", real, x, axis=1)
        integers, last, _, _ = block.quantise(joined, block.coverage())
        block.bound = (block.bound + 1) * result / last + 1
    return block, integers


def weights_scaled_along_the_sum(block: Block) -> str:
    """As many scales as columns, but one per row: no factor of a column's sum."""
    x, _ = block.pair(block.given("x", [16, 16]), 1.0)
    weights = block.constant(block.rng.integers(-127, 128, (16, 16)).astype(np.int8))
    scales = block.constant(block.rng.uniform(0.001, 0.01, 16).astype(np.float32))
    w = block.node("DequantizeLinear", weights, scales, axis=0)
    return block.quantise(block.node("MatMul", x, w), 1.0)[0]


def bias_per_row(block: Block) -> str:
    """As many constants as columns, but one per row."""
    x, _ = block.pair(block.given("x", [16, 16]), 1.0)
    bias = block.constant(block.rng.normal(0, 2, (16, 1)).astype(np.float32))
    return block.quantise(block.node("Add", block.product(x, 16), bias), 1.0)[0]


def pool_between_axes(block: Block) -> str:
    """Dequantised per channel, quantised with the same scales per line."""
    x, _ = block.pair(block.given("x", [1, 8, 8, 8]), 0.5)
    scales = block.constant(block.rng.uniform(0.01, 0.02, 8).astype(np.float32))
    zeros = block.constant(np.zeros(8, np.int8))
    channels = block.node("QuantizeLinear", x, scales, zeros, axis=1)
    real = block.node("DequantizeLinear", channels, scales, zeros, axis=1)
    pooled = block.node("MaxPool", real, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return block.node("QuantizeLinear", pooled, scales, zeros, axis=2)


def residual_of_16_bits(block: Block) -> str:
    block.opset = 21
    x, _ = block.pair(block.given("x", [1, 8, 8, 8]), 1.0)
    scale, zero = block.constant(np.float32(1e-4)), block.constant(np.int16(0))
    integers = block.node("QuantizeLinear", block.product(x, 8), scale, zero)
    real = block.node("DequantizeLinear", integers, scale, zero)
    return block.quantise(block.node("Add", x, real), 1.0)[0]


def units_apart(millrace, folder, block: Block, output: str, flags=()) -> int:
    got = run_millrace(millrace, save_model(block.model(output), folder), "tsp-small", "int8",
                       block.feeds, folder, flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    return largest_unit_difference(got.outputs[output], block.value(output))


@pytest.mark.parametrize("seed", range(32))
def test_a_residual_sum_saturates_as_the_graph_says(millrace, tmp_path, seed):
    block, output = residual(seed)
    assert units_apart(millrace, tmp_path, block, output) <= block.bound


@pytest.mark.parametrize("make", [weights_scaled_along_the_sum, bias_per_row, pool_between_axes,
                                  residual_of_16_bits], ids=lambda make: make.__name__)
def test_constants_belong_to_the_axis_that_the_graph_names(millrace, tmp_path, make):
    block = Block(seed=1)
    assert units_apart(millrace, tmp_path, block, make(block)) <= 1


@pytest.mark.parametrize("kind, zero", [(np.int8, 0), (np.int8, 1), (np.int8, -3), (np.int8, 4), (np.uint8, 127),
                                        (np.uint8, 128), (np.uint8, 3)])
def test_ties_are_rounded_before_the_zero_point_is_added(millrace, tmp_path, kind, zero):
    """Every half of a step, and beyond both ends: with an odd zero point a sum would be even where the number is odd."""
    x = np.arange(-100, 100, 0.125, dtype=np.float32).reshape(10, 160)
    nodes = [helper.make_node("Sub", ["x", "quarter"], ["d"]),
             helper.make_node("QuantizeLinear", ["d", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    constants = {"quarter": np.float32([0.25]), "s": np.float32(0.5), "z": kind(zero)}
    graph = helper.make_graph(nodes, "ties", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-small", "int8", {"x": x}, tmp_path, ["--check"])
    assert np.array_equal(got.outputs["y"], probe.run(model, {"x": x})["y"])
