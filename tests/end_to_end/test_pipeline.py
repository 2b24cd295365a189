# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pipeline in one go, and left and entered at every level: the same bytes of image."""
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quantize import quantize
from resnet50 import resnet50

FIXTURES = Path(__file__).resolve().parents[2] / "models/fixtures"
GPT2 = [f"--dim={dim}" for dim in ("batch_size=1", "seq_len=3", "past_seq_len=4", "total_seq_len=7")]
LEVELS = ["onnx", "tensor", "spatial", "sched"]
# model, and options by the last level of a file that they decide on
MODELS = {
    "mnist on a mesh": ("mnist.onnx", {"spatial": ["--partition=spread"], "sched": ["--machine=mesh-4x4"]}),
    "convnet for one of two PEs": ("convnet.onnx", {"sched": ["--machine=tsp-small", "--set=fabric.columns=2",
                                                              "--set=fabric.topology=mesh", "--set=c2c.ports=4"]}),
    "convnet in int8": ("convnet_int8.onnx", {"tensor": ["--precision=int8"]}),
    "gpt2 with host steps": ("tiny_gpt2.onnx", {"onnx": GPT2, "sched": ["--set=memory.slices=40"]}),
}
# As docs/dialects/spatial.md lists them, in the compiler's order.
REWRITINGS = re.findall("`([a-z-]+)`", re.search(
    r"in the compiler's order(.*?)`rewrite-kernels`",
    (Path(__file__).resolve().parents[2] / "docs/dialects/spatial.md").read_text(), re.S)[1])


