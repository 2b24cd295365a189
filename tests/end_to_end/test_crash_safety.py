# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whatever happens to a run, each output is the old file, the new file, or not there."""
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fixtures import FOLDER

ROOT = Path(__file__).resolve().parents[2]
MNIST = FOLDER / "mnist.onnx"


def run(millrace: Path, *arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([millrace, *map(str, arguments)], text=True, stderr=subprocess.PIPE, timeout=60,
                          check=False, **{"stdout": subprocess.PIPE, **options})


def all_outputs(folder: Path) -> list[str]:
    return [f"--{name}={folder / file}" for name, file in
            (("json", "r.json"), ("trace", "t.json"), ("vcd", "w.vcd"), ("output-dir", "out"))]


def test_a_full_disk_is_an_error_that_leaves_the_old_files(millrace, tmp_path):
    """The file size that the system allows stands for the room on a disk."""
    assert run(millrace, "run", MNIST, *all_outputs(tmp_path)).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    for output in all_outputs(tmp_path):
        done = run(millrace, "run", MNIST, "--seed", "7", output, preexec_fn=limit)
        assert done.returncode == 5, (output, done.stderr)
        assert "File too large; make room there" in done.stderr
    done = run(millrace, "compile", MNIST, "-o", tmp_path / "m.mrp", preexec_fn=limit)
    assert done.returncode == 5 and "File too large" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.fixture()
def small_disk(tmp_path):
    """A disk of 32 KiB. Only root may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "millrace-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_without_room_keeps_the_old_file(millrace, tmp_path, small_disk):
    (small_disk / "t.json").write_text("old")
    done = run(millrace, "run", MNIST, "--trace", small_disk / "t.json")
    assert done.returncode == 5 and "No space left on device; make room there" in done.stderr
    assert [path.name for path in small_disk.iterdir()] == ["t.json"]
    assert (small_disk / "t.json").read_text() == "old"


def test_a_folder_that_may_not_be_written_to_is_an_error_before_any_work(millrace, tmp_path):
    """/proc refuses files even from root."""
    for output in all_outputs(Path("/proc/self")):
        done = run(millrace, "run", MNIST, output)
        assert done.returncode == 5 and "cannot write" in done.stderr, (output, done.stderr)
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        done = run(millrace, "run", MNIST, "--json", tmp_path / "r.json")
        assert done.returncode == 5 and "choose a folder that you may write to" in done.stderr


@pytest.mark.parametrize("arguments", [["run", MNIST], ["machines"], ["--help"]])
def test_a_closed_pipe_is_an_error_not_a_signal(millrace, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = run(millrace, *arguments, stdout=writer)
    os.close(writer)
    assert done.returncode == 5
    assert done.stderr == "millrace: error: cannot write to the standard output: Broken pipe\n"


@pytest.mark.parametrize("arguments", [["run", MNIST], ["describe", "tsp-v1"], ["opt", "--list-passes"]])
def test_a_full_standard_output_is_an_error(millrace, arguments):
    with open("/dev/full", "w") as full:
        done = run(millrace, *arguments, stdout=full)
    assert done.returncode == 5 and "No space left on device" in done.stderr


def test_outputs_are_written_even_if_nobody_reads_the_table(millrace, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = run(millrace, "run", MNIST, *all_outputs(tmp_path), stdout=writer)
    os.close(writer)
    assert done.returncode == 5
    json.loads((tmp_path / "r.json").read_text())
    assert np.load(tmp_path / "out" / "prediction.npy").shape == (1, 10)


def test_without_a_terminal_or_any_open_descriptor_it_runs(millrace, tmp_path):
    closed = lambda: [os.close(descriptor) for descriptor in (0, 1, 2)]
    done = subprocess.run([millrace, "run", MNIST, "--json", tmp_path / "r.json"], preexec_fn=closed,
                          timeout=60, check=False)
    assert done.returncode == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["predicted_cycles"] == report["measured_cycles"]


def test_two_outputs_of_almost_the_same_name_get_two_files(millrace, tmp_path):
    import onnx
    from onnx import TensorProto, helper
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["a/b"]), helper.make_node("Neg", ["x"], ["a_b"])],
                              "g", [value("x")], [value("a/b"), value("a_b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    done = run(millrace, "run", tmp_path / "model.onnx", "--json", tmp_path / "r.json", "--output-dir",
               tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "r.json").read_text())["outputs"]
    files = {row["name"]: Path(row["file"]) for row in rows}
    assert set(files) == {"a/b", "a_b"} and len(set(files.values())) == 2
    assert (np.load(files["a/b"]) >= 0).all()


def test_thirty_random_kills_leave_no_part_of_a_file(millrace, tmp_path):
    """`scripts/kill-test --kills 200` does the same at length."""
    path = str(ROOT / "scripts/kill-test")
    loader = importlib.machinery.SourceFileLoader("kill_test", path)
    kill_test = importlib.util.module_from_spec(importlib.util.spec_from_loader("kill_test", loader))
    loader.exec_module(kill_test)
    result = kill_test.campaign(millrace, MNIST, tmp_path, kills=30, seed=1)
    assert result["parts"] == [] and result["killed"] == 30, result
