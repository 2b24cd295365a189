# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Infinities and NaN come out where ONNX Runtime has them, and nowhere else."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import oracle
import probe
import random_transformers

INFINITIES = (np.inf, -np.inf, np.nan)
LOWEST = np.finfo(np.float32).min


def model_of(nodes, inputs, constants=(), outputs=("y",)) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for name, a in inputs.items()]
    graph = helper.make_graph(nodes, "infinities", values,
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
                              [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
                             ir_version=9)


def check(millrace, tmp_path, nodes, inputs, constants=(), outputs=("y",), machine="tsp-v1", precision="fp16",
          bound=4e-3):
    """Runs the model; every output is ONNX Runtime's: the same places of infinities and NaN, the rest near.

    Returns what ONNX Runtime gives.
    """
    model = model_of(nodes, inputs, constants, outputs)
    expected = probe.run(model, inputs)
    got = oracle.run_millrace(millrace, oracle.save_model(model, tmp_path), machine, precision, inputs, tmp_path,
                              ["--check"]).outputs
    for name, array in expected.items():
        every = np.ones(array.shape, bool)
        largest = np.abs(array[np.isfinite(array)]).max(initial=0)
        assert not random_transformers.difference(got[name], array, bound * max(1, largest), every), name
    return expected


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def strange(*shape, seed=0):
    """With each of INFINITIES somewhere, in rows and lanes of their own."""
    array = numbers(*shape, seed=seed)
    for i, value in enumerate(INFINITIES):
        array[(..., 2 * i + 1, i + 1)] = value
    return array


node = helper.make_node


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("hidden", [-np.inf, LOWEST, -1e4])
@pytest.mark.parametrize("shape", [(8, 6), (1, 1, 8, 6), (1, 3, 1, 6), (6,)])
def test_a_mask_at_run_time_hides_and_does_not_spread(millrace, tmp_path, shape, hidden, precision):
    """Attention's scores plus a mask: its maxima run over the mask's transposed copy."""
    mask = np.where(np.random.default_rng(5).random(shape) < 0.3, hidden, 0).astype(np.float32)
    mask[..., 0] = 0
    check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Add", ["s", "m"], ["a"]),
                               node("Softmax", ["a"], ["y"], axis=-1)],
          {"q": numbers(1, 3, 8, 4), "k": numbers(1, 3, 4, 6, seed=1), "m": mask}, precision=precision,
          bound=4e-3 if precision == "fp16" else 3e-2)


def test_a_row_that_hides_all_keys_is_as_the_model_says(millrace, tmp_path):
    mask = np.zeros((8, 6), np.float32)
    mask[3], mask[5] = -np.inf, LOWEST
    expected = check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Add", ["s", "m"], ["a"]),
                                          node("Softmax", ["a"], ["y"], axis=-1)],
                     {"q": numbers(8, 4), "k": numbers(4, 6, seed=1), "m": mask})
    assert np.allclose(expected["y"][5], 1 / 6)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_what_infinity_hides_lies_below_what_the_lowest_number_hides(millrace, tmp_path, precision):
    """A row without any key that is seen takes those that the lowest number hides."""
    mask = np.where(np.arange(6) < 2, LOWEST, -np.inf).astype(np.float32)
    mask = np.stack([mask, mask[::-1], np.where(mask == LOWEST, 0, mask)])
    expected = check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Add", ["s", "m"], ["a"]),
                                          node("Softmax", ["a"], ["y"], axis=-1)],
                     {"q": numbers(3, 4), "k": numbers(4, 6, seed=1), "m": mask}, precision=precision,
                     bound=4e-3 if precision == "fp16" else 3e-2)
    assert np.allclose(expected["y"][0], [0.5, 0.5, 0, 0, 0, 0])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("hidden", [-1e4, -1e9, LOWEST])
