# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ALU operations against ONNX Runtime: conversions and exact operations bit by bit, transcendentals
within the error of ONNX Runtime's own."""
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

BUILD = Path(os.environ.get("MILLRACE_BUILD", Path(__file__).resolve().parents[4] / "build"))
PROBE = BUILD / "bin" / "SemanticsProbe"
RNG = np.random.default_rng(1)


def alu(mnemonic, *operands):
    """Lanes of `operands` (fp32, or words that hold narrower values) to 32-bit words."""
    words = b"".join(np.ascontiguousarray(x).view(np.uint32).tobytes() for x in operands)
    done = subprocess.run([PROBE, mnemonic], input=words, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.uint32)


def evaluate(nodes, feeds, result_type):
    """Output `y` of ONNX nodes, by ONNX Runtime without its optimisations."""
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
              for name, x in feeds.items()]
    graph = helper.make_graph(nodes, "operation", inputs,
                              [helper.make_tensor_value_info("y", result_type, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def samples():
    """fp32 of every magnitude, values around 1, and integers and their halves."""
    bits = RNG.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    return np.concatenate([
        bits[np.isfinite(bits)], RNG.normal(0, 3, 20000).astype(np.float32),
        (np.arange(-600, 600) / 2).astype(np.float32),
        np.float32([0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 480, 65504, 65520, 57344, 61440])])


def same(got, expected):
    """Equal bits, or NaN in both."""
    wrong = (got.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(got) & np.isnan(expected))
    return np.flatnonzero(wrong)


@pytest.mark.parametrize("to_narrow, to_wide, onnx_type, attributes", [
    ("cvt.f32.f16", "cvt.f16.f32", TensorProto.FLOAT16, {}),
    ("cvt.f32.bf16", "cvt.bf16.f32", TensorProto.BFLOAT16, {}),
    ("cvt.f32.e4m3.sat", "cvt.e4m3.f32", TensorProto.FLOAT8E4M3FN, {"saturate": 1}),
    ("cvt.f32.e5m2.sat", "cvt.e5m2.f32", TensorProto.FLOAT8E5M2, {"saturate": 1}),
])
def test_a_cast_there_and_back_equals_onnx_runtime(to_narrow, to_wide, onnx_type, attributes):
    x = samples()
    expected = evaluate(
        [helper.make_node("Cast", ["x"], ["narrow"], to=onnx_type, **attributes),
         helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT)],
        {"x": x}, TensorProto.FLOAT)
    got = alu(to_wide, alu(to_narrow, x)).view(np.float32)
    wrong = same(got, expected)
    assert not len(wrong), (x[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("to_narrow, to_wide, dtype", [
    ("cvt.f32.e4m3", "cvt.e4m3.f32", ml_dtypes.float8_e4m3fn),
    ("cvt.f32.e5m2", "cvt.e5m2.f32", ml_dtypes.float8_e5m2)])
def test_fp8_that_overflows_equals_ml_dtypes(to_narrow, to_wide, dtype):
    """ONNX Runtime 1.30 does not round just above the largest value when saturate is 0."""
    x = samples()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(dtype).astype(np.float32)
    got = alu(to_wide, alu(to_narrow, x)).view(np.float32)
    wrong = same(got, expected)
    assert not len(wrong), (x[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("mnemonic, dtype", [("cvt.f32.i8", np.int8), ("cvt.f32.u8", np.uint8)])
def test_quantisation_rounds_and_saturates_as_onnx_runtime(mnemonic, dtype):
    x = samples()
    x = x[np.isfinite(x)]
    zero = np.zeros((), dtype)
    expected = evaluate([helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])],
                        {"x": x, "scale": np.ones((), np.float32), "zero": zero},
                        helper.np_dtype_to_tensor_dtype(zero.dtype))
    got = alu(mnemonic, x).astype(np.uint8).view(dtype)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("mnemonic, node", [
    ("floor.f32", "Floor"), ("ceil.f32", "Ceil"), ("round.f32", "Round"), ("neg.f32", "Neg"),
    ("abs.f32", "Abs"), ("sqrt.f32", "Sqrt"), ("sign.f32", "Sign"), ("add.f32", "Add"),
    ("sub.f32", "Sub"), ("mul.f32", "Mul"), ("div.f32", "Div")])
def test_exact_operations_equal_onnx_runtime(mnemonic, node):
    operands = [samples(), samples()] if node in ("Add", "Sub", "Mul", "Div") else [samples()]
    count = min(len(x) for x in operands)
    operands = [x[:count] for x in operands]
    feeds = {f"x{i}": x for i, x in enumerate(operands)}
    expected = evaluate([helper.make_node(node, list(feeds), ["y"])], feeds, TensorProto.FLOAT)
    got = alu(mnemonic, *operands).view(np.float32)
    wrong = same(got + 0, expected + 0)  # + 0: ONNX does not say which zero
    assert not len(wrong), (operands[0][wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("mnemonic, node, low, high", [
    ("exp.f32", "Exp", -80, 80), ("log.f32", "Log", 1e-30, 1e30), ("tanh.f32", "Tanh", -12, 12),
    ("sigmoid.f32", "Sigmoid", -15, 15), ("erf.f32", "Erf", -5, 5), ("sin.f32", "Sin", -50, 50),
    ("cos.f32", "Cos", -50, 50), ("rcp.f32", "Reciprocal", 0.01, 100)])
def test_transcendentals_agree_with_onnx_runtime(mnemonic, node, low, high):
    x = RNG.uniform(low, high, 20000).astype(np.float32)
    expected = evaluate([helper.make_node(node, ["x"], ["y"])], {"x": x}, TensorProto.FLOAT)
    got = alu(mnemonic, x).view(np.float32)
    # The allowance is for ONNX Runtime's approximations; AluTest.cpp bounds our own error.
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=3e-7)
