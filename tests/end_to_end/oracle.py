# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The judge of end-to-end runs: ONNX Runtime with its optimisations off.

    model = cut_softmax(onnx.load("net.onnx"))        # compare before the last Softmax
    inputs = probe.seeded_inputs(model, {"batch": 1})
    expected = run(model, inputs)
    got = run_millrace(binary, save_model(model, folder), "tsp-v1", "fp16", inputs, folder)
    assert relative_l2(got.outputs["logits"], expected["logits"]) <= 2e-3

For int8, `split_layers` cuts a quantised model at its 8-bit tensors: every layer is compared alone,
on ONNX Runtime's own input, within one unit of the last place (`largest_unit_difference`).
"""
from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from onnxruntime import quantization

import probe
from graph import save
from probe import run, run_all
from surgery import cut_softmax, final_softmax  # noqa: F401  (part of this library)

def relative_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    """||actual - expected|| / ||expected||, in float64. Raises ValueError for unequal shapes.

    Not-a-number anywhere gives infinity, and so does any error against an all-zero expectation.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shape {actual.shape} is not the expected {expected.shape}")
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    error, norm = np.linalg.norm(actual - expected), np.linalg.norm(expected)
    if np.isnan(error) or (norm == 0 and error > 0):
        return float("inf")
    return float(error / norm) if norm else 0.0