@pytest.mark.parametrize("scale", [1, 0.3])
@pytest.mark.parametrize("tokens", [8, 130])
def test_a_number_that_hides_all_keys_hides_none(millrace, tmp_path, tokens, scale, hidden, precision):
    """As of the padding before a prompt: all scores are about the same number, which 16 bits may not hold."""
    mask = np.where(np.arange(tokens)[:, None] < 3, hidden, 0).astype(np.float32) * np.ones((1, tokens), np.float32)
    expected = check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Mul", ["s", "c"], ["t"]),
                                          node("Add", ["t", "m"], ["a"]), node("Softmax", ["a"], ["y"], axis=-1)],
                     {"q": numbers(1, 3, tokens, 4), "k": numbers(1, 3, 4, tokens, seed=1), "m": mask},
                     {"c": np.float32(scale)}, precision=precision, bound=4e-3 if precision == "fp16" else 3e-2)
    assert hidden == -1e4 or np.allclose(expected["y"][..., :3, :], 1 / tokens)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("hidden", [-1e9, LOWEST])
@pytest.mark.parametrize("queries, keys", [(5, 11), (40, 12), (130, 130), (400, 90)])
def test_a_mask_of_integers_that_hides_all_keys_hides_none(millrace, tmp_path, queries, keys, hidden, precision):
    """As of a sequence that is padding alone: (1 - mask) times a number, from which 16 bits keep less of what is compared."""
    inputs = {"x": numbers(1, 2, queries, 16), "k": numbers(1, 2, 16, keys, seed=1), "m": np.zeros((1, 1, 1, keys), np.int32)}
    expected = check(millrace, tmp_path, [node("MatMul", ["x", "w"], ["q"]), node("MatMul", ["q", "k"], ["s"]), node("Mul", ["s", "c"], ["t"]),
                                          node("Cast", ["m"], ["f"], to=TensorProto.FLOAT), node("Sub", ["one", "f"], ["not"]),
                                          node("Mul", ["not", "hidden"], ["h"]), node("Add", ["t", "h"], ["a"]),
                                          node("Softmax", ["a"], ["y"], axis=-1)], inputs,
                     {"w": numbers(16, 16, seed=2) / 4, "c": np.float32(0.25), "one": np.float32(1), "hidden": np.float32(hidden)},
                     precision=precision, bound=4e-3 if precision == "fp16" else 3e-2)
    assert np.allclose(expected["y"], 1 / keys)


@pytest.mark.parametrize("hidden", [-1e9, LOWEST])
@pytest.mark.parametrize("queries, keys", [(17, 17), (1, 400)])
def test_a_constant_that_takes_the_place_of_all_scores_leaves_them_alike(millrace, tmp_path, queries, keys, hidden):
    """A condition that holds nowhere: the scores are one constant, whose maximum is that."""
    inputs = {"q": numbers(1, 2, queries, 8), "k": numbers(1, 2, 8, keys, seed=1)}
    expected = check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Where", ["no", "s", "hidden"], ["a"]),
                                          node("Softmax", ["a"], ["y"], axis=-1)], inputs,
                     {"no": np.zeros(keys, bool), "hidden": np.float32(hidden)})
    assert np.allclose(expected["y"], 1 / keys)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("scale", [1, 0.7])
@pytest.mark.parametrize("tokens", [8, 130])
def test_scores_of_any_size_leave_their_differences(millrace, tmp_path, tokens, scale, precision):
    """All keys of a query have scores of some 40,000 in common, which the nearest number of 16 bits misses by 16 or 128."""
    draw = np.random.default_rng(tokens)
    q = 32.0 * draw.integers(4, 8, (1, 3, tokens, 8))
    k = np.repeat(32.0 * draw.integers(4, 8, (1, 3, 8, 1)), tokens, axis=-1)
    q[..., 0], k[..., 0, :] = 1, draw.integers(-6, 7, (1, 3, tokens)) / 2 # all products and sums are exact
    check(millrace, tmp_path, [node("MatMul", ["q", "k"], ["s"]), node("Mul", ["s", "c"], ["t"]),
                               node("Softmax", ["t"], ["y"], axis=-1)],
          {"q": q.astype(np.float32), "k": k.astype(np.float32)}, {"c": np.float32(scale)}, precision=precision,
          bound=4e-3 if precision == "fp16" else 3e-2)


