# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/bench/measure says what a process itself took, whoever started it."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


def measure(folder, *command):
    out = folder / "out.json"
    subprocess.run([sys.executable, "-I", "-S", ROOT / "scripts/bench/measure", out, *command], check=True)
    return json.loads(out.read_text())


def test_a_small_process_of_a_large_parent_is_small(tmp_path):
    ballast = bytearray(b"x") * (200 * MIB)
    assert measure(tmp_path, "true")["peak_rss_bytes"] < 40 * MIB < len(ballast)


def test_a_large_process_is_as_large_as_it_is(tmp_path):
    taken = measure(tmp_path, sys.executable, "-c", f"b = bytearray(b'x') * {100 * MIB}")
    assert 100 * MIB < taken["peak_rss_bytes"] < 160 * MIB


def test_time_and_exit_code_are_those_of_the_command(tmp_path):
    taken = measure(tmp_path, "sh", "-c", "sleep 0.2; exit 3")
    assert taken["exit_code"] == 3 and 0.2 <= taken["wall_seconds"] < 2 and taken["user_seconds"] < 0.2
