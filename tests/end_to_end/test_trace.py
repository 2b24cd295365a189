# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces hold every burst where a viewer shows it: slices of a track never overlap in part."""
import json
import re
import subprocess
from collections import defaultdict

import pytest

from fixtures import FOLDER
from resnet50 import resnet50
from oracle import save_model


def traced(millrace, folder, model, *words) -> tuple[dict, dict]:
    """The trace and the report of a run without data."""
    done = subprocess.run([millrace, "run", model, "--cycles-only", "--trace", folder / "t.json", "--json",
                           folder / "r.json", *map(str, words)], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "t.json").read_text()), json.loads((folder / "r.json").read_text())


def tracks(trace: dict) -> dict:
    """Slices (start, end, event) by process and track."""
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
    return found


def names(trace: dict, what: str) -> dict:
    return {(event["pid"], event.get("tid")): event["args"]["name"] for event in trace["traceEvents"]
            if event["name"] == what}


def overlaps(slices: list) -> list:
    """Pairs of slices of a track of which neither holds the other, and yet they share a cycle."""
    found, open_ends = [], []
    for start, end, event in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            found.append((start, end, event["name"]))
        open_ends.append(end)
    return found


@pytest.fixture(scope="module", params=["attention on one PE", "mnist on 16"])
def run(millrace, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("trace")
    if request.param == "mnist on 16":
        return traced(millrace, folder, FOLDER / "mnist.onnx", "-m", "mesh-4x4", "--trace-flows")
    return traced(millrace, folder, FOLDER / "attention.onnx", "--trace-flows")


def test_no_two_slices_of_a_track_overlap_in_part(run):
    trace, report = run
    slices = tracks(trace)
    assert {where: overlaps(each) for where, each in slices.items() if overlaps(each)} == {}
    bursts = sum(event["args"].get("instruction") is not None for each in slices.values() for *_, event in each)
    assert bursts == report["instructions"], "every burst has a slice"


def test_a_large_model_has_no_partial_overlap_either(millrace, tmp_path):
    """ResNet-50, whose slices read and write at once. A part of it."""
    trace, _ = traced(millrace, tmp_path, save_model(resnet50(), tmp_path), "--trace-cycles", "20000..40000")
    slices = tracks(trace)
    assert len(slices) > 100 and [each for each in slices.values() if overlaps(each)] == []
    named = names(trace, "thread_name")
    assert any(name.endswith(".read") for name in named.values())
    assert any(name.endswith(".write") for name in named.values())


def test_every_process_and_track_is_named_once(run):
    trace, _ = run
    for what in ("process_name", "thread_name"):
        given = [(event["pid"], event.get("tid")) for event in trace["traceEvents"] if event["name"] == what]
        assert len(given) == len(set(given)) > 1
    assert set(tracks(trace)) <= set(names(trace, "thread_name"))
    processes = names(trace, "process_name").values()
    assert "program" in processes and "pe 0" in processes


def test_mxm_and_vxm_stand_above_mem(run):
    trace, _ = run
    order = {(event["pid"], event["tid"]): event["args"]["sort_index"] for event in trace["traceEvents"]
             if event["name"] == "thread_sort_index"}
    by_kind = defaultdict(list)
    for (pid, tid), name in names(trace, "thread_name").items():
        if match := re.match(r"(mxm|alu|sxm|send|receive|mem)\.", name):
            by_kind[match[1]].append(order[pid, tid])
    assert max(by_kind["mxm"]) < min(by_kind["alu"]) <= max(by_kind["alu"]) < min(by_kind["mem"])


def test_counters_sum_up_to_the_report(run):
    trace, report = run
    values = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            values[event["pid"], event["name"]].append((event["ts"], event["args"]["per cycle"]))
    assert {name for _, name in values} == {"streams in use", "MEM ports", "MACs"}
    macs = 0
    for (_, name), steps in values.items():
        assert steps == sorted(steps) and steps[-1][1] == 0 and min(value for _, value in steps) == 0
        if name == "MACs":
            macs += sum(value * (after - cycle) for (cycle, value), (after, _) in zip(steps, steps[1:]))
    assert macs == pytest.approx(report["macs_executed"], rel=1e-6)


def test_arrows_lead_from_producers_to_consumers(run):
    trace, _ = run
    slices = tracks(trace)
    ends = defaultdict(dict)
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            of_track = slices[event["pid"], event["tid"]]
            assert sum(start <= event["ts"] < end for start, end, _ in of_track) == 1
            ends[event["id"]][event["ph"]] = event
    assert len(ends) > 100
    for pair in ends.values():
        assert set(pair) == {"s", "f"} and pair["s"]["ts"] <= pair["f"]["ts"] and pair["f"]["bp"] == "e"


def test_nodes_are_under_way_while_their_instructions_are(run):
    trace, _ = run
    named, slices = names(trace, "thread_name"), tracks(trace)
    program = next(pid for (pid, _), name in names(trace, "process_name").items() if name == "program")
    nodes = {named[where]: each for where, each in slices.items()
             if where[0] == program and named[where] != "grid steps"}
    spans = defaultdict(list)
    for (pid, _), each in slices.items():
        if pid != program:
            for start, end, event in each:
                if event["name"] != event["cat"]:
                    spans[event["name"]].append((start, end))
    assert set(nodes) == set(spans)
    for name, each in nodes.items():
        covered = {cycle for start, end, _ in each for cycle in range(start, end)}
        assert covered == {cycle for start, end in spans[name] for cycle in range(start, end)}


def test_a_range_holds_what_acts_in_it(millrace, tmp_path):
    all_of_it, _ = traced(millrace, tmp_path, FOLDER / "attention.onnx")
    part, _ = traced(millrace, tmp_path, FOLDER / "attention.onnx", "--trace-cycles", "300..400")
    whole = {(e["ts"], e["dur"], e["args"]["instruction"]) for each in tracks(all_of_it).values()
             for *_, e in each if "instruction" in e["args"]}
    shown = {(e["ts"], e["dur"], e["args"]["instruction"]) for each in tracks(part).values()
             for *_, e in each if "instruction" in e["args"]}
    assert shown == {s for s in whole if s[0] <= 400 and s[0] + s[1] > 300} and 0 < len(shown) < len(whole)
    times = [event["ts"] for event in part["traceEvents"] if event["ph"] == "C"]
    assert 300 <= min(times) and max(times) <= 401
    assert not [event for event in part["traceEvents"] if event["ph"] in "sf"], "no arrows unless asked for"


def test_the_trace_says_of_what_it_is(run):
    facts = run[0]["otherData"]
    assert facts["unit"] == "1 us is 1 cycle" and facts["machine"] == run[1]["machine"]
    assert facts["tool"] == run[1]["tool"] and facts["model"] == run[1]["model"]
    assert facts["precision"] == "fp16"


@pytest.mark.parametrize("words, says", [
    (("--trace", "t.json", "--trace-cycles", "9..2"), "'9..2' is no range of cycles"),
    (("--trace-cycles", "1..2"), "--trace-cycles without --trace"),
    (("--trace-flows",), "--trace-flows without --trace")])
def test_what_cannot_be_traced_is_refused(millrace, tmp_path, words, says):
    done = subprocess.run([millrace.resolve(), "run", FOLDER / "mnist.onnx", *words], text=True, cwd=tmp_path,
                          capture_output=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr and not list(tmp_path.iterdir())
