#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that every #include stays within the dependences that CMake declares.

CMake already refuses a dependence upward, sideways or across the columns; this lint closes the
other way around it: a file that includes a header of a library which its own library does not
depend on (directly or through others).

usage: includes.py SOURCE_ROOT LEVELS_JSON    (levels.json is written by millrace_check_levels)
Prints one line per finding; exit code 1 if there is any.
"""

import json
import pathlib
import re
import sys

COLUMNS = ("arch", "compiler", "simulator")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Libraries:
    """The declared libraries, by folder."""

    def __init__(self, entries):
        self.depends = {entry["name"]: entry["depends"] for entry in entries}
        self.byFolder = {}
        for entry in entries:
            self.byFolder.setdefault(entry["folder"], set()).add(entry["name"])

    def owners(self, path):
        """Libraries of the deepest folder above `path` (relative to the root) that declares any."""
        for folder in pathlib.PurePosixPath(path).parents:
            if str(folder) in self.byFolder:
                return self.byFolder[str(folder)]
        return set()

    def reachable(self, names):
        """`names` and everything that they depend on."""
        found, pending = set(), list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.depends[name]
        return found


def findings(root, libraries):
    files = [path for column in COLUMNS for path in sorted((root / column).rglob("*"))]
    for path in files:
        if path.suffix not in (".h", ".cpp", ".def", ".inc"):
            continue
        name = path.relative_to(root).as_posix()
        owners = libraries.owners(name)
        if not owners:
            continue  # built by nothing yet
        allowed = libraries.reachable(owners)
        for included in INCLUDE.findall(path.read_text()):
            if included.split("/")[0] not in COLUMNS:
                if "/" not in included or included.startswith("."):
                    yield (f"{name}: include \"{included}\" by its path from the root, "
                           "such as \"arch/operations/AluOp.h\"")
                continue
            targets = libraries.owners(included)
            if not targets:
                yield (f"{name}: includes {included}, for whose folder no CMakeLists.txt "
                       "declares a library")
            elif not targets & allowed:
                yield (f"{name}: includes {included} of {'/'.join(sorted(targets))}, on which "
                       f"{'/'.join(sorted(owners))} does not depend; add it to DEPENDS if its "
                       "level is lower, otherwise move what both need to a lower level")


def main():
    root, levels = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = list(findings(root, Libraries(json.loads(levels.read_text()))))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
