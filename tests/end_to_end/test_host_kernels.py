# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host steps run as generated GPU kernels: same values, and the report says which kernels and what was left."""
import json
import os
import re
import subprocess

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


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_device_that_needs_a_driver_is_refused(millrace, tmp_path, device):
    done = subprocess.run([millrace, "run", model(tmp_path), "--machine", "tsp-v1", "--gpu", device],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (f"millrace: error: --gpu {device} would need a GPU's driver, and this version uses none; "
                           "give cpu, emulate or off\n")


@pytest.mark.parametrize("device", ["off", "cpu", "emulate"])
def test_division_by_zero_is_what_the_reference_makes_of_it(millrace, tmp_path, device):
    np.save(tmp_path / "x.npy", np.arange(-18, 19))
    done = subprocess.run([millrace, "run", model(tmp_path), "--machine", "tsp-v1", "--gpu", device, "--input",
                           f"x={tmp_path / 'x.npy'}", "-q", "--json", "-", "--output-dir", tmp_path / "out"],
                          capture_output=True, text=True, check=True)
    assert not np.load(tmp_path / "out" / "y.npy").any()
    kernels = json.loads(done.stdout)["host_kernels"]
    assert kernels is None if device == "off" else [step["device"] for step in kernels] == [device]
