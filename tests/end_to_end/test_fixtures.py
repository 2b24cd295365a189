# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The committed models are what their recipes build, and their expected outputs are right."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import probe
from fixtures import BUILT, CASES, FOLDER, expected
from macs import count_macs
from oracle import relative_l2

# Calibration runs in float32, whose last bits differ between CPUs: a rounding may flip there.
CALIBRATED = {"convnet_int8"}
ALL_CASES = [(name, case, dims) for name, cases in CASES.items() for case, dims in cases.items()]


@pytest.mark.parametrize("name", [name for name in BUILT if name not in CALIBRATED])
def test_a_built_fixture_is_byte_for_byte_what_its_recipe_builds(name):
    assert (FOLDER / f"{name}.onnx").read_bytes() == \
        BUILT[name]().SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibrated_fixture_is_what_its_recipe_builds_but_for_a_unit(name):
    stored, fresh = onnx.load(FOLDER / f"{name}.onnx"), BUILT[name]()
    assert stored.graph.node == fresh.graph.node
    for old, new in zip(stored.graph.initializer, fresh.graph.initializer, strict=True):
        old_value, new_value = numpy_helper.to_array(old), numpy_helper.to_array(new)
        assert old.name == new.name and old_value.dtype == new_value.dtype
        units = 1 if old_value.dtype.kind == "i" else 0
        assert np.allclose(old_value, new_value, rtol=1e-5, atol=units)


@pytest.mark.parametrize("name, case, dims", ALL_CASES)
def test_stored_outputs_are_those_of_onnx_runtime(name, case, dims):
    stored = np.load(FOLDER / f"{case}.npz")
    fresh = expected(onnx.load(FOLDER / f"{name}.onnx"), dims)
    assert set(stored) == set(fresh)
    bound = 1e-2 if name in CALIBRATED else 1e-5
    for key, value in fresh.items():
        assert relative_l2(stored[key], value) <= (0 if key.startswith("input:") else bound), key


def test_an_empty_past_is_an_empty_input_and_a_mask_keeps_every_token():
    stored = np.load(FOLDER / "tiny_gpt2_prefill.npz")
    assert stored["input:past_0"].shape == (2, 1, 4, 0, 8)
    assert stored["input:attention_mask"].tolist() == [[1] * 7]
    assert 0 <= stored["input:input_ids"].min() and stored["input:input_ids"].max() < 1000


@pytest.mark.parametrize("name, case, dims", ALL_CASES)
def test_every_fixture_stays_far_below_the_largest_fp16(name, case, dims):
    model = onnx.load(FOLDER / f"{name}.onnx")
    assert probe.check_bounded(model, probe.seeded_inputs(model, dims), limit=1e4) > 0


def test_macs_of_the_shipped_models():
    macs = lambda name, dims: count_macs(onnx.load(FOLDER / f"{name}.onnx"), dims)["macs_total"]
    assert macs("mnist", {}) == 196 * 128 + 128 * 10
    tokens, past, width = 2, 5, 32
    layer = width * (3 + 1 + 4 + 4) * width + 2 * (tokens + past) * width
    assert macs("tiny_gpt2", CASES["tiny_gpt2"]["tiny_gpt2_past"]) == \
        tokens * (5 * layer + width * 1000)


def test_the_fixtures_take_less_than_1500_kb():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_500_000
