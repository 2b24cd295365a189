# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--explain cycles` gives each idle cycle of MXM and VXM one cause: they sum to all cycles, in words and as JSON, and no
image changes. Beside them stands a bound that no schedule of the same pieces undercuts."""
import json
from pathlib import Path

import pytest

from bert_base import Shape, transformer
from fixtures import FOLDER
from graph import save
from schema import errors
from small import convnet

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/spec/report.schema.json").read_text())["properties"]["cycle_account"]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cycles")
    save(convnet(), folder / "convnet.onnx")
    save(transformer(Shape(layers=1, hidden=64, heads=4, sequence=16)), folder / "bert.onnx")
    return folder


def check(account: dict, cycles: int):
    """What holds for every account."""
    assert errors(account, SCHEMA) == []
    assert account["cycles"] == cycles
    for engine in ("mxm", "vxm"):
        whole = account[engine]
        assert whole["unit_cycles"] == cycles * whole["units"]
        assert whole["busy_unit_cycles"] + sum(whole["idle_unit_cycles"].values()) == whole["unit_cycles"]
        assert sum(whole["install_unit_cycles"].values()) == whole["idle_unit_cycles"]["install"]
        kernels = [kernel[engine] for kernel in account["kernels"] if kernel[engine]]
        assert sum(kernel["busy_unit_cycles"] for kernel in kernels) == whole["busy_unit_cycles"]
        for cause, count in whole["idle_unit_cycles"].items():
            assert sum(kernel["idle_unit_cycles"].get(cause, 0) for kernel in kernels) == count, cause
    bounds = account["bounds"]
    assert 0 < max(bounds["by_kind"].values()) <= bounds["bound_cycles"] <= cycles
    assert bounds["bound_cycles"] + bounds["gap_cycles"] == cycles
    assert sum(step["bound_cycles"] for step in bounds["steps"]) == bounds["bound_cycles"]


@pytest.mark.parametrize("name, machine", [("convnet", "tsp-v1"), ("convnet", "mesh-4x4"), ("convnet", "tsp-small"),
                                           ("bert", "tsp-v1"), ("bert", "lp30")])
def test_causes_sum_to_the_idle_cycles_and_the_bound_holds(call, models, tmp_path, name, machine):
    call("run", models / f"{name}.onnx", "-m", machine, "--cycles-only", "--json", "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    check(report["cycle_account"], report["measured_cycles"])
    assert {kernel["name"] for kernel in report["kernels"]} <= {k["name"] for k in report["cycle_account"]["kernels"]}


def test_it_is_printed_without_an_image_and_its_numbers_are_those_of_the_json(call, models, tmp_path):
    text, _ = call("compile", models / "bert.onnx", "--explain", "cycles", "--json", "e.json")
    out = json.loads((tmp_path / "e.json").read_text())
    assert (out["machine"], out["precision"]) == ("tsp-v1", "fp16")
    account = out["cycle_account"]
    check(account, account["cycles"])
    lines = text.splitlines()
    assert lines[0] == f"cycles of {models / 'bert.onnx'} on tsp-v1 in fp16: {account['cycles']:,}"
    rows = {line[2:26].strip(): line[26:].split() for line in lines[2:lines.index("")] if "waited for" not in line}
    assert float(rows["works"][1]) == pytest.approx(
        100 * account["mxm"]["busy_unit_cycles"] / account["mxm"]["unit_cycles"], abs=0.06)
    for column in (1, 4):
        assert sum(float(row[column]) for row in rows.values()) == pytest.approx(100, abs=0.06 * len(rows))
    dependence = account["mxm"]["idle_unit_cycles"]["data_dependence"]
    assert dependence > 0
    assert int(rows["data dependence"][0].replace(",", "")) == round(dependence / account["mxm"]["units"] + 1e-9)
    assert any(line.startswith("  proven bound ") for line in lines)


def test_a_data_dependence_names_the_kernel_that_was_waited_for(call, models, tmp_path):
    call("compile", models / "convnet.onnx", "--explain", "cycles", "-q", "--json", "e.json")
    account = json.loads((tmp_path / "e.json").read_text())["cycle_account"]
    held = [row for kernel in account["kernels"] if kernel["mxm"] for row in kernel["mxm"]["held_by"]
            if row["cause"] == "data_dependence"]
    assert held and {row["kernel"] for row in held} <= {kernel["name"] for kernel in account["kernels"]}


def test_it_changes_no_image_and_quiet_prints_nothing(call, models, tmp_path):
    call("compile", models / "convnet.onnx", "-o", "a.mrp")
    assert call("compile", models / "convnet.onnx", "-o", "b.mrp", "--explain", "cycles", "-q") == ("", "")
    assert (tmp_path / "a.mrp").read_bytes() == (tmp_path / "b.mrp").read_bytes()


def test_the_report_says_what_the_mxm_idles_for_and_an_image_does_not_know(call, models, tmp_path):
    text, _ = call("run", models / "convnet.onnx", "--cycles-only")
    rows = {line[2:].split("  ")[0]: line for line in text.splitlines()}
    assert "idle mxm" in rows and "gap " in rows["proven bound"]
    call("compile", models / "convnet.onnx", "-o", "a.mrp")
    text, _ = call("simulate", "a.mrp", "--cycles-only", "--json", "r.json")
    assert "proven bound" not in text
    assert json.loads((tmp_path / "r.json").read_text())["cycle_account"] is None


def test_a_trace_has_a_track_of_causes_for_each_unit(call, models, tmp_path):
    call("run", models / "bert.onnx", "--cycles-only", "--explain", "cycles", "-q", "--trace", "t.json", "--json", "r.json")
    account = json.loads((tmp_path / "r.json").read_text())["cycle_account"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for engine in ("mxm", "vxm"):
        idle = [e for e in events if e.get("cat") == "idle" and tracks[e["pid"], e["tid"]].startswith(engine)]
        for cause, count in account[engine]["idle_unit_cycles"].items():
            assert sum(e["dur"] for e in idle if e["name"] == cause.replace("_", " ")) == count, (engine, cause)
        for track in {(e["pid"], e["tid"]) for e in idle}:
            its = sorted((e["ts"], e["ts"] + e["dur"]) for e in idle if (e["pid"], e["tid"]) == track)
            assert all(a[1] <= b[0] for a, b in zip(its, its[1:])), "slices of one track do not overlap"
    call("run", models / "bert.onnx", "--cycles-only", "-q", "--trace", "t.json")
    assert not any(e.get("cat") == "idle" for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"])


def test_text_of_kernels_is_explained_in_its_own_precision(call, tmp_path):
    call("compile", FOLDER / "convnet_int8.onnx", "-p", "int8", "--to", "spatial", "-o", "m.mlir")
    text, _ = call("compile", "m.mlir", "--from", "spatial", "--explain", "cycles", "--json", "e.json")
    assert text.startswith("cycles of m.mlir on tsp-v1 in int8: ")
    assert json.loads((tmp_path / "e.json").read_text())["precision"] == "int8"


def test_it_needs_a_schedule(call, models):
    _, said = call("compile", models / "convnet.onnx", "--explain", "cycles", "--to", "spatial", "-o", "-", code=2)
    assert "--explain cycles is about the schedule" in said
