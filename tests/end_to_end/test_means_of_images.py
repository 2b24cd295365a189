# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A mean over an image beside what else reads it: extents without divisors cost about what their neighbours cost."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import judge_on_grid


class Block:
    """An image that is widened, filtered by channel, gated by its own mean and narrowed."""

    def __init__(self, seed=0):
        self.draw, self.nodes, self.constants = np.random.default_rng(seed), [], {}

    def add(self, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def convolve(self, value, results, channels, window=1, **attributes):
        shape = (results, channels // attributes.get("group", 1), window, window)
        weights = self.draw.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        return self.add("Conv", value, self.constant(np.float32(weights)), self.constant(np.float32(self.draw.normal(0, 0.1, results))),
                        pads=[window // 2] * 4, **attributes)

    def swish(self, value):
        return self.add("Mul", value, self.add("Sigmoid", value))

    def mean(self, value):
        return self.add("ReduceMean", value, axes=[2, 3], keepdims=1)

    def gate(self, value, channels):
        squeezed = self.swish(self.convolve(self.mean(value), 4, channels))
        return self.add("Mul", value, self.add("Sigmoid", self.convolve(squeezed, channels, 4)))

    def model(self, value, shape):
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def gated(channels, extent, stride=1):
    block = Block()
    wide = block.swish(block.convolve("x", channels, 16))
    filtered = block.swish(block.convolve(wide, channels, channels, 3, group=channels, strides=[stride] * 2))
    return block.model(block.convolve(block.gate(filtered, channels), 24, channels), [1, 16, extent, extent])


def averaged(channels, extent, swishes):
    block = Block()
    wide = block.convolve("x", channels, 32)
    if swishes:
        wide = block.swish(wide)
    return block.model(block.mean(wide), [1, 32, extent, extent])


def cycles(millrace, folder, model, machine="tsp-v1"):
    return judge_on_grid(millrace, model, probe.seeded_inputs(model), folder, machine)["measured_cycles"]


@pytest.mark.parametrize("channels, extent, stride", [(96, 65, 1), (96, 130, 2), (144, 65, 1), (48, 71, 1)])
def test_bands_of_an_image_may_be_summed(millrace, tmp_path, channels, extent, stride):
    """The sum adds four rows at a time: bands of whole fours."""
    even = extent // 16 * 16
    assert cycles(millrace, tmp_path, gated(channels, extent, stride)) < 1.2 * (extent / even) ** 2 * cycles(
        millrace, tmp_path, gated(channels, even, stride))


@pytest.mark.parametrize("swishes", [False, True])
@pytest.mark.parametrize("channels, extent", [(720, 17), (400, 19), (2112, 9), (1000, 13)])
def test_means_of_any_extent(millrace, tmp_path, channels, extent, swishes):
    even = extent + 1
    assert cycles(millrace, tmp_path, averaged(channels, extent, swishes)) < 1.1 * cycles(
        millrace, tmp_path, averaged(channels, even, swishes))


@pytest.mark.parametrize("machine", ["mesh-4x4", "lp30", "tsp-small"])
@pytest.mark.parametrize("channels, extent", [(12, 23), (36, 17), (20, 29)])
def test_gates_on_other_machines(millrace, tmp_path, machine, channels, extent):
    cycles(millrace, tmp_path, gated(channels, extent), machine)


def normalised(channels, extent):
    """PoolFormer: an image is normalised as a whole and smoothed; what that changes is added to it."""
    block = Block()
    value = block.convolve("x", channels, 16)
    flat, whole = block.constant(np.int64([1, 1, -1])), block.constant(np.int64([1, channels, extent, extent]))
    one, zero = block.constant(np.ones(1, np.float32)), block.constant(np.zeros(1, np.float32))
    for _ in range(2):
        inner = block.add("Reshape", block.add("InstanceNormalization", block.add("Reshape", value, flat), one, zero), whole)
        inner = block.add("Mul", inner, block.constant(block.draw.uniform(0.5, 1.5, (channels, 1, 1)).astype(np.float32)))
        smooth = block.add("AveragePool", inner, kernel_shape=[3, 3], pads=[1] * 4)
        value = block.add("Add", value, block.add("Sub", smooth, inner))
    block.convolve(value, 24, channels)
    return block.model(value, [1, 16, extent, extent])


@pytest.mark.parametrize("channels, extent", [(64, 40), (48, 31), (96, 56)])
def test_images_normalised_as_a_whole_lie_in_bands(millrace, tmp_path, channels, extent):
    """As many pixels a row as fit: of few channels they are fewer rows than of as many as a vector holds."""
    assert cycles(millrace, tmp_path, normalised(channels, extent)) < 0.7 * cycles(millrace, tmp_path, normalised(320, extent))


@pytest.mark.parametrize("machine", ["mesh-4x4", "lp30", "tsp-small"])
def test_images_normalised_on_other_machines(millrace, tmp_path, machine):
    cycles(millrace, tmp_path, normalised(12, 14), machine)
