# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host steps run as generated GPU kernels: same values, and the report says which kernels and what was left."""
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_cases
from onnx_cases import Options
from oracle import save_model

DEVICES = ["cpu", "emulate"]
SHARE = int(os.environ.get("MILLRACE_HOST_KERNELS_SHARE", "5"))  # of the cases, one in so many: all take six minutes

# A GPU has no instructions for functions of double precision, and there is no expansion yet. The emulator does not
# round to bf16 on every CPU.
LEFT = {"cpu": r"nothing", "emulate": r".*math\.\w+ of 'f64' has no instructions on a GPU and no expansion; run it on the host|"
        r"cannot generate code: Failed to materialize symbols.*"}


def cases_with_host_steps():
    """The table, and every case of it that has a host step."""
    table, cases = onnx_cases.read_table(), []
    for case in onnx_cases.collect():
        second = onnx_cases.with_constants(case)
        cases += [one for one in (case, second) if one and table.get(one.row, ("",))[0] in ("host", "mixed")]
    return table, cases


@pytest.mark.parametrize("device", DEVICES)
def test_every_host_step_of_onnx_cases_is_kernels_with_the_values_expected(millrace, device):
    table, cases = cases_with_host_steps()
    assert len(cases) > 400
    cases = cases[DEVICES.index(device)::SHARE]
    steps, left = [], {}

    def look(row, result):
        for step in (result.get("report") or {}).get("host_kernels") or []:
            steps.append(step)
            if step["left"]:
                left[row] = step["left"]
    rows = onnx_cases.run_cases(cases, Options(millrace, gpu=device), look)
    wrong = onnx_cases.changes({case.row: table[case.row] for case in cases}, rows)
    assert not wrong, f"{len(wrong)} rows:\n" + "\n".join(wrong[:40])
    assert not [row for row, why in left.items() if not all(re.fullmatch(LEFT[device], one) for one in why)], left
    assert all(step["device"] == device or not step["kernels"] for step in steps) and len(steps) >= len(cases)


def model(folder):
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [37])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [37])
    graph = helper.make_graph([helper.make_node("Mod", ["x", "x"], ["y"])], "g", [x], [y])
    return save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder)


def run_with_driver(millrace, tmp_path, device, driver, **stub):
    """One run with this library as the GPU's driver; the options of a stub by their names (DriverStub.cpp)."""
    environment = dict(os.environ, MILLRACE_CUDA_DRIVER=str(driver), **{f"MILLRACE_STUB_{k}": str(v) for k, v in stub.items()})
    return subprocess.run([millrace, "run", model(tmp_path), "--machine", "tsp-v1", "--gpu", device, "-q", "--json", "-"],
                          capture_output=True, text=True, check=False, env=environment)


def stub_of(millrace):
    stub = Path(millrace).parents[1] / "tests" / "lib" / "DriverStub.so"
    assert stub.is_file(), f"'{stub}' does not exist; build all targets first"
    return stub


def test_cuda_without_a_driver_is_an_error_with_what_was_looked_for_and_the_remedy(millrace, tmp_path):
    done = run_with_driver(millrace, tmp_path, "cuda", "libno-driver.so")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("millrace: error: --gpu cuda: no CUDA driver: looked for the library 'libno-driver.so' (")
    assert done.stderr.endswith("install NVIDIA's driver, or name its library in MILLRACE_CUDA_DRIVER; or give cpu or emulate\n")


def test_auto_without_a_driver_says_that_kernels_run_on_the_cpu(millrace, tmp_path):
    done = run_with_driver(millrace, tmp_path, "auto", "libno-driver.so")
    assert done.returncode == 0
    assert done.stderr.startswith("millrace: warning: --gpu auto: kernels run on this CPU, as with --gpu cpu: no CUDA driver: ")
    report = json.loads(done.stdout)
    assert report["gpu"]["asked"] == "auto" and report["gpu"]["used"] == "cpu" and "libno-driver.so" in report["gpu"]["why"]
    assert [step["device"] for step in report["host_kernels"]] == ["cpu"]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_with_a_driver_steps_are_launched_by_it(millrace, tmp_path, device):
    """The stub runs nothing: only that it is called, and what the report says, is tested."""
    calls = tmp_path / "calls"
    done = run_with_driver(millrace, tmp_path, device, stub_of(millrace), CALLS=calls)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["gpu"] == {"asked": device, "used": "cuda", "why": None, "name": "stub of a driver, no GPU", "chip": "sm_90a"}
    assert [step["device"] for step in report["host_kernels"]] == ["cuda"]
    launched = re.findall(r"cuLaunchKernel\((\w+),", calls.read_text(encoding="utf-8"))
    assert launched == report["host_kernels"][0]["kernels"] and launched


@pytest.mark.parametrize("call", ["cuModuleLoadDataEx", "cuMemcpyHtoD_v2", "cuLaunchKernel", "cuCtxSynchronize", "cuMemcpyDtoH_v2"])
def test_a_failing_call_of_the_driver_fails_the_run(millrace, tmp_path, call):
    done = run_with_driver(millrace, tmp_path, "cuda", stub_of(millrace), FAIL=f"{call}=1")
    assert done.returncode == 3 and not done.stdout
    assert f"the CUDA driver's {call} failed" in done.stderr


@pytest.mark.parametrize("device", ["off", "cpu", "emulate"])
def test_division_by_zero_is_what_the_reference_makes_of_it(millrace, tmp_path, device):
    np.save(tmp_path / "x.npy", np.arange(-18, 19))
    done = subprocess.run([millrace, "run", model(tmp_path), "--machine", "tsp-v1", "--gpu", device, "--input",
                           f"x={tmp_path / 'x.npy'}", "-q", "--json", "-", "--output-dir", tmp_path / "out"],
                          capture_output=True, text=True, check=True)
    assert not np.load(tmp_path / "out" / "y.npy").any()
    kernels = json.loads(done.stdout)["host_kernels"]
    assert kernels is None if device == "off" else [step["device"] for step in kernels] == [device]
