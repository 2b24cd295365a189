# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of the families that networks are built of run with ONNX Runtime's values, but for those in KNOWN."""
import numpy as np
import pytest

import probe
from families import FAMILIES
from oracle import relative_l2, run_millrace, save_model
from quantize import quantize

FLOAT = {"fp16": 3e-3, "bf16": 2.4e-2}  # relative L2
RUNS = [(family, "tsp-v1", precision) for family in FAMILIES for precision in ("fp16", "bf16", "int8", "int8-exact")]
RUNS += [(family, "mesh-4x4", "fp16") for family in FAMILIES]

WRONG = "the outputs are wrong"
# What does not run yet, with the message of its refusal, or runs to wrong values. What begins to run leaves the table.
KNOWN: dict = {}  # (family, machine, precision): message


def bound_of_quantised(model, int8, inputs, expected) -> float:
    """Relative L2 that roundings explain: what quantising costs in ONNX Runtime, or twice what comes of rounding the inputs to
    fp16 first, as the program takes them."""
    rounded = {name: value.astype(np.float16).astype(value.dtype) if value.dtype == np.float32 else value
               for name, value in inputs.items()}
    return max(largest(expected, probe.run(model, inputs)), 2 * largest(probe.run(int8, rounded), expected))


def largest(actual, expected) -> float:
    return max(relative_l2(actual[name], value) for name, value in expected.items())


def outcome(millrace, tmp_path, family, machine, precision) -> str | None:
    """None if it runs to the right values, or what is wrong."""
    model, bound, flags = FAMILIES[family](), FLOAT.get(precision), []
    inputs = probe.seeded_inputs(model)
    if bound is None:
        flags = ["--exact-qdq"] if precision == "int8-exact" else []
        int8 = quantize(model)
        expected = probe.run(int8, inputs)
        model, bound = int8, bound_of_quantised(model, int8, inputs, expected)
    else:
        expected = probe.run(model, inputs)
    try:
        got = run_millrace(millrace, save_model(model, tmp_path), machine, precision.removesuffix("-exact"), inputs, tmp_path,
                           flags)
    except AssertionError as error:
        return str(error).splitlines()[-1]
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    apart = largest(got.outputs, expected)
    return None if apart <= bound else f"{WRONG}: {apart:.1e} where {bound:.1e} is explained"


@pytest.mark.parametrize("family, machine, precision", RUNS, ids=["-".join(run) for run in RUNS])
def test_a_family_runs_as_the_table_says(millrace, tmp_path, family, machine, precision):
    found = outcome(millrace, tmp_path, family, machine, precision)
    known = KNOWN.get((family, machine, precision))
    if known is None:
        assert found is None, found
    else:
        assert found is not None, f"it runs now; take {(family, machine, precision)} out of KNOWN"
        assert known in found


def test_each_family_is_the_same_bytes_for_the_same_seed_and_others_for_another():
    for name, build in FAMILIES.items():
        first, again, other = (build(seed).SerializeToString(deterministic=True) for seed in (3, 3, 4))
        assert first == again != other, name


def test_activations_stay_in_the_range_of_fp16():
    for name, build in FAMILIES.items():
        if name != "masked-encoder":  # hides by -inf
            model = build()
            probe.check_bounded(model, probe.seeded_inputs(model), limit=2e4)
