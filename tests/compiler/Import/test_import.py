# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the importer writes, and what it says about models that it cannot import."""
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("MILLRACE_BUILD", ROOT / "build")) / "tests" / "bin" / "import-and-run"


def tensor(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, inputs, outputs, constants=None, opset=17, domains=()):
    graph = helper.make_graph(nodes, "graph", inputs, outputs,
                              [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()])
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(path, *arguments):
    if not PROGRAM.is_file():
        pytest.fail(f"'{PROGRAM}' does not exist; build the target import-and-run first")
    return subprocess.run([PROGRAM, path, path.parent, "--print", *arguments], capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.fixture
def imported(tmp_path):
    """imported(model, *arguments) is the text of the tensor level."""
    def import_text(model, *arguments):
        onnx.save(model, tmp_path / "model.onnx")
        done = run(tmp_path / "model.onnx", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return import_text


@pytest.fixture
def rejected(tmp_path):
    """rejected(model or bytes, *arguments) is the error, without the path."""
    def import_error(model, *arguments):
        path = tmp_path / "model.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        done = run(path, *arguments)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr.strip().removeprefix(f"{path}: ")
    return import_error


def convolution(**attributes):
    weights = np.arange(8 * 4 * 9, dtype=np.float32).reshape(8, 4 // attributes.get("group", 1), 3, 3) \
        if attributes.get("group", 1) == 1 else \
        np.ones((8, 4 // attributes["group"], 3, 3), np.float32)
    return model_of([helper.make_node("Conv", ["x", "w"], ["y"], name="stem", **attributes)],
                    [tensor("x", [1, 4, 8, 8])], [tensor("y", ["n", "c", "h", "w"])], {"w": weights})


def test_a_convolution_is_a_pad_and_a_named_operation_at_the_nodes_location(imported):
    text = imported(convolution(pads=[1, 1, 1, 1], strides=[2, 2]))
    assert "tensor.pad" in text and "low[0, 0, 1, 1] high[0, 0, 1, 1]" in text
    assert "linalg.conv_2d_nchw_fchw {dilations = dense<1>" in text and "strides = dense<2>" in text
    assert 'loc("stem")' in text


def test_groups_are_a_dimension_of_their_own(imported):
    text = imported(convolution(group=2))  # loops n, group, filters of one, positions, channels, taps
    assert "(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0, d1, d5, d3 + d6, d4 + d7)" in text
    assert "(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, d2, d5, d6, d7)" in text


def test_arguments_and_results_carry_their_onnx_names_and_types(imported):
    node = helper.make_node("Cast", ["in/0"], ["out"], to=TensorProto.INT64)
    text = imported(model_of([node], [tensor("in/0", [2], TensorProto.UINT8)], [tensor("out", [2], TensorProto.INT64)]))
    assert 'tensor<2xi8> {onnx.name = "in/0", onnx.type = "uint8"}' in text
    assert 'tensor<2xi64> {onnx.name = "out", onnx.type = "int64"}' in text
    assert "arith.extui" in text


def test_an_unnamed_node_is_located_by_type_and_index(imported):
    node = helper.make_node("Relu", ["x"], ["y"])
    assert 'loc("Relu_0")' in imported(model_of([node], [tensor("x", [3])], [tensor("y", [3])]))


def test_float16_is_stored_as_it_is_and_computes_in_f32(imported):
    node = helper.make_node("Add", ["x", "x"], ["y"])
    text = imported(model_of([node], [tensor("x", [3], TensorProto.FLOAT16)], [tensor("y", [3], TensorProto.FLOAT16)]))
    assert "%arg0: tensor<3xf16>" in text and "arith.extf" in text and "arith.addf" in text and ": f32" in text


def test_arithmetic_on_shapes_folds_away(imported):
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
             helper.make_node("Mul", ["n", "four"], ["m"]), helper.make_node("Concat", ["m", "rest"], ["t"], axis=0),
             helper.make_node("Reshape", ["x", "t"], ["y"])]
    constants = {"zero": np.array([0]), "four": np.array([4]), "rest": np.array([-1])}
    text = imported(model_of(nodes, [tensor("x", [3, 8])], [tensor("y", ["a", "b"])], constants))
    assert "tensor<12x2xf32>" in text and "linalg.generic" not in text and "arith.constant" not in text


def test_quantisation_says_so_and_keeps_scale_and_zero_point_as_operands(imported):
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    constants = {"s": np.float32(0.25), "z": np.int8(3)}
    text = imported(model_of(nodes, [tensor("x", [3])], [tensor("y", [3])], constants))
    assert 'millrace.quant = "quantize"' in text and 'millrace.quant = "dequantize"' in text
    assert "math.roundeven" in text and "arith.fptosi" in text
    assert re.search(r"ins\(%arg0, %cst\S*, %cst\S* : tensor<3xf32>, tensor<f32>, tensor<i8>\)", text)


def test_quantised_weights_stay_integers(imported):
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=0),
             helper.make_node("MatMul", ["x", "r"], ["y"])]
    constants = {"w": np.ones((2, 2), np.int8), "s": np.float32([0.5, 0.25])}
    text = imported(model_of(nodes, [tensor("x", [1, 2])], [tensor("y", [1, 2])], constants))
    assert 'millrace.quant = "dequantize"' in text and "dense<1> : tensor<2x2xi8>" in text


def test_large_splats_stay_splats(imported):
    shape = np.array([1000, 1000])
    nodes = [helper.make_node("ConstantOfShape", ["n"], ["w"], value=numpy_helper.from_array(np.float32([0.02]))),
             helper.make_node("MatMul", ["x", "w"], ["y"])]
    text = imported(model_of(nodes, [tensor("x", [1, 1000])], [tensor("y", [1, 1000])], {"n": shape}))
    assert "dense<2.000000e-02> : tensor<1000x1000xf32>" in text


def test_symbolic_dimensions_take_their_values_and_missing_ones_are_listed(imported, rejected):
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_of([node], [tensor("x", ["batch", "length"])], [tensor("y", ["batch", "length"])])
    assert "tensor<2x5xf32>" in imported(model, "--dim", "batch=2", "--dim", "length=5")
    assert rejected(model) == "symbolic dimensions without a value: batch, length; give each by --dim name=n"
    assert "tensor<2x5xf32>" in imported(model, "--dim", "x.0=2", "--dim", "length=5")
    assert "no input has a dimension of that name" in \
        rejected(model, "--dim", "batch=2", "--dim", "length=5", "--dim", "width=1")


def test_dimensions_that_have_no_name_are_given_by_their_place(imported, rejected):
    """Paddle writes ? for each of them, or -1."""
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_of([node], [tensor("x", [-1, 3, "?", "?"])], [tensor("y", [-1, 3, "?", "?"])])
    assert rejected(model) == "symbolic dimensions without a value: x.0, x.2, x.3; give each by --dim name=n"
    assert "tensor<1x3x4x5xf32>" in imported(model, "--dim", "x.0=1", "--dim", "x.2=4", "--dim", "x.3=5")


def test_all_unsupported_operations_are_listed_at_once(rejected):
    nodes = [helper.make_node("NonZero", ["x"], ["a"], name="first"),
             helper.make_node("Strange", ["x"], ["b"], domain="my.domain")]
    outputs = [tensor("a", [1, "n"], TensorProto.INT64), tensor("b", ["n"])]
    model = model_of(nodes, [tensor("x", [3])], outputs, domains=["my.domain"])
    assert rejected(model) == \
        ("operations that are not supported: NonZero (node 'first'), my.domain.Strange (node 'Strange_1'); "
         "rewrite the model without them")


def test_a_cut_off_file_is_rejected(rejected):
    whole = (ROOT / "models" / "fixtures" / "mnist.onnx").read_bytes()
    assert "not an ONNX model, or cut off" in rejected(whole[:len(whole) // 2])
    assert "not an ONNX model" in rejected(b"")


def test_an_old_opset_is_rejected_with_the_supported_ones(rejected):
    node = helper.make_node("Relu", ["x"], ["y"])
    assert "opset 5 is not supported; opsets 7 to " in \
        rejected(model_of([node], [tensor("x", [3])], [tensor("y", [3])], opset=5))


def external(location, offset=0, length=16):
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor("x", [4])], [tensor("y", [4])],
                     {"w": np.zeros(4, np.float32)})
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        weights.external_data.add(key=key, value=str(value))
    return model


def test_external_data_that_is_missing_too_short_or_elsewhere_is_named(rejected, tmp_path):
    assert "tensor 'w': external data file" in rejected(external("weights.bin"))
    (tmp_path / "weights.bin").write_bytes(bytes(15))
    assert "ends before byte 16" in rejected(external("weights.bin"))
    assert "must be a file beside the model" in rejected(external("../weights.bin"))
    assert "must be a file beside the model" in rejected(external("/etc/passwd"))


def test_external_data_is_read(imported, tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(4) + np.arange(4, dtype=np.float32).tobytes())
    assert "dense<[0.000000e+00, 1.000000e+00, 2.000000e+00, 3.000000e+00]>" in imported(external("weights.bin", 4))


def test_a_constant_whose_bytes_do_not_fit_its_shape_is_rejected(rejected):
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor("x", [4])], [tensor("y", [4])],
                     {"w": np.zeros(4, np.float32)})
    model.graph.initializer[0].raw_data = bytes(7)
    assert "w" in rejected(model)


