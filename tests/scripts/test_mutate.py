# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/mutate may do to a line, which lines it draws, and which tests it runs for a file."""
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import mutations  # noqa: E402

loader = importlib.machinery.SourceFileLoader("mutate", str(ROOT / "scripts/mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)


def news(line, before=";"):
    return {new.strip() for _, new in mutations.mutationsOf(line, before)}


@pytest.mark.parametrize("line, wanted", [
    ("  if (a < b)", {"if (a <= b)", "if (!(a < b))", "if ((a < b) && false)", "if ((a < b) || true)"}),
    ("  return x + 1;", {"return x - 1;", "return x + 2;", "return x + 0;", "return {};"}),
    ("  rows.clear();", {"{}"}),
    ("  state->at = now;", {"{}"}),
    ("  f(row, slice);", {"f(slice, row);", "{}"}),
    ("  ok &= !isFree;", {"ok |= !isFree;", "ok &= isFree;", "{}"}),
    ("  continue;", {"break;"}),
    ("  auto x = std::min(a, b);", {"auto x = std::max(a, b);", "auto x = std::min(b, a);"}),
])
def test_a_line_has_these_mutants(line, wanted):
    assert news(line) == wanted


@pytest.mark.parametrize("line", ['  return "a < b";', "  // a < b", "#include <vector>", "  std::vector<int> x;",
                                  "  Type *pointer;", '  text += "a" + name;', "  using namespace a;", "  static_assert(1 < 2);"])
def test_no_text_declaration_or_bracket_of_a_template_is_changed(line):
    assert not {new for new in news(line) if new not in ("{}", "return {};")}


def test_a_statement_is_dropped_only_where_it_begins():
    assert "{}" not in news("      b.clear();", "  a =")
    assert "{}" in news("      b.clear();", "  if (a)")


def test_a_seed_draws_the_same_lines_each_time_and_each_line_once():
    files = {"a.cpp": "x = 1;\ny = a < b;\nz = 3;", "b.cpp": "f(a, b);"}
    first = list(mutations.drawn(files, 4))
    assert first == list(mutations.drawn(files, 4)) != list(mutations.drawn(files, 5))
    assert sorted((m["file"], m["line"]) for m in first) == [("a.cpp", 1), ("a.cpp", 2), ("a.cpp", 3), ("b.cpp", 1)]
    for m in first:
        text = mutations.applied(files[m["file"]], m)
        assert text.split("\n")[m["line"] - 1] == m["new"] != m["old"]


def test_lines_of_a_file_may_come_together():
    files = {f"{name}.cpp": "\n".join(f"x = {k};" for k in range(9)) for name in "abc"}
    mutants = list(mutations.drawn(files, 4, perFile=3))
    assert len({(m["file"], m["line"]) for m in mutants}) == len(mutants) == 27
    for k in range(0, 27, 3):
        assert len({m["file"] for m in mutants[k:k + 3]}) == 1


@pytest.mark.parametrize("text, line, new, wanted", [
    ("{\n  a.b = c;", 2, "  {}", "{ if (millraceMutant == 1) { {} } else { a.b = c; } }"),
    ("{\n  if (a < b) {", 2, "  if (a <= b) {", "  if ((millraceMutant == 1 ? bool(a <= b) : bool(a < b))) {"),
    ("{\n  int x = a + 1;", 2, "  int x = a - 1;", "  int x = millraceMutant == 1 ? (a - 1) : (a + 1);"),
    ("{\n  return a;  // why", 2, "  return {};  // why", "{ if (millraceMutant == 1) { return {}; } else { return a; } }"),
    ("{\n  for (int i = 0; i < n; ++i)", 2, "  for (int i = 0; i <= n; ++i)",
     "  for (int i = 0;(millraceMutant == 1 ? bool( i <= n) : bool( i < n)); ++i)"),
])
def test_one_text_holds_a_line_and_its_mutant(text, line, new, wanted):
    old = text.split("\n")[line - 1]
    result, numbers = mutations.combined(text, [{"line": line, "old": old, "new": new}])
    assert numbers == [1]
    assert result.split("\n")[line - 1] == wanted


@pytest.mark.parametrize("text, line, new", [("  x = a +\n  b + 1;", 2, "  b + 2;"), ("{\n  for (int i = 0; i < n; ++i)", 2,
                                                                               "  for (int i = 1; i < n; ++i)")])
def test_a_part_of_a_statement_is_left_to_a_compilation_of_its_own(text, line, new):
    assert mutations.combined(text, [{"line": line, "old": text.split("\n")[line - 1], "new": new}])[1] == []


def test_a_mutant_that_does_not_fit_the_text_is_an_error():
    with pytest.raises(ValueError, match="stands there 2 times"):
        mutations.applied("a a", {"file": "f", "old": "a", "new": "b"})
    with pytest.raises(ValueError, match="f:2 is not"):
        mutations.applied("a\nb", {"file": "f", "line": 2, "old": "a", "new": "c"})


def test_every_source_folder_has_test_programs_of_its_own_or_above():
    listed = subprocess.run(["git", "ls-files", "arch", "compiler", "simulator"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.splitlines()
    without = {str(Path(name).parent) for name in listed if Path(name).suffix == ".cpp" and not mutate.programsOf(name)}
    assert without <= {"compiler/Tools"}  # the driver, which the tests of end_to_end run


def test_tests_of_a_folder_come_before_those_of_the_whole():
    assert mutate.programsOf("arch/program/Image.h") == ["HostDataTest", "ImageTest"]
    programs = mutate.programsOf("simulator/base/Timing.cpp")
    assert programs[0] == "SimulatorBaseTest" and {"SimulatorTest", "ProgramsTest"} <= set(programs)


def test_given_mutants_are_taken_by_folder_and_id(tmp_path):
    file = "arch/program/Words.cpp"
    path = tmp_path / "mutants.json"
    path.write_text(json.dumps([{"id": "X1", "file": file, "old": "a", "new": "b", "verdict": "survived"},
                                {"id": "X2", "file": "compiler/Schedule/Piece.cpp", "old": "a", "new": "b"}]))
    assert [m["id"] for m in mutate.given(path, [], None)] == ["X1", "X2"]
    assert list(mutate.given(path, ["arch"], None)) == [{"id": "X1", "file": file, "old": "a", "new": "b"}]
    assert mutations.located("u\n  v = w;\n", {"old": "w", "new": "x"}) == {"line": 2, "old": "  v = w;", "new": "  v = x;"}
    assert [m["id"] for m in mutate.given(path, [], {"X2"})] == ["X2"]