def same_top1(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the largest element is the same along the last axis whose extent is not 1."""
    def top1(values):
        trimmed = values.reshape(values.shape[:1] + tuple(n for n in values.shape[1:] if n > 1))
        return trimmed.argmax(axis=-1)
    return bool(np.array_equal(top1(actual), top1(expected)))


@dataclass
class MillraceRun:
    """One `millrace run`: the JSON report, and the outputs by name as it wrote them."""
    report: dict
    outputs: dict[str, np.ndarray]
    stdout: str


def quantised_statically(model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: str | Path) -> onnx.ModelProto:
    """The model as ONNX Runtime's static quantiser writes it by default, calibrated on `inputs`; `folder` for its files."""
    class Feeds(quantization.CalibrationDataReader):
        rest = iter([inputs])

        def get_next(self):
            return next(self.rest, None)

    quantised = Path(folder) / "quantised.onnx"
    quantization.quantize_static(save_model(model, folder), quantised, Feeds())
    return onnx.load(quantised)


def run_millrace(binary: str | Path, model: str | Path, machine: str, precision: str | None,
                 inputs: dict[str, np.ndarray], folder: str | Path,
                 flags: list[str] | tuple[str, ...] = (), timeout: float = 600) -> MillraceRun:
    """Runs `binary run MODEL` on `inputs` (one .npy each in `folder`) and loads what it wrote.

    Raises AssertionError with the command and its messages when the exit code is not 0;
    subprocess.TimeoutExpired after `timeout` seconds.
    """
    folder = Path(folder)
    command = [str(binary), "run", str(model), "--machine", str(machine), "--json",
               str(folder / "report.json"), *flags]
    if "--cycles-only" not in flags:
        command += ["--output-dir", str(folder / "outputs")]
    if precision:
        command += ["--precision", precision]
    for name, file in save_inputs(inputs, folder).items():
        command += ["--input", f"{name}={file}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}"
    report = json.loads((folder / "report.json").read_text())
    outputs = {row["name"]: np.load(find_file(row["file"], folder)) for row in report["outputs"]}
    return MillraceRun(report, outputs, done.stdout)


def judge_on_grid(binary: str | Path, model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: str | Path,
                  machine: str = "tsp-v1", most: float = 3e-3) -> dict:
    """The report of a model in fp16, all of it on the grid, its cycles as predicted and each output within `most` (relative L2)
    of ONNX Runtime's; AssertionError says what is not so."""
    got = run_millrace(binary, save_model(model, folder), machine, "fp16", inputs, folder)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["host_ops"] == []
    for name, array in run(model, inputs).items():
        assert relative_l2(got.outputs[name], array) < most, name
    return got.report


def cycles_on_grid(binary: str | Path, model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: str | Path,
                   most: float) -> int:
    """Cycles of judge_on_grid() on tsp-v1."""
    return judge_on_grid(binary, model, inputs, folder, most=most)["measured_cycles"]


def find_file(file: str, folder: Path) -> Path:
    """The output file of a report: as written, or relative to the output folder."""
    return Path(file) if Path(file).is_file() else folder / "outputs" / Path(file).name


def save_inputs(inputs: dict[str, np.ndarray], folder: Path) -> dict[str, Path]:
    """Writes each input as FOLDER/inputs/NAME.npy, `/` and the like as `_`; paths by name."""
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    files = {}
    for name, value in inputs.items():
        files[name] = folder / "inputs" / (file_stem(name) + ".npy")
        np.save(files[name], value)
    return files


def file_stem(name: str) -> str:
    """A tensor name as a file name: all but letters, digits, `.`, `-` and `_` become `_`."""
    return "".join(c if c.isalnum() or c in ".-_" else "_" for c in name)


def save_model(model: onnx.ModelProto, folder: str | Path, name: str = "model") -> Path:
    """Writes `model` to FOLDER/NAME.onnx; its path."""
    path = Path(folder) / f"{name}.onnx"
    save(model, path)
    return path


@dataclass
class Layer:
    """One layer of a quantised model: 8-bit tensors in, one tensor out.

    `expected` is what ONNX Runtime gives for `model` alone on `inputs`, its own tensors there.
    """
    name: str
    operators: list[str]
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    expected: np.ndarray


def split_layers(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[Layer]:
    """Cuts a QDQ or QOperator model at every 8-bit tensor that depends on an input, in graph order.

    A layer runs from such tensors (or graph inputs) to the next one (or a graph output); its
    constants and the dequantisation of its weights are part of it.
    """
    values = {**run_all(model, inputs), **inputs}
    varying = varying_tensors(model.graph)
    cuts = {name for name in varying if values[name].dtype in (np.int8, np.uint8)}
    ends = {output.name for output in model.graph.output}
    layers = []
    for node in model.graph.node:
        for name in node.output:
            if name in varying and (name in cuts or name in ends):
                layers.append(cut_layer(model, name, cuts | set(inputs), values))
    return layers


def varying_tensors(graph: onnx.GraphProto) -> set[str]:
    """Tensors written by a node that depend on a graph input."""
    reached = {value.name for value in probe.real_inputs(graph)}
    given = set(reached)
    for node in graph.node:
        if any(name in reached for name in node.input):
            reached.update(name for name in node.output if name)
    return reached - given


def cut_layer(model: onnx.ModelProto, target: str, cuts: set[str],
              values: dict[str, np.ndarray]) -> Layer:
    """The part of `model` between `cuts` and tensor `target` as a model of its own."""
    producer = {name: node for node in model.graph.node for name in node.output}
    nodes, sources, pending = set(), set(), [target]
    while pending:
        node = producer[pending.pop()]
        nodes.add(id(node))
        for name in filter(None, node.input):
            if name in cuts:
                sources.add(name)
            elif name in producer and id(producer[name]) not in nodes:
                pending.append(name)
    inside = [node for node in model.graph.node if id(node) in nodes]
    read = {name for node in inside for name in node.input}
    constants = [t for t in model.graph.initializer if t.name in read]
    kind = lambda name: helper.np_dtype_to_tensor_dtype(values[name].dtype)
    value = lambda name: helper.make_tensor_value_info(name, kind(name), values[name].shape)
    graph = helper.make_graph(inside, "layer", [value(name) for name in sorted(sources)],
                              [value(target)], constants)
    layer = helper.make_model(graph, opset_imports=model.opset_import,
                              ir_version=max(model.ir_version, 4))
    given = {name: values[name] for name in sorted(sources)}
    return Layer(target, [node.op_type for node in inside], layer, given,
                 run(layer, given)[target])


def largest_unit_difference(actual: np.ndarray, expected: np.ndarray) -> int:
    """Largest |actual - expected| of integer tensors, in units of their last place.

    Raises ValueError for unequal shapes or types that are not integers.
    """
    if actual.shape != expected.shape or actual.dtype.kind not in "iu":
        raise ValueError(f"{actual.dtype}{actual.shape} cannot be compared by unit with "
                         f"{expected.dtype}{expected.shape}")
    difference = actual.astype(np.int64) - expected.astype(np.int64)
    return int(np.abs(difference).max(initial=0))
