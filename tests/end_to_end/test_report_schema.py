# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports are what docs/spec/report.schema.json says, and name what they were made by, of what and
how."""
import copy
import hashlib
import json
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from bad_inputs.images import EXAMPLE
from fixtures import FOLDER
from graph import Graph
from oracle import save_model
from schema import errors

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/spec/report.schema.json").read_text())
RATES = {"images_per_second", "tokens_per_second", "runs_per_second"}


def millrace_json(program, tmp_path, *words, code=0) -> tuple[dict, str]:
    done = subprocess.run([program, *map(str, words), "--json", tmp_path / "r.json"], text=True,
                          capture_output=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return json.loads((tmp_path / "r.json").read_text()), done.stdout


@pytest.fixture(scope="module")
def reports(millrace, tmp_path_factory) -> dict:
    """One report of every kind."""
    folder = tmp_path_factory.mktemp("reports")
    program, mnist = millrace.resolve(), FOLDER / "mnist.onnx"
    (folder / "e.mas").write_text(EXAMPLE)
    (folder / "wrong.mas").write_text(EXAMPLE.replace("cycles=", "cycles=1"))
    for words in (["compile", mnist, "-o", "m.mrp"], ["compile", mnist, "--to", "spatial", "-o", "m.mlir"],
                  ["assemble", "e.mas", "-o", "e.mrp"], ["assemble", "wrong.mas", "-o", "wrong.mrp"]):
        subprocess.run([program, *map(str, words)], check=True, cwd=folder, capture_output=True)
    dims = [word for dim, n in {"batch_size": 1, "seq_len": 2, "past_seq_len": 5, "total_seq_len": 7}.items()
            for word in ("--dim", f"{dim}={n}")]
    runs = {"mesh": ["run", mnist, "-m", "mesh-4x4", "--check", "-o", "out", "--seed", "7", "--set",
                     "energy.sram_byte=1pJ"],
            "int8": ["run", FOLDER / "convnet_int8.onnx", "-p", "int8"],
            "host steps": ["run", FOLDER / "tiny_gpt2.onnx", *dims],
            "spatial": ["run", "m.mlir", "--from", "spatial"],
            "image": ["simulate", "m.mrp"], "cycles": ["simulate", "m.mrp", "--cycles-only"],
            "by hand": ["simulate", "e.mrp"], "wrong": ["simulate", "wrong.mrp"]}
    return {name: millrace_json(program, folder, *words, code=int(name == "wrong"))[0]
            for name, words in runs.items()}


def test_every_kind_of_report_is_what_the_schema_says(reports):
    for name, report in reports.items():
        assert errors(report, SCHEMA) == [], name
        assert len(RATES & set(report)) == 1, name
        assert (report["macs_on_grid"] or 0) <= (report["macs_total"] or 0), name
    met = set().union(*reports.values())
    assert met | RATES == set(SCHEMA["properties"]), "keys that no report has are not tested"


def test_the_check_of_schemas_sees_what_is_wrong(reports):
    right = reports["mesh"]

    def broken(change) -> list[str]:
        report = copy.deepcopy(right)
        change(report)
        return errors(report, SCHEMA)
    assert broken(lambda r: r.pop("date")) == ["$: 'date' is missing"]
    assert broken(lambda r: r.update(extra=1)) == ["$: 'extra' is not in the schema"]
    assert len(broken(lambda r: r["tool"].update(commit="main"))) == 1
    assert len(broken(lambda r: r["utilisation"].update(mem=1.5))) == 1
    assert len(broken(lambda r: r["steps"][0].update(kind="grit"))) == 1
    assert len(broken(lambda r: r.update(measured_cycles=True))) == 1
    assert len(broken(lambda r: r.update(macs_total=0.5))) == 1
    assert len(broken(lambda r: r["options"].update(machine=[1]))) >= 1
    with pytest.raises(KeyError):
        errors(1, {"multipleOf": 2})


def test_a_report_names_its_tool_its_model_and_its_options(reports):
    report = reports["mesh"]
    stated = re.search(r"project\(Millrace VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert report["tool"]["version"] == stated
    age = datetime.now(timezone.utc) - datetime.fromisoformat(report["date"])
    assert 0 <= age.total_seconds() < 600
    assert report["model_sha256"] == hashlib.sha256((FOLDER / "mnist.onnx").read_bytes()).hexdigest()
    assert report["seed"] == 7
    options = report["options"]
    assert options["machine"] == "mesh-4x4" and options["set"] == ["energy.sram_byte=1pJ"]
    assert (options["precision"], report["precision"]) == ("auto", "fp16") and options["model"] == str(FOLDER / "mnist.onnx")
    assert "dim" not in options


def test_what_is_not_known_is_null(reports):
    for name in ("image", "cycles", "by hand"):
        assert reports[name]["model_sha256"] is None and reports[name]["this_computer"]["compile_seconds"] is None
    assert reports["cycles"]["seed"] is None and reports["image"]["seed"] == 0
    assert reports["by hand"]["macs_total"] is None and reports["by hand"]["macs_by_operator"] is None
    assert reports["wrong"]["violation"]["invariant"] == "S11"
    assert [reports["wrong"][rate] for rate in RATES if rate in reports["wrong"]] == [None]


def test_an_image_holds_nothing_of_the_run(millrace, tmp_path):
    """Equal models make equal images, whenever and by whichever commit."""
    images = []
    for name in ("a", "b"):
        subprocess.run([millrace, "compile", FOLDER / "mnist.onnx", "-o", tmp_path / name], check=True,
                       capture_output=True)
        images.append((tmp_path / name).read_bytes())
    assert images[0] == images[1]
    for key in (b"model_sha256", b"schema_version", b"compile_seconds", b"commit"):
        assert key not in images[0]


COSTS = ("mac_int8", "mac_float", "alu_lane", "sram_byte", "stream_byte_hop", "link_byte")


def test_energy_is_null_where_a_cost_is_unknown_and_the_text_says_so(millrace, tmp_path):
    mnist = FOLDER / "mnist.onnx"
    report, table = millrace_json(millrace.resolve(), tmp_path, "run", mnist, "--cycles-only")
    energy = report["energy_picojoules"]
    assert energy == {"macs": None, "alus": None, "sram": None, "streams": None, "links": 0, "total": None}
    assert "unknown: the machine states no cost of macs, alus, sram, streams\n" in table
    some = ["--set", "energy.sram_byte=2pJ"]
    report, table = millrace_json(millrace.resolve(), tmp_path, "run", mnist, "--cycles-only", *some)
    energy = report["energy_picojoules"]
    assert energy["sram"] == 2 * 320 * (report["sram_reads"] + report["sram_writes"])
    assert energy["total"] is None and "no cost of macs, alus, streams\n" in table
    every = [word for cost in COSTS for word in ("--set", f"energy.{cost}=1pJ")]
    report, table = millrace_json(millrace.resolve(), tmp_path, "run", mnist, "--cycles-only", *every)
    energy = report["energy_picojoules"]
    parts = [part for name, part in energy.items() if name != "total"]
    assert energy["total"] > 0 and energy["total"] == pytest.approx(sum(parts))
    assert f"{energy['total'] * 1e-6:.3f} uJ\n" in table


def test_figures_of_this_computer_stand_apart(reports):
    report = reports["host steps"]
    assert report["this_computer"]["host_step_seconds"] > 0
    assert report["this_computer"]["simulate_seconds"] >= report["this_computer"]["host_step_seconds"]
    own = [key for key in report if key.endswith("_seconds")]
    assert own == ["host_transfer_seconds"], "of the machine's own model"


def decoder(rank: int) -> Graph:
    """One step of attention after a past, on vectors that something else has looked up."""
    g = Graph("decode")
    past = g.input("past", [2, 4, 5, 8] if rank == 4 else [1, 2, 4, 5, 8])
    x = g.input("x", [2, 4, 1, 8] if rank == 4 else [1, 2, 4, 1, 8])
    keys = g.add("Concat", past, x, axis=rank - 2)
    g.output(keys, [2, 4, 6, 8] if rank == 4 else [1, 2, 4, 6, 8])
    return g


@pytest.mark.parametrize("rank", [4, 5])
def test_a_decoding_step_makes_tokens(millrace, tmp_path, rank):
    report, table = millrace_json(millrace.resolve(), tmp_path, "run",
                                  save_model(decoder(rank).model(), tmp_path), "--cycles-only")
    assert report["tokens_per_second"] == pytest.approx(2 / report["seconds_at_clock"])
    assert "images" not in table


@pytest.mark.parametrize("shapes, unit, each", [
    ([[3, 3, 8, 8]], "images", 3), ([[3, 3, 8, 8], [3, 3, 8, 8]], "runs", 1), ([[4, 16]], "runs", 1)])
def test_images_are_the_one_input_of_a_model(millrace, tmp_path, shapes, unit, each):
    g = Graph("units")
    names = [g.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    g.output(g.add("Relu", names[0]) if len(names) == 1 else g.add("Add", *names), shapes[0])
    report, _ = millrace_json(millrace.resolve(), tmp_path, "run", save_model(g.model(), tmp_path), "--cycles-only")
    assert report[f"{unit}_per_second"] == pytest.approx(each / report["seconds_at_clock"])


@pytest.mark.parametrize("precision, rows", [("fp16", 900), ("bf16", 900)])
def test_the_mxm_of_a_16_bit_program_can_be_busy_all_the_time(millrace, tmp_path, precision, rows):
    """A product that keeps both planes of every pair streaming reaches more than half."""
    g = Graph("product")
    x = g.input("x", [rows, 320])
    g.output(g.add("MatMul", x, g.normal((320, 1280), 0.1)), [rows, 1280])
    report, _ = millrace_json(millrace.resolve(), tmp_path, "run", save_model(g.model(), tmp_path),
                              "--cycles-only", "-p", precision)
    assert 0.5 < report["utilisation"]["mxm activate"] <= 1
    assert report["utilisation"]["mxm accumulate"] <= 1