def run(millrace: Path, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([millrace, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def good(millrace: Path, *arguments) -> str:
    result = run(millrace, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def entered(case: str, level: str) -> list[str]:
    """The options for a file of a level: those that still decide something."""
    options = MODELS[case][1]
    return ["--from", level] + [o for last in LEVELS[LEVELS.index(level):] for o in options.get(last, [])]


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("level", LEVELS[1:])
def test_leaving_and_entering_at_a_level_gives_the_same_image(millrace, tmp_path, case, level):
    model = FIXTURES / MODELS[case][0]
    straight, text, image = tmp_path / "straight.mrp", tmp_path / "text", tmp_path / "image.mrp"
    good(millrace, "compile", model, *entered(case, "onnx"), "-o", straight)
    good(millrace, "compile", model, *entered(case, "onnx"), "--to", level, "-o", text)
    good(millrace, "compile", text, *entered(case, level), "-o", image)
    assert image.read_bytes() == straight.read_bytes()


@pytest.mark.parametrize("case", MODELS)
def test_a_level_reached_from_text_is_the_level_reached_from_the_model(millrace, tmp_path, case):
    for level in LEVELS[1:]:
        good(millrace, "compile", FIXTURES / MODELS[case][0], *entered(case, "onnx"), "--to", level,
             "-o", tmp_path / level)
    for start, end in zip(LEVELS[1:], LEVELS[2:]):
        good(millrace, "compile", tmp_path / start, *entered(case, start), "--to", end, "-o", tmp_path / "again")
        assert (tmp_path / "again").read_text() == (tmp_path / end).read_text(), (start, end)


@pytest.mark.parametrize("model, precision", [("mnist.onnx", "fp16"), ("convnet_int8.onnx", "int8")])
@pytest.mark.parametrize("passes", [REWRITINGS, ["rewrite-kernels"]])
def test_the_passes_one_by_one_give_the_image_of_the_pipeline(millrace, tmp_path, model, precision, passes):
    precise = f"--precision={precision}"
    straight, text, image = tmp_path / "straight.mrp", tmp_path / "a.mlir", tmp_path / "image.mrp"
    good(millrace, "compile", FIXTURES / model, precise, "-o", straight)
    good(millrace, "compile", FIXTURES / model, precise, "--to", "tensor", "-o", text)
    for name in [f"form-kernels{{precision={precision}}}", *passes]:
        (tmp_path / "next.mlir").write_text(good(millrace, "opt", text, f"--pass={name}"))
        text = (tmp_path / "next.mlir").rename(tmp_path / "b.mlir")
    good(millrace, "compile", "--from", "spatial", text, "-o", image)
    assert image.read_bytes() == straight.read_bytes()


def test_the_page_lists_the_rewritings(millrace):
    listed = good(millrace, "opt", "--list-passes")
    of_a_machine = re.findall(r"^  --([a-z-]+) .*\n(?=(?:    .*\n)*    --machine=)", listed, re.M)
    assert set(of_a_machine) == {"form-kernels", "rewrite-kernels", *REWRITINGS}
    assert "--canonicalize " in listed and "--cse " in listed


def test_run_enters_the_pipeline_too(millrace, tmp_path):
    text = tmp_path / "model.mlir"
    good(millrace, "compile", FIXTURES / "mnist.onnx", "--to", "spatial", "-o", text)
    assert "cycles measured" in good(millrace, "run", "--from", "spatial", text)


def test_what_cannot_be_entered_is_named_with_its_place(millrace, tmp_path):
    kernels = tmp_path / "kernels.mlir"
    good(millrace, "compile", FIXTURES / "mnist.onnx", "--to", "spatial", "-o", kernels)
    broken = tmp_path / "broken.mlir"
    broken.write_text(kernels.read_text().replace("alu max.f32", "alu most.f32", 1))
    program = tmp_path / "program.s"
    program.write_text("machine tsp-v1\nstep grid cycles=60\npe 0\n@0 alu.0 nup\n")
    output = tmp_path / "out.mrp"
    for arguments, code, message in [
        (["--from", "spatial", broken], 3, "'most.f32', which no ALU does"),
        (["--from", "spatial", kernels, "--machine", "lp30"], 3, "not for lp30"),
        (["--from", "tensor", tmp_path / "none.mlir"], 3, "none.mlir"),
        (["--from", "tensor", kernels], 3, "is text of the level spatial; enter with --from spatial"),
        (["--from", "sched", program], 3, "program.s:4:"),
        (["--from", "spatial", kernels, "--to", "tensor"], 2, "before that of --from"),
        (["--from", "grid", kernels], 2, "--from"),
    ]:
        result = run(millrace, "compile", *arguments, "-o", output)
        assert result.returncode == code and message in result.stderr, (arguments, result.stderr)
        assert not output.exists()


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_the_host_writes_no_more_than_the_grid_reads(millrace, tmp_path, precision):
    """Up to four planes read at once, each from a copy; but each reads rows of its own. Windows repeat an element three
    times at most."""
    model = resnet50(width=64, size=112, classes=10, blocks=(1,))
    onnx.save(quantize(model) if precision == "int8" else model, tmp_path / "model.onnx")
    written = {}
    for layouts in ("plain", "exact"):
        good(millrace, "compile", tmp_path / "model.onnx", "--precision", precision, "--layouts", layouts, "-o",
             tmp_path / "image.mrp")
        good(millrace, "dump", tmp_path / "image.mrp", "--no-instructions", "--json", tmp_path / "dump.json")
        data, = (b for b in json.loads((tmp_path / "dump.json").read_text())["bindings"] if b["role"] == "input")
        written[layouts] = data["elements_written"] / data["elements"]
    assert 1 < written["plain"] <= 2
    assert written["plain"] < written["exact"] <= 3 * written["plain"]


def test_what_the_driver_refuses_the_pass_refuses_too_and_what_it_remarks_is_kept(millrace, tmp_path):
    """form-kernels is the way of the driver: empty outputs are refused in both, and tables that stay with the host
    are noted in both."""
    def info(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    def model(nodes, inputs, outputs, constants, name):
        graph = helper.make_graph(nodes, "g", inputs, outputs,
                                  [numpy_helper.from_array(v, n) for n, v in constants.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / name)
        return tmp_path / name

    empty = model([helper.make_node("Slice", ["x", "from", "to"], ["y"])], [info("x", TensorProto.FLOAT, [4, 3])],
                  [info("y", TensorProto.FLOAT, [0, 3])],
                  {"from": np.array([2], np.int64), "to": np.array([2], np.int64)}, "empty.onnx")
    refused = [run(millrace, "compile", empty, "-o", tmp_path / "no.mrp")]
    good(millrace, "compile", empty, "--to", "tensor", "-o", tmp_path / "empty.mlir")
    refused.append(run(millrace, "opt", tmp_path / "empty.mlir", "--pass=form-kernels"))
    for done in refused:
        assert done.returncode == 3 and "output 'y' has a dimension of 0" in done.stderr, done.stderr

    machine = tmp_path / "little.yaml"
    machine.write_text("name: little\nbase: tsp-small\nmemory: { rows_per_bank: 512 }\n")  # 2.75 MiB
    rows = 30_000  # of 64 numbers
    large = model([helper.make_node("Gather", ["table", "i"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])],
                  [info("i", TensorProto.INT64, [3])], [info("y", TensorProto.FLOAT, [3, 8])],
                  {"table": np.arange(rows * 64, dtype=np.float32).reshape(rows, 64) % 7, "w": np.ones((64, 8), np.float32)}, "large.onnx")
    straight = tmp_path / "straight.mlir"
    good(millrace, "compile", large, "-m", machine, "--to", "spatial", "-o", straight)
    good(millrace, "compile", large, "--to", "tensor", "-o", tmp_path / "large.mlir")
    passes = good(millrace, "opt", tmp_path / "large.mlir", f"--pass=form-kernels{{machine={machine}}}",
                  f"--pass=rewrite-kernels{{machine={machine}}}")
    noted = [line for line in straight.read_text().splitlines() if "millrace.facts" in line]
    assert noted and "table" in noted[0], noted
    assert [line for line in passes.splitlines() if "millrace.facts" in line] == noted
