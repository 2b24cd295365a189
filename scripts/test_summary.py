#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts single tests over GoogleTest, lit and pytest.

usage: test_summary.py RESULTS

RESULTS holds ctest.xml, one entry per test program, and NAME.xml from each program that reports
its single tests. A program without a report counts as one test. A program that failed although its
report names no failure (it crashed, or ran out of time) counts as one failure more, and so does one
that ctest could not start.
Names the skipped and the failed, then prints `N passed, N failed` last; exit code 1 if any failed
or none ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


def outcome(case):
    """'failed', 'skipped' or 'passed' of one <testcase> of any of the four reporters."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def cases(report):
    """(name, outcome) of every <testcase>; none if the report is missing or torn."""
    try:
        return [(f"{case.get('classname')}.{case.get('name')}", outcome(case))
                for case in xml.parse(report).iter("testcase")]
    except (FileNotFoundError, xml.ParseError):
        return []


def summarize(results):
    """(name, outcome) of every single test."""
    found = []
    for program in xml.parse(results / "ctest.xml").iter("testcase"):
        name = program.get("name")
        result = "passed" if program.get("status") == "run" else "failed"
        single = cases(results / f"{name}.xml")
        found += single
        failureIsNamed = any(each == "failed" for _, each in single)
        if not single or (result == "failed" and not failureIsNamed):
            found.append((name, result))
    return found


def main():
    found = summarize(pathlib.Path(sys.argv[1]))
    count = {result: sum(each == result for _, each in found)
             for result in ("passed", "failed", "skipped")}
    for result in ("skipped", "failed"):
        for name, each in found:
            if each == result:
                print(f"{result}: {name}")
    print(f"{count['passed']} passed, {count['failed']} failed")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
