# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LSTM, GRU and RNN, step after step on the grid, with the values of ONNX Runtime."""
import itertools
import subprocess

import numpy as np
import pytest
from onnx import helper

from oracle import save_model
from test_masks_and_windows import check, model_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
node = helper.make_node


def parts(kind, directions, width, hidden, rng):
    """Weights and biases, as named inputs W, R, B."""
    rows = GATES[kind] * hidden
    return {"W": rng.normal(0, width**-0.5, (directions, rows, width)).astype(np.float32),
            "R": rng.normal(0, hidden**-0.5, (directions, rows, hidden)).astype(np.float32),
            "B": rng.normal(0, 0.3, (directions, 2 * rows)).astype(np.float32)}


def run(millrace, tmp_path, kind, attributes, inputs, constants, output="sequence"):
    """One of its outputs by name; all of its inputs are named as they are here. On the grid alone."""
    names = ["x", "W", "R", "B", "lengths", "h", "c", "P"]
    given = [name if name in inputs or name in constants else "" for name in names]
    while not given[-1]:
        given.pop()
    order = ["sequence", "hidden", "cell"]
    outputs = [""] * order.index(output) + ["y"]
    report = check(millrace, tmp_path, [node(kind, given, outputs, **attributes)], inputs, constants, opset=14)
    assert report["host_ops"] == []


CASES = list(itertools.product(GATES, ["forward", "reverse", "bidirectional"], [(7, 1, 24, 40), (4, 3, 30, 65)]))


@pytest.mark.parametrize("kind,direction,shape", CASES)
def test_sequences(millrace, tmp_path, kind, direction, shape):
    steps, batch, width, hidden = shape
    rng = np.random.default_rng(1)
    directions = 2 if direction == "bidirectional" else 1
    attributes = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        attributes["linear_before_reset"] = batch % 2  # as PyTorch, and as Keras had it
    run(millrace, tmp_path, kind, attributes, {"x": rng.normal(0, 1, (steps, batch, width)).astype(np.float32)},
        parts(kind, directions, width, hidden, rng))


@pytest.mark.parametrize("output", ["hidden", "cell"])
@pytest.mark.parametrize("constant", [True, False])
def test_states_and_lengths(millrace, tmp_path, output, constant):
    """Sequences that end before others, from states that are given; lengths that the model holds, or that come with the data."""
    rng = np.random.default_rng(2)
    lengths = {"lengths": np.int32([5, 2, 4])}
    states = {name: rng.normal(0, 1, (2, 3, 16)).astype(np.float32) for name in "hc"}
    inputs = {"x": rng.normal(0, 1, (5, 3, 12)).astype(np.float32), **states}
    constants = {**parts("LSTM", 2, 12, 16, rng), "P": rng.normal(0, 0.3, (2, 48)).astype(np.float32)}
    (constants if constant else inputs).update(lengths)
    run(millrace, tmp_path, "LSTM", {"hidden_size": 16, "direction": "bidirectional"}, inputs, constants, output)


FUNCTIONS = [("Relu",), ("LeakyRelu",), ("HardSigmoid",), ("Softsign",), ("Elu",), ("ScaledTanh",), ("Affine",), ("ThresholdedRelu",), ("Softplus",)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_by_name(millrace, tmp_path, function):
    rng = np.random.default_rng(3)
    taken = {"ScaledTanh": ([0.7], [1.2]), "Affine": ([0.5], [0.1]), "LeakyRelu": ([0.2], []), "HardSigmoid": ([0.3], [0.4]),
             "Elu": ([0.8], []), "ThresholdedRelu": ([0.1], [])}.get(function[0], ([], []))
    attributes = {name: values for name, values in zip(("activation_alpha", "activation_beta"), taken) if values}
    run(millrace, tmp_path, "RNN", {"hidden_size": 20, "activations": list(function), "clip": 0.9, **attributes},
        {"x": rng.normal(0, 1, (3, 2, 8)).astype(np.float32)}, parts("RNN", 1, 8, 20, rng))


@pytest.mark.parametrize("attributes,text", [
    ({"activations": ["Tanh", "Sine", "Tanh"]}, "activation 'Sine'"),
    ({"activations": ["Tanh"]}, "1 activations where 1 directions take 3 each"),
    ({"direction": "sideways"}, "direction 'sideways'"),
])
def test_what_no_step_can_do_is_named(millrace, tmp_path, attributes, text):
    rng = np.random.default_rng(4)
    model = model_of([node("LSTM", ["x", "W", "R", "B"], ["y"], hidden_size=8, **attributes)],
                     {"x": np.ones((2, 1, 4), np.float32)}, parts("LSTM", 1, 4, 8, rng), opset=14)
    done = subprocess.run([millrace, "compile", save_model(model, tmp_path), "-o", tmp_path / "p.mrp"], capture_output=True, text=True)
    assert done.returncode == 3 and text in done.stderr
    assert not (tmp_path / "p.mrp").exists()
