# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What models do to an image before the first convolution, and images whose channels come last: in whatever way an exporter writes them,
the convolutions cost about what they cost without."""
import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import judge_on_grid


class Network:
    """Nodes that are added one by one; `last`: channels come last, as in Keras, between convolutions that take them first."""

    def __init__(self, shape, seed=0, last=False, kind=TensorProto.FLOAT):
        self.draw, self.last, self.nodes, self.constants, self.inputs = np.random.default_rng(seed), last, [], {}, []
        self.value, self.shape = self.input("x", shape, kind), list(shape)

    def input(self, name, shape, kind=TensorProto.FLOAT):
        turned = [shape[0], *shape[2:], shape[1]] if self.last else shape
        self.inputs.append(helper.make_tensor_value_info(name, kind, turned))
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def add(self, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, [i if isinstance(i, str) else self.constant(i) for i in inputs], [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def do(self, op, *others, **attributes):
        self.value = self.add(op, self.value, *others, **attributes)

    def axis(self, dim):
        """Of a dimension of [batch, channels, rows, columns]."""
        return [0, 3, 1, 2][dim] if self.last else dim

    def per_channel(self, values):
        return np.float32(values).reshape([1, 1, 1, -1] if self.last else [1, -1, 1, 1])

    def slice(self, dim, first, end, step=1):
        self.do("Slice", np.int64([first]), np.int64([end]), np.int64([self.axis(dim)]), np.int64([step]))
        self.shape[dim] = len(range(self.shape[dim])[first:end:step])

    def convolve(self, results, window, stride=1, groups=1):
        channels, pad = self.shape[1], window // 2
        weights = self.draw.standard_normal((results, channels // groups, window, window)) / (channels // groups * window ** 2) ** 0.5
        if self.last:
            self.do("Transpose", perm=[0, 3, 1, 2])
        self.do("Conv", np.float32(weights), pads=[pad] * 4, strides=[stride] * 2, group=groups)
        if self.last:
            self.do("Transpose", perm=[0, 2, 3, 1])
        self.shape[1:] = [results, *((extent + 2 * pad - window) // stride + 1 for extent in self.shape[2:])]

    def normalise(self):
        channels = self.shape[1]
        self.do("Mul", self.per_channel(self.draw.uniform(0.5, 1.5, channels)))
        self.do("Add", self.per_channel(self.draw.normal(0, 0.2, channels)))

    def append(self, before, channels):
        self.value = self.add("Concat", before, self.value, axis=self.axis(1))
        self.shape[1] += channels

    def model(self):
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(self.nodes, "g", self.inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(a, name) for name, a in self.constants.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def measure(millrace, folder, network, machine="tsp-v1"):
    model = network.model()
    return judge_on_grid(millrace, model, probe.seeded_inputs(model), folder, machine)["measured_cycles"]


def scaled(net):
    net.do("Mul", np.float32(2))


def normalised(net):
    net.do("Sub", net.per_channel([0.485, 0.456, 0.406]))
    net.do("Div", net.per_channel([0.229, 0.224, 0.225]))


def cropped(net):
    net.slice(2, 3, -5)
    net.slice(3, 4, -4)


def mirrored(net):
    net.slice(3, -1, -1000, -1)
    net.do("Neg")


def swapped(net):
    net.slice(1, -1, -1000, -1)
    normalised(net)


def clipped(net):
    net.do("Clip", np.float32(-1), np.float32(1))


def masked(net):
    net.do("Mul", net.input("m", [1, 1, *net.shape[2:]]))


def differing(net):
    net.do("Sub", net.input("m", net.shape))


def repeated(net):
    net.slice(1, 0, 1)
    net.do("Expand", np.int64([1, *net.shape[2:], 3] if net.last else [1, 3, *net.shape[2:]]))
    net.shape[1] = 3


def apart(net):
    """Its channels are made one by one."""
    whole, shape, parts = net.value, list(net.shape), []
    for channel, op in enumerate(["Neg", "Abs", "Relu"]):
        net.value, net.shape = whole, list(shape)
        net.slice(1, channel, channel + 1)
        net.do(op)
        parts.append(net.value)
    net.value, net.shape = net.add("Concat", *parts, axis=net.axis(1)), shape


def mixed(net):
    net.convolve(3, 1)


FRONTS = [scaled, normalised, cropped, mirrored, swapped, clipped, masked, differing, repeated, apart, mixed]


def stem(front, last, size=64, channels=64):
    net = Network([1, 3, size, size], last=last)
    front(net)
    net.convolve(channels, 7, 2)
    net.do("Relu")
    net.convolve(channels, 3)
    return net


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.__name__)
def test_what_an_image_goes_through_costs_little(millrace, tmp_path, front, last):
    """Without layouts that image and map share, a row would be a pixel: 3 to 5 times the cycles."""
    plain = measure(millrace, tmp_path, stem(lambda net: None, last))
    assert measure(millrace, tmp_path, stem(front, last)) <= 1.25 * plain


@pytest.mark.parametrize("machine", ["lp30", "mesh-4x4"])
@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.__name__)
def test_fronts_on_other_machines(millrace, tmp_path, front, machine):
    measure(millrace, tmp_path, stem(front, front in (cropped, swapped, masked), 24, 24), machine)


def dense(last, layers=5):
    """Each layer adds what it makes of all before it, as one concatenation after the other."""
    net = Network([1, 3, 32, 32], last=last)
    net.convolve(32, 3)
    for _ in range(layers):
        before, channels = net.value, net.shape[1]
        net.normalise()
        net.do("Relu")
        net.convolve(64, 1)
        net.do("Relu")
        net.convolve(16, 3)
        net.append(before, channels)
    net.do("Relu")
    net.convolve(32, 1)
    return net


def test_channels_that_come_last_cost_what_others_do(millrace, tmp_path):
    first, last = (measure(millrace, tmp_path, dense(last)) for last in (False, True))
    assert last <= 1.05 * first


def drawn(seed):
    draw = random.Random(seed)
    net = Network([1, 3, draw.choice([13, 16, 24, 40]), draw.choice([11, 16, 24, 56])], seed, last=draw.random() < 0.5)
    for front in draw.sample([scaled, normalised, cropped, mirrored, swapped, clipped, apart, mixed, draw.choice([masked, differing])], draw.randint(1, 4)):
        if front not in (masked, differing) or len(net.inputs) == 1:
            front(net)
    for _ in range(draw.randint(1, 3)):
        before, channels = net.value, net.shape[1]
        net.convolve(draw.choice([3, 8, 16, 24, 32]), draw.choice([1, 3, 5]), 1)
        if draw.random() < 0.5:
            net.normalise()
        if draw.random() < 0.7:
            net.do(draw.choice(["Relu", "Sigmoid", "Tanh"]))
        if draw.random() < 0.5:
            net.append(before, channels)
    net.do("Relu")
    return net


@pytest.mark.parametrize("seed", range(16))
def test_drawn_fronts(millrace, tmp_path, seed):
    measure(millrace, tmp_path, drawn(seed), ["tsp-v1", "tsp-v1", "lp30", "mesh-4x4"][seed % 4])


@pytest.mark.parametrize("rows, columns", [(40, 56), (23, 32)])
def test_bytes_are_resized_and_normalised(millrace, tmp_path, rows, columns):
    net = Network([1, 3, rows, columns], kind=TensorProto.UINT8)
    net.do("Cast", to=TensorProto.FLOAT)
    net.do("Resize", "", "", np.int64([1, 3, 32, 32]), mode="linear")
    net.do("Div", np.float32(255))
    net.shape[2:] = [32, 32]
    normalised(net)
    net.convolve(32, 5, 2)
    measure(millrace, tmp_path, net)


def test_an_image_is_normalised_by_its_own_mean(millrace, tmp_path):
    net = Network([1, 3, 40, 40])
    image = net.value
    net.do("ReduceMean", axes=[2, 3], keepdims=1)
    mean = net.value
    net.value = net.add("Sub", image, mean)
    net.convolve(32, 5, 2)
    measure(millrace, tmp_path, net)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0, 0, 0, 2, 0], [2, 0, 0, 0, 0, 0, 2, 0], [0, 0, 1, 0, 0, 0, 0, 0]])
def test_a_dimension_of_one_index_is_padded(millrace, tmp_path, pads):
    """The host that writes what a map reads of an input has nothing beside the only index of a dimension: random model 6081026."""
    net = Network([33, 1, 2, 1])
    net.do("Reshape", np.int64([1, 33, 1, 2]))
    net.do("Pad", np.int64(pads), np.float32(2.5))
    measure(millrace, tmp_path, net)
