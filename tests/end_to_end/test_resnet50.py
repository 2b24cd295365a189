# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet-50 v1.5, batch 1, on one tsp-v1 chip: values, and the cycles that it may take.

The bounds on cycles are the project's estimates without any overlap between load, stream and
drain, rounded down for fp16 (146,571) and up for int8 (68,686): docs/spec/machine.md gives the
rates that they come from.
"""
import pytest

import probe
from macs import count_macs
from oracle import cut_softmax, relative_l2, run_millrace, same_top1, save_model
from quantize import quantize
from resnet50 import resnet50

FP16_CYCLES, INT8_CYCLES = 140_000, 72_000


@pytest.fixture(scope="module")
def model():
    return cut_softmax(resnet50())


@pytest.fixture(scope="module", params=[("symmetric", "qdq"), ("asymmetric", "qdq"),
                                        ("asymmetric", "qoperator")], ids="-".join)
def quantised(model, request):
    return quantize(model, *request.param)


def test_fp16_gives_the_values_of_onnx_runtime_in_140_000_cycles(millrace, tmp_path, model):
    inputs = probe.seeded_inputs(model)
    (expected,) = probe.run(model, inputs).values()
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    (output,) = got.outputs.values()
    assert relative_l2(output, expected) <= 2e-3
    assert same_top1(output, expected)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"] <= FP16_CYCLES
    assert got.report["macs_on_grid"] == count_macs(model)["macs_total"]
    assert got.report["host_ops"] == []


def test_int8_runs_in_72_000_cycles_and_picks_the_class_of_onnx_runtime(millrace, tmp_path,
                                                                       quantised):
    inputs = probe.seeded_inputs(quantised)
    (expected,) = probe.run(quantised, inputs).values()
    got = run_millrace(millrace, save_model(quantised, tmp_path), "tsp-v1", "int8", inputs,
                       tmp_path)
    (output,) = got.outputs.values()
    assert got.report["predicted_cycles"] == got.report["measured_cycles"] <= INT8_CYCLES
    assert got.report["macs_on_grid"] == count_macs(quantised)["macs_total"]
    assert relative_l2(output, expected) <= 0.05  # roundings of residual additions are fused
    assert same_top1(output, expected)
