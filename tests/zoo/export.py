# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports architectures of the zoo by torch.onnx.export, one process each.

FOLDER/NAME gets model.onnx, its inputs (INPUT.npy) and export.json: which exporter wrote it, how many nodes, seconds, or why
there is none. The exporter is the one that PyTorch takes by default (dynamo); where that fails, the older one. A last
Softmax is cut off: its small differences say nothing. What has an export.json is not made again.
"""
from __future__ import annotations

import collections
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch

import surgery
from architectures import ZOO

SECONDS = 400


def write(name: str, small: bool, folder: Path) -> dict:
    """Exports one; what it came to."""
    torch.manual_seed(0)
    model, inputs = ZOO[name].build(small)
    path, failures = folder / "model.onnx", []
    for exporter in ("dynamo", "torchscript"):
        try:
            if exporter == "dynamo":
                torch.onnx.export(model, (), str(path), kwargs=inputs, dynamo=True, verbose=False,
                                  output_names=ZOO[name].outputs)
            else:
                torch.onnx.export(model, tuple(inputs.values()), str(path), dynamo=False, input_names=list(inputs),
                                  output_names=ZOO[name].outputs, opset_version=17)
            cut(path)
        except Exception as failure:  # pylint: disable=broad-except  (of whatever kind an exporter raises)
            failures.append(f"{exporter}: {type(failure).__name__}: {str(failure)[:300]}")
            traceback.print_exc()
            continue
        graph = onnx.load(path, load_external_data=False).graph
        taken = {value.name for value in graph.input}
        for key, value in inputs.items():
            if key in taken:
                np.save(folder / f"{key}.npy", value.numpy())
        return {"exporter": exporter, "nodes": len(graph.node), "failures": failures,
                "operators": dict(collections.Counter(node.op_type for node in graph.node))}
    return {"exporter": None, "failures": failures}


def cut(path: Path) -> None:
    """Ends the model before its last Softmax, if it has one."""
    if surgery.final_softmax(onnx.load(path, load_external_data=False)) is not None:
        model = surgery.cut_softmax(onnx.load(path))
        onnx.save(model, path)


def alone(name: str, small: bool, folder: Path) -> None:
    """What a child does: the record is the last that it writes."""
    torch.set_num_threads(1)
    begin = time.monotonic()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        sys.stdout = sys.stderr = log
        try:
            record = write(name, small, folder)
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            record = {"exporter": None, "failures": [traceback.format_exc()[-400:]]}
    keep(folder, {"name": name, "library": ZOO[name].library, "seconds": round(time.monotonic() - begin, 1), **record})


def keep(folder: Path, record: dict) -> None:
    (folder / "export.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def export(names: list[str], small: bool, root: Path) -> Iterator[str]:
    """Exports what is not there yet; yields a line for each."""
    processes = multiprocessing.get_context("fork")  # children take the libraries as they are loaded here
    for name in names:
        folder = root / name
        if (folder / "export.json").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        child = processes.Process(target=alone, args=(name, small, folder))
        child.start()
        child.join(SECONDS)
        if child.is_alive():
            child.kill()
            child.join()
        if not (folder / "export.json").exists():
            keep(folder, {"name": name, "library": ZOO[name].library, "exporter": None, "seconds": None,
                          "failures": [f"killed after {SECONDS} s, or crashed: exit code {child.exitcode}"]})
        record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        yield (f"{name}: {record['exporter'] or 'not exported'}, {record.get('nodes', 0)} nodes, {record['seconds']} s "
               f"{' '.join(record['failures'])[:200]}")
