# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run without all roundings of a quantised model is ONNX Runtime's run of the model without the same roundings
(`without_dropped_roundings` of tests/zoo), also where one of them decides the outcome; with all, that of the model."""
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/zoo")]
import rounding  # noqa: E402
from oracle import run_millrace, save_model  # noqa: E402

STEP = 0.1  # of the token, whose numbers are less than that
TOKENS, LANES = 4, 64
NEAR = 3e-3  # relative L2, of an output in 16 bits


def coarse_token(keep: bool = False) -> onnx.ModelProto:
    """A token of small numbers beside large ones under one scale, added to something and normalised: which of its numbers
    are not 0, and so all that comes out, is a matter of one rounding. `keep` gives the rounded side to another reader."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-127, 128, [LANES, LANES]).astype(np.int8)
    tensors = {"fine": np.float32(0.02), "coarse": np.float32(STEP), "weight_scale": np.float32(2e-4), "zero": np.uint8(128),
               "none": np.int8(0), "weights": weights, "gain": np.ones(LANES, np.float32)}
    nodes = [("QuantizeLinear", ["x", "fine", "zero"], "x8"), ("DequantizeLinear", ["x8", "fine", "zero"], "xq"),
             ("DequantizeLinear", ["weights", "weight_scale", "none"], "wq"), ("MatMul", ["xq", "wq"], "product"),
             ("QuantizeLinear", ["product", "coarse", "zero"], "p8"), ("DequantizeLinear", ["p8", "coarse", "zero"], "side"),
             ("QuantizeLinear", ["beside", "fine", "zero"], "b8"), ("DequantizeLinear", ["b8", "fine", "zero"], "bq"),
             ("Add", ["side", "bq"], "sum"),
             ("QuantizeLinear", ["sum", "coarse", "zero"], "s8"), ("DequantizeLinear", ["s8", "coarse", "zero"], "sq"),
             ("LayerNormalization", ["sq", "gain"], "y")]
    shape = [TOKENS, LANES]
    outputs = ["y", "side"] if keep else ["y"]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output], name=output) for kind, inputs, output in nodes], "coarse_token",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "beside")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]))


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    return {"x": rng.normal(0, 0.5, [TOKENS, LANES]).astype(np.float32),
            "beside": rng.normal(0, 0.04, [TOKENS, LANES]).astype(np.float32)}


def test_a_side_of_a_sum_is_clamped_and_not_rounded():
    model = rounding.without_dropped_roundings(coarse_token())
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 3
    clip = next(node for node in model.graph.node if node.op_type == "Clip")
    bounds = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert clip.output == ["side"]
    assert [float(bounds[name]) for name in clip.input[1:]] == pytest.approx([-12.8, 12.7])


def test_what_others_read_keeps_its_rounding():
    model = rounding.without_dropped_roundings(coarse_token(keep=True))
    clip = next(node for node in model.graph.node if node.op_type == "Clip")
    assert clip.output == ["bq"]


@pytest.mark.parametrize("options", [[], ["--exact-qdq"]])
def test_a_run_is_onnx_runtimes_with_the_same_roundings(millrace, tmp_path, options):
    model = coarse_token()
    whole = rounding.outputs_of(model, feeds())[0]
    left = rounding.outputs_of(rounding.without_dropped_roundings(model), feeds())[0]
    assert rounding.distance(left, whole) > 0.3  # one rounding less decides
    run = run_millrace(millrace, save_model(model, tmp_path), "tsp-small", "int8", feeds(), tmp_path, options)
    assert rounding.distance(run.outputs["y"], whole if options else left) <= NEAR


STEPS = {"gate": 0.06, "inner": 0.04, "value": 0.05}  # coarse, so that roundings show


def activation(kind: str, zero: int) -> onnx.ModelProto:
    """An activation of quantised values as quantisers leave it, with a rounding behind each operation, and a depthwise
    convolution of it."""
    rng = np.random.default_rng(7)
    of = np.uint8 if zero else np.int8
    tensors = {**{name: np.float32(step) for name, step in STEPS.items()}, "zero": of(zero), "one": np.float32(1),
               "half": np.float32(0.5), "root": np.float32(2 ** 0.5), "taps": rng.normal(0, 0.4, [8, 1, 3, 3]).astype(np.float32)}
    nodes = []

    def add(operation: str, inputs: list[str], **attributes) -> str:
        nodes.append(helper.make_node(operation, inputs, [f"v{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def rounded(name: str, scheme: str) -> str:
        return add("DequantizeLinear", [add("QuantizeLinear", [name, scheme, "zero"]), scheme, "zero"])

    x = rounded("x", "inner")
    if kind == "silu":
        y = add("Mul", [x, rounded(add("Sigmoid", [x]), "gate")])
    elif kind == "hardswish":
        y = add("Mul", [rounded(add("HardSigmoid", [x], alpha=1 / 6, beta=0.5), "gate"), x])
    elif kind == "tanh":
        y = add("Mul", [x, rounded(add("Add", [rounded(add("Tanh", [x]), "gate"), "one"]), "gate")])
    else:
        gate = rounded(add("Add", [rounded(add("Erf", [add("Div", [x, "root"])]), "gate"), "one"]), "gate")
        y = add("Mul", [rounded(add("Mul", [x, gate]), "value"), "half"])
    nodes.append(helper.make_node("Conv", [rounded(y, "value"), "taps"], ["y"], group=8, pads=[1, 1, 1, 1]))
    shape = [1, 8, 12, 12]
    graph = helper.make_graph(nodes, kind, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("zero", [0, 117, 128])
@pytest.mark.parametrize("kind", ["silu", "hardswish", "tanh", "gelu"])
def test_values_between_maps_are_not_rounded(millrace, tmp_path, kind, zero):
    model = activation(kind, zero)
    inputs = {"x": np.random.default_rng(8).normal(0, 1.2, [1, 8, 12, 12]).astype(np.float16).astype(np.float32)}
    meant = rounding.without_dropped_roundings(model)
    assert [node.op_type for node in meant.graph.node].count("QuantizeLinear") == 1  # of the input
    whole, left = (rounding.outputs_of(each, inputs)[0] for each in (model, meant))
    assert rounding.distance(left, whole) > 4 * NEAR
    path = save_model(model, tmp_path)
    got = run_millrace(millrace, path, "tsp-small", "int8", inputs, tmp_path).outputs["y"]
    assert rounding.distance(got, left) <= NEAR
    exact = run_millrace(millrace, path, "tsp-small", "int8", inputs, tmp_path, ["--exact-qdq"]).outputs["y"]
    assert 4 * rounding.distance(exact, whole) < rounding.distance(exact, left)


@pytest.mark.parametrize("zero", [116, 117])
def test_ties_of_simple_scales_go_to_the_even_integer(millrace, tmp_path, zero):
    """Of a scale that is a power of two every other number is a tie."""
    tensors = {"fine": np.float32(0.25), "coarse": np.float32(0.5), "zero": np.uint8(zero)}
    nodes = [("QuantizeLinear", ["x", "fine", "zero"], "q"), ("DequantizeLinear", ["q", "fine", "zero"], "d"),
             ("Relu", ["d"], "r"), ("QuantizeLinear", ["r", "coarse", "zero"], "y")]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output], name=output) for kind, inputs, output in nodes], "ties",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [2, 64])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    inputs = {"x": np.arange(-32, 96, dtype=np.float32).reshape(2, 64) / 4}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-small", "int8", inputs, tmp_path).outputs["y"]
    assert (got == rounding.outputs_of(model, inputs)[0]).all()
