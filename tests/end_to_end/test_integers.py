# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers of every type, broadcast, moved, reduced and quantised, are those of ONNX Runtime."""
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import run_millrace, save_model
from quantize import quantize
from small import convnet

RANGES = {"int8": (-128, 128), "uint8": (0, 256), "int32": (-1000, 1000), "int64": (-1000, 1000), "bool": (0, 2)}
node = helper.make_node


def numbers(kind, *shape, seed=0):
    low, high = RANGES[kind]
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)


def reals(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def model_of(nodes, inputs, constants=None):
    """Every result that no node takes is an output, named after its node's operation and number."""
    taken = {name for n in nodes for name in n.input}
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for n in nodes for name in n.output if name not in taken],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()])
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def assert_same(millrace, folder, machine, model, inputs, units=0):
    """Integers to `units`, reals to fp16; returns the report."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    run = run_millrace(millrace, save_model(model, folder), machine, "fp16", inputs, folder, ["--check"])
    for info, want in zip(session.get_outputs(), session.run(None, inputs)):
        got = run.outputs[info.name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), info.name
        limit = units if want.dtype.kind in "iub" else 2e-3 * np.abs(want).max()
        error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        assert error <= limit, f"{info.name} by {error}"
    return run.report


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("shape", [(4, 1), (1, 33), (33,), (1,), ()])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64"])
def test_integers_are_broadcast(millrace, tmp_path, machine, shape, kind):
    nodes = [node(op, ["x", "z"], [op]) for op in ("Mul", "Equal", "Sub", "Greater")]
    nodes += [node("Add", ["z", "z"], ["made"]), node("Add", ["x", "made"], ["Sum"]),
              node("Cast", ["made"], ["real"], to=TensorProto.FLOAT),
              node("Cast", ["x"], ["whole"], to=TensorProto.FLOAT), node("Add", ["whole", "real"], ["Reals"])]
    if kind != "int8":  # for which ONNX Runtime has none
        nodes.append(node("Max", ["x", "z"], ["Max"]))
    inputs = {"x": numbers(kind, 4, 33), "z": np.asarray(numbers(kind, *shape, seed=2))}
    assert_same(millrace, tmp_path, machine, model_of(nodes, inputs), inputs)


@pytest.mark.parametrize("shape", [(4, 33), (4, 1), (33,), ()])
def test_flags_are_broadcast(millrace, tmp_path, shape):
    nodes = [node("And", ["x", "z"], ["And"]), node("Not", ["z"], ["not"]), node("Xor", ["x", "not"], ["Xor"]),
             node("Where", ["z", "a", "b"], ["Where"]), node("Greater", ["c", "d"], ["made"]),
             node("Or", ["x", "made"], ["Or"]), node("Where", ["made", "b", "a"], ["Chosen"])]
    real = reals(2, *shape)
    inputs = {"x": numbers("bool", 4, 33), "z": np.asarray(numbers("bool", *shape, seed=2)), "a": reals(4, 33),
              "b": reals(4, 33) + 1, "c": np.asarray(real[0]), "d": np.asarray(real[1])}
    assert_same(millrace, tmp_path, "tsp-v1", model_of(nodes, inputs), inputs)


@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64"])
def test_integers_are_moved(millrace, tmp_path, machine, kind):
    nodes = [node("Add", ["x", "x"], ["made"]), node("Transpose", ["made"], ["turned"], perm=[1, 0]),
             node("Add", ["turned", "z"], ["Turned"]), node("Transpose", ["x"], ["Transpose"], perm=[1, 0]),
             node("Reshape", ["made", "shape"], ["Reshape"]), node("Slice", ["made", "from", "to", "axis", "step"], ["Slice"]),
             node("Concat", ["made", "x"], ["Rows"], axis=0), node("Concat", ["made", "x"], ["Lanes"], axis=1),
             node("Gather", ["made", "index"], ["Gather"]), node("Pad", ["made", "pads", "fill"], ["Pad"]),
             node("Slice", ["x", "zero", "one", "axis"], ["column"]), node("Expand", ["column", "wide"], ["Expand"])]
    constants = {"shape": [11, 12], "from": [3], "to": [30], "axis": [1], "step": [2], "index": [3, 0], "zero": [0],
                 "one": [1], "wide": [4, 20], "pads": [1, 2, 0, 3], "fill": np.asarray(100).astype(kind)}
    inputs = {"x": numbers(kind, 4, 33), "z": numbers(kind, 33, 4)}
    assert_same(millrace, tmp_path, machine, model_of(nodes, inputs, constants), inputs)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int32"])
def test_integers_are_reduced(millrace, tmp_path, kind, axis):
    nodes = [node("Add", ["x", "x"], ["made"]), node("Cast", ["x"], ["whole"], to=TensorProto.INT32),
             node("ReduceSum", ["whole", "axes"], ["Sum"], keepdims=0), node("ArgMax", ["made"], ["ArgMax"], axis=axis)]
    for op in ("ReduceMax", "ReduceMin"):
        nodes += [node(op, ["x", "axes"], [op], keepdims=0), node(op, ["made", "axes"], [op + ".kept"]),
                  node("Sub", ["made", op + ".kept"], [op + ".spread"])]
    inputs = {"x": numbers(kind, 6, 33)}
    assert_same(millrace, tmp_path, "tsp-v1", model_of(nodes, inputs, {"axes": [axis]}), inputs)


def test_uint8_of_the_whole_range_goes_in_and_out(millrace, tmp_path):
    """An image of bytes, quantising operations of uint8, and bytes as results."""
    scheme = {"scale": np.float32(0.02), "zero": np.uint8(131)}
    nodes = [node("Cast", ["x"], ["real"], to=TensorProto.FLOAT), node("Conv", ["real", "filters"], ["Image"]),
             node("MaxPool", ["x"], ["MaxPool"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
             node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
             node("DequantizeLinear", ["w", "scale", "zero"], ["b"]),
             node("Conv", ["a", "b"], ["c"]), node("QuantizeLinear", ["c", "large", "zero"], ["Bytes"]),
             node("QLinearConv", ["x", "scale", "zero", "w", "scale", "zero", "large", "zero"], ["QLinearConv"]),
             node("QuantizeLinear", ["y", "scale"], ["Plain"]), node("Cast", ["x"], ["Signed"], to=TensorProto.INT8)]
    inputs = {"x": numbers("uint8", 1, 3, 9, 11), "y": reals(4, 33)}
    constants = scheme | {"large": np.float32(0.5), "w": numbers("uint8", 5, 3, 3, 3, seed=3),
                          "filters": reals(5, 3, 3, 3) / 100}
    report = assert_same(millrace, tmp_path, "tsp-v1", model_of(nodes, inputs, constants), inputs, units=1)
    by = {(row["operator"], row["device"]): row["macs"] for row in report["macs_by_operator"]}
    conv = by["Conv", "grid"] // 2
    assert by == {("Conv", "grid"): 2 * conv, ("QLinearConv", "none"): conv}  # the same as the quantised one of them
    assert report["macs_total"] == 3 * conv == 25_515


def with_uint8(model):
    """The same reals: every int8 as uint8, 128 more, zero points too."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT8:
            higher = (numpy_helper.to_array(tensor).astype(np.int16) + 128).astype(np.uint8)
            tensor.CopyFrom(numpy_helper.from_array(higher, tensor.name))
    for value in model.graph.value_info:
        if value.type.tensor_type.elem_type == TensorProto.INT8:
            value.type.tensor_type.elem_type = TensorProto.UINT8
    return model


