# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of one image that are added up, as networks are trained that are to be one convolution later, are one convolution."""
import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from test_attention_over_pixels import judged as judge

node = helper.make_node


def sum_of(branches, channels, extents, results=None, stride=1, seed=0):
    """Branches (window, dilation, depthwise) or "norm", a batch normalisation of the image, or "image" itself, behind a Relu."""
    draw = np.random.default_rng(seed)
    rank, results = len(extents), results or channels
    constants, nodes, total = {}, [node("Relu", ["x"], ["image"])], None
    for i, branch in enumerate(branches):
        name = f"branch{i}"
        if branch == "image":
            name = "image"
        elif branch == "norm":
            for part, values in zip("gbmv", [draw.standard_normal(channels), draw.standard_normal(channels), draw.standard_normal(channels), draw.uniform(0.5, 1.5, channels)]):
                constants[f"{part}{i}"] = np.float32(values)
            nodes.append(node("BatchNormalization", ["image"] + [f"{part}{i}" for part in "gbmv"], [name]))
        else:
            window, dilation, depthwise = branch
            inside = 1 if depthwise else channels
            constants[f"w{i}"] = np.float32(draw.standard_normal((results, inside, *[window] * rank)) / (inside * window ** rank) ** 0.5)
            constants[f"bias{i}"] = np.float32(draw.standard_normal(results))
            inputs = ["image", f"w{i}", f"bias{i}"][:draw.choice([2, 3])]
            nodes.append(node("Conv", inputs, [name], group=channels if depthwise else 1, dilations=[dilation] * rank,
                              strides=[stride] * rank, pads=[dilation * (window - 1) // 2] * 2 * rank))
        if total:
            nodes.append(node("Add", [total, name], [f"sum{i}"]))
        total = f"sum{i}" if total else name
    nodes.append(node("Relu", [total], ["y"]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, *extents])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def judged(millrace, tmp_path, model, machine="tsp-v1"):
    report = judge(millrace, tmp_path, model, machine)
    assert report["macs_total"] == report["macs_on_grid"]
    return report


@pytest.mark.parametrize("branches, channels, extents, stride", [
    ([(3, 1, False), (1, 1, False), "norm"], 32, (16, 16), 1),
    (["norm", (1, 1, False), (3, 1, False), (3, 1, False)], 24, (9, 11), 1),
    ([(5, 1, True), (3, 1, True), (1, 1, True), "norm"], 40, (14, 14), 1),
    ([(3, 2, False), (1, 5, False)], 16, (12, 12), 1),
    ([(3, 1, True), (1, 1, True)], 16, (13, 13), 2),
    ([(3, 1, False), (3, 1, True)], 12, (20,), 1),
    ([(3, 1, False), (1, 1, False)], 8, (4, 6, 5), 1)], ids=str)
def test_a_sum_of_branches_takes_what_the_largest_takes(millrace, tmp_path, branches, channels, extents, stride):
    convolutions = [branch for branch in branches if branch != "norm"]
    alone = [max(convolutions, key=lambda branch: (not branch[2], branch[0]))]
    cycles = judged(millrace, tmp_path, sum_of(branches, channels, extents, stride=stride))["measured_cycles"]
    assert cycles <= judged(millrace, tmp_path, sum_of(alone, channels, extents, stride=stride))["measured_cycles"] + 40


@pytest.mark.parametrize("branches, results", [
    ([(3, 1, False), (3, 2, False)], None),  # other steps
    ([(1, 1, False), (3, 1, True)], None),  # of all channels at a point, of each in a window
    ([(3, 1, False), "image"], None), ([(3, 1, False), (1, 1, False)], 7)], ids=str)
def test_what_is_no_one_window_stays_a_sum(millrace, tmp_path, branches, results):
    judged(millrace, tmp_path, sum_of(branches, 20, (10, 10), results))


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4", "lp30"])
@pytest.mark.parametrize("seed", range(4))
def test_drawn_branches(millrace, tmp_path, seed, machine):
    draw = random.Random(seed)
    branches = [draw.choice([(draw.choice([1, 3, 5]), draw.choice([1, 2]), draw.random() < 0.5), "norm"]) for _ in range(draw.randint(2, 5))]
    judged(millrace, tmp_path, sum_of(branches, draw.randint(2, 40), [draw.randint(3, 16) for _ in range(draw.randint(1, 2))], seed=seed), machine)
