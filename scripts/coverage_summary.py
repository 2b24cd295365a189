#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds up what GCC's coverage counters hold, over all programs and all instances of a template.

usage: coverage_summary.py BUILD [FOLDER...]

BUILD is a build folder of MILLRACE_COVERAGE=ON, after tests ran there. Prints a markdown table of
lines and branches per folder of arch, compiler and simulator, then for each FOLDER (or file name's
beginning) every file that is not wholly reached: lines, and functions of which no instance ran.

A branch is one way out of a condition or a switch. The two ways out of a call, on and by an
exception, are none.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

COLUMNS = ("arch", "compiler", "simulator")
DEFAULT = ("compiler/Schedule", "simulator")


class File:
    """Counts of one source file, summed over every object that it was compiled into."""

    def __init__(self):
        self.lines = collections.Counter()      # line -> times run
        self.branches = collections.Counter()   # (line, function's start, index) -> times taken
        self.functions = collections.Counter()  # function's start (line, column) -> times entered
        self.names = {}                         # the same -> the shortest name among the instances

    def add(self, counted):
        start = {}
        for function in counted["functions"]:
            at = (function["start_line"], function["start_column"])
            start[function["name"]] = at
            self.functions[at] += function["execution_count"]
            name = function["demangled_name"].removeprefix("void ").replace("(anonymous namespace)::", "")
            name = name.split("(")[0] or name
            self.names[at] = min(self.names.get(at, name), name, key=len)
        for line in counted["lines"]:
            number = line["line_number"]
            self.lines[number] += line["count"]
            for index, count in enumerate(decisions(line["branches"])):
                self.branches[number, start.get(line.get("function_name")), index] += count


def decisions(branches):
    """Times each way was taken, without the two ways out of each call."""
    kept = []
    for branch in branches:
        if not branch["throw"]:
            kept.append(branch)
        elif kept and kept[-1]["fallthrough"]:
            kept.pop()
    return [branch["count"] for branch in kept]


def countsOf(notes, root):
    """What gcov says about one object: pairs of a path in the tree and its counts."""
    command = ["gcov-12", "--json-format", "--branch-probabilities", "--demangled-names", "--stdout",
               "--relative-only", "--source-prefix", str(root), str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = []
    for text in done.stdout.splitlines():
        if not text.startswith("{"):
            continue
        said = json.loads(text)
        for file in said["files"]:
            # The name is relative to where the compiler ran if it was given so, else to the root.
            # What TableGen writes lies under neither.
            for base in (said["current_working_directory"], root):
                path = os.path.normpath(os.path.join(base, file["file"]))
                name = os.path.relpath(path, root)
                if name.split("/")[0] in COLUMNS and os.path.isfile(path):
                    found.append((name, file))
                    break
    return found


def read(build):
    """{path in the tree: File}."""
    root = pathlib.Path(__file__).resolve().parents[1]
    notes = [path for path in build.rglob("*.gcno") if not path.name.startswith("cmake_pch")]
    files = collections.defaultdict(File)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for counted in pool.map(lambda path: countsOf(path.resolve(), root), notes):
            for name, file in counted:
                files[name].add(file)
    return files


def share(counts):
    reached = sum(count > 0 for count in counts)
    return f"{100 * reached / len(counts):.1f} % of {len(counts):,}" if counts else "none"


def row(name, files):
    lines = [count for file in files for count in file.lines.values()]
    branches = [count for file in files for count in file.branches.values()]
    return f"| {name} | {share(lines)} | {share(branches)} |"


def ranges(numbers):
    """'3, 7-9' of 3, 7, 8, 9."""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def main():
    build = pathlib.Path(sys.argv[1])
    files = read(build)
    if not files:
        sys.exit(f"coverage_summary: '{build}' holds no counters of this tree; run scripts/coverage")
    folders = collections.defaultdict(list)
    for path in files:
        folders[os.path.dirname(path)].append(files[path])
    print("| folder | lines | branches |\n|---|---|---|")
    for folder in sorted(folders):
        print(row(f"`{folder}`", folders[folder]))
    for column in COLUMNS:
        print(row(f"all of `{column}`", [files[path] for path in files if path.startswith(column)]))
    print(row("all", list(files.values())))
    for path in sorted(files):
        file = files[path]
        missed = [line for line, count in file.lines.items() if count == 0]
        if missed and path.startswith(tuple(sys.argv[2:]) or DEFAULT):
            print(f"\n{path}: {len(missed)} of {len(file.lines)} lines not run: {ranges(missed)}")
            for at in sorted(file.functions):
                if file.functions[at] == 0:
                    print(f"  never runs: {file.names[at]}, line {at[0]}")


if __name__ == "__main__":
    main()
