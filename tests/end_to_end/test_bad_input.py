# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad input gives an exit code, a message that names the cause, and no file at all.

Exit codes: 2 bad command line, 3 bad input file, 4 does not fit the machine, 5 cannot write.
"""
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import FOLDER

MNIST = FOLDER / "mnist.onnx"


def check_refusal(millrace: Path, folder: Path, arguments: list, code: int, *messages: str) -> None:
    before = sorted(folder.rglob("*"))
    done = subprocess.run([millrace, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == code, done.stderr
    for message in messages:
        assert message in done.stderr
    assert sorted(folder.rglob("*")) == before


def one_matrix_model(path: Path, rows: int, columns: int, external: bool = False) -> Path:
    """y [1, columns] = x [1, rows] W."""
    weights = numpy_helper.from_array(
        np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) % 31, "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"], name="product")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


@pytest.mark.parametrize("arguments, code, message", [
    (["--machine", "tsp-vl"], 3, "did you mean 'tsp-v1'?"),
    (["--set", "memory.slicez=3"], 3, "did you mean 'memory.slices'?"),
    (["--input", f"foo={MNIST}"], 3, "its inputs are image"),
    (["--precision", "int8"], 3, "models/recipes/quantize.py"),
    (["--precision", "fp3"], 2, "fp3"),
    (["--dim", "batch"], 2, "name=n"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_a_wrong_option_is_named(millrace, tmp_path, arguments, code, message):
    outputs = ["--output-dir", tmp_path / "outputs"] if code == 2 else []
    check_refusal(millrace, tmp_path, ["run", MNIST, *arguments, *outputs], code, message)


def test_a_truncated_model_is_refused(millrace, tmp_path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(MNIST.read_bytes()[:5000])
    check_refusal(millrace, tmp_path, ["compile", cut, "-o", tmp_path / "cut.mrp"], 3, "cut.onnx",
                  "cut off")


def test_missing_external_data_is_named(millrace, tmp_path):
    model = one_matrix_model(tmp_path / "model.onnx", 64, 32, external=True)
    (tmp_path / "weights.bin").unlink()
    check_refusal(millrace, tmp_path, ["compile", model, "-o", tmp_path / "m.mrp"], 3,
                  "weights.bin")


def test_all_unsupported_operators_are_listed_at_once(millrace, tmp_path):
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="elsewhere"),
             helper.make_node("Defenestrate", ["a"], ["y"], name="second", domain="elsewhere")]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("elsewhere", 1)])
    onnx.save(model, tmp_path / "model.onnx")
    check_refusal(millrace, tmp_path,
                  ["compile", tmp_path / "model.onnx", "-o", tmp_path / "m.mrp"], 3, "Frobnicate",
                  "first", "Defenestrate", "second")


@pytest.mark.parametrize("text, message", [("bsae: tsp-v1\n", "did you mean 'base'?"),
                                           ("name: [x\n", "is no YAML")])
def test_a_broken_machine_file_is_refused_by_line(millrace, tmp_path, text, message):
    machine = tmp_path / "machine.yaml"
    machine.write_text(text)
    check_refusal(millrace, tmp_path, ["run", MNIST, "--machine", machine], 3, "machine.yaml:",
                  message)


def test_a_model_larger_than_memory_says_by_how_much(millrace, tmp_path):
    model = one_matrix_model(tmp_path / "model.onnx", 4096, 4096)
    check_refusal(millrace, tmp_path, ["compile", model, "--machine", "tsp-small", "-o",
                                       tmp_path / "m.mrp"], 4,
                  "32.00 MiB", "22.00 MiB", "10.00 MiB too little")


def test_an_image_for_another_machine_is_refused(millrace, tmp_path):
    image = tmp_path / "m.mrp"
    subprocess.run([millrace, "compile", MNIST, "-o", image], check=True, capture_output=True)
    check_refusal(millrace, tmp_path, ["simulate", image, "--machine", "lp30"], 3, "machine")


@pytest.mark.parametrize("option", ["--json", "--trace", "--output-dir"])
def test_an_output_that_cannot_be_written_is_refused(millrace, tmp_path, option):
    (tmp_path / "file").write_text("")
    check_refusal(millrace, tmp_path, ["run", MNIST, option, tmp_path / "file" / "x"], 5,
                  "cannot write")


def test_an_image_that_cannot_be_written_is_refused(millrace, tmp_path):
    check_refusal(millrace, tmp_path, ["compile", MNIST, "-o", tmp_path / "none" / "m.mrp"], 5,
                  "cannot write")
