# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums up to each element, Fourier transforms and columns that are put back into an image are products with constants, or sums:
they run on the grid, in a network's midst."""
import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import cycles_on_grid, relative_l2, run_millrace, save_model

node = helper.make_node


def between(nodes, shape, constants, width=None):
    """`nodes` make q of p, a product of x; y is a product of q."""
    draw = np.random.default_rng(len(nodes))
    weights = {"w0": draw.standard_normal((shape[-1],) * 2) / shape[-1]**0.5,
               "w1": draw.standard_normal((width or shape[-1], 8)) / (width or shape[-1])**0.5}
    nodes = [node("MatMul", ["x", "w0"], ["p"]), *nodes, node("MatMul", ["q", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(value), name) for name, value in weights.items()] +
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1}, {"reverse": 1, "exclusive": 1}], ids=str)
def test_sums_up_to_each_element(millrace, tmp_path, axis, options):
    model = between([node("CumSum", ["p", "axis"], ["q"], **options)], [3, 10, 24], {"axis": np.int64(axis)})
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) < 1_200


@pytest.mark.parametrize("infinite", ["chosen", "divided"])
def test_sums_before_an_infinity_keep_their_values(millrace, tmp_path, infinite):
    """A product with zeros would spoil them: what may be infinite though all inputs are finite is summed in steps."""
    made = {"chosen": [node("Where", ["mask", "lowest", "r"], ["w"])], "divided": [node("Reciprocal", ["r"], ["w"])]}[infinite]
    nodes = [node("Relu", ["x"], ["r"]), *made, node("CumSum", ["w", "axis"], ["y"])]
    mask = np.zeros((4, 12), bool)
    mask[:, 7] = True
    constants = {"axis": np.int64(1)} | ({"mask": mask, "lowest": np.float32(-np.inf)} if infinite == "chosen" else {})
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 12])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    x = np.random.default_rng(4).standard_normal((4, 12)).astype(np.float32)
    x[:, :3] = np.abs(x[:, :3])  # finite sums first
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", {"x": x}, tmp_path).outputs["y"]
    assert json.loads((tmp_path / "report.json").read_text())["host_ops"] == []
    expected = probe.run(model, {"x": x})["y"]
    assert (np.isinf(expected).any(axis=1) & np.isfinite(expected).any(axis=1)).all()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    np.testing.assert_allclose(got[np.isfinite(got)], expected[np.isfinite(got)], rtol=4e-3, atol=1e-3)


def test_a_spectrum_of_both_dimensions_mixes_tokens(millrace, tmp_path):
    """FNet's mixing: the real part of a transform of all tokens and all lanes. As rows of two lanes each it took 200 times as long."""
    nodes = [node("Unsqueeze", ["p", "last"], ["u"]), node("DFT", ["u", "", "second"], ["a"]), node("DFT", ["a", "", "first"], ["b"]),
             node("Gather", ["b", "zero"], ["q"], axis=3)]
    model = between(nodes, [1, 16, 64], {"last": np.int64([-1]), "first": np.int64(1), "second": np.int64(2), "zero": np.int64(0)})
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 3e-3) < 2_000


def test_a_filter_of_frequencies(millrace, tmp_path):
    """A one-sided spectrum, each frequency times a number, and back: 20 is even, its middle frequency counts once."""
    nodes = [node("Unsqueeze", ["p", "last"], ["u"]), node("DFT", ["u", "", "axis"], ["a"], onesided=1), node("Mul", ["a", "filter"], ["b"]),
             node("DFT", ["b", "", "axis"], ["c"], onesided=1, inverse=1), node("Squeeze", ["c", "last"], ["q"])]
    draw = np.random.default_rng(3).standard_normal((1, 11, 1, 1)).astype(np.float32)
    model = between(nodes, [1, 20, 16], {"last": np.int64([-1]), "axis": np.int64(1), "filter": draw})
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 3e-3) < 4_000


@pytest.mark.parametrize("kernel, image, options", [
    ((2, 2), (6, 8), {"strides": [2, 2]}), ((3, 2), (5, 6), {}), ((3, 3), (6, 6), {"pads": [1, 1, 1, 1]}),
    ((2, 3), (7, 9), {"dilations": [2, 1], "strides": [1, 2], "pads": [0, 1, 1, 0]})], ids=str)
def test_columns_are_added_up_where_they_lay(millrace, tmp_path, kernel, image, options):
    taps, pads = kernel[0] * kernel[1], options.get("pads", [0] * 4)
    places = 1
    for i in range(2):
        reach = (kernel[i] - 1) * options.get("dilations", [1, 1])[i] + 1
        places *= (image[i] + pads[i] + pads[i + 2] - reach) // options.get("strides", [1, 1])[i] + 1
    nodes = [node("Relu", ["p"], ["r"]), node("Col2Im", ["r", "image", "block"], ["q"], **options)]
    model = between(nodes, [1, 4 * taps, places], {"image": np.int64(image), "block": np.int64(kernel)}, image[1])
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) > 0


@pytest.mark.parametrize("window,options", [(True, {}), (True, {"onesided": 0}), (False, {"onesided": 1})], ids=str)
def test_spectra_of_frames_of_a_signal(millrace, tmp_path, window, options):
    """A front end of speech: reflected ends, frames every 20 numbers, their energies in bands. One-sided if nothing is said, with or without a length."""
    bins = 33 if options.get("onesided", 1) else 64
    draw = np.random.default_rng(9)
    constants = {"ends": np.int64([0, 32, 0, 32]), "last": np.int64([2]), "step": np.int64(20), "window": np.hanning(64).astype(np.float32), "length": np.int64(64),
                 "bands": (draw.uniform(0, 1, (bins, 12)) / bins).astype(np.float32)}
    nodes = [node("Pad", ["x", "ends"], ["p"], mode="reflect"), node("Unsqueeze", ["p", "last"], ["s"]),
             node("STFT", ["s", "step", "window" if window else "", "" if window else "length"], ["f"], **options),
             node("ReduceSumSquare", ["f", "last3"], ["e"], keepdims=0), node("MatMul", ["e", "bands"], ["y"])]
    constants["last3"] = np.int64([3])
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 700])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < 2e-3
    assert len(got.report["host_ops"]) == 1, "reflected ends"
    assert got.report["predicted_cycles"] == got.report["measured_cycles"] < 6_000


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_copies_at_the_border_of_an_image_come_in_runs(millrace, tmp_path, mode):
    """Each row and column was a part of its own: 15,290 cycles of edges, now 4,751."""
    draw = np.random.default_rng(3)
    constants = {"w": (draw.standard_normal((32, 32, 3, 3)) / 17).astype(np.float32), "ends": np.int64([0, 0, 3, 3, 0, 0, 3, 3])}
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Pad", ["a", "ends"], ["b"], mode=mode), node("Conv", ["b", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 24, 24])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) < 8_000
