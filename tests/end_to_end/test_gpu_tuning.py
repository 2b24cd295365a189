# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tuning table: it has the form that its schema says, every schedule that is tried has the right values, and times
become entries that the compiler reads."""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import schema

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
import gpu_suite  # noqa: E402
import gpu_tuning  # noqa: E402

TABLE = ROOT / "compiler/Codegen/Gpu/Tuning/table.json"
SCHEMA = json.loads((ROOT / "docs/spec/gpu-tuning.schema.json").read_text(encoding="utf-8"))
SMALL = {"product": [gpu_suite.matmul(17, 23, 31), gpu_suite.matmul(70, 130, 100), gpu_suite.matmul_int4(33, 66, 96)],
         "attention": [gpu_suite.attention(2, 33, 65, 40), gpu_suite.attention(1, 70, 33, 104)]}


def table():
    return json.loads(TABLE.read_text(encoding="utf-8"))


def kernels(millrace, tmp_path, case, tuning, *words):
    (tmp_path / "case.mlir").write_text(case.text)
    (tmp_path / "tuning.json").write_text(tuning)
    done = subprocess.run([millrace, "kernels", "case.mlir", "--tuning", "tuning.json", "--json", "-", *case.flags, *words],
                          capture_output=True, text=True, check=False, cwd=tmp_path)
    return done, json.loads(done.stdout) if done.returncode == 0 else None


def test_the_table_has_the_form_of_its_schema_and_says_that_nothing_is_measured():
    assert not schema.errors(table(), SCHEMA)
    for entry in table()["entries"]:
        measured = entry["provenance"]["kind"] == "measured"
        assert measured == ("median_seconds" in entry["provenance"]) == ("gpu_name" in entry["provenance"])
        assert entry["provenance"]["date"] and entry["provenance"]["by"]
        assert measured or entry["roofline_share"] == 1


@pytest.mark.parametrize("op, schedule", [(op, schedule) for op, all_of in gpu_tuning.CANDIDATES.items() for schedule in all_of])
def test_every_schedule_that_is_tried_has_the_values_of_the_cpu_under_every_adversary(millrace, tmp_path, op, schedule):
    programs = []
    for case in SMALL[op]:
        done, result = kernels(millrace, tmp_path, case, gpu_tuning.with_schedule(table(), op, schedule),
                               "--gpu", "emulate", "--most-error", str(case.most_error))
        assert done.returncode == 0, done.stderr
        assert result["launches"][0]["kind"]["op"] == op and not result["left"] and not result["notes"]
        programs.append(result["launches"][0]["programs"])
    if op == "product":  # of 70 x 130
        assert programs[1] == -(-70 // schedule["rows"]) * -(-130 // schedule["columns"])


def test_times_become_entries_by_bucket_that_the_compiler_and_estimates_read(millrace, tmp_path):
    case = gpu_suite.matmul(70, 130, 100)
    _, before = kernels(millrace, tmp_path, case, json.dumps(table()), "--gpu", "cpu")
    launch = dict(before["launches"][0], median_seconds=4 * before["launches"][0]["roofline_seconds"])
    chosen = {"rows": 32, "columns": 16, "depth": 64}
    entry = gpu_tuning.entry_of(launch, gpu_tuning.chip_name(table(), "NVIDIA H200"), chosen,
                                {"date": "2026-11-25", "by": "a test", "gpu_name": "NVIDIA H200"})
    assert entry["sizes"] == {"rows": [64, 127], "columns": [128, 255], "depth": [64, 127], "staged": [0, 0]} and entry["chip"] == "H200 SXM"
    assert entry["roofline_share"] == 0.25
    merged = gpu_tuning.merge(table(), [entry])
    assert not schema.errors(merged, SCHEMA)
    assert gpu_tuning.merge(merged, [entry]) == merged  # in place of what was measured before
    _, after = kernels(millrace, tmp_path, case, json.dumps(merged), "--gpu", "cpu")
    first = after["launches"][0]
    assert first["programs"] == 3 * 9 and first["is_by_measurement"] and not before["launches"][0]["is_by_measurement"]
    assert first["estimated_seconds"] == pytest.approx(4 * first["roofline_seconds"])
    _, other = kernels(millrace, tmp_path, gpu_suite.matmul(40, 130, 100), json.dumps(merged), "--gpu", "cpu")
    assert other["launches"][0]["programs"] == 3 and not other["launches"][0]["is_by_measurement"]


def test_buckets_are_powers_that_hold_the_size():
    assert [gpu_tuning.bucket(size) for size in (1, 2, 3, 4, 1023, 1024)] == [[1, 1], [2, 3], [2, 3], [4, 7], [512, 1023], [1024, 2047]]
    assert gpu_tuning.bucket(63, 4) == [16, 63] and gpu_tuning.bucket(64, 4) == [64, 255]


def test_a_wrong_table_is_refused_with_its_place(millrace, tmp_path):
    wrong = table()
    wrong["entries"][1]["schedule"]["rows"] = 48
    done, _ = kernels(millrace, tmp_path, gpu_suite.matmul(2, 3, 4), json.dumps(wrong))
    assert done.returncode == 3
    assert done.stderr == ("millrace: error: tuning.json: the tuning table's entry 1: its schedule's 'rows' is 48; "
                           "use a multiple of 32 up to 256\n")


def tune(millrace, tmp_path, own, *words):
    """`scripts/bench/gpu --tune` with a stub of a driver, which runs no kernel."""
    build = Path(millrace).parents[1]
    stub = build / "tests/lib/DriverStub.so"
    assert stub.is_file(), f"'{stub}' does not exist; build all targets first"
    (tmp_path / "table.json").write_text(json.dumps(own))
    done = subprocess.run([sys.executable, ROOT / "scripts/bench/gpu", "--tune", "--table", tmp_path / "table.json", "--repeat", "2",
                           "--json", tmp_path / "out.json", "--build", build, *words], capture_output=True, text=True,
                          check=False, timeout=250, env=dict(os.environ, MILLRACE_CUDA_DRIVER=str(stub)))
    return done, json.loads((tmp_path / "table.json").read_text())


def test_nothing_is_written_of_kernels_whose_values_are_wrong(millrace, tmp_path):
    own = table()
    own["chips"][0]["driver_names"].append("stub of a driver, no GPU")
    done, after = tune(millrace, tmp_path, own, "--only", "rms_norm_int8")
    assert done.returncode == 1 and "0 measured entries" in done.stdout, done.stderr
    assert after == own


def test_a_chip_that_the_table_lacks_is_not_measured_by_the_roofline_of_another(millrace, tmp_path):
    done, after = tune(millrace, tmp_path, table(), "--only", "add")
    assert done.returncode == 3 and "has no chip that a driver names 'stub of a driver, no GPU'" in done.stderr
    assert after == table()


def load_script():
    spec = importlib.util.spec_from_loader("bench_gpu", importlib.machinery.SourceFileLoader("bench_gpu", str(ROOT / "scripts/bench/gpu")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Times:
    """In place of calls of millrace: values are right but with one schedule, and times are by schedule."""

    def __init__(self, folder, seconds, wrong):
        self.folder, self.seconds, self.wrong, self.checked = folder, seconds, wrong, []

    def left(self):
        return 100

    def run(self, case, *words):
        tuning = json.loads(Path(words[words.index("--tuning") + 1]).read_text())
        schedule = tuple(next(entry for entry in tuning["entries"] if entry["op"] == "product")["schedule"].values())
        is_check = "--no-check" not in words
        if is_check:
            self.checked.append((case.name, schedule))
        launch = {"kernel": "product_1", "roofline_seconds": 2e-6, "median_seconds": self.seconds.get(schedule, 9e-6),
                  "kind": {"op": "product", "type": "f16", "rows": 4096, "columns": 4096, "depth": 4096, "bytes": 1}}
        error = 1.0 if is_check and schedule == self.wrong else 0.0
        return {"launches": [launch], "left": [], "notes": [], "results": [{"relative_l2": error}], "gpu_name": "g",
                "gpu_chip": "c"}, ""


def test_the_fastest_schedule_whose_values_are_right_is_written(tmp_path):
    """Schedules are checked once, whatever is timed."""
    script = load_script()
    times = Times(tmp_path, {(64, 32, 32): 3e-6, (32, 16, 64): 1e-6, (64, 64, 32): 5e-6}, wrong=(32, 16, 64))
    options = argparse.Namespace(table=TABLE, repeat=2)
    tuner = script.Tuner(times, options, "NVIDIA H200", {"date": "2026-11-25", "by": "a test", "commit": None})
    checks, case = [gpu_suite.matmul(17, 23, 31), gpu_suite.matmul(64, 64, 32)], gpu_suite.matmul(4096, 4096, 4096)
    row = {"launches": times.run(case, "--no-check", *tuner.words())[0]["launches"]}
    for _ in range(2):
        tuner.take(case, row, checks)
    assert len(times.checked) == len(set(times.checked)) == 2 * 5 + 1  # the wrong one stops at its first
    entry = tuner.entries[0]
    assert entry["schedule"] == {"rows": 64, "columns": 32, "depth": 32} and entry["chip"] == "H200 SXM"
    assert entry["roofline_share"] == pytest.approx(2 / 3) and entry["provenance"]["default_median_seconds"] == 5e-6
    assert not schema.errors(gpu_tuning.merge(table(), tuner.entries[:1]), SCHEMA)
