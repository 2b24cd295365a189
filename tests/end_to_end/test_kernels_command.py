# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`millrace kernels`: what it prints of good functions, and what it says of others."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/bench"))
import gpu_suite  # noqa: E402

ADD = """func.func @main(%x: tensor<33xf32>, %y: tensor<33xf32>) -> tensor<33xf32> {
  %e = tensor.empty() : tensor<33xf32>
  %0 = linalg.add ins(%x, %y : tensor<33xf32>, tensor<33xf32>) outs(%e : tensor<33xf32>) -> tensor<33xf32>
  return %0 : tensor<33xf32>
}
"""


def kernels(millrace, tmp_path, text, *words, driver=None):
    (tmp_path / "f.mlir").write_text(text)
    environment = dict(os.environ, **({"MILLRACE_CUDA_DRIVER": str(driver)} if driver else {}))
    return subprocess.run([millrace, "kernels", "f.mlir", *words], capture_output=True, text=True, check=False, cwd=tmp_path,
                          timeout=60, env=environment)


@pytest.mark.parametrize("device", ["cpu", "emulate"])
def test_a_function_is_run_compared_and_described(millrace, tmp_path, device):
    done = kernels(millrace, tmp_path, ADD, "--gpu", device, "--most-error", "0", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert "result: 33 elements, relative L2 0.00e+00 from the same kernels on this CPU" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["device"] == device and not result["left"] and not result["notes"]
    first = result["launches"][0]
    assert first["kind"] == {"op": first["kernel"].rsplit("_", 1)[0], "type": "f32", "bytes": 3 * 33 * 4}
    assert first["bytes"] == 3 * 33 * 4 and first["median_seconds"] is None and first["runs"] == 0
    assert first["estimated_seconds"] == first["roofline_seconds"] and not first["is_by_measurement"]


def test_a_result_that_is_too_far_from_the_cpus_fails(millrace, tmp_path):
    """With a stub of a driver, which runs no kernel."""
    stub = Path(millrace).parents[1] / "tests/lib/DriverStub.so"
    assert stub.is_file(), f"'{stub}' does not exist; build all targets first"
    done = kernels(millrace, tmp_path, ADD, "--gpu", "cuda", "--most-error", "0.5", driver=stub)
    assert done.returncode == 1
    assert done.stderr == ("millrace: error: f.mlir: a result differs from that of the same kernels on this CPU by 1 (relative L2), "
                           "and at most 0.5 was asked for\n")


@pytest.mark.parametrize("text, why", [
    ("func.func @other() { return }", "f.mlir has no function @main; name it so"),
    ("garbage", "f.mlir:1:1: custom op 'garbage' is unknown"),
    ("func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }",
     "f.mlir: argument 0 of @main is no static tensor of a type that the host knows"),
    (ADD.replace("f32", "f64").replace("linalg.add ins(%x, %y : tensor<33xf64>, tensor<33xf64>)", "linalg.exp ins(%x : tensor<33xf64>)"),
     "math.exp of 'f64' has no instructions on a GPU"),
], ids=["no main", "no text", "no static shape", "no instructions"])
def test_what_cannot_be_run_is_said(millrace, tmp_path, text, why):
    done = kernels(millrace, tmp_path, text)
    assert done.returncode == 3 and why in done.stderr and not done.stdout


@pytest.mark.parametrize("words, why", [
    (["--repeat", "3"], "--repeat times kernels on a GPU; give --gpu cuda with it"),
    (["--no-check", "--most-error", "1"], "--no-check compares nothing that --most-error could bound; leave one"),
])
def test_options_that_contradict_each_other_are_refused(millrace, tmp_path, words, why):
    done = kernels(millrace, tmp_path, ADD, *words)
    assert done.returncode == 2 and done.stderr == f"millrace: error: {why}\n"


@pytest.mark.parametrize("case", [function(*sizes[-1]) for function, sizes, _ in gpu_suite.SUITE], ids=lambda case: case.op)
def test_every_launch_of_the_bench_is_timed_and_writes_where_the_result_goes(millrace, tmp_path, case):
    """What is described is what runs, also of functions with constants; with a stub of a driver, which runs no kernel."""
    stub = Path(millrace).parents[1] / "tests/lib/DriverStub.so"
    assert stub.is_file(), f"'{stub}' does not exist; build all targets first"
    done = kernels(millrace, tmp_path, case.text, *case.flags, "--gpu", "cuda", "--repeat", "2", "--no-check", "--json", "-", driver=stub)
    assert done.returncode == 0, done.stderr
    launches = json.loads(done.stdout)["launches"]
    assert len(launches) == 1, [launch["kernel"] for launch in launches]
    assert launches[0]["runs"] == 2 and launches[0]["median_seconds"] > 0
