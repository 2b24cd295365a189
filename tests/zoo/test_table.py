# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the zoo calls right, right by roundings, and wrong."""
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/zoo", "models/recipes")]
import table  # noqa: E402


def record(**distances: float) -> dict:
    return {"outcome": "done", "form": "default", "precision": "int8", "quantisation_l2": 0.05, **distances}


@pytest.mark.parametrize("word, distances", [
    ("right", dict(relative_l2=0.05)),
    ("rounded", dict(relative_l2=0.08, input_rounding_l2=0.04)),
    ("wrong", dict(relative_l2=0.09, input_rounding_l2=0.04, fused_l2=0.09)),
    # Where roundings that are left out decide, the run is what ONNX Runtime makes of the model without them, or wrong.
    ("rounded", dict(relative_l2=1.9, input_rounding_l2=0.0, fused_l2=2e-4)),
    ("wrong", dict(relative_l2=1.9, input_rounding_l2=0.0, fused_l2=4e-3)),
    ("wrong", dict(relative_l2=1.9, input_rounding_l2=0.0)),  # nothing is left out with --exact-qdq
])
def test_verdict_on_a_quantised_model(word, distances):
    assert table.verdict(record(**distances)) == word
