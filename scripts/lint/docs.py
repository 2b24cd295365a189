#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that documents name only what exists: links, paths of the tree, commands and flags.

usage: docs.py SOURCE_ROOT MILLRACE    (the built program, whose --help is the truth of its flags)
Prints one line per finding; exit code 1 if there is any.

- A relative link leads to a file or folder, and its #anchor to a heading there.
- A word of code that begins with a top-level folder (`arch/spec`), or with a folder beside the
  document (`base/Timing.h` in simulator/README.md), is a path that exists. `*` matches; a part in
  capitals (`tests/NAME.cpp`) stands for a name of the reader's choice and is not looked up.
- A howto (docs/howto/NAME.md) says at its top how many steps it takes, and has as many.
- `millrace COMMAND --flag` names a command and flags that its --help has. A flag alone in code is
  one of millrace's, or of a script in scripts/ or models/recipes/.
- Every fence of code that opens is closed, and no line of three dots stands where a fence should.
- Comments of source name pages (`docs/spec/image.md`, `machine.md`) and files of the tree that exist.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys

TOP_FOLDERS = {"arch", "compiler", "simulator", "models", "scripts", "tests", "docs", ".ci"}
# Its commands are wrong on purpose, and tests/end_to_end/test_bad_input_table.py runs every one.
WRONG_ON_PURPOSE = {"docs/bad-input.md"}
FENCE = re.compile(r"^\s*```")
INLINE_CODE = re.compile(r"(`+)(.+?)\1")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+/?")
FLAG = re.compile(r"^-{1,2}[A-Za-z][\w-]*")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(?!README|LICENSE|NOTICE|BUILD)[A-Z]{2,}(?![a-z])")
COMMAND = re.compile(r"(?:^|[\s/(])millrace +([a-z][a-z-]*)(.*)")


class Program:
    """The commands of millrace and the flags of each, as --help states them."""

    def __init__(self, path):
        self.path = path
        self.commands = set(re.findall(r"^  ([a-z]+) {2,}", self.help(), re.MULTILINE))

    def help(self, *command):
        return subprocess.run([self.path, *command, "--help"], text=True, capture_output=True,
                              check=True).stdout

    @functools.lru_cache(maxsize=None)
    def flags(self, command):
        columns = re.findall(r"^  (-\S+)", self.help(command), re.MULTILINE)
        # A flag that may have a value says which one it has without: --check{kernels}.
        return {name.split("{")[0] for column in columns for name in column.split(",")}

    def allFlags(self):
        return set().union(*(self.flags(command) for command in self.commands), {"--help"})


def codeOf(text):
    """(line number, code) of every line of fenced code, continued lines joined, and of inline
    code; and the text without either."""
    code, prose, fenced, held = [], [], False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced, held = not fenced, ""
        elif fenced:
            held += line
            if held.endswith("\\"):
                held = held[:-1] + " "
            else:
                code.append((number, held))
                held = ""
        else:
            code += [(number, match[2]) for match in INLINE_CODE.finditer(line)]
            prose.append((number, INLINE_CODE.sub("", line)))
    return code, prose


