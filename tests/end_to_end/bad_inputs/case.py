# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kind of bad input: a function that makes the files in an empty folder and names the command."""
from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "models/fixtures"
GROUPS = {
    "command": "The command line",
    "model": "ONNX models",
    "machine": "Machine files and `--set`",
    "image": "Program images",
    "assembly": "Assembly",
    "tensor": "Inputs (`.npy`)",
    "output": "Outputs",
}


@dataclass
class Answer:
    code: int
    message: str  # the standard error, without its last line end


@dataclass
class Case:
    group: str
    kind: str  # in words; unique
    prepare: Callable[[Workplace], list]

    def answer(self, millrace: Path, folder: Path) -> tuple[Answer, list[Path]]:
        """What `millrace` says in the empty `folder`, and the files that it left there."""
        place = Workplace(millrace, folder)
        arguments = [str(word) for word in self.prepare(place)]
        before = set(folder.rglob("*"))
        done = place.run(*arguments)
        message = done.stderr.strip().replace(str(ROOT), "TREE")
        return Answer(done.returncode, message), sorted(set(folder.rglob("*")) - before)


CASES: list[Case] = []


def case(group: str, kind: str):
    """Registers a function of a Workplace that returns the arguments of `millrace`."""
    assert group in GROUPS and all(kind != other.kind for other in CASES), kind

    def register(prepare):
        CASES.append(Case(group, kind, prepare))
        return prepare
    return register


class Workplace:
    """The folder of a case. Commands run in it, so that messages hold no folder of a test run."""

    def __init__(self, millrace: Path, folder: Path):
        self.millrace, self.folder = millrace, folder

    def run(self, *arguments, **options) -> subprocess.CompletedProcess:
        return subprocess.run([self.millrace, *map(str, arguments)], cwd=self.folder, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
                              **options)

    def write(self, name: str, contents: str | bytes) -> str:
        """A file in the folder; its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return name

    def fixture(self, name: str) -> str:
        """A copy of a fixture of models/fixtures."""
        return self.write(name, (FIXTURES / name).read_bytes())

    def make(self, *arguments) -> None:
        """Runs a command that must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