def test_results_larger_than_any_memory_are_rejected(rejected):
    expand = helper.make_node("Expand", ["x", "s"], ["y"], name="node")
    assert "more than 2^36 elements; use smaller extents" in \
        rejected(model_of([expand], [tensor("x", [1])], [tensor("y", None)], {"s": np.int64([2**20, 2**20])}))
    pair = helper.make_node("Add", ["x0", "x1"], ["y"], name="node")
    assert "more than 2^36 elements; use smaller extents" in \
        rejected(model_of([pair], [tensor("x0", [2**20, 1]), tensor("x1", [1, 2**20])], [tensor("y", None)], {}))


def test_windows_whose_reach_no_number_holds_are_rejected(rejected):
    pool = helper.make_node("MaxPool", ["x"], ["y"], name="node", kernel_shape=[1], dilations=[2**62])
    assert f"must be below 2^31, but one is {2**62}" in \
        rejected(model_of([pool], [tensor("x", [1, 1, 8])], [tensor("y", None)], {}))


def test_scales_that_do_not_fit_a_vector_are_rejected(rejected):
    """A vector times a matrix: its result has no rows to scale."""
    names = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    node = helper.make_node("QLinearMatMul", names, ["y"], name="node")
    constants = {"as": np.float32(1), "az": np.int8(0), "b": np.zeros((4, 3), np.int8), "bs": np.float32(1),
                 "bz": np.int8(0), "ys": np.ones(2, np.float32), "yz": np.zeros(2, np.int8)}
    assert "its scales or zero points do not fit its tensor" in \
        rejected(model_of([node], [tensor("a", [4], TensorProto.INT8)], [tensor("y", [3], TensorProto.INT8)], constants))


