# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the measuring programs of this folder share: processes measured one at a time, and what figures depend on."""
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("models/recipes", "tests/end_to_end"):
    sys.path.insert(0, str(ROOT / folder))

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

MILLRACE = ROOT / "build/bin/millrace"
MEASURE = ROOT / "scripts/bench/measure"


class Failed(Exception):
    """A measured command did not succeed; holds its last words."""


class Samples:
    """Measurements of one command."""

    def __init__(self, folder, *command):
        self.folder, self.command, self.seen = folder, [str(word) for word in command], []

    def take(self):
        out = self.folder / "measure.json"
        done = subprocess.run([sys.executable, "-I", "-S", MEASURE, out, *self.command], capture_output=True, text=True,
                              check=False)
        self.seen.append(json.loads(out.read_text()))
        if self.seen[-1]["exit_code"] != 0:
            raise Failed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")

    def walls(self):
        return [sample["wall_seconds"] for sample in self.seen]

    def cpus(self):
        """User and system time: of what a busy computer does to wall time, it shows little."""
        return [sample["user_seconds"] + sample["system_seconds"] for sample in self.seen]

    def summary(self):
        return {"wall_seconds_median": statistics.median(self.walls()), "wall_seconds_least": min(self.walls()),
                "wall_seconds_most": max(self.walls()),
                "cpu_seconds_median": statistics.median(self.cpus()), "cpu_seconds_least": min(self.cpus()),
                "user_seconds_median": statistics.median(sample["user_seconds"] for sample in self.seen),
                "peak_rss_bytes": max(sample["peak_rss_bytes"] for sample in self.seen)}


def write_json(path, document):
    """The file is whole at any time, whoever ends this process: call it with each result."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else None


def autogroup_niceness():
    """Of the session's group, which the kernel weighs before niceness; None where it has no groups."""
    try:
        return int(Path("/proc/self/autogroup").read_text().split()[-1])
    except OSError:
        return None


def computer():
    """What the figures depend on besides the code."""
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = int(next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()
                      if line.startswith("MemTotal"))) * 1024
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_bytes": memory, "kernel": platform.release(),
            "niceness": os.nice(0), "autogroup_niceness": autogroup_niceness()}


def versions():
    return {"commit": first_line("git", "rev-parse", "--short", "HEAD"),
            "uncommitted_changes": first_line("git", "status", "--porcelain", "--untracked-files=no") is not None,
            "compiler": first_line("c++", "--version"), "llvm": first_line("llvm-config-22", "--version"),
            "systemc": first_line("dpkg-query", "-W", "-f", "${Version}", "libsystemc-dev"),
            "python": platform.python_version(), "numpy": np.__version__, "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__}
