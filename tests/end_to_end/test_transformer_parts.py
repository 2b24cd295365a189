# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What random transformers found: parts of layers, each with the graph that was refused or wrong."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
import random_transformers
from oracle import relative_l2, run_millrace, save_model

MACHINES = ["tsp-v1", "tsp-small", "mesh-4x4"]
LOWEST = np.finfo(np.float32).min
node = helper.make_node


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def judged(millrace, tmp_path, nodes, inputs, constants=(), machine="tsp-v1", precision="fp16", bound=5e-3, on_grid=False):
    """The output y is ONNX Runtime's, which is returned; with `on_grid`, the host does nothing."""
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for name, a in inputs.items()]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in dict(constants).items()])
    domains = [("", 23), ("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=10)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, precision, inputs, tmp_path, ["--check"])
    assert not (on_grid and got.report["host_ops"])
    expected = probe.run(model, inputs)["y"]
    assert np.isfinite(got.outputs["y"]).all()
    assert relative_l2(got.outputs["y"], expected) <= bound
    return expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("heads, size", [(2, 8), (3, 16), (5, 4)])
def test_heads_that_are_rows_of_an_operand_are_added_to_a_product(millrace, tmp_path, machine, heads, size):
    """The product's columns may not be one vector if another operand has the heads in rows of their own."""
    width = heads * size
    judged(millrace, tmp_path,
           [node("Reshape", ["a", "shape"], ["b"]), node("MatMul", ["x", "w"], ["m"]), node("Add", ["b", "m"], ["y"])],
           {"a": numbers(2, 3, heads, size), "x": numbers(2, 3, 32, seed=1)},
           {"shape": np.int64([2, 3, width]), "w": numbers(32, width, seed=2)}, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("width", [8, 40])
def test_a_gate_beside_a_product_is_cut_where_the_product_would_wait(millrace, tmp_path, machine, width):
    """SwiGLU: x W + b would pass one ALU after another until the gate's exponential is there."""
    judged(millrace, tmp_path,
           [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "bias"], ["up"]), node("Sigmoid", ["gate"], ["s"]),
            node("Mul", ["gate", "s"], ["silu"]), node("Mul", ["silu", "up"], ["y"])],
           {"x": numbers(4, 8, width), "gate": numbers(4, 8, width, seed=1)},
           {"w": numbers(width, width, seed=2), "bias": numbers(width, seed=3)}, machine)


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_what_comes_later_stays_hidden_where_a_mask_hides_all_before(millrace, tmp_path, op):
    """Queries whose own past is padding see it all alike (-10000 each) and still nothing that comes after."""
    mask = np.int32([[0, 0, 1, 1, 1, 1, 0, 1]])
    if op == "Attention":
        attention = node(op, ["x", "w", "b", "mask"], ["y"], domain="com.microsoft", num_heads=2, unidirectional=1)
        inputs, constants = {"x": numbers(1, 8, 16)}, {"w": numbers(16, 48, seed=1) / 4, "b": numbers(48, seed=2)}
    else:
        attention = node(op, ["x", "k", "v", "", "mask"], ["y"], domain="com.microsoft", num_heads=2, unidirectional=1)
        # Scores of hidden keys are near -10000, where fp16 holds multiples of 8: they are nearly alike here.
        inputs = {"x": numbers(1, 8, 16) / 16, "k": numbers(1, 8, 16, seed=1), "v": numbers(1, 8, 16, seed=2)}
        constants = {}
    inputs["x"] = inputs["x"] / 16
    expected = judged(millrace, tmp_path, [attention], {**inputs, "mask": mask}, constants, bound=2e-2)
    assert not np.allclose(expected[0, 0], expected[0, 1], atol=1e-2)  # one key seen, and two


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
                                "SimplifiedLayerNormalization"])