def test_a_split_into_more_parts_than_outputs_is_rejected(rejected):
    node = helper.make_node("Split", ["x"], ["y", "z"], name="node", num_outputs=2**31 - 1)
    assert f"num_outputs is {2**31 - 1}, but the node has 2" in \
        rejected(model_of([node], [tensor("x", [6])], [tensor("y", None), tensor("z", None)], {}, opset=18))


def test_a_shape_whose_product_no_number_holds_is_rejected(rejected):
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="node")
    message = rejected(model_of([node], [tensor("x", [6])], [tensor("y", None)], {"s": np.int64([2**62, 8, -1])}))
    assert "cannot" in message or "hape" in message


def test_tensors_that_cannot_be_joined_are_rejected(rejected):
    node = helper.make_node("CausalConvWithState", ["x", "w"], ["y", "state"], name="node")
    model = model_of([node], [tensor("x", [2, 8]), tensor("w", [4, 1, 3])], [tensor("y", None)], {}, opset=27)
    model.ir_version = 13
    assert "node" in rejected(model)


def test_constants_that_no_one_could_hold_are_not_made(rejected, imported):
    """Weights of a Resize, counts of windows that reach into padding; without padding one count is enough."""
    resize = helper.make_node("Resize", ["x", "", "", "s"], ["y"], name="node", mode="linear")
    assert f"resizes {2**20} elements to {2**21}, which takes more than 2^26 weights" in \
        rejected(model_of([resize], [tensor("x", [1, 1, 2**20])], [tensor("y", None)], {"s": np.int64([1, 1, 2**21])}))
    pool = helper.make_node("AveragePool", ["x"], ["y"], name="node", kernel_shape=[3], pads=[1, 1])
    assert f"averages {2**27} windows over padding, more than 2^26" in \
        rejected(model_of([pool], [tensor("x", [1, 1, 2**27])], [tensor("y", None)], {}))
    del pool.attribute[-1]
    assert f"tensor<1x1x{2**27 - 2}xf32>" in imported(model_of([pool], [tensor("x", [1, 1, 2**27])], [tensor("y", None)], {}))
