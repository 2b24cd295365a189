# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what export.py wrote on a machine, and compares with ONNX Runtime.

    python tests/zoo/judge.py FOLDER [MILLRACE [MACHINE [PRECISION [NAME ...]]]]

prints a line of Markdown for each model: which exporter wrote it, its nodes, what became of it, cycles, the largest
relative L2 distance of an output, seconds of compiling. Values that differ by more than 0.02 are marked.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime

FARTHEST = 0.02
SECONDS = 300


def job(folder: Path, machine: str, precision: str) -> dict:
    options = [str(folder / "model.onnx"), "--machine", machine, "--precision", precision, "--output-dir",
               str(folder / "outputs")]
    for array in sorted(folder.glob("*.npy")):
        options += ["--input", f"{array.stem}={array}"]
    return {"name": folder.name, "options": options}


def expected(folder: Path) -> dict[str, np.ndarray]:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), quiet)
    inputs = {value.name: np.load(folder / f"{value.name}.npy") for value in session.get_inputs()}
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, inputs)))


def distance(got: np.ndarray, right: np.ndarray) -> float:
    """Relative L2; infinite where shapes, infinities or NaN differ."""
    got, right = got.astype(np.float64), right.astype(np.float64)
    if got.shape != right.shape or (np.isfinite(got) != np.isfinite(right)).any():
        return np.inf
    finite = np.isfinite(right)
    return float(np.linalg.norm(got[finite] - right[finite]) / max(np.linalg.norm(right[finite]), 1e-30))


def where(report: dict) -> str:
    """Who does the work."""
    if not report["host_ops"]:
        return "all on the grid"
    share = report["macs_on_grid"] / report["macs_total"] if report["macs_total"] else 1
    return f"{len(report['host_ops'])} host operations, {100 * share:.1f} % of the MACs on the grid"


def row(folder: Path, result: dict) -> str:
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    begin = f"| {folder.name} | {record['exporter']} | {record['nodes']} | "
    if result["outcome"] != "done" or not result["report"]:
        return begin + f"{result['outcome']} ({result['exit_code']}): {result['error']} | | | {result['seconds']:.0f} |"
    report = result["report"]
    files = {output["name"]: output["file"] for output in report["outputs"]}
    apart = max(distance(np.load(files[name]), array) for name, array in expected(folder).items())
    mark = " **far**" if not apart <= FARTHEST else ""
    return begin + (f"{where(report)} | {report['measured_cycles']:,} | {apart:.1e}{mark} | "
                    f"{report['this_computer']['compile_seconds']:.1f} |")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(sys.argv[1]).resolve()
    millrace, machine, precision = (sys.argv[2:5] + ["build/bin/millrace", "tsp-v1", "fp16"][len(sys.argv[2:5]):])
    names = sys.argv[5:] or sorted(folder.name for folder in root.iterdir() if (folder / "model.onnx").exists())
    jobs, results = root / "jobs.jsonl", root / "results.jsonl"
    jobs.write_text("".join(json.dumps(job(root / name, machine, precision)) + "\n" for name in names),
                    encoding="utf-8")
    subprocess.run([millrace, "batch", str(jobs), "--json-lines", str(results), "--job-seconds", str(SECONDS)],
                   check=True, stderr=subprocess.DEVNULL)
    for line in results.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        print(row(root / result["name"], result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
