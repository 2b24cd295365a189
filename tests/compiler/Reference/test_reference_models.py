# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models equal ONNX Runtime."""
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "models" / "recipes"))

import fixtures  # noqa: E402
import probe  # noqa: E402
from randomize import load, randomize  # noqa: E402
from resnet50 import resnet50  # noqa: E402


def relative_error(got, expected):
    """The L2 norm of the difference over that of the expected values (absolute where those are zero)."""
    expected = expected.astype(np.float64)
    norm = np.linalg.norm(expected)
    return np.linalg.norm(got.astype(np.float64) - expected) / (norm if norm > 0 else 1)


CASES = [(name, case, dims) for name, cases in fixtures.CASES.items() for case, dims in cases.items()]


@pytest.mark.parametrize("name, case, dims", CASES)
def test_a_fixture_gives_the_stored_outputs(name, case, dims, runner):
    stored = np.load(fixtures.FOLDER / f"{case}.npz")
    inputs = [stored[key] for key in stored if key.startswith("input:")]
    expected = [stored[key] for key in stored if key.startswith("output:")]
    outputs = runner.run(fixtures.FOLDER / f"{name}.onnx", inputs, dims)
    for got, want in zip(outputs, expected, strict=True):
        assert got.shape == want.shape
        assert relative_error(got, want) <= 1e-5


def without_last_softmax(model):
    """Softmax turns differences of logits into ratios; what it reads is compared instead."""
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output[0].name = last.input[0]
        del model.graph.node[-1]
    return model


@pytest.mark.parametrize("build", [
    pytest.param(lambda: randomize(load("light:squeezenet")), id="squeezenet"),
    pytest.param(lambda: randomize(load("light:inception_v1")), id="inception_v1"),
    pytest.param(resnet50, id="resnet50"),
])
def test_an_image_model_with_random_weights_equals_onnx_runtime(build, runner, tmp_path):
    model = without_last_softmax(build())
    onnx.save(model, tmp_path / "model.onnx")
    inputs = probe.seeded_inputs(model)
    (expected,) = probe.run(model, inputs).values()
    (got,) = runner.run(tmp_path / "model.onnx", list(inputs.values()))
    assert relative_error(got, expected) <= 1e-5
    assert got.argmax() == expected.argmax()
