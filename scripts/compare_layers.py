#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds every layer of a quantised model, run alone, to ONNX Runtime's integers.

    scripts/compare_layers.py MODEL.onnx [--machine tsp-v1] [--fused] [--output FILE]
                              [--program build/bin/millrace]

A layer runs from 8-bit tensors to the next one (`split_layers` of tests/end_to_end/oracle.py) on
ONNX Runtime's own inputs, ONNX Runtime without optimisations, millrace with --exact-qdq unless
--fused. Prints a line per layer and, at the end, JSON: layers, failed (name: message), host steps, largest
difference in units (8-bit results) and relative L2 error (others), elements compared and differing.
Exit code 1 when a layer fails, differs by more than one unit (2e-3 relative L2 for floats), or its measured
cycles are not those predicted.
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("models/recipes", "scripts", "tests/end_to_end")]
import probe  # noqa: E402
from oracle import (Layer, largest_unit_difference, relative_l2, run_millrace,  # noqa: E402
                    save_model, split_layers)

FLOAT_LIMIT = 2e-3  # relative L2 error of a layer whose result is no integer: fp16 on its way


@dataclass
class Comparison:
    layers: int = 0
    integer_layers: int = 0
    elements: int = 0  # of 8-bit results
    differing_elements: int = 0
    largest_unit_difference: int = 0
    largest_relative_l2: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    host_ops: dict[str, list[str]] = field(default_factory=dict)  # of layers not all on the grid

    def holds(self) -> bool:
        return (not self.failed and self.largest_unit_difference <= 1
                and self.largest_relative_l2 <= FLOAT_LIMIT)

    def add(self, layer: Layer, output: np.ndarray) -> None:
        """Raises ValueError for another shape or type than ONNX Runtime's."""
        self.layers += 1
        if layer.expected.dtype.kind not in "iu":
            error = relative_l2(output, layer.expected)
            self.largest_relative_l2 = max(self.largest_relative_l2, error)
            return
        units = largest_unit_difference(output, layer.expected)
        self.integer_layers += 1
        self.elements += output.size
        self.differing_elements += int(np.count_nonzero(output != layer.expected))
        self.largest_unit_difference = max(self.largest_unit_difference, units)


def compare_layers(program: str | Path, model: onnx.ModelProto, machine: str,
                   flags: list[str], report=lambda line: None) -> Comparison:
    """Runs each layer of `model` on seeded inputs; `report` gets a line per layer."""
    result = Comparison()
    for layer in split_layers(model, probe.seeded_inputs(model)):
        title = f"{layer.name} ({', '.join(layer.operators)})"
        with tempfile.TemporaryDirectory() as folder:
            try:
                got = run_millrace(program, save_model(layer.model, folder), machine, "int8",
                                   layer.inputs, folder, flags)
                (output,) = got.outputs.values()
                cycles = [got.report[key] for key in ("predicted_cycles", "measured_cycles")]
                if cycles[0] != cycles[1]:
                    raise ValueError(f"{cycles[0]} cycles predicted, {cycles[1]} measured")
                if got.report["host_ops"]:
                    result.host_ops[layer.name] = got.report["host_ops"]
                result.add(layer, output)
                report(f"{title}: so far at most {result.largest_unit_difference} units, "
                       f"{result.differing_elements} of {result.elements} differ")
            except (AssertionError, ValueError) as error:
                result.failed[layer.name] = str(error).splitlines()[-1]
                report(f"{title}: {result.failed[layer.name]}")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--machine", default="tsp-v1")
    parser.add_argument("--fused", action="store_true", help="without --exact-qdq")
    parser.add_argument("--program", default=ROOT / "build/bin/millrace")
    parser.add_argument("--output", help="write the JSON here, too")
    arguments = parser.parse_args()
    flags = [] if arguments.fused else ["--exact-qdq"]
    result = compare_layers(arguments.program, onnx.load(arguments.model), arguments.machine,
                            flags, lambda line: print(line, file=sys.stderr, flush=True))
    text = json.dumps(asdict(result), indent=2)
    print(text)
    if arguments.output:
        Path(arguments.output).write_text(text + "\n")
    return 0 if result.holds() else 1


if __name__ == "__main__":
    sys.exit(main())
