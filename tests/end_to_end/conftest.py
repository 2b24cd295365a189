# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets the tests import the recipes, scripts/macs.py and the oracle by their plain names."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("models/recipes", "scripts", "tests/end_to_end"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(scope="session")
def millrace() -> Path:
    """The `millrace` program of the build folder: MILLRACE_BUILD, which ctest sets, or build. Fails,
    never skips, without it."""
    program = Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")) / "bin" / "millrace"
    if not program.is_file():
        pytest.fail(f"'{program}' does not exist; build the target millrace first")
    return program


@pytest.fixture
def call(millrace, tmp_path):
    """call(words): what was printed, on the standard output and on the standard error."""
    def run(*words, code=0):
        done = subprocess.run([millrace.resolve(), *map(str, words)], text=True, capture_output=True, timeout=60,
                              check=False, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr
    return run
