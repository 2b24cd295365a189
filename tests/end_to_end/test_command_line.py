# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command line behaves as people expect of tools: help, streams, completion, quiet and verbose."""
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT / "models/fixtures/mnist.onnx"
COMMANDS = ["run", "batch", "compile", "check", "opt", "kernels", "simulate", "dump", "assemble", "disassemble", "machines", "describe",
            "help", "completion"]


def run(millrace, *arguments, **options):
    return subprocess.run([str(millrace), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=120, **options)


def options_of(millrace, command):
    """Every long option that the help of the command lists."""
    lines = re.findall(r"^  (-\S+)", run(millrace, command, "--help").stdout, re.MULTILINE)
    return {name for line in lines for name in re.findall(r"--[a-z][a-z-]+", line)}


def test_the_version_names_the_program_and_its_number(millrace):
    answer = run(millrace, "--version")
    assert answer.returncode == 0
    assert re.fullmatch(r"millrace \d+\.\d+\.\d+ \(.+\)\n", answer.stdout)


def test_the_help_lists_every_command_under_a_heading(millrace):
    text = run(millrace, "--help").stdout
    assert text == run(millrace, "help").stdout
    for heading in ("Models:", "Program images:", "Machines:", "Help:", "Examples:", "Exit codes:"):
        assert f"\n{heading}\n" in text, heading
    for command in COMMANDS:
        assert re.search(rf"\n  {command} +\w", text), command


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(millrace, command):
    text = run(millrace, command, "--help").stdout
    assert text == run(millrace, "help", command).stdout
    assert f"Usage: millrace {command}" in text
    assert "Example" in text or command == "machines"
    assert max(map(len, text.splitlines())) < 220


def test_examples_of_the_help_name_options_that_exist(millrace):
    for command in COMMANDS:
        text = run(millrace, command, "--help").stdout
        for example in re.findall(r"^(?:Example:|  )\s*millrace (\w+) ([^|\n]*)", text, re.MULTILINE):
            known = options_of(millrace, example[0])
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", example[1]):
                assert option in known, (command, example)


def test_a_report_on_the_standard_output_is_json_and_nothing_else(millrace):
    answer = run(millrace, "run", MNIST, "--machine", "tsp-small", "--json", "-")
    assert json.loads(answer.stdout)["machine"] == "tsp-small"
    assert "cycles measured" in answer.stderr
    for arguments in (("describe", "tsp-v1", "--json", "-"), ("check", MNIST, "--json", "-")):
        json.loads(run(millrace, *arguments).stdout)


def test_a_trace_on_the_standard_output_is_json(millrace):
    answer = run(millrace, "run", MNIST, "--machine", "tsp-small", "--cycles-only", "-q", "--trace", "-")
    assert answer.stderr == ""
    json.loads(answer.stdout)


def test_text_levels_go_through_pipes(millrace, tmp_path):
    """ONNX from the standard input to text on the standard output, and so on to an image."""
    machine = ["--machine", "tsp-small"]
    kernels = subprocess.run([millrace, "compile", "-", *machine, "--to", "spatial", "-o", "-"],
                             input=MNIST.read_bytes(), capture_output=True, check=True).stdout
    assert b"spatial.graph" in kernels
    assembly = subprocess.run([millrace, "compile", "-", "--from", "spatial", *machine, "--to", "sched", "-o", "-"],
                              input=kernels, capture_output=True, check=True).stdout
    image = subprocess.run([millrace, "assemble", "-", "-o", "-"], input=assembly, capture_output=True,
                           check=True).stdout
    (tmp_path / "piped.mrp").write_bytes(image)
    subprocess.run([millrace, "compile", MNIST, *machine, "-o", tmp_path / "direct.mrp"], check=True,
                   capture_output=True)
    cycles = [json.loads(run(millrace, "simulate", tmp_path / name, "--cycles-only", "-q", "--json", "-").stdout)
              ["measured_cycles"] for name in ("piped.mrp", "direct.mrp")]
    assert cycles[0] == cycles[1] > 0
    direct = subprocess.run([millrace, "compile", MNIST, *machine, "-o", "-"], capture_output=True, check=True)
    assert direct.stdout == (tmp_path / "direct.mrp").read_bytes() and b"cycles on tsp-small" in direct.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["direct.mrp", "piped.mrp"]


def test_a_full_standard_output_is_an_error(millrace):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([millrace, "describe", "tsp-v1", "--json", "-"], stdout=full, stderr=subprocess.PIPE,
                              text=True, check=False)
    assert done.returncode == 5
    assert "cannot write to the standard output: No space left on device" in done.stderr


def test_quiet_says_nothing_and_verbose_times_each_stage(millrace):
    base = ["run", MNIST, "--machine", "tsp-small", "--cycles-only"]
    quiet = run(millrace, *base, "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    verbose = run(millrace, *base, "--verbose")
    stages = re.findall(r"^millrace: (.+) took \d+\.\d+ s, \d+\.\d+ s of processor time$", verbose.stderr, re.MULTILINE)
    assert stages == ["importing", "forming kernels", "scheduling", "verifying", "simulating"]
    assert "cycles measured" in verbose.stdout
    assert run(millrace, *base).stderr == ""
    broken = run(millrace, "run", "none.onnx", "-q")
    assert broken.returncode == 3 and broken.stderr.startswith("millrace: error: none.onnx: cannot be read")


def test_columns_of_the_table_keep_apart(millrace, tmp_path):
    name = "an_output_whose_name_is_longer_than_the_column_that_names_stand_in"
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], [name])], "graph",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])],
                              [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "m.onnx")
    text = run(millrace, "run", tmp_path / "m.onnx", "--machine", "tsp-small", "--check", "--output-dir",
               tmp_path / "out").stdout
    rows = [line for line in text.splitlines() if name in line]
    assert len(rows) == 2
    for row in rows:
        assert re.match(rf"  (check|output) {name}  +\S", row), row


