# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models through `millrace run`: values against ONNX Runtime, cycles against the prediction.

The comparison is made before the last Softmax, where differences of the logits still show.
"""
import functools

import numpy as np
import onnx
import pytest

import probe
import randomize
from fixtures import CASES, FOLDER
from macs import count_macs
from oracle import cut_softmax, relative_l2, run_millrace, same_top1, save_model

MACHINES = ["tsp-v1", "tsp-small", "lp30", "mesh-4x4"]
FLOAT_CASES = [(name, case, dims) for name in ("mnist", "convnet", "attention", "tiny_gpt2")
               for case, dims in CASES[name].items()]
# The host makes the mask; nothing else.
HOST_OPERATORS = {"tiny_gpt2": ("GptAttention_0",)}


def dim_flags(dims: dict[str, int]) -> list[str]:
    return [word for name, extent in dims.items() for word in ("--dim", f"{name}={extent}")]


def check_counts(report: dict, model: onnx.ModelProto, dims: dict[str, int], has_equal_nodes: bool = False) -> None:
    """Cycles as predicted; the multiply-accumulates of the ONNX shapes, all of them on the grid, or once for all nodes
    that compute the same."""
    assert report["measured_cycles"] == report["predicted_cycles"] > 0
    total = count_macs(model, dims)["macs_total"]
    merged = sum(row["macs"] for row in report["macs_by_operator"] if row["device"] == "none")
    assert report["macs_total"] == report["macs_on_grid"] + merged == total > 0
    assert merged == 0 or has_equal_nodes


def check_evaluation(report: dict) -> None:
    """Bit for bit what the kernels' own evaluation gives at the same rounding points."""
    judge, = report["check"]["judges"]
    assert judge["judge"] == "kernels"
    assert {output["name"] for output in judge["outputs"]} == {output["name"] for output in report["outputs"]}
    for output in judge["outputs"]:
        assert output["differing_elements"] == 0, output
        assert output["relative_l2"] == 0, output


def check_values(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray], bound: float):
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        assert relative_l2(outputs[name], value) <= bound, name


@functools.cache
def light_model(name: str) -> onnx.ModelProto:
    """A light graph of the onnx package with seeded random weights, cut before its Softmax."""
    return cut_softmax(randomize.randomize(randomize.load(f"light:{name}")))


@functools.cache
def light_expectation(name: str):
    model = light_model(name)
    inputs = probe.seeded_inputs(model)
    probe.check_bounded(model, inputs, limit=1e4)
    return inputs, probe.run(model, inputs)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name, case, dims", FLOAT_CASES, ids=[case for _, case, _ in FLOAT_CASES])
def test_a_fixture_in_fp16_gives_the_values_of_onnx_runtime(millrace, tmp_path, machine, name, case,
                                                            dims):
    model = cut_softmax(onnx.load(FOLDER / f"{name}.onnx"))
    inputs = probe.seeded_inputs(model, dims)
    expected = probe.run(model, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path,
                       ["--check", *dim_flags(dims)])
    check_counts(got.report, model, dims)
    check_evaluation(got.report)
    check_values(got.outputs, expected, 2e-3)
    first = model.graph.output[0].name
    assert same_top1(got.outputs[first], expected[first])
    assert all(op.startswith(HOST_OPERATORS.get(name, ())) for op in got.report["host_ops"])


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1", "resnet50"])
def test_a_light_graph_with_random_weights_gives_the_values_of_onnx_runtime(millrace, tmp_path,
                                                                           name):
    inputs, expected = light_expectation(name)
    got = run_millrace(millrace, save_model(light_model(name), tmp_path), "tsp-v1", "fp16", inputs,
                       tmp_path, ["--check"])
    check_counts(got.report, light_model(name), {})
    check_evaluation(got.report)
    check_values(got.outputs, expected, 2e-3)
    for output, value in expected.items():
        assert same_top1(got.outputs[output], value)
    assert got.report["host_ops"] == []


@pytest.mark.parametrize("machine", MACHINES[1:])
def test_squeezenet_gives_the_same_values_on_every_machine(millrace, tmp_path, machine):
    inputs, expected = light_expectation("squeezenet")
    got = run_millrace(millrace, save_model(light_model("squeezenet"), tmp_path), machine, "fp16",
                       inputs, tmp_path, ["--check"])
    check_counts(got.report, light_model("squeezenet"), {})
    check_evaluation(got.report)
    check_values(got.outputs, expected, 2e-3)


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1", "resnet50"])
def test_a_light_graph_as_it_is_runs_in_bf16(millrace, tmp_path, name):
    """All its weights are 0.02 and its activations reach 1e21: this shows that the graph runs."""
    model = randomize.load(f"light:{name}")
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "bf16", inputs, tmp_path,
                       ["--check"])
    check_counts(got.report, model, {}, has_equal_nodes=True)  # of equal weights: two 1 x 1 convolutions of one value
    check_evaluation(got.report)
    for value in got.outputs.values():
        assert np.isfinite(value).all() and np.allclose(value.sum(), 1, atol=2e-2)


def test_twelve_pes_of_the_mesh_do_three_percent_of_squeezenet_each(millrace, tmp_path):
    model = save_model(light_model("squeezenet"), tmp_path)
    got = run_millrace(millrace, model, "mesh-4x4", "fp16", {}, tmp_path, ["--cycles-only"])
    by_pe = np.array(got.report["macs_executed_by_pe"], dtype=float)
    assert (by_pe >= 0.03 * by_pe.sum()).sum() >= 12, by_pe / by_pe.sum()


def test_a_run_of_cycles_only_takes_the_cycles_of_a_run_with_values(millrace, tmp_path):
    model = save_model(light_model("squeezenet"), tmp_path)
    cycles = [run_millrace(millrace, model, "tsp-v1", "fp16", {}, tmp_path, flags)
              .report["measured_cycles"] for flags in ([], ["--cycles-only"])]
    assert cycles[0] == cycles[1]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("past", [0, 1, 6])
def test_one_new_token_gives_the_values_of_onnx_runtime(millrace, tmp_path, machine, past):
    """Decoding: an extent of 1 hides loops, and lanes of the new value become rows."""
    model = onnx.load(FOLDER / "tiny_gpt2.onnx")
    dims = {"batch_size": 1, "seq_len": 1, "past_seq_len": past, "total_seq_len": past + 1}
    inputs = probe.seeded_inputs(model, dims)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path,
                       ["--check", *dim_flags(dims)])
    check_counts(got.report, model, dims)
    check_evaluation(got.report)
    check_values(got.outputs, probe.run(model, inputs), 2e-3)
