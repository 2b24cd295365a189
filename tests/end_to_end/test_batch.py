# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`millrace batch` gives a line for every job, whatever becomes of it, in the order of the jobs."""
import json
import subprocess
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "models/fixtures"
MNIST = str(FIXTURES / "mnist.onnx")


def batch(millrace, folder, jobs, *options):
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    done = subprocess.run([millrace, "batch", folder / "jobs.jsonl", "--json-lines", folder / "out.jsonl", *options],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()], done.stdout


def test_each_job_is_what_run_does_with_its_options(millrace, tmp_path):
    jobs = [{"name": "a", "options": [MNIST, "--machine", "tsp-small", "--output-dir", str(tmp_path / "a")]},
            {"options": ["none.onnx"]},
            {"name": "b", "options": [MNIST, "--precision", "bf16", "--cycles-only"]},
            {"name": "c", "options": [MNIST, "--precision", "fp3"]}]
    lines, text = batch(millrace, tmp_path, jobs, "--jobs", "2")
    assert [line["name"] for line in lines] == ["a", "2", "b", "c"]
    assert [line["outcome"] for line in lines] == ["done", "failed", "done", "failed"]
    assert [line["exit_code"] for line in lines] == [0, 3, 0, 2]
    assert text == "4 jobs, 2 done, 2 failed\n"
    assert lines[1]["error"] == "none.onnx: cannot be read: No such file or directory; check the path"
    assert lines[1]["report"] is None and lines[0]["error"] is None and lines[0]["signal"] is None
    alone = tmp_path / "alone.json"
    subprocess.run([millrace, "run", MNIST, "--machine", "tsp-small", "--json", alone], check=True, capture_output=True)
    expected = json.loads(alone.read_text())
    for key in ("measured_cycles", "machine", "instructions", "kernels", "sram_reads"):
        assert lines[0]["report"][key] == expected[key]
    assert len(list((tmp_path / "a").glob("*.npy"))) == 1
    assert lines[2]["report"]["precision"] == "bf16"


def test_time_and_memory_of_a_job_are_limited(millrace, tmp_path):
    lines, text = batch(millrace, tmp_path, [{"options": [MNIST]}] * 2, "--job-seconds", "0.001")
    assert [line["outcome"] for line in lines] == ["timed out"] * 2 and text == "2 jobs, 2 timed out\n"
    assert all(line["exit_code"] is None and line["report"] is None for line in lines)
    lines, _ = batch(millrace, tmp_path, [{"options": [MNIST]}], "--job-mebibytes", "8")
    assert lines[0]["outcome"] in ("failed", "crashed") and lines[0]["report"] is None


def test_no_jobs_give_no_lines(millrace, tmp_path):
    assert batch(millrace, tmp_path, []) == ([], "0 jobs\n")


@pytest.mark.parametrize("line, message", [
    ("x", "write a job as"),
    ('{"name": "a"}', "write a job as"),
    ('{"options": "model.onnx"}', "'options' is none of name, a text, and options, a list of texts"),
    ('{"options": [], "model": "m"}', "'model' is none of name"),
    ('{"options": [1]}', "option 1 is no text"),
    ('{"options": ["m.onnx", "--json", "r"]}', "leave out --json"),
])
def test_a_line_that_is_no_job_is_refused_before_any_runs(millrace, tmp_path, line, message):
    (tmp_path / "jobs.jsonl").write_text(json.dumps({"options": [MNIST]}) + "\n\n" + line + "\n")
    done = subprocess.run([millrace, "batch", tmp_path / "jobs.jsonl", "--json-lines", tmp_path / "out.jsonl"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and message in done.stderr and "jobs.jsonl:3: " in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
