# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attributes, extents and values at the edges equal ONNX Runtime, or are refused by name."""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

NUMBERS = np.random.default_rng(0)


def reals(*shape):
    return NUMBERS.standard_normal(shape).astype(np.float32)


def whole(*values, dtype=np.int64):
    return np.array(values, dtype)


def model_of(op, inputs, constants=(), opset=19, element=None, outputs=1, **attributes):
    """One operation; `inputs` whose index is in `constants` are initializers. The outputs' shapes stay open."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    arrays = {f"x{i}": np.asarray(array) for i, array in enumerate(inputs) if array is not None}
    fixed = [f"x{i}" for i in constants]
    element = element or helper.np_dtype_to_tensor_dtype(next(iter(arrays.values())).dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="node", **attributes)], "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in arrays.items() if name not in fixed],
        [helper.make_tensor_value_info(f"y{i}", element, None) for i in range(outputs)],
        [numpy_helper.from_array(arrays[name], name) for name in fixed])
    feed = {name: array for name, array in arrays.items() if name not in fixed}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed


IMAGE = reals(1, 2, 5, 5)
EQUAL = {
    "auto_pad VALID leaves pads out":
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "auto_pad": "VALID", "pads": [1] * 4}),
    "an average leaves them out too":
        ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "auto_pad": "VALID", "pads": [1] * 4}),
    "Abs of a large unsigned number is that number": ("Abs", [whole(0, 127, 128, 255, dtype=np.uint8)], {}),
    "the sign of NaN is NaN": ("Sign", [np.float32([np.nan, -2, 0, 3])], {}),
    "a sum of exponentials that are all 0": ("ReduceLogSumExp", [np.float32([-np.inf, -np.inf])], {}),
    "a sum of exponentials with infinity": ("ReduceLogSumExp", [np.float32([np.inf, 1])], {}),
    "an axis named twice is reduced once": ("ReduceMean", [reals(2, 3), whole(0, 0)], {"constants": [1], "opset": 18}),
    "a norm over no axes": ("ReduceL1", [reals(2, 3)], {"opset": 18, "noop_with_empty_axes": 1}),
    "a step beyond the tensor takes one element":
        ("Slice", [reals(4, 5), whole(1), whole(2**63 - 1), whole(1), whole(2**63 - 1)], {"constants": [1, 2, 3, 4]}),
    "backwards over nothing is nothing":
        ("Slice", [reals(4, 5), whole(3, 0), whole(1, 5), whole(0, 1), whole(1, -1)], {"constants": [1, 2, 3, 4]}),
    "a constant surrounds what negative pads emptied":
        ("Pad", [reals(3, 4), whole(1, 0, -3, 0), np.float32(7)], {"constants": [1]}),
    "all zeros are quantised with scale 1":
        ("DynamicQuantizeLinear", [np.zeros(3, np.float32)], {"element": TensorProto.UINT8}),
    "ceil_mode of an old opset": ("MaxPool", [reals(1, 1, 4, 4)],
                                  {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1, "opset": 11}),
    "0.7 of 10 is 7 in fp32":
        ("Resize", [reals(1, 1, 10, 10), None, np.float32([1, 1, .7, .7])], {"constants": [2]}),
    "a nearest neighbour at a tie of fp32": ("Resize", [reals(1, 1, 6, 6), None, np.float32([1, 1, 2.3, 2.3])],
                                             {"constants": [2], "nearest_mode": "round_prefer_floor"}),
    "Resize of opset 10 is asymmetric":
        ("Resize", [reals(1, 1, 5, 7), np.float32([1, 1, 2, 1.5])], {"constants": [1], "opset": 10, "mode": "linear"}),
    "Resize of opset 10 takes the neighbour above when it shrinks, below when it grows":
        ("Resize", [reals(1, 1, 5, 7), np.float32([1, 1, .6, 2.3])], {"constants": [1], "opset": 10}),
    "Upsample is asymmetric":
        ("Upsample", [reals(1, 1, 5, 7), np.float32([1, 1, 2, 2.3])], {"constants": [1], "opset": 9, "mode": "linear"}),
}


@pytest.mark.parametrize("claim", EQUAL)
def test_it_equals_onnx_runtime(claim, runner, tmp_path):
    op, inputs, options = EQUAL[claim]
    model, feed = model_of(op, inputs, outputs=3 if op == "DynamicQuantizeLinear" else 1, **options)
    if op == "DynamicQuantizeLinear":
        model.graph.output[1].type.tensor_type.elem_type = TensorProto.FLOAT
    if op == "MaxPool" and options.get("opset") == 11:  # what shape inference said of it until opset 21
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, [1, 1, 3, 3]))
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    expected = ort.InferenceSession(model.SerializeToString(), quiet).run(None, feed)
    onnx.save(model, tmp_path / "model.onnx")
    for got, want in zip(runner.run(tmp_path / "model.onnx", list(feed.values())), expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.allclose(got, want, 1e-5, 1e-6, equal_nan=True)


REFUSED = {
    "a constant divisor of 0": ("Div", [whole(4, 5), whole(2, 0)], {"constants": [1]}, "its divisor is a constant"),
    "a constant index outside": ("Gather", [reals(3, 4), whole(3)], {"constants": [1]},
                                 "its index 3 lies outside of extent 3; give -3 to 2"),
    "a row of an empty table": ("Gather", [reals(0, 4), whole(0)], {}, "looks up a dimension that has no elements"),
    "copies of nothing": ("Pad", [reals(0, 4), whole(1, 0, 1, 0)], {"constants": [1], "mode": "wrap"},
                          "pads dimension 0 by copies of its elements, and it has none"),
    "half a permutation": ("Transpose", [reals(2, 3)], {"perm": [0]}, "does not name each of 2 dimensions once"),
    "a value of no elements": ("ConstantOfShape", [whole(2)],
                               {"constants": [0], "element": TensorProto.FLOAT,
                                "value": numpy_helper.from_array(np.zeros(0, np.float32))}, "its value has 0 elements"),
    "kernel_shape of other weights": ("Conv", [IMAGE, reals(3, 2, 3, 3)], {"kernel_shape": [2, 2]},
                                      "its kernel_shape 2x2 is not that of its weights, 3x3"),
    "a root of integers": ("ReduceL2", [whole(3, 4)], {}, "takes a root or logarithm of int64"),
    "a letter twice": ("Einsum", [reals(3)], {"equation": "i->ii"}, "occurs twice"),
}


@pytest.mark.parametrize("claim", REFUSED)
def test_it_is_refused_by_name(claim, runner, tmp_path):
    op, inputs, options, text = REFUSED[claim]
    model, feed = model_of(op, inputs, **options)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(RuntimeError) as refusal:
        runner.run(tmp_path / "model.onnx", list(feed.values()))
    assert f"{op} 'node': " in str(refusal.value) and text in str(refusal.value)


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_integers_divided_by_0_or_the_least_by_minus_1_do_not_crash(op, dtype, runner, tmp_path):
    least = np.iinfo(dtype).min
    a, b = whole(5, 0, least, 7, dtype=dtype), np.array([0, 0, -1, 2]).astype(dtype)
    model, feed = model_of(op, [a, b])
    onnx.save(model, tmp_path / "model.onnx")
    (got,) = runner.run(tmp_path / "model.onnx", list(feed.values()))
    with np.errstate(all="ignore"):
        assert np.array_equal(got, a // b if op == "Div" else np.fmod(a, b) if np.all(b >= 0) else a % b)


def test_constants_of_bool_hold_what_the_model_says(runner, tmp_path):
    masks = [whole(*bits, dtype=bool) for bits in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0])]
    a, b = reals(3), reals(3)
    nodes = [helper.make_node("Where", [f"m{i}", "a", "b"], [f"y{i}"]) for i in range(len(masks))]
    model = helper.make_model(helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "ab"],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [3]) for i in range(len(masks))],
        [numpy_helper.from_array(mask, f"m{i}") for i, mask in enumerate(masks)]),
        opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    for got, mask in zip(runner.run(tmp_path / "model.onnx", [a, b]), masks, strict=True):
        assert np.array_equal(got, np.where(mask, a, b))
