# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A quantised network in integer arithmetic stays near ONNX Runtime, fused and exactly rounded."""
import numpy as np
import onnx
import pytest

import probe
from fixtures import FOLDER
from macs import count_macs
from oracle import run_millrace


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
