# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule as a problem that leaves the compiler, is solved elsewhere, comes back, is verified and simulated."""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bert_base import Shape, transformer
from graph import save
from oracle import run_millrace, save_model
from small import convnet
from test_explain_cycles import check as check_account

ROOT = Path(__file__).resolve().parents[2]
SOLVERS = ROOT / "scripts/schedule"
FIXTURES = ROOT / "models/fixtures"


def with_a_host_step() -> onnx.ModelProto:
    """A product, an ArgMax on the host, and a look-up of what it finds: grid steps before and behind it."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
               for name, shape in (("w", (16, 24)), ("table", (24, 12)), ("v", (12, 12)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"]),
             helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
             helper.make_node("Gather", ["table", "best"], ["rows"]),
             helper.make_node("MatMul", ["rows", "v"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [5, 16]), ("y", [5, 12])))
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MODELS = {
    "convnet": (convnet, "tsp-small"),
    "layer on a mesh": (lambda: transformer(Shape(layers=1, hidden=32, heads=2, inner=64, sequence=8, embeddings=False)), "mesh-4x4"),
    "host step": (with_a_host_step, "tsp-v1"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("problems")
    result = {}
    for name, (make, machine) in MODELS.items():
        result[name] = (folder / f"{name.replace(' ', '_')}.onnx", machine)
        save(make(), result[name][0])
    return result


def solve(script: str, problem: Path, schedule: Path, *words, python=sys.executable) -> str:
    return subprocess.run([python, SOLVERS / script, problem, schedule, *words], check=True, text=True,
                          capture_output=True, timeout=300).stdout


def rewrite(schedule: Path, change) -> Path:
    """A copy of a schedule file whose tree `change` has changed."""
    tree = json.loads(schedule.read_text())
    change(tree)
    copy = schedule.with_name("changed.json")
    copy.write_text(json.dumps(tree))
    return copy


def as_compiled(problem: dict) -> dict:
    return {"format": "millrace-schedule", "version": 1, "problem": problem["problem"],
            "starts_cycle": [[b, bundle["start_cycle"]] for b, bundle in enumerate(problem["bundles"])]}


@pytest.mark.parametrize("name", MODELS)
def test_a_schedule_solved_in_python_gives_the_same_outputs_in_the_cycles_that_it_says(call, models, millrace, tmp_path,
                                                                                       name):
    model, machine = models[name]
    problem_file, schedule = tmp_path / "problem.json", tmp_path / "schedule.json"
    call("compile", model, "--machine", machine, "--to", "schedule-problem", "-o", problem_file)
    solve("justify.py", problem_file, schedule)
    problem, starts = json.loads(problem_file.read_text()), dict(json.loads(schedule.read_text())["starts_cycle"])
    cycles = sum(step["fixed_cycles"] + max(starts[b] + bundle["last_write_cycles"]
                                            for b, bundle in enumerate(problem["bundles"])
                                            if bundle["step"] == k and bundle["last_write_cycles"] is not None)
                 for k, step in enumerate(problem["steps"]))
    assert sum(step["fewest_cycles"] for step in problem["steps"]) <= cycles
    inputs = {i.name: np.random.default_rng(1).standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim])
              .astype(np.float32) for i in onnx.load(model).graph.input}
    placed = run_millrace(millrace, model, machine, "fp16", inputs, tmp_path)
    solved = run_millrace(millrace, model, machine, "fp16", inputs, tmp_path, ["--schedule", str(schedule)])
    assert solved.report["measured_cycles"] == solved.report["predicted_cycles"] == cycles
    for output, value in placed.outputs.items():
        np.testing.assert_array_equal(solved.outputs[output], value)
    check_account(solved.report["cycle_account"], cycles)


@pytest.mark.parametrize("name", MODELS)
def test_the_compilers_own_starts_come_back_to_its_own_cycles(call, models, tmp_path, name):
    model, machine = models[name]
    out, _ = call("compile", model, "--machine", machine, "--to", "schedule-problem", "-o", "-", "-q")
    problem = json.loads(out)
    (tmp_path / "same.json").write_text(json.dumps(as_compiled(problem)))
    report = []
    for words in ([], ["--schedule", "same.json"]):
        call("run", model, "--machine", machine, "--cycles-only", "--json", "report.json", "-q", *words)
        report.append(json.loads((tmp_path / "report.json").read_text()))
    assert report[0]["measured_cycles"] == report[1]["measured_cycles"]


@pytest.mark.parametrize("name", MODELS)
def test_a_schedule_that_starts_all_later_takes_as_many_cycles_more_in_each_step(call, models, tmp_path, name):
    model, machine = models[name]
    out, _ = call("compile", model, "--machine", machine, "--to", "schedule-problem", "-o", "-", "-q")
    problem = json.loads(out)
    later = as_compiled(problem)
    later["starts_cycle"] = [[b, start + 17] for b, start in later["starts_cycle"]]
    (tmp_path / "later.json").write_text(json.dumps(later))
    cycles, idle = [], []
    for words in ([], ["--schedule", "later.json"]):
        call("run", model, "--machine", machine, "--check", "--json", "report.json", "-q", *words)
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["measured_cycles"] == report["predicted_cycles"]
        check_account(report["cycle_account"], report["measured_cycles"])
        cycles.append(report["measured_cycles"])
        idle.append(report["cycle_account"]["vxm"]["idle_unit_cycles"].get("given_start", 0) +
                    report["cycle_account"]["mxm"]["idle_unit_cycles"].get("given_start", 0))
    assert cycles[1] == cycles[0] + 17 * len(problem["steps"])
    assert idle[0] == 0
    assert idle[1] > 0 or name != "convnet"


def test_the_problem_of_an_image_as_text_is_that_of_its_model(call, models, tmp_path):
    model, machine = models["convnet"]
    call("compile", model, "--machine", machine, "--to", "sched", "-o", "program.s")
    call("compile", "program.s", "--from", "sched", "--machine", machine, "--to", "schedule-problem", "-o", "a.json")
    call("compile", model, "--machine", machine, "--to", "schedule-problem", "-o", "b.json")
    a, b = (json.loads((tmp_path / file).read_text()) for file in ("a.json", "b.json"))
    assert a == b
    solve("justify.py", tmp_path / "a.json", tmp_path / "schedule.json")
    images = []
    for words in (["program.s", "--from", "sched"], [model]):
        call("compile", *words, "--machine", machine, "--schedule", "schedule.json", "-o", "image.mrp")
        images.append(call("dump", "image.mrp")[0])
    assert "@" in images[0]


def test_moved_bundles_take_no_more_cycles_and_are_accounted_for(call, models, tmp_path):
    model, machine = models["convnet"]
    cycles = []
    for effort in (0, 1, 2, 3):
        words = (model, "--machine", machine, "--effort", effort)
        call("run", *words, "--check", "--json", "report.json", "-q")
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["measured_cycles"] == report["predicted_cycles"]
        check_account(report["cycle_account"], report["measured_cycles"])
        cycles.append(report["measured_cycles"])
    assert cycles == sorted(cycles, reverse=True)


def lack(tree):
    del tree["starts_cycle"][3]


def name_an_unknown(tree):
    tree["starts_cycle"][3][0] = 10**6


def start_twice(tree):
    tree["starts_cycle"].append(tree["starts_cycle"][3])


def crowd(tree):
    tree["starts_cycle"] = [[b, 0] for b, _ in tree["starts_cycle"]]


def be_another(tree):
    tree["problem"] = "0" * 16


@pytest.mark.parametrize("change, says", [
    (lack, "it does not start bundle 3 ("), (name_an_unknown, "starts bundle 1000000; the problem has"),
    (start_twice, "starts bundle 3 again"), (crowd, "starts in cycle 0; install of bundle"),
    (be_another, "write the problem again with --to schedule-problem")])
def test_a_schedule_that_is_none_is_refused_by_name(call, models, tmp_path, change, says):
    model, machine = models["convnet"]
    out, _ = call("compile", model, "--machine", machine, "--to", "schedule-problem", "-o", "-", "-q")
    (tmp_path / "same.json").write_text(json.dumps(as_compiled(json.loads(out))))
    changed = rewrite(tmp_path / "same.json", change)
    _, error = call("compile", model, "--machine", machine, "--schedule", changed, "-o", "image.mrp", code=3)
    assert "changed.json: " in error and says in error, error
    assert not (tmp_path / "image.mrp").exists()


def test_a_schedule_file_that_is_missing_or_no_json_is_refused(call, models, tmp_path):
    model, machine = models["convnet"]
    _, error = call("compile", model, "--machine", machine, "--schedule", "none.json", "-o", "i.mrp", code=3)
    assert "cannot read 'none.json'" in error
    (tmp_path / "bad.json").write_text("{")
    _, error = call("compile", model, "--machine", machine, "--schedule", "bad.json", "-o", "i.mrp", code=3)
    assert "bad.json: not a schedule of this problem: it is no JSON" in error


def test_options_that_contradict_each_other_are_refused(call, models):
    model, machine = models["convnet"]
    _, error = call("compile", model, "--machine", machine, "--schedule", "s.json", "--to", "spatial", "-o", "s", code=2)
    assert "--to stops before there is any" in error


def test_a_program_by_hand_that_no_problem_holds_is_refused_by_its_instruction(call, tmp_path):
    program = """machine tsp-v1
