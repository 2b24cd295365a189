# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A quantised network is integer arithmetic: near ONNX Runtime, and layer by layer equal to it."""
import numpy as np
import onnx
import pytest

import probe
from compare_layers import compare_layers
from fixtures import FOLDER
from macs import count_macs
from oracle import run_millrace
from quantize import quantize
from small import convnet


@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]], ids=["fused", "exact"])
def test_a_quantised_network_stays_near_onnx_runtime(millrace, tmp_path, flags):
    model = onnx.load(FOLDER / "convnet_int8.onnx")
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, FOLDER / "convnet_int8.onnx", "tsp-v1", "int8", inputs, tmp_path,
                       flags)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["macs_on_grid"] == count_macs(model)["macs_total"]
    for name, value in probe.run(model, inputs).items():
        assert np.abs(got.outputs[name] - value).max() <= 0.05, name


@pytest.mark.parametrize("activations", ["symmetric", "asymmetric"])
def test_each_layer_alone_equals_onnx_runtime_within_a_unit(millrace, activations):
    model = quantize(convnet(seed=1), activations)
    result = compare_layers(millrace, model, "tsp-v1", ["--exact-qdq"])
    assert result.failed == {} and result.host_ops == {}
    assert result.integer_layers >= 12 and result.elements > 10_000
    assert result.largest_unit_difference <= 1
    assert result.differing_elements <= result.elements // 100
    assert result.holds()
