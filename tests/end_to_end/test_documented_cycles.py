# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cycles that two pages state of one model are what the program says today."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOWTO = (ROOT / "docs/howto/add-a-partition-solver.md").read_text()
DECISIONS = (ROOT / "docs/decisions.md").read_text()


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Path:
    """The model of the howto, made by its own command."""
    folder = tmp_path_factory.mktemp("chain")
    command = re.search(r"\$python (models/recipes/bert_base.py) chain.onnx ((?:.|\\\n)*?)\n", HOWTO)
    flags = command[2].replace("\\", " ").split()
    rest = HOWTO[command.end():].split("\n")[0].split() if command[2].endswith("\\") else []
    subprocess.run([sys.executable, ROOT / command[1], folder / "chain.onnx", *flags, *rest], check=True,
                   capture_output=True)
    return folder / "chain.onnx"


@pytest.mark.parametrize("solver, phrase", [("spread", r"take ([\d,]+) cycles spread"),
                                            ("pipeline", r"and ([\d,]+) in a pipeline")])
def test_the_pages_state_the_cycles_of_each_partition(millrace, chain, tmp_path, solver, phrase):
    done = subprocess.run([millrace, "run", chain, "--machine", "mesh-4x4", "--cycles-only", "--effort", "0",
                           "--partition", solver, "--json", tmp_path / "r.json"], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    cycles = f"{json.loads((tmp_path / 'r.json').read_text())['measured_cycles']:,}"
    assert re.search(rf"\| `{solver}` \| ([\d,]+) \|", HOWTO)[1] == cycles
    assert re.search(phrase, DECISIONS)[1] == cycles
