# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The lint of documents refuses what does not exist, and nothing else."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Prints help like millrace: one command, two flags.
PROGRAM = """#!/bin/sh
if [ "$1" = run ]; then
  printf 'Options:\\n  -h,--help   help\\n  -m,--machine TEXT=x   a machine, unlike --machines\\n'
else
  printf 'Subcommands:\\n  run         Runs.\\n'
fi
"""


def lint(tmp_path, text, page="docs/page.md"):
    """Runs the lint on `page` with `text`, in a tree that has docs/spec/isa.md and scripts/demo."""
    (tmp_path / "docs/spec").mkdir(parents=True)
    (tmp_path / "docs/spec/isa.md").write_text("# The ISA\n\n## Two words: `here`\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/demo").write_text("usage: demo --quick\n")
    (tmp_path / page).parent.mkdir(exist_ok=True)
    (tmp_path / page).write_text(text)
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return subprocess.run([sys.executable, ROOT / "scripts/lint/docs.py", tmp_path, program],
                          text=True, capture_output=True, check=False)


@pytest.mark.parametrize("text", [
    "[isa](spec/isa.md), [a heading](spec/isa.md#two-words-here), [out](https://example.org/x)",
    "`docs/spec/isa.md`, `spec/isa.md` from here, `docs/*/isa.md`, `docs/spec/NAME.md`, `a/b`",
    "`millrace run x.onnx -m y --machine=z | grep --color`",
    "```\nbuild/bin/millrace run x \\\n  --machine y\nscripts/demo --quick\n```",
    "a flag of a script: `--quick`",
])
def test_the_lint_accepts_what_exists(tmp_path, text):
    outcome = lint(tmp_path, text)
    assert (outcome.returncode, outcome.stdout) == (0, "")


@pytest.mark.parametrize("text, finding", [
    ("[isa](spec/iso.md)", "the link to 'spec/iso.md' leads nowhere"),
    ("[isa](spec/isa.md#three)", "'spec/isa.md#three' names no heading of isa.md"),
    ("\n`docs/spec/iso.md`", "docs/page.md:2: there is no 'docs/spec/iso.md'"),
    ("`spec/iso.md`", "there is no 'spec/iso.md'"),
    ("`docs/iso/NAME.md`", "there is no 'docs/iso/NAME.md'"),
    ("```\nscripts/demos\n```", "there is no 'scripts/demos'"),
    ("`millrace walk x.onnx`", "millrace has no command 'walk'"),
    ("`millrace run x --machines y`", "`millrace run` has no flag '--machines'"),
    ("```\nmillrace run x \\\n  -q\n```", "`millrace run` has no flag '-q'"),
    ("   ...\n   $ scripts/demo\n   ...", "docs/page.md:1: '...' stands alone in the text"),
    ("```\nscripts/demo\n", "docs/page.md:1: this fence of code is never closed"),
    ("`--quack`", "no command of millrace and no script has '--quack'"),
])
def test_the_lint_refuses_what_does_not_exist(tmp_path, text, finding):
    outcome = lint(tmp_path, text)
    assert outcome.returncode == 1
    assert finding in outcome.stdout


@pytest.mark.parametrize("text, finding", [
    ("// As docs/spec/isa.md says, and isa.md, 2; made by scripts/NAME.py", ""),
    ("int x; // (iso.md 2.4): never", "docs/part.h:1: there is no page 'iso.md'"),
    ("#pragma once\n/// see docs/part.cpp", "docs/part.h:2: there is no 'docs/part.cpp'"),
    ("const char *name = \"iso.md\";", ""),
])
def test_comments_of_source_name_what_exists(tmp_path, text, finding):
    outcome = lint(tmp_path, text, "docs/part.h")
    assert outcome.returncode == (1 if finding else 0), outcome.stdout
    assert finding in outcome.stdout


@pytest.mark.parametrize("text, finding", [
    ("# How\n\n2 steps, a minute.\n\n1. One\n2. Two\n", ""),
    ("# How\n\n1. One\n", "says first how many steps"),
    ("# How\n\n2 steps, a minute.\n\n1. One\n", "2 steps are announced, and those numbered are 1"),
])
def test_a_howto_has_as_many_steps_as_it_says(tmp_path, text, finding):
    outcome = lint(tmp_path, text, "docs/howto/do.md")
    assert outcome.returncode == (1 if finding else 0)
    assert finding in outcome.stdout