def anchorsOf(text):
    """Anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
            for heading in headings}


def linkFindings(document, prose):
    for number, line in prose:
        for target in LINK.findall(line):
            if "://" in target or target.startswith("mailto:"):
                continue
            path, _, anchor = target.partition("#")
            found = document.parent / path if path else document
            if not found.exists():
                yield number, f"the link to '{target}' leads nowhere"
            elif anchor and anchor not in anchorsOf(found.read_text()):
                yield number, f"'{target}' names no heading of {found.name}"


def exists(base, path):
    parts = [part for part in path.split("/") if part]
    if any(PLACEHOLDER.search(part) for part in parts):
        parts = parts[:next(i for i, part in enumerate(parts) if PLACEHOLDER.search(part))]
    return next(base.glob("/".join(parts)), None) is not None if parts else True


def pathFindings(root, document, code):
    for number, text in code:
        for match in PATH.finditer(text):
            if match.start() and text[match.start() - 1] in "/~$<}:":
                continue  # the end of a longer path, or of an address
            path = match[0].rstrip(".")
            first = path.split("/")[0]
            if first == "build":
                continue  # made, not kept
            if first in TOP_FOLDERS:
                base = root
            elif (document.parent / first).is_dir() and first not in ("..", "."):
                base = document.parent
            else:
                continue
            if not (exists(base, path) or exists(document.parent, path)):
                yield number, f"there is no '{path}'"


def commandFindings(program, code):
    known = program.allFlags()
    for number, text in code:
        lone = text.split()[0].split("=")[0] if text.strip() else ""
        if lone.startswith("--") and FLAG.match(lone) and lone not in known | scriptFlags():
            yield number, f"no command of millrace and no script has '{lone}'"
        for match in COMMAND.finditer(text):
            command, rest = match[1], re.split(r"[|;#]| && |>", match[2])[0]
            if command not in program.commands:
                if text.startswith(("millrace", "build/bin/millrace")):
                    yield number, f"millrace has no command '{command}'"
                continue
            for word in rest.split():
                flag = FLAG.match(word)
                if flag and flag[0] not in program.flags(command):
                    yield number, f"`millrace {command}` has no flag '{flag[0]}'"


def stepFindings(text):
    stated = re.search(r"^(\d+) steps?, ", text, re.MULTILINE)
    steps = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    if not stated:
        yield 1, "a howto says first how many steps it takes, such as '4 steps, a minute'"
    elif steps != [str(n + 1) for n in range(int(stated[1]))]:
        yield 1, f"{stated[1]} steps are announced, and those numbered are {', '.join(steps)}"


def fenceFindings(text):
    opened = 0
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            opened = 0 if opened else number
        elif not opened and line.strip() == "...":
            yield number, "'...' stands alone in the text; a fence of code is ```"
    if opened:
        yield opened, "this fence of code is never closed"


SCRIPT_TEXTS = []


@functools.lru_cache(maxsize=1)
def scriptFlags():
    return {flag for text in SCRIPT_TEXTS for flag in re.findall(r"--[a-z][\w-]*", text)}


SOURCES = (".h", ".cpp", ".def", ".inc", ".td", ".cmake", ".py")
COMMENTS = {suffix: re.compile(r"^\s*#(.*)" if suffix in (".cmake", ".py") else r"//(.*)")
            for suffix in SOURCES}
PAGE = re.compile(r"(?<![\w/.-])([\w/-]+\.md)\b")
FILE = re.compile(r"(?<![\w/.-])((?:arch|compiler|simulator|models|scripts|tests|docs)(?:/[\w.-]+)+"
                  r"\.(?:h|cpp|def|inc|td|cmake|py|json|yaml|env))\b")


def sourceFindings(root, pages, path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        comment = COMMENTS[path.suffix].search(line)
        if not comment:
            continue
        for match in PAGE.finditer(comment[1]):
            if not (root / match[1]).exists() and pathlib.PurePath(match[1]).name not in pages:
                yield number, f"there is no page '{match[1]}'"
        for match in FILE.finditer(comment[1]):
            if not (root / match[1]).exists() and not PLACEHOLDER.search(match[1]):
                yield number, f"there is no '{match[1]}'"


def sourcesOf(root):
    for folder in sorted(TOP_FOLDERS):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                yield path


def documentsOf(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders
                      if not name.startswith((".", "build", "_")) and name != "node_modules"]
        for name in sorted(names):
            if name.endswith(".md"):
                yield pathlib.Path(folder) / name


def main():
    root, program = pathlib.Path(sys.argv[1]).resolve(), Program(sys.argv[2])
    for folder in ("scripts", "models/recipes"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and path.suffix in ("", ".py"):
                SCRIPT_TEXTS.append(path.read_text())
    wrong = 0
    for document in documentsOf(root):
        name = document.relative_to(root).as_posix()
        code, prose = codeOf(document.read_text())
        found = [*linkFindings(document, prose), *fenceFindings(document.read_text())]
        if document.parent == root / "docs/howto":
            found += stepFindings(document.read_text())
        if name not in WRONG_ON_PURPOSE:
            found += pathFindings(root, document, code)
            found += commandFindings(program, code)
        for number, text in sorted(found):
            print(f"{name}:{number}: {text}")
        wrong += len(found)
    pages = {document.name for document in documentsOf(root)}
    for source in sourcesOf(root):
        for number, text in sourceFindings(root, pages, source):
            print(f"{source.relative_to(root).as_posix()}:{number}: {text}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
