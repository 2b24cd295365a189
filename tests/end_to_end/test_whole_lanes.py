# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts and slices of channels tear nothing apart: a chain of residual sums behind a concatenation, or beside windows over some of the
channels, costs about what it costs without."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import judge_on_grid, quantised_statically, relative_l2, run, run_millrace, save_model


class Network:
    def __init__(self, channels, extent, seed=0):
        self.draw, self.nodes, self.constants = np.random.default_rng(seed), [], {}
        self.shape = [1, channels, extent, extent]

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names if outputs > 1 else names[0]

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def convolve(self, value, results, channels, window=(1, 1), **attributes):
        shape = (results, channels // attributes.get("group", 1), *window)
        weights = self.draw.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)
        return self.add("Conv", value, self.constant(weights), pads=[w // 2 for w in window] * 2, **attributes)

    def model(self, value):
        self.nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"]))
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def residual(parts, blocks, extent):
    """Inception-ResNet: what branches make is joined once, then every block adds to it."""
    net, channels = Network(32, extent), sum(parts)
    branches = [net.add("Relu", net.convolve("x", part, 32)) for part in parts]
    value = net.add("Concat", *branches, axis=1) if len(parts) > 1 else branches[0]
    for _ in range(blocks):
        inner = net.add("Relu", net.convolve(value, 32, channels))
        value = net.add("Relu", net.add("Add", value, net.convolve(inner, channels, 32)))
    return net.model(value)


def sliced(channels, parts, blocks, extent):
    """InceptionNeXt: windows of several kinds over some channels each, the first ones as they are."""
    net, first = Network(16, extent), channels - sum(parts)
    value = net.convolve("x", channels, 16)
    for _ in range(blocks):
        if parts:
            split = net.add("Split", value, net.constant(np.int64([first, *parts])), outputs=1 + len(parts), axis=1)
            windows = [(3, 3), (1, 5), (5, 1)]
            mixed = [net.convolve(its, part, part, window, group=part) for its, part, window in zip(split[1:], parts, windows)]
            inner = net.add("Concat", split[0], *mixed, axis=1)
        else:
            inner = net.convolve(value, channels, channels, (3, 3), group=channels)
        inner = net.add("Relu", net.convolve(inner, 2 * channels, channels))
        value = net.add("Add", value, net.convolve(inner, channels, 2 * channels))
    return net.model(value)


def cycles(millrace, folder, model, machine="tsp-v1"):
    return judge_on_grid(millrace, model, probe.seeded_inputs(model), folder, machine, most=4e-3)["measured_cycles"]


@pytest.mark.parametrize("parts, extent", [((96, 64, 64, 96), 35), ((200, 120), 20), ((48, 80, 32), 28)])
def test_a_residual_chain_behind_a_join(millrace, tmp_path, parts, extent):
    assert cycles(millrace, tmp_path, residual(parts, 4, extent)) < 1.5 * cycles(millrace, tmp_path, residual((sum(parts),), 4, extent))


@pytest.mark.parametrize("channels, parts, extent", [(96, (12, 12, 12), 56), (192, (24, 24, 24), 28), (80, (20, 20), 40)])
def test_windows_over_slices_of_channels(millrace, tmp_path, channels, parts, extent):
    """Slices are taken out and put back by a pass each; torn apart, it was 2.3 to 3.4 times."""
    assert cycles(millrace, tmp_path, sliced(channels, parts, 3, extent)) < 2.1 * cycles(millrace, tmp_path, sliced(channels, (), 3, extent))


def quantised_cycles(millrace, folder, model, machine="tsp-v1"):
    inputs = probe.seeded_inputs(model)
    quantised = quantised_statically(model, inputs, folder)
    got = run_millrace(millrace, save_model(quantised, folder), machine, "int8", inputs, folder, ["--exact-qdq"])
    assert got.report["host_ops"] == [] and got.report["measured_cycles"] == got.report["predicted_cycles"]
    assert relative_l2(got.outputs["y"], run(quantised, inputs)["y"]) < 1e-2
    return got.report["measured_cycles"]


@pytest.mark.parametrize("channels, parts, extent", [(96, (12, 12, 12), 56), (192, (24, 24, 24), 28)])
def test_slices_of_integers(millrace, tmp_path, channels, parts, extent):
    """Integers are moved as what holds 16 bits is."""
    assert quantised_cycles(millrace, tmp_path, sliced(channels, parts, 3, extent)) < 2.1 * quantised_cycles(millrace, tmp_path, sliced(channels, (), 3, extent))


@pytest.mark.parametrize("machine", ["mesh-4x4", "lp30", "tsp-small"])
def test_on_other_machines(millrace, tmp_path, machine):
    cycles(millrace, tmp_path, residual((12, 8, 12), 3, 12), machine)
    cycles(millrace, tmp_path, sliced(24, (4, 4, 4), 2, 12), machine)
    quantised_cycles(millrace, tmp_path, sliced(24, (4, 4, 4), 2, 12), machine)
