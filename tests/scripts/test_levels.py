# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folder levels: CMake and the lint of includes refuse what docs/architecture.md forbids."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def configure(tmp_path, libraries):
    """Configures a tree of `libraries` (folder, name, level, depends); returns CMake's outcome."""
    top = f'cmake_minimum_required(VERSION 3.25)\nproject(levels LANGUAGES NONE)\n' \
          f'include("{ROOT}/scripts/cmake/MillraceLevels.cmake")\n'
    for folder, name, level, depends in libraries:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "CMakeLists.txt").write_text(
            f"add_library({name} INTERFACE)\n"
            f"millrace_declare_level({name} {level} \"\" {' '.join(depends)})\n")
        top += f"add_subdirectory({folder})\n"
    (tmp_path / "CMakeLists.txt").write_text(top + "millrace_check_levels()\n")
    return subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build"], text=True,
                          capture_output=True, check=False)


LOWER = ("compiler/Forms", "Forms", "3", [])


def test_a_dependence_on_a_lower_level_configures(tmp_path):
    upper = ("compiler/CostModel", "CostModel", "3.1", ["Forms"])
    assert configure(tmp_path, [upper, LOWER]).returncode == 0
    levels = json.loads((tmp_path / "build" / "levels.json").read_text())
    assert {"name": "CostModel", "folder": "compiler/CostModel", "depends": ["Forms"]} in levels


@pytest.mark.parametrize("level", ["3", "2"])
def test_a_dependence_sideways_or_upward_stops_configuration(tmp_path, level):
    outcome = configure(tmp_path, [LOWER, ("compiler/CostModel", "CostModel", level, ["Forms"])])
    assert outcome.returncode != 0
    assert "upward or sideways" in outcome.stderr


@pytest.mark.parametrize("folder", ["simulator/pe", "arch/spec"])
def test_a_dependence_from_another_column_on_the_compiler_stops_configuration(tmp_path, folder):
    outcome = configure(tmp_path, [LOWER, (folder, "Other", "4", ["Forms"])])
    assert outcome.returncode != 0
    assert "the columns share arch only" in " ".join(outcome.stderr.split())


def test_a_dependence_on_an_undeclared_library_stops_configuration(tmp_path):
    outcome = configure(tmp_path, [("compiler/Forms", "Forms", "3", ["Ghost"])])
    assert outcome.returncode != 0
    assert "Ghost" in outcome.stderr


def lint(tmp_path, depends, included):
    """Runs the lint of includes on compiler/Forms/Form.h, which includes `included`."""
    (tmp_path / "compiler/Forms").mkdir(parents=True)
    (tmp_path / "compiler/Forms/Form.h").write_text(f'#include "{included}"\n')
    levels = [{"name": "Forms", "folder": "compiler/Forms", "depends": depends},
              {"name": "Spec", "folder": "arch/spec", "depends": []},
              {"name": "Isa", "folder": "arch/isa", "depends": ["Spec"]},
              {"name": "Pe", "folder": "simulator/pe", "depends": []}]
    (tmp_path / "levels.json").write_text(json.dumps(levels))
    return subprocess.run([sys.executable, ROOT / "scripts/lint/includes.py", tmp_path,
                           tmp_path / "levels.json"], text=True, capture_output=True, check=False)


def test_the_lint_accepts_an_include_through_a_dependence(tmp_path):
    assert lint(tmp_path, ["Isa"], "arch/spec/Types.h").returncode == 0


def test_the_lint_refuses_an_include_that_no_dependence_covers(tmp_path):
    outcome = lint(tmp_path, ["Isa"], "simulator/pe/Pe.h")
    assert outcome.returncode == 1
    assert "includes simulator/pe/Pe.h of Pe, on which Forms does not depend" in outcome.stdout


def test_the_lint_refuses_an_include_that_is_not_written_from_the_root(tmp_path):
    assert lint(tmp_path, [], "../Dialect/Ops.h").returncode == 1
