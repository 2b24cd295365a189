# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what the records of a zoo come to: a page with counts and a line for each model, and all records as JSON."""
from __future__ import annotations

import collections
import json
import math
import re
import subprocess
import tempfile
from pathlib import Path

import judge
from quantise import CONVOLUTIONS

MARKER = "<!-- What follows is written by scripts/zoo table. -->"
EXPLAINED = 2  # times what roundings alone do: as far as a run may depart and still be explained by them
# What a refusal says, and its cause in a few words.
CAUSES = [
    (r"its constants take .* the memory of all PEs has", "constants and inputs in vectors are larger than the memory"),
    (r"'constant row' needs", "no row for a constant, with most of the memory free"),
    (r"'weights of .* needs \d+ rows", "no rows left for weights in a hemisphere"),
    (r"needs \d+ rows", "no rows left for a value in a hemisphere"),
    (r"two bursts that belong together", "two bursts of one piece meet in a slice"),
    (r"sweeps through the machine", "more sweeps than are scheduled at most"),
    (r"operations that are not supported: (\w+)", "not supported: {}"),
    (r"the kernel graph is wrong", "internal error: the kernel graph is wrong"),
    (r"memory plan: .* live at one time", "internal error: two regions live at one place"),
    (r"needs (?:\d+) ALUs", "more ALUs than the VXM has"),
]


def records(folder: Path) -> list[dict]:
    """All records, each with the size of its images and what its export says."""
    found = []
    for path in sorted(folder.glob("*/*/runs/*.json")):
        model = path.parents[1]
        record = json.loads(path.read_text(encoding="utf-8"))
        export = json.loads((model / "export.json").read_text(encoding="utf-8"))
        found.append({**record, "size": model.parent.name, "library": export["library"], "exporter": export["exporter"],
                      "nodes": export["nodes"]})
    return found


def capacity(millrace: Path, machine: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts.json"
        subprocess.run([millrace, "describe", machine, "--json", facts], check=True, capture_output=True)
        described = json.loads(facts.read_text(encoding="utf-8"))
    return described["capacity_bytes"] * described["pes"]


def bound(record: dict) -> float:
    """How far a run may be from ONNX Runtime: a float model 3e-3 in fp16, eight times that in bf16; a quantised one as far as
    ONNX Runtime's run of it is from the float model, which is what its roundings cost."""
    if record["form"] != "float":
        return record["quantisation_l2"]
    return judge.NEAR * (8 if record["precision"] == "bf16" else 1)


def is_explained(record: dict) -> bool:
    """Whether roundings alone do as much: within twice what those of all values to fp16 do, or of a quantised model those of
    its inputs to fp16, as the program takes them. Or a quantised model is, but for that, what ONNX Runtime makes of it
    without the roundings that the run leaves out: where they decide the outcome, the run is held to this alone."""
    inputs = EXPLAINED * record.get("input_rounding_l2", 0)
    return (record["relative_l2"] <= max(inputs, EXPLAINED * record.get("rounding_l2", 0))
            or record.get("fused_l2", math.inf) <= max(judge.NEAR, inputs))


def verdict(record: dict) -> str:
    """right, rounded (right, but only by what roundings alone do), wrong, refused, "does not fit", or the outcome."""
    if record["outcome"] == "done":
        if record["relative_l2"] <= bound(record):
            return "right"
        return "rounded" if is_explained(record) else "wrong"
    if record["outcome"] != "failed":
        return record["outcome"]
    return "does not fit" if record["dense_bytes"] > record["capacity"] else "refused"


def cause(record: dict) -> str:
    error = record["error"] or ""
    for pattern, words in CAUSES:
        match = re.search(pattern, error)
        if match:
            return words.format(*match.groups())
    return re.sub(r"'[^']*'", "NAME", re.sub(r"^.*?: (?=kernel)", "", error))[:120]


def geometric_mean(ratios: list[float]) -> str:
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} ({len(ratios)})" if ratios else ""


def mxm_ratio(record: dict) -> float | None:
    """MXM cycles of the chosen tiling over those of the optimistic layout, which is one of tsp-v1."""
    if record["machine"] == "tsp-v1" and record.get("mxm_cycles") and record["mxm_bound"]:
        return record["mxm_cycles"] / record["mxm_bound"]
    return None


def counts(groups: dict[tuple, list[dict]]) -> list[str]:
    lines = ["| set | models | right | right by roundings | wrong | refused | do not fit densely | out of time | crashed | "
             "all on the grid | MXM over bound | used over dense bytes | at a time over dense bytes |", "|" + "---|" * 13]
    for key, group in groups.items():
        seen = collections.Counter(record["verdict"] for record in group)
        done = [record for record in group if record["outcome"] == "done"]
        ratios = [ratio for record in done if record["library"] != "transformers"
                  and record["convolutions"] >= CONVOLUTIONS and (ratio := mxm_ratio(record))]
        memory, peak = ([record[key] / record["dense_bytes"] for record in done if record["dense_bytes"] and key in record]
                        for key in ("memory_used_bytes", "memory_peak_bytes"))
        figures = [len(group), *(seen[word] for word in ("right", "rounded", "wrong", "refused", "does not fit", "timed out",
                                                         "crashed")), sum(not record["host_ops"] for record in done)]
        lines.append(f"| {title(key)} | " + " | ".join(str(figure) for figure in figures) +
                     f" | {geometric_mean(ratios)} | {geometric_mean(memory)} | {geometric_mean(peak)} |")
    return lines


