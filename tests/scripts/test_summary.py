# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The summary of scripts/test counts single tests, and never loses a failure."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED = '<testcase classname="A" name="p" status="run"/>'
FAILED = '<testcase classname="A" name="f" status="run"><failure/></testcase>'
SKIPPED = '<testcase classname="A" name="s" status="run"><skipped/></testcase>'


def summary(tmp_path, programs, reports):
    """Outcome of test_summary.py for ctest entries {name: status} and {name: testcases}."""
    entries = "".join(f'<testcase name="{name}" status="{status}"/>'
                      for name, status in programs.items())
    (tmp_path / "ctest.xml").write_text(f"<testsuite>{entries}</testsuite>")
    for name, testcases in reports.items():
        (tmp_path / f"{name}.xml").write_text(
            f"<testsuites><testsuite>{testcases}</testsuite></testsuites>")
    outcome = subprocess.run([sys.executable, ROOT / "scripts/test_summary.py", tmp_path],
                             text=True, capture_output=True, check=False)
    return outcome.returncode, outcome.stdout.splitlines()


def test_single_tests_are_counted_and_a_program_without_report_is_one(tmp_path):
    code, lines = summary(tmp_path, {"unit": "run", "lint": "run"}, {"unit": PASSED + PASSED})
    assert (code, lines) == (0, ["3 passed, 0 failed"])


def test_a_failure_is_named_and_sets_the_exit_code(tmp_path):
    code, lines = summary(tmp_path, {"unit": "fail"}, {"unit": PASSED + FAILED})
    assert (code, lines) == (1, ["failed: A.f", "1 passed, 1 failed"])


def test_a_crash_after_passing_tests_is_a_failure(tmp_path):
    code, lines = summary(tmp_path, {"unit": "fail"}, {"unit": PASSED})
    assert (code, lines) == (1, ["failed: unit", "1 passed, 1 failed"])


def test_a_torn_report_of_a_failed_program_is_a_failure(tmp_path):
    (tmp_path / "unit.xml").write_text("<testsuites><testc")
    assert summary(tmp_path, {"unit": "fail"}, {})[1][-1] == "0 passed, 1 failed"


def test_a_skipped_test_is_named_and_is_not_counted_as_passed(tmp_path):
    assert summary(tmp_path, {"unit": "run"}, {"unit": PASSED + SKIPPED})[1] == [
        "skipped: A.s", "1 passed, 0 failed"]


def test_no_test_at_all_is_a_failure(tmp_path):
    assert summary(tmp_path, {}, {})[0] == 1
