# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a run says: the table for people, JSON for programs, waveforms and progress."""
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from bad_inputs.images import EXAMPLE
from fixtures import FOLDER
from oracle import save_model
from resnet50 import resnet50

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/running.md"
MNIST = FOLDER / "mnist.onnx"


def run(millrace: Path, *arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([millrace, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          check=False, **options)


@pytest.fixture()
def mesh_run(millrace, tmp_path):
    """mnist spread over 16 PEs, which links join: the table, the JSON and the folder of outputs."""
    done = run(millrace, "run", MNIST, "--machine", "mesh-4x4", "--partition", "spread", "--json", tmp_path / "r.json",
               "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((tmp_path / "r.json").read_text()), tmp_path / "out"


def test_the_table_names_every_figure_that_a_run_promises(mesh_run):
    table = mesh_run[0]
    for row in ("cycles predicted", "cycles measured", "time at the clock", "images per second",
                "MACs on the grid", "MACs at peak rate", "layout on MXM alone",
                "layout on VXM alone", "busy mem", "busy mxm activate", "busy vxm", "busy send",
                "memory used", "peak link", "energy", "host link", "host steps", "this computer",
                "output prediction"):
        assert f"\n  {row} " in table, row
    assert "\n  MACs on the grid        26,368 of 26,368\n" in table


def test_the_table_of_a_wrong_program_names_the_rule_and_no_rates(millrace, tmp_path):
    text, image = tmp_path / "e.mas", tmp_path / "e.mrp"
    text.write_text(EXAMPLE.replace("cycles=", "cycles=1"))
    assert run(millrace, "assemble", text, "-o", image).returncode == 0
    done = run(millrace, "simulate", image)
    assert done.returncode == 1
    assert "\n  first broken rule       S11 at cycle " in done.stdout
    assert "per second" not in done.stdout


def test_the_json_has_the_promised_keys_with_the_values_of_the_run(mesh_run):
    _, report, folder = mesh_run
    assert report["predicted_cycles"] == report["measured_cycles"] > 0
    assert report["macs_total"] == report["macs_on_grid"] == 26368
    assert report["host_ops"] == [] and report["violation"] is None
    assert 0 < report["memory_peak_bytes"] <= report["memory_used_bytes"]
    for key in ("compile_seconds", "simulate_seconds", "peak_rss_bytes"):
        assert report["this_computer"][key] > 0, key
    assert report["outputs"] == [{"name": "prediction", "file": str(folder / "prediction.npy"),
                                  "shape": [1, 10], "type": "float"}]
    assert np.load(folder / "prediction.npy").shape == (1, 10)
    assert report["seconds_at_clock"] == pytest.approx(report["measured_cycles"] / 900e6)
    assert report["images_per_second"] == pytest.approx(900e6 / report["measured_cycles"])


def test_the_bounds_of_the_parts_are_what_a_matrix_product_needs(millrace, tmp_path):
    """400 x 320 times 320 x 640 in fp16: two tiles of 320 x 320 in two halves, one on each pair."""
    weights = numpy_helper.from_array(np.full((320, 640), 0.01, np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                              [helper.make_tensor_value_info("x", 1, [400, 320])],
                              [helper.make_tensor_value_info("y", 1, [400, 640])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    done = run(millrace, "run", save_model(model, tmp_path), "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["mac_peak_cycles"] == 400 * 320 * 640 // (2 * 160 * 320)
    assert report["mxm_alone_cycles"] == 2 * 400  # of the halves of 160 lanes
    assert report["vxm_alone_cycles"] == 2 * 400 // 16  # one conversion of each of the two parts
    assert report["measured_cycles"] > report["mxm_alone_cycles"]


def test_the_document_lists_the_keys_of_the_report(mesh_run):
    rows = [line for line in DOCUMENT.read_text().split("## The report")[1].splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    missing = set(mesh_run[1]) - documented
    assert not missing, f"docs/running.md does not say what {missing} are"
    assert documented - {"tokens_per_second", "runs_per_second"} == set(mesh_run[1])


def test_the_document_names_every_command(millrace):
    commands = re.findall(r"^  ([a-z]+) {2,}", run(millrace, "--help").stdout, re.M)
    assert len(commands) > 5 and all(f"`{command}`" in DOCUMENT.read_text() for command in commands), commands


def test_the_peak_of_memory_is_not_that_of_the_parent(millrace, tmp_path):
    ballast = bytearray(b"x") * (400 << 20)
    done = run(millrace, "run", MNIST, "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert 10 << 20 < report["this_computer"]["peak_rss_bytes"] < len(ballast)


def test_the_peak_link_is_the_busiest_of_the_links(mesh_run):
    table, report, _ = mesh_run
    links = report["links"]
    assert sum(link["vectors"] for link in links) == report["link_vectors"] > 0
    peak = max(links, key=lambda link: link["share"])
    assert f"PE {peak['from_pe']} to PE {peak['to_pe']}: {peak['vectors']} vectors" in table


def test_a_language_model_counts_tokens(millrace, tmp_path):
    dims = {"batch_size": 1, "seq_len": 4, "past_seq_len": 0, "total_seq_len": 4}
    flags = [word for name, n in dims.items() for word in ("--dim", f"{name}={n}")]
    done = run(millrace, "run", FOLDER / "tiny_gpt2.onnx", *flags, "--cycles-only", "--json",
               tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["tokens_per_second"] == pytest.approx(4 / report["seconds_at_clock"])


def test_names_that_are_no_utf8_are_written_as_json(millrace, tmp_path):
    (tmp_path / "p.s").write_text(EXAMPLE.replace("tensor=X from", 'tensor=X node="Mul \\xff\\xfe" from'))
    assert run(millrace, "assemble", tmp_path / "p.s", "-o", tmp_path / "p.mrp").returncode == 0
    run(millrace, "simulate", tmp_path / "p.mrp", "--json", tmp_path / "r.json", "--trace", tmp_path / "t.json")
    assert json.loads((tmp_path / "r.json").read_text())["instructions"] == 3
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert "Mul \ufffd\ufffd" in [event["name"] for event in events]


def signals(text: str) -> dict[str, list[tuple[int, int]]]:
    """Changes (time, value) of each signal of a value change dump, by name."""
    names, changes, time = {}, {}, 0
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["$var"]:
            names[words[3]] = words[4]
        elif line.startswith("#"):
            time = int(line[1:])
        elif line.startswith("b"):
            changes.setdefault(names[words[1]], []).append((time, int(words[0][1:], 2)))
    return changes


@pytest.fixture(scope="module")
def image(millrace, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("image") / "mnist.mrp"
    assert run(millrace, "compile", MNIST, "-o", path).returncode == 0
    return path


def test_a_waveform_shows_every_instruction_of_the_program(millrace, image, tmp_path):
    done = run(millrace, "simulate", image, "--vcd", tmp_path / "w.vcd", "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    changes = signals((tmp_path / "w.vcd").read_text())
    begun = sum(value != 0 for steps in changes.values() for _, value in steps)
    # Only of two instructions that begin in one cycle on one queue (its read and its write) one is
    # not seen.
    assert 0.9 * report["instructions"] <= begun <= report["instructions"]
    assert max(time for steps in changes.values() for time, _ in steps) <= report["measured_cycles"] + 64


def test_a_waveform_of_some_cycles_holds_what_runs_in_them(millrace, image, tmp_path):
    assert run(millrace, "simulate", image, "--vcd", tmp_path / "all.vcd").returncode == 0
    assert run(millrace, "simulate", image, "--vcd", tmp_path / "part.vcd", "--vcd-cycles",
               "200..300").returncode == 0
    whole, part = (signals((tmp_path / name).read_text()) for name in ("all.vcd", "part.vcd"))
    inside = {(name, time, value) for name, steps in whole.items() for time, value in steps
              if value and 200 <= time <= 300}
    shown = {(name, time, value) for name, steps in part.items() for time, value in steps if value}
    assert inside and inside <= shown and len(shown) < 0.8 * sum(len(s) for s in whole.values())


def test_a_program_too_large_for_a_waveform_is_refused_with_the_way_out(millrace, image, tmp_path):
    done = run(millrace, "simulate", image, "--vcd", tmp_path / "w.vcd", "--vcd-limit", "10")
    assert done.returncode == 2 and "a waveform holds at most 10" in done.stderr
    assert "--vcd-cycles" in done.stderr and not (tmp_path / "w.vcd").exists()
    done = run(millrace, "simulate", image, "--vcd", tmp_path / "w.vcd", "--vcd-limit", "10",
               "--vcd-cycles", "0..1000")
    assert done.returncode == 2 and "choose fewer cycles" in done.stderr
    assert not (tmp_path / "w.vcd").exists()


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(millrace, tmp_path):
    arguments = [millrace, "run", MNIST, "--cycles-only"]
    plain = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert plain.stderr == "", "a run of less than five seconds says nothing without a terminal"
    # Only what takes longer than 0.2 s is worth a bar.
    arguments[2] = save_model(resnet50(seed=0), tmp_path)
    host, terminal = pty.openpty()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(host, 4096):
                shown += chunk
        except OSError:  # the terminal's other end is closed
            pass
        assert process.wait(60) == 0
    assert re.search(rb"\r\w[\w ]*\[[#.]{40}\]", shown), shown
