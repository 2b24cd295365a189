# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose operands broadcast, come in groups or are halves equal ONNX Runtime."""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from test_reference_edges import model_of, reals, whole

MICROSOFT = {"domain": "com.microsoft"}
SCALES = [np.float32(0.02), np.uint8(3), np.float32(0.01), np.uint8(5), np.float32(0.03), np.uint8(0)]
QUERY, KEY, VALUE = reals(2, 3, 8), reals(2, 5, 8), reals(2, 5, 8)
CASES = {
    "each channel by itself": ("Conv", [reals(1, 4, 6, 6), reals(4, 1, 3, 3)], {"group": 4, "pads": [1, 0, 1, 2]}),
    "each channel by itself, twice": ("Conv", [reals(1, 2, 5, 5), reals(4, 1, 3, 3)], {"group": 2}),
    "each channel of a sequence": ("Conv", [reals(2, 3, 9), reals(3, 1, 3), reals(3)], {"group": 3, "strides": [2]}),
    "a sequence": ("Conv", [reals(2, 3, 9), reals(5, 3, 3), reals(5)], {"pads": [2, 1]}),
    "groups of a sequence": ("Conv", [reals(1, 4, 9), reals(6, 2, 3)], {"group": 2, "dilations": [2]}),
    "batches of both operands broadcast": ("MatMul", [reals(2, 1, 3, 4), reals(5, 4, 2)], {}),
    "a matrix times a batch": ("MatMul", [reals(3, 4), reals(2, 4, 5)], {}),
    "a row times a batch": ("MatMul", [reals(4), reals(2, 4, 5)], {}),
    "a batch times a column": ("MatMul", [reals(2, 3, 4), reals(4)], {}),
    "a constant of halves": ("Mul", [reals(2, 3).astype(np.float16), reals(3).astype(np.float16)], {"constants": [1]}),
    "heads with biases": ("MultiHeadAttention", [QUERY, KEY, VALUE, reals(24)], MICROSOFT | {"num_heads": 2}),
    "heads behind a past": ("MultiHeadAttention", [QUERY, KEY, VALUE, None, None, reals(2, 2, 3, 9), reals(2, 2, 4, 4),
                                                   reals(2, 2, 4, 4)], MICROSOFT | {"num_heads": 2, "outputs": 3}),
    "quantised parts, each of its own scale":
        ("QLinearConcat", [*SCALES[:2], whole(0, 9, 255, dtype=np.uint8), *SCALES[2:4],
                           whole(7, 200, dtype=np.uint8), *SCALES[4:]],
         MICROSOFT | {"axis": 0, "constants": [0, 1, 3, 4, 6, 7], "element": TensorProto.UINT8}),
}


@pytest.mark.parametrize("claim", CASES)
def test_it_equals_onnx_runtime(claim, runner, tmp_path):
    op, inputs, options = CASES[claim]
    model, feed = model_of(op, inputs, **options)
    if "domain" in options:
        model.opset_import.append(helper.make_opsetid(options["domain"], 1))
    onnx.save(model, tmp_path / "model.onnx")
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    for got, want in zip(runner.run(tmp_path / "model.onnx", list(feed.values())), expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.allclose(got, want, 1e-5, 1e-3 if want.dtype == np.float16 else 1e-6)