def test_a_causal_mask_hides_more_than_a_bias(millrace, tmp_path):
    """com.microsoft's attention: a query all of whose keys the bias hides still sees none that comes later."""
    bias = np.zeros((1, 1, 4, 4), np.float32)
    bias[..., :3, :] = LOWEST
    inputs = {"q": numbers(1, 4, 12), "k": numbers(1, 4, 12, seed=1), "v": numbers(1, 4, 12, seed=2), "b": bias}
    attention = node("MultiHeadAttention", ["q", "k", "v", "", "", "b"], ["y"], num_heads=2, unidirectional=1,
                     domain="com.microsoft")
    expected = check(millrace, tmp_path, [attention], inputs)
    assert np.allclose(expected["y"][0, 0], inputs["v"][0, 0])


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small"])
@pytest.mark.parametrize("name, nodes, constants", [
    ("transposed", [node("Neg", ["x"], ["n"]), node("Transpose", ["n"], ["y"], perm=[0, 2, 1])], {}),
    ("every second lane", [node("Neg", ["x"], ["n"]), node("Slice", ["n", "a", "b", "c", "d"], ["y"])],
     {"a": np.int64([1]), "b": np.int64([99]), "c": np.int64([2]), "d": np.int64([2])}),
    ("the input's lanes from the last", [node("Slice", ["x", "a", "b", "c", "d"], ["y"])],
     {"a": np.int64([-1]), "b": np.int64([-99]), "c": np.int64([2]), "d": np.int64([-1])}),
    ("lanes further on", [node("Neg", ["x"], ["n"]), node("Abs", ["x"], ["m"]),
                          node("Concat", ["n", "m"], ["y"], axis=2)], {}),
    ("the input's lanes further on", [node("Concat", ["x", "x"], ["y"], axis=2)], {}),
    ("padded lanes", [node("Neg", ["x"], ["n"]), node("Pad", ["n", "p", "v"], ["y"])],
     {"p": np.int64([0, 0, 2, 0, 0, 3]), "v": np.float32(1.5)}),
    ("a sum of lanes", [node("ReduceSum", ["x", "a"], ["y"])], {"a": np.int64([2])}),
    ("a mean of squares", [node("ReduceSumSquare", ["x", "a"], ["y"])], {"a": np.int64([2])}),
    ("the greatest infinity", [node("Neg", ["x"], ["n"]), node("ReduceMax", ["n", "a"], ["y"])], {"a": np.int64([2])}),
    ("a softmax", [node("Softmax", ["x"], ["y"], axis=2)], {}),
    ("a layer norm", [node("LayerNormalization", ["x", "g"], ["y"])], {"g": np.ones(9, np.float32)}),
    ("a value of its row", [node("ReduceSum", ["x", "a"], ["r"], keepdims=1), node("Mul", ["x", "r"], ["y"])],
     {"a": np.int64([2])}),
    ("heads", [node("Neg", ["x"], ["n"]), node("Reshape", ["n", "s"], ["r"]),
               node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3])], {"s": np.int64([2, 7, 3, 3])}),
    ("a product", [node("MatMul", ["x", "w"], ["y"])], {"w": numbers(9, 5, seed=3)}),
    ("a division by a tiny constant", [node("Div", ["x", "w"], ["y"])], {"w": np.float32(1e-39)}),
    ("what the host computes", [node("CumSum", ["x", "a"], ["y"])], {"a": np.int64(1)}),
])
def test_infinities_stay_in_their_lanes(millrace, tmp_path, name, nodes, constants, machine):
    inputs = {"x": strange(2, 7, 9)}
    if name == "the greatest infinity":  # which NaN a maximum keeps is nowhere stated
        inputs["x"][np.isnan(inputs["x"])] = np.inf
    if name == "a division by a tiny constant":  # the quotients are beyond 16 bits, but of 0
        inputs["x"] = np.where(np.isfinite(inputs["x"]), 0, inputs["x"])
    check(millrace, tmp_path, nodes, inputs, constants, machine=machine)


