# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the synthetic models of models/fixtures and the expected outputs of all of them.

    python models/recipes/fixtures.py [FOLDER]        # default: models/fixtures

Per model (and per case, for models with named extents) one .npz: `input:NAME` per graph input,
`output:NAME` per graph output from ONNX Runtime with its optimisations off, and `before_softmax`
where the model ends with a Softmax.
"""
from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import onnx

import probe
from bert_base import Shape, transformer
from graph import save
from quantize import quantize
from small import convnet
from surgery import cut_softmax, final_softmax

FOLDER = Path(__file__).resolve().parents[1] / "fixtures"
BUILT = {
    "convnet": lambda: convnet(seed=1),
    "convnet_int8": lambda: quantize(convnet(seed=1), "asymmetric"),
    "attention": lambda: transformer(
        Shape(layers=1, sequence=11, hidden=24, heads=3, inner=40, embeddings=False), seed=1),
}
GPT2 = {"prefill": dict(batch_size=1, seq_len=7, past_seq_len=0, total_seq_len=7),
        "past": dict(batch_size=1, seq_len=2, past_seq_len=5, total_seq_len=7)}
# Model file -> cases: name of the .npz and extents of named axes.
CASES = {"mnist": {"mnist": {}}, "convnet": {"convnet": {}}, "attention": {"attention": {}},
         "convnet_int8": {"convnet_int8": {}},
         "tiny_gpt2": {f"tiny_gpt2_{case}": dims for case, dims in GPT2.items()}}


def expected(model: onnx.ModelProto, dims: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Content of one .npz: seeded inputs, ONNX Runtime's outputs, the tensor before the Softmax."""
    inputs = probe.seeded_inputs(model, dims, seed)
    arrays = {f"input:{name}": value for name, value in inputs.items()}
    arrays |= {f"output:{name}": value for name, value in probe.run(model, inputs).items()}
    if final_softmax(model) is not None:
        (arrays["before_softmax"],) = probe.run(cut_softmax(model), inputs).values()
    return arrays


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    """The arrays as a compressed .npz."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    for name, build in BUILT.items():
        save(build(), folder / f"{name}.onnx")
    for name, cases in CASES.items():
        model = onnx.load(folder / f"{name}.onnx")
        for case, dims in cases.items():
            (folder / f"{case}.npz").write_bytes(archive(expected(model, dims)))


if __name__ == "__main__":
    main()