@pytest.mark.parametrize("activations, form", [("symmetric", "qdq"), ("asymmetric", "qdq"), ("asymmetric", "qoperator")])
def test_uint8_costs_what_int8_costs(millrace, tmp_path, activations, form):
    signed = quantize(convnet(seed=1), activations, form)
    inputs = {value.name: reals(*(dim.dim_value for dim in value.type.tensor_type.shape.dim))
              for value in signed.graph.input}
    runs = []
    for name, model in (("signed", signed), ("unsigned", with_uint8(signed))):
        (tmp_path / name).mkdir()
        runs.append(run_millrace(millrace, save_model(model, tmp_path / name), "tsp-v1", "int8", inputs, tmp_path / name))
    assert runs[0].report["measured_cycles"] == runs[1].report["measured_cycles"]
    assert runs[1].report["host_ops"] == runs[0].report["host_ops"]
    for name, values in runs[0].outputs.items():
        assert np.array_equal(values, runs[1].outputs[name])


def test_numbers_that_several_constants_are_compared_with_are_drawn_among_them(millrace, tmp_path):
    """A one-hot code of JAX: of 0 and 1 alone it leaves little, and what is normalised behind it may be nothing but noise."""
    draw = np.random.default_rng(8)
    nodes = [helper.make_node("Equal", ["x", "range"], ["is"]), helper.make_node("Cast", ["is"], ["hot"], to=TensorProto.FLOAT),
             helper.make_node("MatMul", ["hot", "w"], ["h"])]
    constants = {"range": np.arange(40, dtype=np.int32).reshape(1, 1, 40), "w": draw.standard_normal((40, 16)).astype(np.float32)}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT32, [2, 24, 1])], [helper.make_tensor_value_info("h", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    done = subprocess.run([millrace, "run", tmp_path / "m.onnx", "--check=reference", "--output-dir", tmp_path / "out"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert len(np.unique(np.load(tmp_path / "out" / "h.npy").reshape(-1, 16), axis=0)) > 10  # of 48


@pytest.mark.parametrize("kind", ["uint8", "int32"])
@pytest.mark.parametrize("name, mean, deviation", [("by its size", 0, 255), ("by its mean", 117.25, 1), ("not at all", 0, 1)])
def test_an_image_of_integers_is_convolved_on_the_grid(millrace, tmp_path, kind, name, mean, deviation):
    """Channels last, normalised by the model or not: after that, activations as all others."""
    draw = np.random.default_rng(3)
    constants = {"m": np.float32([mean, mean + 3, mean - 5]), "d": np.float32([deviation] * 3)}
    nodes = [node("Cast", ["x"], ["real"], to=TensorProto.FLOAT), node("Sub", ["real", "m"], ["centred"]), node("Div", ["centred", "d"], ["normal"]),
             node("Transpose", ["normal"], ["h0"], perm=[0, 3, 1, 2])]
    for i, (channels, before) in enumerate([(16, 3), (24, 16)]):
        constants[f"w{i}"] = np.float32(draw.standard_normal((channels, before, 3, 3)) / np.sqrt(9 * before))
        nodes += [node("Conv", [f"h{i}", f"w{i}"], [f"c{i}"], pads=[1] * 4, strides=[2, 2]), node("Relu", [f"c{i}"], [f"h{i + 1}"])]
    nodes += [node("GlobalAveragePool", ["h2"], ["y"])]
    report = assert_same(millrace, tmp_path, "tsp-v1", model_of(nodes, {"x": numbers("uint8", 1, 20, 24, 3).astype(kind)}, constants),
                         {"x": numbers("uint8", 1, 20, 24, 3).astype(kind)})
    assert report["host_ops"] == []
    assert report["macs_on_grid"] == report["macs_total"]


def test_coordinates_that_become_angles_keep_fp32(millrace, tmp_path):
    """Integers, brought to -1 to 1 and mixed, then sines of up to 40: 16 bits of the angle would be wrong by 0.01."""
    draw = np.random.default_rng(4)
    constants = {"s": np.float32(1 / 500), "one": np.float32(1), "w": np.float32(draw.standard_normal((2, 64)) * 8)}
    nodes = [node("Cast", ["x"], ["real"], to=TensorProto.FLOAT), node("Mul", ["real", "s"], ["scaled"]), node("Sub", ["scaled", "one"], ["around"]),
             node("MatMul", ["around", "w"], ["angle"]), node("Sin", ["angle"], ["y"])]
    inputs = {"x": draw.integers(0, 1000, (9, 2))}
    assert_same(millrace, tmp_path, "tsp-v1", model_of(nodes, inputs, constants), inputs)