# ---- completion ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="complete")
def completer(millrace, tmp_path_factory):
    """complete("run", "--pre"): what bash offers for the last word."""
    folder = tmp_path_factory.mktemp("completion")
    script = folder / "millrace.bash"
    script.write_text(run(millrace, "completion", "bash").stdout)
    subprocess.run(["bash", "-n", script], check=True)

    def offered(*words):
        line = " ".join(f"'{word}'" for word in ("millrace", *words))
        done = subprocess.run(
            ["bash", "-c", f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _millrace; "
                           'printf "%s\\n" "${COMPREPLY[@]}"'],
            capture_output=True, text=True, check=True, cwd=ROOT, env={"PATH": f"{millrace.parent}:/usr/bin:/bin"})
        return set(done.stdout.split())
    return offered


def test_bash_completes_commands_options_and_values(complete):
    assert complete("si") == {"simulate"}
    assert {"run", "completion", "--version"} <= complete("")
    assert complete("run", "--prec") == {"--precision"}
    assert complete("run", "--precision", "") == {"auto", "fp16", "bf16", "int8"}
    assert {"tsp-v1", "lp30"} <= complete("describe", "")
    assert complete("run", "--machine", "tsp-s") == {"tsp-small"}
    assert complete("completion", "") == {"bash", "zsh", "fish"}
    assert complete("help", "dis") == {"disassemble"}
    assert complete("run", "LICEN") == {"LICENSE"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_option_of_every_command(millrace, shell):
    script = run(millrace, "completion", shell).stdout
    for command in COMMANDS:
        for option in options_of(millrace, command):
            name = option if shell != "fish" else f"-l {option[2:]}"
            of = {"bash": rf"  {command}\)\n(.*?;;\n    esac ;;)", "zsh": rf"  {command}\)\n(.*?) ;;\n",
                  "fish": rf"((?:complete [^\n]*seen_subcommand_from {command}'[^\n]*\n)+)"}[shell]
            part = re.search(of, script, re.DOTALL)
            assert part and name in part.group(1), (command, option)


def test_the_manual_page_explains_every_command_and_option(millrace):
    page = run(millrace, "help", "--man").stdout.replace("\\-", "-")
    assert page.startswith(".TH MILLRACE 1")
    for command in COMMANDS:
        assert f'.SS "millrace {command}"' in page
        for option in options_of(millrace, command):
            assert option in page
