# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/bench/gpu: what it says without a GPU, that its checks pass on the emulator and can fail, and what it writes.

The stub of a driver (tests/compiler/Codegen/Gpu/DriverStub.cpp) runs no kernel: with it values must be wrong."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MILLRACE_BUILD", ROOT / "build"))
SCRIPT = ROOT / "scripts/bench/gpu"
STUB = BUILD / "tests/lib/DriverStub.so"


def run(tmp_path, *words, driver="libno-driver.so"):
    """The finished process, and what it wrote; None: nothing."""
    out = tmp_path / "out.json"
    environment = dict(os.environ, MILLRACE_BUILD=str(BUILD), MILLRACE_CUDA_DRIVER=str(driver))
    done = subprocess.run([sys.executable, SCRIPT, "--json", out, *words], capture_output=True, text=True, check=False,
                          timeout=280, env=environment, cwd=tmp_path)
    return done, json.loads(out.read_text(encoding="utf-8")) if out.is_file() else None


def test_without_a_driver_it_says_what_is_missing_and_measures_nothing(tmp_path):
    done, report = run(tmp_path)
    assert done.returncode == 3 and report is None and not done.stdout
    assert "no GPU: millrace: error: --gpu cuda: no CUDA driver: looked for the library 'libno-driver.so'" in done.stderr
    assert "nothing was measured" in done.stderr


def test_without_a_build_it_says_so(tmp_path):
    done, report = run(tmp_path, "--build", tmp_path / "none")
    assert done.returncode == 3 and report is None and "build Millrace first, or give --build" in done.stderr


def test_an_unknown_op_lists_those_that_there_are(tmp_path):
    done, _ = run(tmp_path, "--only", "sofmax")
    assert done.returncode == 2 and "there is no op 'sofmax'; there are add, softmax," in done.stderr


def test_every_check_of_the_suite_passes_on_the_emulator(tmp_path):
    done, report = run(tmp_path, "--gpu", "emulate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["op"] for row in report["checks"]].count("build_gemm") == 8
    assert len(report["checks"]) > 36 and all(row["is_right"] and row["kernels"] for row in report["checks"])
    assert not report["times"] and not report["not_reached"] and report["device"] == "emulate"
    lines = done.stdout.splitlines()
    assert lines[0].startswith("device") and lines[1].endswith("checks are right, not on a GPU") and lines[2] == "times       none"


def test_a_kernel_that_does_not_run_is_wrong(tmp_path):
    assert STUB.is_file(), f"'{STUB}' does not exist; build all targets first"
    done, report = run(tmp_path, "--only", "softmax", "--only", "argmax", "--no-times", driver=STUB)
    assert done.returncode == 1
    assert [row["op"] for row in report["checks"] if row["op"] == "softmax" and not row["is_right"]] == ["softmax"] * 4
    assert "WRONG  softmax" in done.stdout and "0 of" in done.stdout.splitlines()[1]
    done, report = run(tmp_path, "--only", "build_gemm", "--no-times", driver=STUB)
    assert done.returncode == 1 and len(report["checks"]) == 8 and not any(row["is_right"] for row in report["checks"])
    assert all("nan and not" in row["error"] for row in report["checks"])


def test_times_are_medians_of_the_drivers_events_with_units_in_the_keys(tmp_path):
    done, report = run(tmp_path, "--only", "gather", "--repeat", "3", driver=STUB)
    assert done.returncode == 1 and report["gpu_name"] == "stub of a driver, no GPU" and report["gpu_chip"] == "sm_90a"
    row = report["times"][0]
    launches = len(row["launches"])
    assert launches and row["median_seconds"] == pytest.approx(launches * 0.25e-3)
    assert [launch["runs"] for launch in row["launches"]] == [3] * launches
    assert row["bytes_per_second"] > 0 and row["estimated_seconds"] > 0


class Clock:
    """In place of torch, for times: an event takes what the last function said."""
    last = 0.0

    class cuda:
        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                pass

            def elapsed_time(self, _):
                return Clock.last

        @staticmethod
        def synchronize():
            pass

    @staticmethod
    def compile(function, dynamic):
        assert not dynamic

        def compiled():
            Clock.last = 2.0
        return compiled

    @staticmethod
    def zero_():
        pass


def test_the_baseline_is_the_fastest_way_that_works():
    spec = importlib.util.spec_from_loader("bench_gpu", importlib.machinery.SourceFileLoader("bench_gpu", str(SCRIPT)))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    torch = script.Torch(wanted=False)
    case = script.SUITE[0][0](8)
    assert torch.seconds(case, 3, 100) == (None, []) and torch.why == "not asked for"
    torch.torch, torch.cold = Clock, Clock
    case.torch = "def run():\n  torch.last = 4.0\ndef broken():\n  raise ValueError('no such backend')\nothers = {'broken': broken}"
    assert torch.seconds(case, 3, 100) == ("torch", [4e-3] * 3)
    case.compiles = True
    assert torch.seconds(case, 3, 100) == ("torch.compile", [2e-3] * 3)
    assert torch.seconds(case, 3, 10) == ("torch", [4e-3] * 3)  # compiling takes its time
    case.torch = "def run():\n  raise RuntimeError('out of memory')"
    assert torch.seconds(case, 3, 10) == (None, [])
