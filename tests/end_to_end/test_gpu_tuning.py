# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tuning table: it has the form that its schema says, every schedule that is tried has the right values, and times
become entries that the compiler reads."""
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
    assert entry["sizes"] == {"rows": [64, 127], "columns": [128, 255], "depth": [64, 127]} and entry["chip"] == "H200 SXM"
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


def test_nothing_is_written_of_kernels_whose_values_are_wrong(millrace, tmp_path):
    """With a stub of a driver, which runs no kernel."""
    build = Path(millrace).parents[1]
    stub = build / "tests/lib/DriverStub.so"
    assert stub.is_file(), f"'{stub}' does not exist; build all targets first"
    own = tmp_path / "table.json"
    own.write_text(TABLE.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, ROOT / "scripts/bench/gpu", "--tune", "--table", own, "--only", "rms_norm_int8",
                           "--repeat", "2", "--json", tmp_path / "out.json", "--build", build], capture_output=True, text=True,
                          check=False, timeout=250, env=dict(os.environ, MILLRACE_CUDA_DRIVER=str(stub)))
    assert done.returncode == 1 and "0 measured entries" in done.stdout, done.stderr
    assert json.loads(own.read_text(encoding="utf-8")) == table()
