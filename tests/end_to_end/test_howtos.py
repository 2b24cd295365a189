# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The howtos print what they say: their commands are run as they stand, in a copy of the tree's layout.

A block of code with `$ ` lines is commands and what they print; `...` leaves lines out. Seconds, MiB of this process and
sizes on disk may differ. A block whose first line is `# NAME`, or that follows "into `NAME`", is that file.
"""
import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
MAY_DIFFER = re.compile(r"\d+(\.\d+)? (?=s\b|MiB of this)|^ *\d+ (?=\w+\.(json|vcd)$)")


def blocks_of(page: str):
    """(name of the file that a block is, or None; its text)."""
    for match in BLOCK.finditer(page):
        text = textwrap.dedent(match[2])
        named = re.match(r"# (\S+)\n", text) or re.search(r"into `([\w.]+)`[^`]*(`[^`]*`[^`]*)*\Z",
                                                           paragraph_before(page, match.start()))
        yield (named[1] if named and "$ " not in text else None), text


def paragraph_before(page: str, at: int) -> str:
    return page[:at].rstrip().split("\n\n")[-1]


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Commands, continued lines joined, each with the lines that follow it."""
    commands, pending = [], None
    for line in text.splitlines():
        if pending is not None:
            pending += "\n" + line
        elif line.startswith("$ "):
            pending = line[2:]
        elif commands:
            commands[-1][1].append(line)
        if pending is not None and is_whole(pending):
            commands.append((pending, []))
            pending = None
    return commands


def is_whole(command: str) -> bool:
    try:
        shlex.split(command, posix=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def test_a_command_goes_on_behind_a_backslash_and_within_quotes():
    text = "$ a \\\n  b\nsays\n$ c '\n  d'\n...\n"
    assert commands_of(text) == [("a \\\n  b", ["says"]), ("c '\n  d'", ["..."])]


@pytest.mark.parametrize("page", ["run-your-model", "read-a-trace", "run-one-stage", "explain-a-layout", "write-a-machine",
                                  "write-a-program", "solve-a-schedule-elsewhere", "find-what-would-help"])
def test_every_command_of_the_page_prints_what_the_page_says(millrace, tmp_path, page):
    for name in ("arch", "docs", "models", "scripts"):
        os.symlink(ROOT / name, tmp_path / name)
    os.symlink(millrace.resolve().parents[1], tmp_path / "build")
    expected, script = [], ""
    for file, text in blocks_of((ROOT / f"docs/howto/{page}.md").read_text()):
        if file:
            (tmp_path / file).write_text(text)
        for command, lines in commands_of(text):
            script += f"echo '@@ {len(expected)}'\n{command}\n"
            expected.append((command, lines))
    assert expected, "the page has no command"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
    printed = re.split(r"^@@ \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    for (command, lines), output in zip(expected, printed, strict=True):
        rest = iter(MAY_DIFFER.sub("# ", line) for line in output.splitlines())
        for line in lines:
            if line.strip() not in ("", "..."):
                wanted = re.escape(MAY_DIFFER.sub("# ", line)).replace(r"\.\.\.", ".*")
                assert any(re.fullmatch(wanted, got) for got in rest), f"{command}\nprints no\n{line}\nbut\n{output}"