tensor X west slice=3 rows=0..9
data X iota
tensor Y west slice=4 rows=100..109
step grid cycles=69
pe 0
r: @0 mem.w.3 read n0=10 s0=1 out=w.in.5 tensor=X from memory: X[0]
a: @2 alu.2 alu n0=10 function=add.i32 a=w.in.5 b=immediate immediate=1 west=w.out.7 width=1 from a: r
   @11 mem.w.4 write n0=10 s0=1 address=100 a=w.out.7 tensor=Y from a: a
"""
    (tmp_path / "good.mas").write_text(program)
    out, _ = call("compile", "good.mas", "--from", "sched", "--to", "schedule-problem", "-o", "-", "-q")
    bundle, = json.loads(out)["bundles"]
    assert bundle["instructions"] == [[0, 0, 0], [0, 1, 2], [0, 2, 11]]
    (tmp_path / "nop.mas").write_text(program + "   @40 mem.w.4 nop count=3\n")
    _, error = call("compile", "nop.mas", "--from", "sched", "--to", "schedule-problem", "-o", "p.json", code=3)
    assert "instruction 3 of pe 0 (nop on mem.w.4) acts on what its queue does" in error
    (tmp_path / "late.mas").write_text(program.replace("@11", "@12"))
    _, error = call("compile", "late.mas", "--from", "sched", "--to", "schedule-problem", "-o", "p.json", code=3)
    assert "instruction 2 of pe 0 (write on mem.w.4) does not meet what instruction 1" in error
    (tmp_path / "bare.mas").write_text(program.replace(" from a: r", ""))
    _, error = call("compile", "bare.mas", "--from", "sched", "--to", "schedule-problem", "-o", "p.json", code=3)
    assert "has no annotation of what it samples" in error


def test_a_row_that_is_written_twice_keeps_its_first_content_until_it_is_read(call, tmp_path):
    """By hand, as the compiler writes no row twice: Y gets X + 1, Z takes it, then Y gets X + 2."""
    (tmp_path / "twice.mas").write_text("""machine tsp-v1
