# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Depthwise convolutions run on the grid: every lane sums the products of its own channel."""
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from families import Net
from oracle import relative_l2, run_millrace, save_model

node = helper.make_node


def judged(millrace, tmp_path, nodes, shape, constants, machine="tsp-v1", precision="fp16", bound=2e-3, host=()):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(a), name) for name, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, precision, inputs, tmp_path, ["--check"])
    assert set(got.report["host_ops"]) <= set(host)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) <= bound
    return got.report


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small", "mesh-4x4", "lp30"])
@pytest.mark.parametrize("channels, extents, options", [
    (8, (6, 7), {"pads": [1, 1, 1, 1]}),
    (48, (9, 9), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    (24, (8, 6), {"dilations": [2, 1]}),
    (16, (5, 5), {"pads": [2, 0, 1, 2]}),
    (12, (20,), {"pads": [1, 1]}),
    (12, (4, 5, 6), {"pads": [1, 1, 1, 1, 1, 1], "strides": [1, 2, 2]}),
    (6, (5, 4, 5), {"dilations": [2, 1, 1]}),
], ids=str)
def test_a_window_over_each_channel(millrace, tmp_path, machine, channels, extents, options):
    kernel = (3,) * len(extents)
    judged(millrace, tmp_path, [node("Conv", ["x", "w", "b"], ["y"], group=channels, **options)],
           [1, channels, *extents], {"w": numbers(channels, 1, *kernel), "b": numbers(channels, seed=1)}, machine)


@pytest.mark.parametrize("kernel", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2])
def test_small_and_large_windows_of_a_batch(millrace, tmp_path, kernel, batch):
    judged(millrace, tmp_path, [node("Conv", ["x", "w"], ["y"], group=10)], [batch, 10, 7, 7],
           {"w": numbers(10, 1, kernel, kernel)})


@pytest.mark.parametrize("precision, bound", [("fp16", 2e-3), ("bf16", 2e-2)])
def test_an_inverted_residual_block_is_all_on_the_grid(millrace, tmp_path, precision, bound):
    """Widened by a product, filtered by channel, narrowed by a product, added; each MAC is counted once."""
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Clip", ["a", "low", "high"], ["b"]),
             node("Conv", ["b", "w1"], ["c"], group=72, pads=[1, 1, 1, 1]), node("Clip", ["c", "low", "high"], ["d"]),
             node("Conv", ["d", "w2"], ["e"]), node("Add", ["x", "e"], ["y"])]
    report = judged(millrace, tmp_path, nodes, [1, 12, 10, 10],
                    {"w0": numbers(72, 12, 1, 1) / 4, "w1": numbers(72, 1, 3, 3, seed=1) / 3,
                     "w2": numbers(12, 72, 1, 1, seed=2) / 8, "low": 0, "high": 6}, precision=precision, bound=bound)
    assert report["macs_total"] == report["macs_on_grid"] == 100 * 72 * (12 + 9 + 12)


@pytest.mark.parametrize("channels, times, kernel, extents, most", [
    (48, 2, 7, (32, 32), 8_000), (24, 3, 3, (20, 20), 7_000), (400, 2, 3, (14, 14), 4_000), (10, 4, 5, (30,), 3_000)], ids=str)
