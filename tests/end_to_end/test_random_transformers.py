# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random transformers give on the machine what ONNX Runtime gives (random_transformers.py)."""
import numpy as np
import pytest

import random_transformers

# What is refused: docs/results.
MOST_REFUSED = 0.05


@pytest.mark.parametrize("machine, first, count, precision", [
    ("tsp-v1", 0, 40, "fp16"), ("tsp-small", 10000, 20, "fp16"), ("mesh-4x4", 20000, 12, "fp16"),
    ("lp30", 30000, 12, "bf16")])
def test_transformers_agree_with_onnx_runtime(millrace, machine, first, count, precision):
    lines = []
    counts = random_transformers.campaign(first, count, machine, str(millrace), lines.append, precision, reduces=False)
    assert not counts["differs"] and not counts["fails"], "\n".join(lines)
    assert counts["refused"] <= MOST_REFUSED * count, "\n".join(lines)
    assert counts["agrees"] >= (1 - MOST_REFUSED) * count and counts["skipped"] <= 0.1 * count


@pytest.mark.parametrize("number, machine, precision, what", [
    (112007, "mesh-4x4", "fp16", "two values that are installed, written by one kernel, need more slices than there are"),
    (110202, "tsp-v1", "fp16", "a read met a write of two results"),
    (112057, "mesh-4x4", "fp16", "copies of many writers left no slice to a tensor written beside them"),
    (104107, "tsp-v1", "bf16", "the same of two operands of one kernel"),
    (111151, "tsp-small", "fp16", "a vector's end cut one batch elsewhere than another"),
    (100342, "tsp-v1", "fp16", "a product waited in 18 ALUs for its gate")])
def test_what_was_refused_once(millrace, tmp_path, number, machine, precision, what):
    m = random_transformers.draw_model(number)
    verdict = random_transformers.judge(m, machine, str(millrace), tmp_path, precision)
    assert verdict.kind == "agrees", what


@pytest.mark.parametrize("number, why", [
    (110033, "all keys are hidden beside a past"), (110349, "ONNX Runtime attends to later keys"),
    (113245, "values beyond fp16"), (104036, "NaN is quantised")])
def test_what_no_judge_can_judge_is_left_out(millrace, tmp_path, number, why):
    verdict = random_transformers.judge(random_transformers.draw_model(number), "tsp-v1", str(millrace), tmp_path)
    assert (verdict.kind, verdict.detail) == ("skipped", why)


def test_a_number_names_one_model():
    assert random_transformers.text(random_transformers.draw_model(7)) == random_transformers.text(
        random_transformers.draw_model(7))


@pytest.mark.parametrize("value, what", [(0.1, "by "), (np.nan, "is nan"), (-np.inf, "is -inf")])
def test_a_wrong_value_is_seen(value, what):
    """In one place, be it off, infinite or NaN; and a NaN that is missing."""
    right = np.float32([[1, 2, -np.inf], [np.nan, 0.5, 3]])
    every = np.ones(right.shape, bool)
    assert not random_transformers.difference(right + np.float32(0.001), right, 0.01, every)
    wrong = right.copy()
    wrong[1, 1] += value
    assert what in random_transformers.difference(wrong, right, 0.01, every)
    wrong[1] = right[1]
    wrong[1, 0] = 1
    assert "is 1.0, not nan" in random_transformers.difference(wrong, right, 0.01, every)


def test_bounds_are_those_of_roundings_and_not_of_angles():
    """Positions of 100,000 are exact, so that their cosines are: a bound of 1 would see nothing."""
    m = random_transformers.Model()
    real = m.node("Cast", m.input(np.int64([[99_000], [100_000]])), to=1, exact=True)
    angle = m.node("Mul", real, m.constant([[1, 0.1]], np.float32), exact=True)
    m.outputs = [m.node("Cos", angle)]
    (bound,), _ = random_transformers.bounds_of(m, random_transformers.evaluate(m), 2.0**-10)
    assert 0.001 < bound < 0.25


def test_a_failure_is_reduced_to_the_nodes_that_show_it():
    m = random_transformers.Model()
    x = m.input(np.ones((2, 3), np.float32))
    m.outputs = [m.node("Neg", m.node("Tanh", m.node("Relu", x)))]

    def judged(model):
        has_tanh = any(node.op_type == "Tanh" for node in model.nodes)
        return random_transformers.Verdict("differs" if has_tanh else "agrees")

    less, verdict = random_transformers.reduced(m, judged(m), judged)
    assert [node.op_type for node in less.nodes] == ["Tanh"] and verdict.kind == "differs"