@pytest.mark.parametrize("after", ["RotaryEmbedding", "Attention"])
def test_a_function_of_onnx_follows_an_operation_of_onnx_runtime(millrace, tmp_path, op, after):
    """Functions are replaced by their bodies, which ask for the types of their inputs."""
    inputs, constants = {"x": numbers(1, 6, 16)}, {"scale": 1 + numbers(16, seed=2) / 8}
    if op.startswith("Skip"):
        inputs["skip"] = numbers(1, 6, 16, seed=1)
        norm = node(op, ["x", "skip", "scale"], ["n"], domain="com.microsoft", epsilon=1e-5)
    else:
        norm = node(op, ["x", "scale"], ["n"], epsilon=1e-5)
    if after == "Attention":
        last = node(after, ["n", "n", "n"], ["y"], q_num_heads=2, kv_num_heads=2)
    else:
        last = node(after, ["n", "cos", "sin"], ["y"], num_heads=2)
        inputs |= {"cos": numbers(1, 6, 4, seed=3), "sin": numbers(1, 6, 4, seed=4)}
    judged(millrace, tmp_path, [norm, last], inputs, constants)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_lowest_number_is_moved_in_parts_that_add_up_to_it(millrace, tmp_path, precision):
    """A mask hides all keys of scores in fp32 (they come from whole numbers): the first two of three parts, both
    rounded, would pass the lowest number and leave NaN."""
    seen = np.zeros((1, 1, 1, 6), bool)
    expected = judged(millrace, tmp_path,
                      [node("DequantizeLinear", ["q", "s"], ["x"]), node("MatMul", ["x", "w"], ["scores"]),
                       node("Where", ["seen", "scores", "low"], ["masked"]),
                       node("Softmax", ["masked"], ["y"], axis=-1)],
                      {"q": np.random.default_rng(0).integers(-99, 99, (1, 1, 5, 8)).astype(np.int8), "seen": seen},
                      {"s": np.float32(0.05), "w": numbers(8, 6), "low": LOWEST}, precision=precision)
    assert np.allclose(expected, 1 / 6)


def test_rows_that_a_mask_hides_are_found():
    """For the bounds of random models: causal or not, by a mask of keys or of rows."""
    m = random_transformers.Model()
    m.inputs = {"x": numbers(2, 3, 4), "mask": np.int32([[0, 1, 1], [0, 0, 0]])}
    def rows(causal):
        attention = node("Attention", ["x", "w", "b", "mask"], ["y"], domain="com.microsoft", unidirectional=causal)
        return random_transformers.hidden_rows(m, attention, {})[:, 0, :, 0].tolist()
    assert rows(0) == [[False] * 3, [True] * 3]
    assert rows(1) == [[True, False, False], [True] * 3]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("tokens, size", [(17, 8), (21, 4), (40, 8)])
def test_batches_side_by_side_in_a_row_are_cut_into_the_same_tiles(millrace, tmp_path, machine, tokens, size):
    """Values of several batches, tokens along the lanes, in more lanes than a vector has: the vector's end may not
    cut one batch elsewhere than another."""
    judged(millrace, tmp_path,
           [node("MatMul", ["x", "w"], ["m"]), node("Reshape", ["m", "shape"], ["r"]),
            node("Transpose", ["r"], ["v"], perm=[0, 2, 1, 3]), node("Attention", ["q", "k", "v"], ["y"])],
           {"x": numbers(3, tokens, 24), "q": numbers(3, 3, tokens, size, seed=1),
            "k": numbers(3, 1, tokens, size, seed=2)},
           {"w": numbers(24, size, seed=3) / 5, "shape": np.int64([3, tokens, 1, size])}, machine)


