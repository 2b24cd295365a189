# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs an ONNX model through the importer and Reference by the program import-and-run."""
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

BUILD = Path(os.environ.get("MILLRACE_BUILD", Path(__file__).resolve().parents[3] / "build"))
PROGRAM = BUILD / "tests" / "bin" / "import-and-run"


class Runner:
    """`run(model, inputs, dims)` returns the outputs; a failed import or run raises RuntimeError with its message."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, model, inputs, dims=None):
        for index, array in enumerate(inputs):
            # ascontiguousarray would give a scalar one dimension.
            np.save(self.folder / f"input_{index}.npy", np.asarray(array, order="C"))
        command = [PROGRAM, model, self.folder]
        for name, value in (dims or {}).items():
            command += ["--dim", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
        outputs = []
        while (path := self.folder / f"output_{len(outputs)}.npy").exists():
            outputs.append(np.load(path))
        return outputs


@pytest.fixture
def runner(tmp_path):
    if not PROGRAM.is_file():
        pytest.fail(f"'{PROGRAM}' does not exist; build the target import-and-run first")
    return Runner(tmp_path)
