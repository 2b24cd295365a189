# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--effort`: more schedules are tried, never one of more cycles taken; the values stay those of the kernels, the count that
of the simulator, and the image the same however many threads look for it."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_base import Shape, transformer
from graph import save
from small import convnet

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("effort")
    save(convnet(), folder / "convnet.onnx")
    save(transformer(Shape(layers=2, hidden=64, heads=4, sequence=16)), folder / "bert.onnx")
    return folder


@pytest.mark.parametrize("name, machine", [("convnet", "tsp-v1"), ("convnet", "tsp-small"), ("convnet", "mesh-4x4"),
                                           ("bert", "tsp-v1"), ("bert", "tsp-small")])
def test_more_effort_never_takes_more_cycles(call, models, tmp_path, name, machine):
    cycles = []
    for effort in (0, 1, 2):
        call("run", models / f"{name}.onnx", "-m", machine, "--effort", effort, "--check", "--json", "r.json")
        report = json.loads((tmp_path / "r.json").read_text())
        assert report["measured_cycles"] == report["predicted_cycles"]
        fewer = 5 if machine == "mesh-4x4" else 0  # numbers of PEs: 12, 8, 4, 2, 1
        assert report["schedules_tried"] == 1 if effort == 0 else 1 < report["schedules_tried"] <= 134 + 2 * fewer
        assert effort > 0 or report["schedule"] == "graph"
        cycles.append(report["measured_cycles"])
    assert cycles == sorted(cycles, reverse=True)


def test_it_is_the_same_image_by_one_thread_and_verbose_names_what_was_tried(call, models, tmp_path):
    _, said = call("compile", models / "bert.onnx", "-o", "a.mrp", "-v")
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        call("compile", models / "bert.onnx", "-o", "b.mrp")
    finally:
        os.sched_setaffinity(0, every)
    assert (tmp_path / "a.mrp").read_bytes() == (tmp_path / "b.mrp").read_bytes()
    for tried in ("critical: ", "critical, maps of 128 rows", "rows apart by time, at a cost of 100", "rows in 8 segments"):
        assert f"scheduling: {tried}" in said or f", {tried}" in said, tried


def test_an_order_that_was_asked_for_is_kept(call, models, tmp_path):
    call("run", models / "bert.onnx", "--order", "critical", "--effort", 2, "--cycles-only", "--json", "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["order"] == "critical" and report["schedule"].startswith("critical")


def test_what_there_is_not_is_refused(call, models):
    _, error = call("compile", models / "bert.onnx", "-o", "x.mrp", "--effort", 4, code=2)
    assert "--effort" in error and "4" in error


def test_memory_that_a_program_does_not_use_takes_none_of_the_compilers(millrace, models, tmp_path):
    """16 PEs of 48 slices of 80,000 rows: a state for every row took 6 GB and 24 s."""
    measured = tmp_path / "measured.json"
    subprocess.run([sys.executable, "-I", "-S", ROOT / "scripts/bench/measure", measured, millrace, "compile",
                    models / "convnet.onnx", "-q", "-o", tmp_path / "a.mrp", "-m", "mesh-4x4", "--set", "memory.banks=16",
                    "--set", "memory.rows_per_bank=5000"], check=True)
    taken = json.loads(measured.read_text())
    assert taken["exit_code"] == 0 and taken["peak_rss_bytes"] < 700 * 2**20