@pytest.mark.parametrize("activation", ("silu", "sigmoid", "none"))
def test_patches_join_an_image_behind_other_channels(millrace, tmp_path, activation):
    """MobileViT: tokens of 2 x 2 patches become an image again, whose channels stand behind those of another; a map of two stored
    values cannot be moved to those lanes, but what it makes can."""
    constants = {"as_patches": np.int64([1, 4, 64, 24]), "as_rows": np.int64([24 * 8, 8, 2, 2]), "as_image": np.int64([1, 24, 16, 16]),
                 "projection": numbers(20, 24, 1, 1) / 5, "fusion": numbers(12, 40, 3, 3, seed=1) / 20}
    nodes = [node("Reshape", ["tokens", "as_patches"], ["patches"]), node("Transpose", ["patches"], ["turned"], perm=[0, 3, 2, 1]),
             node("Reshape", ["turned", "as_rows"], ["rows"]), node("Transpose", ["rows"], ["even"], perm=[0, 2, 1, 3]),
             node("Reshape", ["even", "as_image"], ["image"]), node("Conv", ["image", "projection"], ["projected"]),
             node("Sigmoid", ["projected"], ["gate"]), node("Mul", ["projected", "gate"], ["gated"]),
             node("Concat", ["other", {"silu": "gated", "sigmoid": "gate", "none": "projected"}[activation]], ["joined"], axis=1),
             node("Conv", ["joined", "fusion"], ["y"], pads=[1] * 4)]
    inputs = {"tokens": numbers(4, 64, 24, seed=2), "other": numbers(1, 20, 16, 16, seed=3)}
    judged(millrace, tmp_path, nodes, inputs, constants, on_grid=True)


@pytest.mark.parametrize("scale", (1, 300, 5000))
def test_greatest_scores_are_not_rounded(millrace, tmp_path, scale):
    """Scores beyond 16 bits are subtracted from the greatest of them, which 16 bits would hold back at their end: powers of what
    is left were infinite, shares NaN."""
    judged(millrace, tmp_path, [node("MatMul", ["q", "k"], ["scores"]), node("Mul", ["scores", "scale"], ["scaled"]),
                                node("Softmax", ["scaled"], ["shares"], axis=-1), node("MatMul", ["shares", "v"], ["y"])],
           {"q": numbers(1, 8, 96, 32), "k": numbers(1, 8, 32, 96, seed=1), "v": numbers(1, 8, 96, 32, seed=2)},
           {"scale": np.float32(scale)}, on_grid=True)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("mixes_heads", (False, True))
def test_pixels_of_convolutions_attend_to_each_other(millrace, tmp_path, machine, mixes_heads):
    """Queries, keys and values are convolutions of an image, its pixels the tokens: what lies in two dimensions in memory runs
    along the lanes in products. EfficientFormer V2 mixes scores and shares of heads by convolutions besides."""
    heads, side, size = 2, 7, 16
    tokens = side * side
    nodes, constants = [], {"apart": np.int64([1, heads, size, tokens]), "image": np.int64([1, heads * size, side, side])}
    for seed, name in enumerate("qkv"):
        constants[f"w{name}"] = numbers(heads * size, 24, 1, 1, seed=seed) / 5
        nodes += [node("Conv", ["x", f"w{name}"], [f"{name}c"]), node("Reshape", [f"{name}c", "apart"], [f"{name}h"])]
    nodes += [node("Transpose", ["qh"], ["qt"], perm=[0, 1, 3, 2]), node("Transpose", ["vh"], ["vt"], perm=[0, 1, 3, 2]),
              node("MatMul", ["qt", "kh"], ["scores"])]
    if mixes_heads:
        constants |= {"m1": numbers(heads, heads, 1, 1, seed=5), "m2": numbers(heads, heads, 1, 1, seed=6)}
        nodes.append(node("Conv", ["scores", "m1"], ["mixed"]))
    nodes.append(node("Softmax", ["mixed" if mixes_heads else "scores"], ["shares"], axis=-1))
    if mixes_heads:
        nodes.append(node("Conv", ["shares", "m2"], ["again"]))
    nodes += [node("MatMul", ["again" if mixes_heads else "shares", "vt"], ["attended"]),
              node("Transpose", ["attended"], ["turned"], perm=[0, 1, 3, 2]), node("Reshape", ["turned", "image"], ["joined"]),
              node("Add", ["joined", "local"], ["y"])]
    judged(millrace, tmp_path, nodes, {"x": numbers(1, 24, side, side, seed=7), "local": numbers(1, heads * size, side, side, seed=8)},
           constants, machine, on_grid=True)
