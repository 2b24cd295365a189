# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets the tests import the recipes, scripts/macs.py and the oracle by their plain names."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("models/recipes", "scripts", "tests/end_to_end"):
    sys.path.insert(0, str(ROOT / folder))
