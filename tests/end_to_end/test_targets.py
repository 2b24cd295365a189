# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do the schedules of ResNet-50 and of the mesh keep to the cycles that we promise?"""
import numpy as np
import pytest

import probe
import quantize
import randomize
from macs import count_macs
from oracle import cut_softmax, relative_l2, run_millrace, same_top1, save_model
from resnet50 import resnet50

ONE_MESH_PE = [f"--set={key}" for key in ("fabric.topology=single", "fabric.rows=1", "fabric.columns=1",
                                          "memory.rows_per_bank=8192")]


@pytest.fixture(scope="module")
def float_resnet50():
    return resnet50(seed=0)


def check(millrace, model, precision, bound, folder):
    """Runs the model without its Softmax; the report."""
    cut = cut_softmax(model)
    inputs = probe.seeded_inputs(model)
    run = run_millrace(millrace, save_model(cut, folder), "tsp-v1", precision, inputs, folder)
    assert run.report["predicted_cycles"] == run.report["measured_cycles"]
    assert run.report["macs_on_grid"] == count_macs(model, {})["macs_total"] == 4_089_184_256
    expected = next(iter(probe.run(cut, inputs).values()))
    actual = next(iter(run.outputs.values())).reshape(expected.shape)
    assert same_top1(actual, expected)
    assert relative_l2(actual, expected) <= bound
    return run.report


def test_resnet50_in_fp16_needs_at_most_140000_cycles(millrace, tmp_path, float_resnet50):
    assert check(millrace, float_resnet50, "fp16", 2e-3, tmp_path)["measured_cycles"] <= 140_000


def test_resnet50_in_int8_needs_at_most_72000_cycles(millrace, tmp_path, float_resnet50):
    quantised = quantize.quantize(float_resnet50, "symmetric", "qdq", 0, 2, {})
    # Scales of residual additions are fused, so some roundings of the graph are left out.
    assert check(millrace, quantised, "int8", 0.05, tmp_path)["measured_cycles"] <= 72_000


def test_squeezenet_on_16_pes_needs_at_most_a_quarter_of_the_cycles_of_one(millrace, tmp_path):
    model = save_model(cut_softmax(randomize.randomize(randomize.load("light:squeezenet"))), tmp_path)
    sixteen = run_millrace(millrace, model, "mesh-4x4", "fp16", {}, tmp_path / "16", ["--cycles-only"])
    one = run_millrace(millrace, model, "mesh-4x4", "fp16", {}, tmp_path / "1", ["--cycles-only", *ONE_MESH_PE])
    assert 4 * sixteen.report["measured_cycles"] <= one.report["measured_cycles"]
    shares = np.array(sixteen.report["macs_executed_by_pe"]) / sum(sixteen.report["macs_executed_by_pe"])
    assert (shares >= 0.03).sum() >= 12
