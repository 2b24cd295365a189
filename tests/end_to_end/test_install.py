# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An installed Millrace works wherever its prefix is moved to, and serves other projects."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONSUMER = """
cmake_minimum_required(VERSION 3.25)
project(Consumer LANGUAGES C CXX)
find_package(Millrace 0.1 REQUIRED COMPONENTS {components})
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE {targets})
target_compile_definitions(consumer PRIVATE MACHINE="${{Millrace_MACHINES}}/tsp-small.yaml")
"""

MAIN = """
#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "simulator/system/Simulate.h"
#include <cstdio>
using namespace millrace;
int main() {
  Expected<Machine> machine = loadMachine(MACHINE);
  grid::CompileReport report;
  Expected<Image> image = grid::compile(forms::buildMatmul({.m = 4, .k = 8, .n = 5}), *machine, {}, report);
  sim::SimulationOptions options;
  options.values = false;
  Expected<sim::SimulationResult> result = sim::simulate(*image, *machine, options);
  std::printf("%d\\n", result && result->measuredCycles == report.predictedCycles && !result->violation);
}
"""


def run(*arguments, **options):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def prefix(millrace, tmp_path_factory):
    """A prefix that was moved after the installation."""
    folder = tmp_path_factory.mktemp("install")
    made = run("cmake", "--install", millrace.parent.parent, "--prefix", folder / "first")
    assert made.returncode == 0, made.stderr
    (folder / "first").rename(folder / "moved")
    yield folder / "moved"
    shutil.rmtree(folder)


def test_a_moved_program_finds_its_own_machines_and_compiler(prefix, tmp_path):
    machine = prefix / "share/millrace/machines/tsp-small.yaml"
    machine.write_text(machine.read_text().replace('description: "tsp-v1', 'description: "moved tsp-v1'))
    listed = run(prefix / "bin/millrace", "machines", cwd=tmp_path)
    assert "moved tsp-v1" in listed.stdout, listed.stdout + listed.stderr
    result = run(prefix / "bin/millrace", "run", ROOT / "models/fixtures/mnist.onnx", "--machine",
                 "tsp-small", "--check", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "cycles measured" in result.stdout


def test_nothing_installed_names_the_prefix_that_it_was_installed_to(prefix):
    text = [p for p in prefix.rglob("*") if p.suffix in (".cmake", ".1", ".fish") or "completions" in str(p)]
    named = [p for p in text if p.is_file() and "/first" in p.read_text()]
    assert text and named == []


def test_manual_and_completion_are_installed(prefix):
    for file in ("man/man1/millrace.1", "bash-completion/completions/millrace",
                 "zsh/site-functions/_millrace", "fish/vendor_completions.d/millrace.fish"):
        assert "simulate" in (prefix / "share" / file).read_text(), file


def test_every_header_that_an_installed_header_includes_is_installed(prefix):
    headers = prefix / "include/millrace"
    missing = []
    for header in headers.rglob("*.h"):
        for line in header.read_text().splitlines():
            if line.startswith(('#include "arch/', '#include "compiler/', '#include "simulator/')):
                name = line.split('"')[1]
                if not (headers / name).is_file():
                    missing.append(f"{header.relative_to(headers)}: {name}")
    assert missing == []


def test_a_project_finds_the_package_and_links_compiler_and_simulator(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER.format(
        components="Simulator Compiler", targets="Millrace::Compiler Millrace::Simulator"))
    (tmp_path / "main.cpp").write_text(MAIN)
    made = run("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build",
               f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    assert made.returncode == 0, made.stdout + made.stderr
    built = run("cmake", "--build", tmp_path / "build", env=os.environ | {"NINJA_STATUS": ""})
    assert built.returncode == 0, built.stdout + built.stderr
    assert run(tmp_path / "build/consumer").stdout == "1\n"


def test_the_simulator_alone_needs_no_mlir(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER.format(
        components="Simulator", targets="Millrace::Simulator"))
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    made = run("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build",
               f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_DISABLE_FIND_PACKAGE_MLIR=ON")
    assert made.returncode == 0, made.stdout + made.stderr
