# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random ONNX models give on the machine what ONNX Runtime gives (random_models.py)."""
import numpy as np
import pytest

import random_models

# What still is refused: docs/results/2026-11-21-random-models.md.
MOST_REFUSED = 0.02


@pytest.mark.parametrize("machine, first, count, type_", [
    ("tsp-v1", 0, 120, "fp16"), ("tsp-small", 10000, 40, "fp16"), ("mesh-4x4", 20000, 30, "fp16"),
    ("lp30", 30000, 30, "bf16"), ("tsp-v1", 0, 40, "int8"), ("tsp-small", 0, 40, "uint8"), ("mesh-4x4", 0, 40, "int32")])
def test_models_agree_with_onnx_runtime(millrace, machine, first, count, type_):
    lines = []
    counts = random_models.campaign(first, count, machine, str(millrace), lines.append, type_)
    assert not counts["differs"] and not counts["fails"], "\n".join(lines)
    assert counts["refused"] <= MOST_REFUSED * count, "\n".join(lines)
    assert counts["agrees"] >= 0.9 * (count - counts["skipped"]) and counts["skipped"] <= 0.3 * count


@pytest.mark.parametrize("number, machine, type_", [
    (80055, "tsp-v1", "fp16"),  # parts of a sum beside each other, in lanes that do not begin at 0
    (80168, "tsp-v1", "fp16"),  # a product less itself
    (81022, "tsp-small", "fp16"),  # the maximum of one value, which comes from a running sum
    (83103, "lp30", "fp16"),  # every third lane of a difference to a constant
    (111075, "mesh-4x4", "fp16"),  # averages over padding of a view of fewer dimensions
    (23006, "mesh-4x4", "fp16"),  # an output in parts of a row, whose lanes a tile of the input cuts
    (26098, "tsp-small", "fp16"),  # a sum of lanes from the last to the first
    (2131, "lp30", "int32")])  # host steps of which one needs the other
def test_models_that_once_failed_agree(millrace, number, machine, type_):
    lines = []
    assert random_models.campaign(number, 1, machine, str(millrace), lines.append, type_, effort=1)["agrees"] == 1, lines


def test_a_number_names_one_model():
    assert random_models.text(random_models.draw_model(7)) == random_models.text(random_models.draw_model(7))
    assert random_models.text(random_models.draw_model(7)) != random_models.text(random_models.draw_model(8))


def test_a_wrong_value_is_seen(millrace, tmp_path, monkeypatch):
    """One lane of one result off by a hundredth of the values' size."""
    draw = random_models.Draw(0)
    draw.input((4, 33))
    draw.node("Relu", ["x0"])
    assert random_models.judge(draw, "tsp-v1", str(millrace), tmp_path).kind == "agrees"
    exact = random_models.evaluate

    def disturbed(model, inputs):
        values = exact(model, inputs)
        values[0][2, 17] += 0.1
        return values

    monkeypatch.setattr(random_models, "evaluate", disturbed)
    assert random_models.judge(draw, "tsp-v1", str(millrace), tmp_path).kind == "differs"


def test_a_failure_is_reduced_to_the_nodes_that_show_it():
    draw = random_models.Draw(0)
    draw.input((4, 4))
    for op, name in (("Relu", "x0"), ("Tanh", "n0"), ("Neg", "n1")):
        draw.node(op, [name])

    def judged(model):
        has_tanh = any(node.op_type == "Tanh" for node in model.nodes)
        return random_models.Verdict("differs" if has_tanh else "agrees")

    reduced, verdict = random_models.reduced(draw, judged(draw), judged)
    assert [node.op_type for node in reduced.nodes] == ["Tanh"] and verdict.kind == "differs"
    assert np.shape(reduced.taken_inputs()["n0"]) == (4, 4)