def title(key: tuple) -> str:
    machine, precision, size, kind, flags = key
    return f"{kind}, {machine}, {precision}{' ' + flags if flags else ''}{', small images' if size == 'small' else ''}"


def refusals(found: list[dict]) -> list[str]:
    causes: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for record in found:
        if record["verdict"] in ("refused", "does not fit"):
            fits = "fits densely" if record["verdict"] == "refused" else "does not"
            causes[fits, cause(record)].append(called(record, machine=True))
    lines = ["| dense bytes | cause | runs | which |", "|---|---|---|---|"]
    for (fits, words), names in sorted(causes.items(), key=lambda item: (item[0][0] != "fits densely", -len(item[1]))):
        lines.append(f"| {fits} | {words} | {len(names)} | {', '.join(names)} |")
    return lines


def called(record: dict, machine: bool = False) -> str:
    parts = [record["name"]]
    if record["form"] != "float":
        parts.append(record["form"] + (" exact" if record["flags"] else ""))
    if machine and record["machine"] != "tsp-v1":
        parts.append(f"on {record['machine']}")
    return " ".join(parts)


def row(record: dict) -> str:
    mebibytes = f"{record['dense_bytes'] / 2**20:,.1f}"
    begin = f"| {called(record)} | {record['nodes']} | "
    if record["outcome"] != "done":
        seconds = f"{record['seconds']:.0f} s" if record["outcome"] == "timed out" else cause(record)
        return begin + f"{record['verdict']}: {seconds} | | | | | {mebibytes} | | | |"
    hosts = f"{len(record['host_ops'])} host" if record["host_ops"] else "grid"
    explained = record.get("quantisation_l2", record.get("rounding_l2"))
    ratio = mxm_ratio(record)
    return begin + (f"{record['verdict']} | {hosts} | {record['measured_cycles']:,} | {f'{ratio:.2f}' if ratio else ''} | "
                    f"{record['relative_l2']:.1e}{f' ({explained:.1e})' if explained is not None else ''} | {mebibytes} | "
                    f"{record['memory_used_bytes'] / 2**20:,.1f} | "
                    f"{record.get('memory_peak_bytes', 0) / 2**20:,.1f} | {record['compile_seconds']:.1f} |")


def grouped(found: list[dict]) -> dict[tuple, list[dict]]:
    """Records by machine, precision, size of images, kind of models and flags."""
    groups: dict[tuple, list[dict]] = collections.defaultdict(list)
    for record in found:
        kind = "quantised" if record["form"] != "float" else (
            "transformers" if record["library"] == "transformers" else "torchvision and timm")
        size = "native" if kind == "transformers" else record["size"]
        groups[record["machine"], record["precision"], size, kind, " ".join(record["flags"])].append(record)
    order = {"torchvision and timm": 0, "transformers": 1, "quantised": 2}
    return dict(sorted(groups.items(),
                       key=lambda item: (item[0][0] != "tsp-v1", item[0][0], order[item[0][3]], item[0])))


def write(folder: Path, output: Path, millrace: Path) -> list[Path]:
    """Writes the page, keeping what stands above its marker, and the records beside it."""
    found = records(folder)
    sizes = {machine: capacity(millrace, machine) for machine in {record["machine"] for record in found}}
    for record in found:
        record["capacity"] = sizes[record["machine"]]
        record["verdict"] = verdict(record)
    groups = grouped(found)
    above = output.read_text(encoding="utf-8").split(MARKER)[0].rstrip() if output.exists() else "# Zoo"
    commits = ", ".join(sorted({record["commit"] for record in found}))
    lines = [above, "", MARKER, "", "## Counts", "",
             f"Commit {commits}. Ratios are geometric means, of so many models; those of the MXM of convolutional ones.", "",
             *counts(groups), "", "## Refusals", "", *refusals(found)]
    for key, group in groups.items():
        lines += ["", f"## {title(key).capitalize()}", "",
                  "| model | nodes | result | where | cycles | MXM over bound | relative L2 (explained) | dense MiB | "
                  "used MiB | at a time | compile s |", "|" + "---|" * 11, *map(row, group)]
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    beside = output.with_suffix(".json")
    beside.write_text("[\n" + ",\n".join(json.dumps(record) for record in found) + "\n]\n", encoding="utf-8")
    return [output, beside]
