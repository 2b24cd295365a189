# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantises convolutional models of the zoo by ONNX Runtime's static quantiser, calibrated on seeded inputs.

NAME/quantised gets a model for each form: the quantiser's defaults, and symmetric with a scale per channel, each with
and without its pre-processing (shape inference and folding); and quantise.json, with what failed.
"""
from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

SAMPLES = 2
CONVOLUTIONS = 5  # that make a model a convolutional one
SYMMETRIC = {"per_channel": True, "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}
FORMS = {"default": (False, {}), "default-prepared": (True, {}),
         "symmetric": (False, SYMMETRIC), "symmetric-prepared": (True, SYMMETRIC)}


class Feeds(quantization.CalibrationDataReader):
    """Standard normal values, as the inputs of the zoo are."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]):
        self.rest = iter([{name: np.random.default_rng([1, i]).standard_normal(shape, np.float32)
                           for name, shape in shapes.items()} for i in range(SAMPLES)])

    def get_next(self):
        return next(self.rest, None)


def convolutional(folder: Path) -> bool:
    record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    return record.get("operators", {}).get("Conv", 0) >= CONVOLUTIONS and record["library"] != "transformers"


def quantise(folder: Path, form: str) -> None:
    """Writes one form."""
    prepare, options = FORMS[form]
    path, target = folder / "model.onnx", folder / "quantised" / f"{form}.onnx"
    shapes = {array.stem: np.load(array).shape for array in folder.glob("*.npy")}
    with tempfile.TemporaryDirectory() as scratch:
        if prepare:
            prepared = Path(scratch) / "prepared.onnx"
            quant_pre_process(str(path), str(prepared))
            path = prepared
        written = Path(scratch) / "quantised.onnx"
        quantization.quantize_static(str(path), str(written), Feeds(shapes), **options)
        onnx.save(onnx.load(written), target)


def quantise_all(folders: list[Path], forms: list[str]) -> Iterator[str]:
    """Quantises what is not there yet; yields a line for each."""
    logging.disable(logging.WARNING)  # it recommends the pre-processing where that is left out on purpose
    for folder in folders:
        if not (folder / "model.onnx").exists() or not convolutional(folder):
            continue
        (folder / "quantised").mkdir(exist_ok=True)
        path = folder / "quantised" / "quantise.json"
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for form in forms:
            if form in record:
                continue
            begin = time.monotonic()
            try:
                quantise(folder, form)
                record[form] = {"failure": None}
            except Exception as failure:  # pylint: disable=broad-except  (of whatever kind the quantiser raises)
                record[form] = {"failure": f"{type(failure).__name__}: {str(failure)[:300]}"}
            record[form]["seconds"] = round(time.monotonic() - begin, 1)
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            yield f"{folder.name} {form}: {record[form]['failure'] or 'quantised'}, {record[form]['seconds']} s"
