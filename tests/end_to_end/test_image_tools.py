# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as text and as files: assemble, simulate, dump, and what they say of bad input."""
import json
import subprocess
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/spec/assembly.md"


def run(millrace: Path, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([millrace, *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.fixture()
def program(millrace, tmp_path) -> Path:
    """The example of docs/spec/assembly.md as an image."""
    text = DOCUMENT.read_text().split("```\n")[1]
    (tmp_path / "example.s").write_text(text)
    result = run(millrace, "assemble", tmp_path / "example.s", "-o", tmp_path / "example.mrp")
    assert result.returncode == 0, result.stderr
    return tmp_path / "example.mrp"


def test_the_example_of_the_document_takes_the_cycles_that_it_states(millrace, program, tmp_path):
    result = run(millrace, "simulate", program, "--json", tmp_path / "out.json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["predicted_cycles"] == report["measured_cycles"] == 60


def test_dump_lists_what_runs_in_a_cycle(millrace, program):
    result = run(millrace, "dump", program, "--no-tables", "--cycles", "10..10")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("  #")]
    assert len(lines) == 1 and " alu.2 alu function=add.i32 " in lines[0]


def test_dump_counts_instructions_in_json(millrace, program, tmp_path):
    assert run(millrace, "dump", program, "--json", tmp_path / "dump.json").returncode == 0
    summary = json.loads((tmp_path / "dump.json").read_text())
    assert summary["instructions"] == 3 and summary["elements"] == 30
    assert summary["per_opcode"] == {"alu": 1, "read": 1, "write": 1}


def test_a_disassembled_program_assembles_to_the_same_file(millrace, program, tmp_path):
    text = run(millrace, "disassemble", program).stdout
    (tmp_path / "again.s").write_text(text)
    result = run(millrace, "assemble", tmp_path / "again.s", "-o", tmp_path / "again.mrp")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "again.mrp").read_bytes() == program.read_bytes()


def test_bad_input_has_a_message_and_an_exit_code_and_writes_nothing(millrace, program, tmp_path):
    (tmp_path / "bad.s").write_text("machine tsp-small\nstep grid\n@0 alu.0 nup\n")
    cut = tmp_path / "cut.mrp"
    cut.write_bytes(program.read_bytes()[:-64])
    damaged, damaged_data = tmp_path / "damaged.mrp", tmp_path / "damaged-data.mrp"
    damaged.write_bytes(program.read_bytes()[:80] + b"x" + program.read_bytes()[81:])
    damaged_data.write_bytes(program.read_bytes()[:-1] + b"x")
    cases = [
        (("assemble", tmp_path / "bad.s", "-o", tmp_path / "x.mrp"), 3, "bad.s:3:10: 'nup' is no instruction"),
        (("assemble", tmp_path / "none.s", "-o", tmp_path / "x.mrp"), 3, "cannot read"),
        (("assemble", tmp_path / "example.s", "-o", tmp_path / "no/x.mrp"), 5, "No such file or directory"),
        (("dump", cut), 3, "it was cut off or added to"),
        (("dump", damaged), 3, "its checksum does not fit its contents"),
        (("simulate", damaged, "--cycles-only"), 3, "its checksum does not fit its contents"),
        (("dump", damaged_data), 3, "the checksum of its data does not fit"),
        (("simulate", damaged_data), 3, "the checksum of its data does not fit"),
        (("simulate", tmp_path / "example.s"), 3, "is assembly, no program image"),
        (("dump", program, "--cycles", "9..1"), 2, "is no range of cycles"),
        (("dump", program, "--machine", "tsp-vl"), 3, "tsp-v1"),
    ]
    before = sorted(tmp_path.iterdir())
    for arguments, code, message in cases:
        result = run(millrace, *arguments)
        assert result.returncode == code, (arguments, result.stderr)
        assert message in result.stderr, (arguments, result.stderr)
    assert sorted(tmp_path.iterdir()) == before
    only_cycles = run(millrace, "simulate", damaged_data, "--cycles-only")
    assert only_cycles.returncode == 0, "cycles do not depend on data: " + only_cycles.stderr
