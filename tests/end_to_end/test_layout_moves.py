# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that are moved between layouts, inputs that are written more than once, packed weights of groups: values of
ONNX Runtime."""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

NUMBERS = np.random.default_rng(11)


class Net:
    """A chain of nodes; each method appends one and returns the name of its result."""

    def __init__(self, shape: list[int]):
        self.nodes, self.weights, self.shape = [], [], shape

    def node(self, operator: str, *operands: str, **options) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(operands), [name], **options))
        return name

    def conv(self, x: str, lanes: int, filters: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        each = lanes // group
        values = NUMBERS.normal(0, 1.4 / (kernel * each**0.5), (filters, each, kernel, kernel)).astype(np.float32)
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return self.node("Conv", x, name, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def model(self, output: str) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "net", [value("x", onnx.TensorProto.FLOAT, self.shape)],
                                  [value(output, onnx.TensorProto.FLOAT, None)], self.weights)
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def run(millrace, tmp_path, net: Net, output: str, *flags: str):
    model = net.model(output)
    inputs = {"x": NUMBERS.normal(0, 1, net.shape).astype(np.float32)}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs[output], probe.run(model, inputs)[output]) < 2e-3
    return got.report


@pytest.mark.parametrize("pads, size", [(1, 80), (0, 82)])
def test_a_stem_moves_columns_that_a_pooling_reads_twice(millrace, tmp_path, pads, size):
    """Maxima over three columns, two apart: the third is the first of the next."""
    net = Net([1, 3, size, size])
    stem = net.relu(net.conv("x", 3, 64, 7, 2))
    pooled = net.node("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[pads] * 4)
    report = run(millrace, tmp_path, net, net.conv(pooled, 64, 96, 3))
    windows = 3 * 7 * 7 * 64 * (size // 2) ** 2
    assert report["macs_total"] >= windows
    readers = [kernel for kernel in report["kernels"] if ".tap" in kernel["name"] and kernel["macs"]]
    moved = [kernel for kernel in report["kernels"] if ".tap" in kernel["name"] and not kernel["macs"]]
    assert readers and moved


def test_what_a_pooling_reads_is_moved_from_the_layout_of_its_convolution(millrace, tmp_path):
    net = Net([1, 3, 35, 35])
    inner = net.relu(net.conv("x", 3, 48, 1))
    wide = net.relu(net.conv(inner, 48, 64, 5))
    pooled = net.node("AveragePool", wide, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    report = run(millrace, tmp_path, net, net.conv(pooled, 64, 32, 1))
    assert any("moved to another layout" in line for line in report["packed"])


def test_groups_whose_columns_take_more_than_the_memory_are_packed(millrace, tmp_path):
    """Three layers of 1,280 channels in groups of 32: 10.5 MiB in halves of vectors, a fifth of that packed; 10 MiB of memory."""
    channels, each = 1280, 32
    assert 3 * 9 * channels * 2 * 160 > 10 * 2**20
    net = Net([1, 16, 6, 6])
    x = net.relu(net.conv("x", 16, channels, 1))
    for _ in range(3):
        x = net.relu(net.conv(x, channels, channels, 3, group=channels // each))
    report = run(millrace, tmp_path, net, net.conv(x, channels, 16, 1), "--set", "memory.slices=16", "--set",
                 "memory.rows_per_bank=512")
    assert any(kernel["name"].endswith(".columns0") for kernel in report["kernels"])