tensor X west slice=3 rows=0..9
data X iota
tensor Y west slice=4 rows=100..109
tensor Z west slice=2 rows=200..209
step grid cycles=168
pe 0
r1: @0 mem.w.3 read n0=10 s0=1 out=w.in.5 tensor=X from memory: X[0]
a1: @2 alu.2 alu n0=10 function=add.i32 a=w.in.5 b=immediate immediate=1 west=w.out.7 width=1 from a: r1
w1: @11 mem.w.4 write n0=10 s0=1 address=100 a=w.out.7 tensor=Y from a: a1
r2: @60 mem.w.4 read n0=10 s0=1 address=100 out=w.in.6 tensor=Y from memory: w1
    @62 mem.w.2 write n0=10 s0=1 address=200 a=w.in.6 tensor=Z from a: r2
r3: @90 mem.w.3 read n0=10 s0=1 out=w.in.5 tensor=X from memory: X[0]
a3: @92 alu.2 alu n0=10 function=add.i32 a=w.in.5 b=immediate immediate=2 west=w.out.7 width=1 from a: r3
    @101 mem.w.4 write n0=10 s0=1 address=100 a=w.out.7 tensor=Y from a: a3
""")
    read = ("twice.mas", "--from", "sched")
    problem = json.loads(call("compile", *read, "--to", "schedule-problem", "-o", "-", "-q")[0])
    assert [b["start_cycle"] for b in problem["bundles"]] == [0, 60, 90]
    assert {problem["resources"][s["resource"]]["kind"] for s in problem["spans"]} == {"contents"}
    schedule = tmp_path / "s.json"
    # Row r is read in cycle 60 + r and written 13 + r behind the third bundle's start; they share a bank.
    for start, says in ((57, None), (56, "both hold pe0.mem.w.4.banks"), (30, "both live in pe0.mem.w.4.contents (contents 100)"),
                        (20, "both live in pe0.mem.w.4.contents (contents 100)")):
        tree = as_compiled(problem)
        tree["starts_cycle"][2][1] = start
        schedule.write_text(json.dumps(tree))
        _, error = call("compile", *read, "--schedule", "s.json", "-o", "image.mrp", code=3 if says else 0)
        if says:
            assert says in error
        else:
            call("simulate", "image.mrp", "--machine", "tsp-v1", "--cycles-only")


def ortools_python() -> str | None:
    """A Python with OR-Tools: that of MILLRACE_ORTOOLS, or this one."""
    if python := os.environ.get("MILLRACE_ORTOOLS"):
        return python
    return sys.executable if importlib.util.find_spec("ortools") else None


@pytest.mark.skipif(not ortools_python(), reason="no Python with ortools; name one in MILLRACE_ORTOOLS")
@pytest.mark.parametrize("fixture", ["mnist", "attention"])
def test_bound_optimum_and_our_schedule_stand_in_this_order(call, tmp_path, fixture):
    model, problem_file = FIXTURES / f"{fixture}.onnx", tmp_path / "problem.json"
    call("compile", model, "--to", "schedule-problem", "-o", problem_file)
    said = solve("optimal.py", problem_file, tmp_path / "best.json", "200", python=ortools_python())
    assert said.startswith("optimal "), said
    optimum = int(said.split()[1])
    call("run", model, "--schedule", "best.json", "--check", "--json", "report.json", "-q")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["measured_cycles"] == report["predicted_cycles"] == optimum
    call("run", model, "--cycles-only", "--json", "ours.json", "-q")
    ours = json.loads((tmp_path / "ours.json").read_text())["measured_cycles"]
    fewest = sum(step["fewest_cycles"] for step in json.loads(problem_file.read_text())["steps"])
    assert fewest <= optimum <= ours
