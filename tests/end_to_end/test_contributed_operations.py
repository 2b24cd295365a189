# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of com.microsoft that ONNX Runtime's optimizer and quantisers write, and constants of 2 and 4 bits."""
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import relative_l2, run_millrace, save_model

node = helper.make_node
DRAW = np.random.default_rng(11)


def reals(*shape, scale=1.0):
    return (DRAW.standard_normal(shape) * scale).astype(np.float32)


def numbers(kind, *shape):
    return DRAW.integers(-128 if kind == "int8" else 0, 128 if kind == "int8" else 256, shape).astype(kind)


def model_of(nodes, inputs, constants, kind=TensorProto.FLOAT, opset=21):
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [array if isinstance(array, TensorProto) else numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def of_microsoft(op, inputs, constants, names=None, **attributes):
    return model_of([node(op, names or [*inputs, *constants], ["y", "key", "value"] if op == "GroupQueryAttention" else ["y"], domain="com.microsoft", **attributes)], inputs, constants,
                    TensorProto.UINT8 if op.startswith("QLinear") else TensorProto.FLOAT)


def cases():
    x = reals(2, 9, 48)
    image = reals(1, 8, 10, 12)
    scale, byte = np.float32(0.02), np.uint8(128)
    yield "FusedMatMul", of_microsoft("FusedMatMul", {"a": reals(2, 48, 9), "b": reals(2, 20, 48)}, {}, alpha=0.25, transA=1, transB=1), 2e-3
    yield "FusedConv", of_microsoft("FusedConv", {"x": image}, {"w": reals(16, 8, 3, 3, scale=0.1), "b": reals(16)}, activation="LeakyRelu",
                                    activation_params=[0.2], pads=[1] * 4), 2e-3
    yield "FusedConv with a sum", of_microsoft("FusedConv", {"x": image, "z": reals(1, 16, 10, 12)}, {"w": reals(16, 8, 3, 3, scale=0.1), "b": reals(16)},
                                               ["x", "w", "b", "z"], activation="Relu", pads=[1] * 4), 2e-3
    yield "FusedConv clipped", of_microsoft("FusedConv", {"x": image}, {"w": reals(16, 8, 1, 1)}, activation="Clip", activation_params=[-0.5, 1.5]), 2e-3
    yield "FusedGemm", of_microsoft("FusedGemm", {"x": reals(7, 48)}, {"w": reals(48, 20), "b": reals(20)}, activation="Tanh"), 2e-3
    w8, s8 = numbers("uint8", 48, 20), (DRAW.random(20) * 0.01 + 0.01).astype(np.float32)
    yield "MatMulIntegerToFloat", of_microsoft(
        "MatMulIntegerToFloat", {"a": numbers("uint8", 2, 9, 48)},
        {"b": w8, "as": scale, "bs": s8, "az": np.uint8(120), "bz": numbers("uint8", 20), "bias": reals(20)}), 2e-3
    yield "DynamicQuantizeMatMul", of_microsoft(
        "DynamicQuantizeMatMul", {"a": x}, {"b": w8, "bs": s8, "bz": numbers("uint8", 20), "bias": reals(20)}), 2e-3
    # Weights of 7 bits: without VNNI ONNX Runtime saturates sums of two products in 16 bits.
    for name, more, attributes in (("", {}, {}), (" that looks back", {"mask": np.array([[1] * 9, [1] * 7 + [0] * 2], np.int32)}, {"unidirectional": 1})):
        attention = node("QAttention", ["bytes", "w", "b", "xs", "ws", "mask" if more else "", "xz", "wz"], ["y"], domain="com.microsoft", num_heads=4, **attributes)
        yield f"QAttention{name}", model_of(
            [node("DynamicQuantizeLinear", ["x"], ["bytes", "xs", "xz"]), attention], {"x": x},
            {"w": numbers("int8", 48, 96) // 2, "b": reals(96), "ws": np.float32(0.004), **more, "wz": np.int8(3)}), 3e-3
    for bits, block in ((4, 16), (4, 32), (8, 32)):
        blocks = -(-44 // block)
        packed = numbers("uint8", 20, blocks, block * bits // 8)
        scales = (DRAW.random((20, blocks)) * 0.1 + 0.05).astype(np.float32)
        zeros = numbers("uint8", 20, -(-blocks * bits // 8))
        for name, constants in (("", {"b": packed, "s": scales}), (" with zero points", {"b": packed, "s": scales, "z": zeros})):
            yield f"MatMulNBits of {bits} in {block}{name}", of_microsoft(
                "MatMulNBits", {"a": reals(2, 9, 44)}, constants, K=44, N=20, bits=bits, block_size=block), 2e-3
    for op, attributes in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})):
        yield op, of_microsoft(op, {"x": numbers("uint8", 3, 40)}, {"xs": scale, "xz": byte, "ys": np.float32(0.01), "yz": np.uint8(3)}, **attributes), 1
    yield "QLinearSoftmax", of_microsoft("QLinearSoftmax", {"x": numbers("uint8", 3, 40)}, {"xs": scale, "xz": byte, "ys": np.float32(1 / 256), "yz": np.uint8(0)},
                                         axis=-1, opset=13), 1
    yield "QLinearWhere", of_microsoft(
        "QLinearWhere", {"c": DRAW.integers(0, 2, (3, 40)).astype(bool), "x": numbers("uint8", 3, 40), "z": numbers("uint8", 3, 40)},
        {"xs": scale, "xz": byte, "zs": np.float32(0.03), "zz": byte, "ys": np.float32(0.03), "yz": byte},
        ["c", "x", "xs", "xz", "z", "zs", "zz", "ys", "yz"]), 1


def angles():
    turns = np.outer(np.arange(40), 1 / 10000 ** (np.arange(16) / 16))
    return {"c": np.cos(turns).astype(np.float32), "s": np.sin(turns).astype(np.float32)}


def heads():
    """Rotary positions, and attention whose heads share keys."""
    x = reals(2, 5, 128)
    yield "RotaryEmbedding", of_microsoft("RotaryEmbedding", {"x": x}, {"p": np.array([3], np.int64), **angles()}, num_heads=4), 2e-3
    yield "RotaryEmbedding of neighbours", of_microsoft(
        "RotaryEmbedding", {"x": reals(2, 4, 5, 32)}, {"p": np.array([[0, 1, 2, 3, 4], [9, 8, 7, 1, 0]]), **angles()}, interleaved=1), 2e-3
    for name, new, past, packed, attributes in (
            ("a prompt", 5, 0, False, {"do_rotary": 1}), ("a step", 1, 9, False, {"do_rotary": 1}), ("packed", 3, 9, True, {"do_rotary": 1, "rotary_interleaved": 1}),
            ("a window", 5, 9, False, {"local_window_size": 6}), ("a cap", 4, 9, False, {"softcap": 5.0, "scale": 0.3})):
        width = (4 + 2 * 2) * 32 if packed else 4 * 32
        inputs = {"q": reals(1, new, width), **({} if packed else {"k": reals(1, new, 64), "v": reals(1, new, 64)}),
                  "pk": reals(1, 2, past, 32), "pv": reals(1, 2, past, 32)}
        if not past:  # ONNX Runtime wants them all the same
            inputs = {name: array for name, array in inputs.items() if name not in ("pk", "pv")}
        constants = {"n": np.array([past + new - 1], np.int32), "t": np.array(past + new, np.int32), **angles()}
        names = ["q", *(["", ""] if packed else ["k", "v"]), *(["pk", "pv"] if past else ["", ""]), "n", "t", "c", "s"]
        yield f"GroupQueryAttention, {name}", of_microsoft("GroupQueryAttention", inputs, constants, names, num_heads=4, kv_num_heads=2, **attributes), 2e-3


CASES = {name: (model, most) for name, model, most in [*cases(), *heads()]}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_that_of_onnxruntime(millrace, tmp_path, name):
    """To rounding; bytes to one."""
    model, most = CASES[name]
    draw = np.random.default_rng(12)
    inputs = {}
    for info in model.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        inputs[info.name] = (draw.standard_normal(shape) if kind == np.float32 else draw.integers(0, 2 if kind == bool else 256, shape)).astype(kind)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.outputs["y"].dtype == want.dtype
    if want.dtype == np.uint8:
        assert np.abs(got.outputs["y"].astype(int) - want.astype(int)).max() <= most
    else:
        assert relative_l2(got.outputs["y"], want) < most
    if name.startswith(("MatMul", "Fused", "Dynamic", "QAttention")):
        assert got.report["macs_on_grid"] == got.report["macs_total"] > 0


def packed(name, kind, values):
    """A constant of 4 bits, two to a byte."""
    flat = np.asarray(values, np.int64).ravel() & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.int64))
    return helper.make_tensor(name, kind, np.shape(values), (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes(), raw=True)


@pytest.mark.parametrize("kind, low", [(TensorProto.INT4, -8), (TensorProto.UINT4, 0)])
@pytest.mark.parametrize("rows", [32, 33])
def test_constants_of_4_bits(millrace, tmp_path, kind, low, rows):
    """Dequantised in blocks of 8 along the first dimension, with zero points."""
    w, z = np.random.default_rng(1).integers(low, low + 16, (rows, 21)), np.random.default_rng(2).integers(low, low + 16, (-(-rows // 8), 21))
    inputs = {"x": reals(5, rows)}
    model = model_of(
        [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=8), node("MatMul", ["x", "d"], ["y"])], inputs,
        {"w": packed("w", kind, w), "s": (np.random.default_rng(3).random((-(-rows // 8), 21)) * 0.1).astype(np.float32), "z": packed("z", kind, z)})
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    scale = numpy_helper.to_array(model.graph.initializer[1])
    block = np.arange(rows) // 8
    want = inputs["x"] @ ((w - z[block]).astype(np.float32) * scale[block])
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs["y"], want) < 2e-3


def test_rows_of_a_table_of_4_bits(millrace, tmp_path):
    table = DRAW.integers(0, 16, (50, 64))
    inputs = {"i": DRAW.integers(0, 50, (7,)).astype(np.int64)}
    scales = (DRAW.random((50, 2)) * 0.1).astype(np.float32)
    model = model_of([node("GatherBlockQuantized", ["t", "i", "s"], ["y"], domain="com.microsoft", block_size=32, gather_axis=0, quantize_axis=1)], inputs,
                     {"t": packed("t", TensorProto.UINT4, table), "s": scales})
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]
    assert relative_l2(got.outputs["y"], want) < 2e-3


@pytest.mark.parametrize("nodes, constants, words", [
    ([node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
     {"s": np.float32(0.1), "z": packed("z", TensorProto.INT4, np.array(0))}, "fewer than 8 bits"),
    ([node("DequantizeLinear", ["w", "s"], ["d"]), node("Add", ["x", "d"], ["y"])],
     {"s": np.float32(0.1), "w": TensorProto(name="w", data_type=TensorProto.INT4, dims=[5, 32], raw_data=b"\0" * 79)}, "does not hold the numbers of 4 bits"),
])
def test_what_4_bits_cannot_be_is_named(millrace, tmp_path, nodes, constants, words):
    model = model_of(nodes, {"x": reals(5, 32)}, constants)
    done = subprocess.run([millrace, "run", save_model(model, tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and words in done.stderr


def test_a_step_whose_length_is_known_at_run_time(millrace, tmp_path):
    """Two of a batch, of which one has fewer keys in its past: its scores, positions and window follow."""
    inputs = {"q": reals(2, 1, 128), "k": reals(2, 1, 64), "v": reals(2, 1, 64), "pk": reals(2, 2, 9, 32), "pv": reals(2, 2, 9, 32),
              "n": np.array([9, 6], np.int32)}
    model = of_microsoft("GroupQueryAttention", inputs, {"t": np.array(10, np.int32), **angles()}, num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=5)
    del model.graph.node[0].input[6:]
    model.graph.node[0].input.extend(["t", "c", "s"])
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    assert relative_l2(got.outputs["y"], onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]) < 2e-3


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("is_last", [0, 1])
def test_groups_of_an_images_channels(millrace, tmp_path, skips, is_last):
    """GroupNorm and SkipGroupNorm, which ONNX Runtime has on GPUs alone: against the formula."""
    x = reals(2, 5, 6, 32) if is_last else reals(2, 32, 5, 6)
    names = ["x", "g", "b", "z", "c"] if skips else ["x", "g", "b"]
    inputs = {"x": x, "z": reals(2, 32)} if skips else {"x": x}
    constants = {"g": reals(32), "b": reals(32), **({"c": reals(32)} if skips else {})}
    model = of_microsoft("SkipGroupNorm" if skips else "GroupNorm", inputs, constants, names, groups=4, activation=1, epsilon=1e-5, channels_last=is_last)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", None, inputs, tmp_path)
    image = x.transpose(0, 3, 1, 2) if is_last else x
    if skips:
        image = image + (inputs["z"] + constants["c"])[:, :, None, None]
    blocks = image.reshape(2, 4, -1).astype(np.float64)
    normal = (blocks - blocks.mean(2, keepdims=True)) / np.sqrt(blocks.var(2, keepdims=True) + 1e-5)
    scaled = normal.reshape(image.shape) * constants["g"][:, None, None] + constants["b"][:, None, None]
    want = scaled / (1 + np.exp(-scaled))
    assert got.report["host_ops"] == []
    assert relative_l2(got.outputs["y"], want.transpose(0, 2, 3, 1) if is_last else want) < 2e-3
