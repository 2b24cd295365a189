# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`millrace simulate --truth` steps every cycle; it must say what `millrace simulate` says."""
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fixtures import FOLDER

# What the two runs may differ in: clocks of this computer, memory of this process, file names.
OWN = {"this_computer", "date", "options", "outputs"}


def run(millrace: Path, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([millrace, *map(str, arguments)], capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("model, machine", [("mnist", "tsp-small"), ("mnist", "mesh-4x4"), ("attention", "tsp-v1"),
                                            ("convnet_int8", "lp30")])
def test_a_model_gives_the_same_report_and_the_same_outputs_step_by_step(millrace, tmp_path, model, machine):
    image = tmp_path / "m.mrp"
    assert run(millrace, "compile", FOLDER / f"{model}.onnx", "--machine", machine, "-o", image).returncode == 0
    reports = []
    for folder, flags in (("fast", []), ("slow", ["--truth"])):
        done = run(millrace, "simulate", image, *flags, "--json", tmp_path / f"{folder}.json", "--output-dir",
                   tmp_path / folder)
        assert done.returncode == 0, done.stderr
        report = json.loads((tmp_path / f"{folder}.json").read_text())
        reports.append({key: value for key, value in report.items() if key not in OWN})
    assert reports[0] == reports[1]
    files = sorted(file.name for file in (tmp_path / "fast").iterdir())
    assert files and files == sorted(file.name for file in (tmp_path / "slow").iterdir())
    for file in files:
        fast, slow = np.load(tmp_path / "fast" / file), np.load(tmp_path / "slow" / file)
        assert fast.dtype == slow.dtype and fast.tobytes() == slow.tobytes(), file


def test_a_trace_of_the_slow_simulator_is_refused(millrace, tmp_path):
    (tmp_path / "a.mrp").write_bytes(b"")
    done = run(millrace, "simulate", tmp_path / "a.mrp", "--truth", "--trace", tmp_path / "t.json")
    assert done.returncode == 2 and "--truth steps every cycle" in done.stderr
    assert not (tmp_path / "t.json").exists()