def test_several_results_of_each_channel(millrace, tmp_path, channels, times, kernel, extents, most):
    """A channel for each of them, between convolutions: not a row for each value, which took 489,543 cycles for the first."""
    rank = len(extents)
    nodes = [node("Conv", ["x", "w0"], ["a"], pads=[1] * 2 * rank),
             node("Conv", ["a", "w1", "b1"], ["b"], group=channels, pads=[kernel // 2] * 2 * rank, strides=[2] * rank),
             node("Relu", ["b"], ["c"]), node("Conv", ["c", "w2"], ["y"])]
    report = judged(millrace, tmp_path, nodes, [1, 3, *extents],
                    {"w0": numbers(channels, 3, *(3,) * rank) / 5, "w1": numbers(channels * times, 1, *(kernel,) * rank, seed=1) / kernel,
                     "b1": numbers(channels * times, seed=2), "w2": numbers(32, channels * times, *(1,) * rank, seed=3) / 20})
    assert report["measured_cycles"] < most


def test_several_results_of_each_channel_are_read_as_they_are(millrace, tmp_path):
    """Two of them added and pooled, as MobileOne blocks do: their channels, dealt in turn, stay along the lanes, and so do those before."""
    nodes = [node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
             node("Conv", ["a", "w1", "b1"], ["b"], group=64, pads=[1] * 4), node("Conv", ["a", "w2", "b1"], ["c"], group=64),
             node("Add", ["b", "c"], ["s"]), node("Relu", ["s"], ["r"]), node("GlobalAveragePool", ["r"], ["m"]), node("Mul", ["r", "m"], ["y"])]
    report = judged(millrace, tmp_path, nodes, [1, 3, 64, 64], {"w0": numbers(64, 3, 3, 3) / 5, "w1": numbers(128, 1, 3, 3, seed=1) / 3,
                                                              "w2": numbers(128, 1, 1, 1, seed=2), "b1": numbers(128, seed=3)})
    assert report["measured_cycles"] < 8_000


def test_weights_are_latched_before_the_taps_that_lie_in_their_slices_are_read(millrace, tmp_path, call):
    """32 slices hold copies for five taps and four bytes of nine weights: first refused, then led around each other."""
    machine = tmp_path / "few.yaml"
    text = (Path(__file__).resolve().parents[2] / "arch" / "machines" / "tsp-v1.yaml").read_text()
    machine.write_text(text.replace("\n  slices: 44\n", "\n  slices: 32\n"))
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Conv", ["a", "w1", "b1"], ["b"], group=64, pads=[1] * 4), node("Relu", ["b"], ["y"])]
    constants = {"w0": numbers(64, 8, 1, 1) / 4, "w1": numbers(64, 1, 3, 3, seed=1) / 3, "b1": numbers(64, seed=2)}
    judged(millrace, tmp_path, nodes, [1, 8, 20, 20], constants, str(machine))
    model = next(tmp_path.glob("*.onnx"))
    _, told = call("compile", model, "-m", machine, "--verbose", "-o", tmp_path / "image")
    assert "scheduling took" in told and "constant row" not in told and "belong together" not in told


def drawn_blocks(draw: np.random.Generator, seed: int):
    """Inverted residuals of any extents: windows of 3 to 7, perhaps dilated or with a stride, and poolings between them."""
    g = Net(f"blocks {seed}", seed)
    channels, height, width = int(draw.integers(8, 200)), int(draw.integers(7, 40)), int(draw.integers(7, 40))
    activation = lambda y: [g.relu, g.relu6, g.swish, g.hard_swish, lambda z: z][draw.integers(5)](y)
    y = g.conv(g.input("x", [1, 3, height, width]), 3, channels, 3)
    for _ in range(int(draw.integers(1, 4))):
        wide, stride = int(draw.integers(8, 300)), int(draw.choice([1, 1, 2]))
        z = activation(g.conv(y, channels, wide))
        z = activation(g.conv(z, wide, wide, int(draw.choice([3, 5, 7])), stride=stride, dilation=int(draw.choice([1, 1, 2])), group=wide))
        z = g.conv(z, wide, channels)
        y = g.add("Add", z, y) if stride == 1 and draw.random() < 0.6 else z
        if draw.random() < 0.3:
            y = g.add(str(draw.choice(["MaxPool", "AveragePool"])), y, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    g.output(g.add("Identity", y, name="y"), [1, channels, "h", "w"])
    return g.model()


@pytest.mark.parametrize("seed, machine", [(seed, "tsp-v1") for seed in range(10)] +
                         [(seed, machine) for machine in ("tsp-small", "lp30", "mesh-4x4") for seed in (10, 11, 12)] +
                         [(seed, "little slices") for seed in range(13, 17)])
def test_drawn_blocks_are_right(millrace, tmp_path, seed, machine):
    if machine == "little slices":  # of which copies of a window take most
        (tmp_path / "m.yaml").write_text("name: m\nbase: tsp-v1\nmemory: { slices: 26, slices_per_register: 2 }\nvxm: { alus: 12 }\n")
        machine = tmp_path / "m.yaml"
    model = drawn_blocks(np.random.default_rng(seed), seed)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path, ["--check"])
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) <= 3e-3


def test_a_window_of_many_taps_takes_two_rows_a_cycle(millrace, tmp_path):
    """7 x 7 taps over 28 x 28 pixels of 256 channels, a row each: 13 parts of four taps, two rows a cycle; with the rows of one
    hemisphere behind those of the other it would be ten of five, a row a cycle: 7,840."""
    pixels = 28 * 28
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "w1"], ["c"], group=256, pads=[3] * 4),
             node("Conv", ["c", "w2"], ["y"])]
    report = judged(millrace, tmp_path, nodes, [1, 256, 28, 28],
                    {"w0": numbers(256, 256, 1, 1) / 16, "w1": numbers(256, 1, 7, 7) / 7, "w2": numbers(256, 256, 1, 1, seed=1) / 16})
    windows = [kernel for kernel in report["kernels"] if kernel["mxm_vectors"] == 0]
    taken = max(kernel["last_cycle"] for kernel in windows) - min(kernel["first_cycle"] for kernel in windows)
    assert taken < 0.8 * 10 * pixels
