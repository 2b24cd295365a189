# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a model of the zoo by `millrace batch`, and compares its outputs with ONNX Runtime's.

A record of each run lies in NAME/runs: what became of it, cycles, bytes, seconds, the distance of the outputs, and what of
that distance roundings explain.
"""
from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import cost
import rounding

NEAR = 3e-3  # relative L2 of fp16; what is farther is explained by roundings or wrong
MEBIBYTES = 12000


@dataclass
class Job:
    """A model of the zoo on a machine: `form` is "float", or the name of a quantised one."""
    folder: Path
    form: str
    machine: str
    precision: str
    flags: list[str] = field(default_factory=list)

    def name(self) -> str:
        return "-".join([self.form, self.machine, self.precision, *(flag.strip("-") for flag in self.flags)])

    def model(self) -> Path:
        return self.folder / ("model.onnx" if self.form == "float" else f"quantised/{self.form}.onnx")

    def record(self) -> Path:
        return self.folder / "runs" / f"{self.name()}.json"


def given(folder: Path) -> dict[str, np.ndarray]:
    return {array.stem: np.load(array) for array in sorted(folder.glob("*.npy"))}


def expected(model: Path, inputs: dict[str, np.ndarray], optimised: bool = True) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs. Its optimised kernels of quantised models saturate sums that the model does not."""
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.intra_op_num_threads = 1
    if not optimised:
        quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), quiet, providers=["CPUExecutionProvider"])
    taken = {value.name: inputs[value.name] for value in session.get_inputs()}
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, taken)))


def farthest(got: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    """The largest relative L2 distance of an output."""
    return max(rounding.distance(got[name], array) for name, array in right.items())


def run(job: Job, millrace: Path, seconds: int) -> dict:
    """Runs it, and keeps the record."""
    with tempfile.TemporaryDirectory() as scratch:
        result = batch(job, millrace, seconds, Path(scratch))
        record = {"name": job.folder.name, "form": job.form, "machine": job.machine, "precision": job.precision,
                  "flags": job.flags, "commit": version(millrace), "outcome": result["outcome"],
                  "exit_code": result["exit_code"], "error": without_path(result["error"], job),
                  "seconds": result["seconds"], "peak_rss_bytes": result["peak_rss_bytes"], **costs(job)}
        if result["outcome"] == "done" and result["report"]:
            record.update(figures(result["report"], job.precision))
            record.update(compared(job, result["report"]))
    job.record().parent.mkdir(exist_ok=True)
    job.record().write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def without_path(error: str | None, job: Job) -> str | None:
    return error and error.replace(f"{job.model()} on {job.machine}: ", "").replace(f"{job.model()}: ", "")


def batch(job: Job, millrace: Path, seconds: int, scratch: Path) -> dict:
    options = [str(job.model()), "--machine", job.machine, "--precision", job.precision, "--output-dir",
               str(scratch / "outputs"), *job.flags]
    for name in given(job.folder):
        options += ["--input", f"{name}={job.folder / name}.npy"]
    (scratch / "jobs.jsonl").write_text(json.dumps({"name": job.folder.name, "options": options}) + "\n", encoding="utf-8")
    subprocess.run([millrace, "batch", scratch / "jobs.jsonl", "--json-lines", scratch / "results.jsonl", "--job-seconds",
                    str(seconds), "--job-mebibytes", str(MEBIBYTES)], check=True, capture_output=True)
    return json.loads((scratch / "results.jsonl").read_text(encoding="utf-8"))


def version(millrace: Path) -> str:
    """Commit of the program, or what it says of itself without one."""
    text = subprocess.run([millrace, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    found = re.search(r"commit (\w{7})", text)
    return found[1] if found else text


def costs(job: Job) -> dict:
    """What the model alone says."""
    model, values = cost.values_of(job.model())
    if any(name not in values for node in model.graph.node for name in node.output if name):
        values = cost.values_by_running(model, job.model(), given(job.folder)) | values
    dense = cost.dense_bytes(model, values)
    convolutions = sum(node.op_type == "Conv" for node in model.graph.node)
    return {"dense_weight_bytes": dense.weights, "dense_bytes": dense.total(), "unknown_values": dense.unknown,
            "convolutions": convolutions, "mxm_bound": cost.mxm_bound(model, values, job.precision)}


def figures(report: dict, precision: str) -> dict:
    kernels = report["kernels"] or []
    same = {key: report[key] for key in ("measured_cycles", "predicted_cycles", "macs_total", "macs_on_grid",
                                         "mac_peak_cycles", "memory_used_bytes", "memory_peak_bytes",
                                         "memory_capacity_bytes", "host_ops")}
    return {**same, "mxm_cycles": sum(kernel["mxm_vectors"] for kernel in kernels) / cost.PLANES[precision].engines,
            "compile_seconds": report["this_computer"]["compile_seconds"],
            "simulate_seconds": report["this_computer"]["simulate_seconds"],
            "lost_values": len(report["lost_values"] or [])}


def compared(job: Job, report: dict) -> dict:
    """Distances: of the float model from ONNX Runtime, and what roundings to 16 bits explain; of a quantised one from ONNX
    Runtime's run of it, and of it without the roundings that this run leaves out; that run's from the float model, and from
    one whose inputs are rounded to fp16 first."""
    inputs = given(job.folder)
    got = {output["name"]: np.load(output["file"]) for output in report["outputs"]}
    right = expected(job.model(), inputs, job.form == "float")
    found = {"relative_l2": farthest(got, right)}
    if job.form != "float":
        exact = expected(job.folder / "model.onnx", inputs)
        found["quantisation_l2"] = farthest(right, exact)
        found["float_l2"] = farthest(got, exact)
        near = {name: array.astype(np.float16).astype(array.dtype) for name, array in inputs.items()}
        found["input_rounding_l2"] = farthest(expected(job.model(), near, optimised=False), right)
        if "--exact-qdq" not in job.flags:
            meant = rounding.without_dropped_roundings(onnx.load(job.model()))
            found["fused_l2"] = farthest(got, dict(zip(right, rounding.outputs_of(meant, inputs))))
    elif not found["relative_l2"] <= NEAR:
        found["rounding_l2"] = rounding.distance_of(onnx.load(job.model()), inputs)
    return found


def line(record: dict) -> str:
    """A record in a line."""
    begin = f"{record['name']} {record['form']} on {record['machine']} in {record['precision']}: "
    if "measured_cycles" not in record:
        return begin + f"{record['outcome']} ({record['exit_code']}): {(record['error'] or '')[:200]}"
    beside = "".join(f", {what} {record[key]:.1e}" for what, key in
                     (("roundings alone", "rounding_l2"), ("quantisation", "quantisation_l2")) if key in record)
    return begin + (f"{record['measured_cycles']:,} cycles, {len(record['host_ops'])} host operations, "
                    f"distance {record['relative_l2']:.1e}{beside}, compiled in {record['compile_seconds']:.1f} s")