@pytest.mark.parametrize("machine, counts", [("tsp-small", (33, 37, 70, 149, 200)), ("tsp-v1", (331, 642))])
def test_rows_of_any_length_find_their_extremes(millrace, tmp_path, machine, counts):
    """Primes above a vector's lanes, too: a softmax of 40 rows of 331 took 2,230,269 cycles."""
    for count in counts:
        inputs = {"x": strange(11, count, seed=count)}
        inputs["x"][np.isnan(inputs["x"])] = -np.inf  # which NaN a maximum keeps is nowhere stated
        inputs["x"][7, -1], inputs["x"][8, -2], inputs["x"][9, count // 2] = 9, -9, -np.inf
        nodes = [node("Neg", ["x"], ["n"]), node("ReduceMax", ["n", "a"], ["most"]), node("ReduceMin", ["n", "a"], ["least"]),
                 node("Softmax", ["n"], ["y"], axis=1)]
        check(millrace, tmp_path, nodes, inputs, {"a": np.int64([1])}, ("most", "least", "y"), machine)


def test_what_is_finite_in_the_model_is_no_infinity(millrace, tmp_path):
    """70,000 is beyond fp16, and it is moved: the other lanes keep their values."""
    x = numbers(4, 6)
    x[1, 2] = 35000
    inputs = {"x": x}
    model = model_of([node("Add", ["x", "x"], ["d"]), node("Transpose", ["d"], ["y"])], inputs)
    got = oracle.run_millrace(millrace, oracle.save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path).outputs
    assert got["y"][2, 1] == 65504
    expected = probe.run(model, inputs)["y"]
    expected[2, 1] = 65504
    assert np.abs(got["y"] - expected).max() <= 4e-3


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("type_", [np.int64, np.int32])
@pytest.mark.parametrize("far", [100, 100_000])
def test_positions_keep_their_value_until_sine_and_cosine(millrace, tmp_path, far, type_, precision):
    positions = (far + np.arange(12)).astype(type_).reshape(12, 1)
    frequency = (10000.0 ** (-np.arange(8) / 8)).astype(np.float32).reshape(1, 8)
    for k, op in enumerate(["Mul", "MatMul"]):
        (tmp_path / str(k)).mkdir()
        check(millrace, tmp_path / str(k), [
            node("Cast", ["p"], ["f"], to=TensorProto.FLOAT), node(op, ["f", "w"], ["a"]), node("Cos", ["a"], ["c"]),
            node("Sin", ["a"], ["s"]), node("Concat", ["c", "s"], ["y"], axis=1)], {"p": positions}, {"w": frequency},
              precision=precision, bound=1e-3 if precision == "fp16" else 5e-3)


def test_whole_numbers_are_summed_and_compared_as_they_are(millrace, tmp_path):
    """Counts beyond what 16 bits hold, along the lanes, turned and spread."""
    counts = np.int32(2049 + 2 * np.arange(24)).reshape(4, 6)
    expected = check(
        millrace, tmp_path, [node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Transpose", ["f"], ["t"]),
                             node("ReduceMax", ["f", "a"], ["m"], keepdims=1), node("Sub", ["m", "f"], ["d"]),
                             node("ReduceSum", ["f", "a"], ["r"], keepdims=0)],
        {"i": counts}, {"a": np.int64([1])}, outputs=("t", "d", "r"), bound=1e-6)
    assert expected["t"][1, 0] == 2051
