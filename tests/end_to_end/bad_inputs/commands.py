# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command lines that cannot be meant, and outputs that cannot be written."""
from bad_inputs.case import Workplace, case
from bad_inputs.images import assemble


def command(kind: str, *arguments, fixture: str | None = "mnist.onnx") -> None:
    """A case whose files are a fixture, or none."""
    @case("command", kind)
    def _(place: Workplace):
        if fixture:
            place.fixture(fixture)
        return list(arguments)


command("no command", fixture=None)
command("unknown command", "simulat", "x.mrp", fixture=None)
command("unknown option", "run", "mnist.onnx", "--machin", "tsp-v1")
command("unknown option that is near none", "run", "mnist.onnx", "--frobnicate")
command("unknown short option", "run", "mnist.onnx", "-z")
command("unknown command that is near none", "frobnicate", fixture=None)
command("help for an unknown command", "help", "simlate", fixture=None)
command("completion for an unknown shell", "completion", "ksh", fixture=None)
command("quiet and verbose at once", "run", "mnist.onnx", "-q", "-v")
command("two outputs on the standard output", "run", "mnist.onnx", "--json", "-", "--trace", "-")
command("unknown option before the command", "--frob", "run", "mnist.onnx")
command("no model", "run", fixture=None)
command("two models", "run", "mnist.onnx", "other.onnx")
command("option without its value", "run", "mnist.onnx", "--machine")
command("unknown precision", "run", "mnist.onnx", "--precision", "fp3")
command("seed that is no number", "run", "mnist.onnx", "--seed", "x")
command("negative seed", "run", "mnist.onnx", "--seed", "-1")
command("negative window", "run", "mnist.onnx", "--window", "-4")
command("compile without an output", "compile", "mnist.onnx")
command("unknown decision to explain", "compile", "mnist.onnx", "--explain", "layout")
command("JSON of no explanation", "compile", "mnist.onnx", "--json", "x.json", "-o", "x")
command("explanation of a decision that is not reached", "compile", "mnist.onnx", "--explain", "layouts", "--to",
        "tensor", "-o", "x")
command("`--dim` without a value", "run", "mnist.onnx", "--dim", "batch")
command("`--dim` with a word for a number", "run", "mnist.onnx", "--dim", "batch=many")
command("`--dim` below zero", "run", "mnist.onnx", "--dim", "batch=-1")
command("`--dim` without a name", "run", "mnist.onnx", "--dim", "=1")
command("`--dim` twice for one dimension", "run", "mnist.onnx", "--dim", "n=1", "--dim", "n=2")
command("outputs of a run without data", "run", "mnist.onnx", "--cycles-only", "--output-dir", "o")
command("unknown judge", "run", "mnist.onnx", "--check=somebody")
command("check of a run without data", "run", "mnist.onnx", "--cycles-only", "--check")
command("reference of a model that is text of the spatial level", "run", "text.mlir", "--from", "spatial",
        "--check=reference")
command("ONNX Runtime for a model that is no ONNX file", "run", "text.mlir", "--from", "tensor",
        "--check=onnxruntime")
command("check of kernels that assembly lacks", "run", "text.s", "--from", "sched", "--check")
command("fp32 for a value that the model lacks", "run", "mnist.onnx", "--keep-fp32", "none")
command("unknown level", "compile", "mnist.onnx", "--to", "linalg", "-o", "x")
command("unknown partition", "run", "mnist.onnx", "--partition", "best")
command("level before the first one", "compile", "text.mlir", "--from", "spatial", "--to", "tensor", "-o", "x")
command("`--input` without a file", "run", "mnist.onnx", "--input", "image")
command("`--input` twice for one input", "run", "mnist.onnx", "--input", "a=mnist.onnx", "--input",
        "a=mnist.onnx")
command("one file for two outputs", "run", "mnist.onnx", "--json", "x", "--trace", "x")
command("`--to` before `--from`", "compile", "mnist.onnx", "--from", "sched", "--to", "tensor", "-o", "x")
command("`--from` of no level", "run", "mnist.onnx", "--from", "grid")
command("`--from` text of a file that is none", "run", "--from", "spatial", "mnist.onnx")
command("`--from` a file that is not there", "run", "--from", "sched", "none.s", fixture=None)
for level, option in [("tensor", ["--dim", "n=1"]), ("spatial", ["--precision", "bf16"]), ("sched", ["--partition", "spread"])]:
    command(f"`{option[0]}` for a file of the level {level}", "run", "text.mlir", "--from", level, *option)
command("opt without a file", "opt", fixture=None)
command("opt of a file that is not there", "opt", "none.mlir", fixture=None)
command("opt with an unknown pass", "opt", "mnist.onnx", "--pass=split-window")
command("waveform cycles that are no range", "run", "mnist.onnx", "--vcd", "w.vcd", "--vcd-cycles",
        "9..1")
command("trace cycles that are no range", "run", "mnist.onnx", "--trace", "t.json", "--trace-cycles", "9..1")
command("trace cycles without a trace", "run", "mnist.onnx", "--trace-cycles", "1..9")
command("arrows without a trace", "run", "mnist.onnx", "--trace-flows")
command("waveform cycles without a waveform", "run", "mnist.onnx", "--vcd-cycles", "1..9")


@case("command", "image for a model")
def _(place: Workplace):
    assemble(place)
    return ["run", "program.mrp"]


@case("command", "assembly for a model")
def _(place: Workplace):
    assemble(place)
    return ["run", "program.s"]


@case("command", "text of the tensor level for a model")
def _(place: Workplace):
    place.write("text.mlir", "module {\n}\n")
    return ["run", "text.mlir"]


@case("command", "text of the spatial level for one of the tensor level")
def _(place: Workplace):
    place.write("text.mlir", 'spatial.graph "g" {\n}\n')
    return ["compile", "text.mlir", "--from", "tensor", "-o", "x"]


@case("command", "program too large for a waveform")
def _(place: Workplace):
    assemble(place)
    return ["simulate", "program.mrp", "--vcd", "w.vcd", "--vcd-limit", "2"]


def listing(kind: str, *arguments) -> None:
    @case("command", kind)
    def _(place: Workplace):
        assemble(place)
        return ["dump", "program.mrp", *arguments]


listing("listing of cycles that are no range", "--cycles", "9..1")
listing("listing of a PE that does not exist", "--pe", "7")
listing("listing of a step that does not exist", "--step", "3")
listing("listing of a queue that does not exist", "--queue", "alv")


def output(kind: str, *arguments) -> None:
    @case("output", kind)
    def _(place: Workplace):
        place.fixture("mnist.onnx")
        place.write("file", "")
        (place.folder / "folder").mkdir()
        return list(arguments)


output("report in a folder that does not exist", "run", "mnist.onnx", "--json", "none/r.json")
output("report that is a folder", "run", "mnist.onnx", "--json", "folder")
output("report under a file", "run", "mnist.onnx", "--json", "file/r.json")
output("trace in a folder that does not exist", "run", "mnist.onnx", "--trace", "none/t.json")
output("waveform over a device", "run", "mnist.onnx", "--vcd", "/dev/null")
output("output folder that is a file", "run", "mnist.onnx", "--output-dir", "file")
output("output folder under a file", "run", "mnist.onnx", "--output-dir", "file/out")
output("image in a folder that does not exist", "compile", "mnist.onnx", "-o", "none/m.mrp")
output("image over a device", "compile", "mnist.onnx", "-o", "/dev/full")
output("facts of a machine in a folder that does not exist", "describe", "tsp-v1", "--json",
       "none/facts.json")
