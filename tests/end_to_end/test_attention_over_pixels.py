# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over pixels that adds what it knows of rows and of columns to its scores, in the ways that exporters write it."""
import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

node = helper.make_node
WAYS = ["none", "cut", "joined", "expanded"]


def attention(way, heads, depth, queries, keys, seed=0, apart=True):
    """Of `queries` = (rows, columns) of pixels for `keys`. Scores meet positions where these are cut, or joined; `none`: no positions.
    `apart`: each row, or column, of queries has factors of its own, as positions relative to it have."""
    draw = np.random.default_rng(seed)
    (qy, qx), (ky, kx), width = queries, keys, heads * depth
    constants = {name: np.float32(draw.standard_normal((width, width)) / width ** 0.5) for name in ["wq", "wk", "wv"]}
    own = ((qy, ky, depth), (qx, kx, depth)) if apart else ((depth, ky), (depth, kx))
    constants |= {name: np.float32(draw.standard_normal(shape) / depth ** 0.5) for name, shape in zip(["ry", "rx"], own)}
    constants["scale"] = np.float32(depth ** -0.5)
    nodes = []

    def add(op, *inputs, **attributes):
        nodes.append(node(op, list(inputs), [f"n{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def shaped(value, *shape):
        constants[f"s{len(nodes)}"] = np.int64(shape)
        return add("Reshape", value, f"s{len(nodes)}")

    def split(value, weights, tokens):
        return add("Transpose", shaped(add("MatMul", value, weights), tokens, heads, depth), perm=[1, 0, 2])

    q, k, v = split("x", "wq", qy * qx), split("m", "wk", ky * kx), split("m", "wv", ky * kx)
    scores = add("Mul", add("MatMul", q, add("Transpose", k, perm=[0, 2, 1])), "scale")
    pixels = shaped(q, heads, qy, qx, depth)
    rows = add("Einsum", pixels, "ry", equation="hyxc,ykc->hyxk") if apart else add("MatMul", pixels, "ry")
    columns = add("Einsum", pixels, "rx", equation="hyxc,xkc->hyxk") if apart else add("MatMul", pixels, "rx")
    rows, columns = shaped(rows, heads, qy, qx, ky, 1), shaped(columns, heads, qy, qx, 1, kx)
    if way == "expanded":
        constants["all"] = np.int64((heads, qy, qx, ky, kx))
        rows, columns = add("Expand", rows, "all"), add("Expand", columns, "all")
    if way == "cut":
        scores = add("Add", add("Add", shaped(scores, heads, qy, qx, ky, kx), rows), columns)
        scores = shaped(scores, heads, qy * qx, ky * kx)
    elif way != "none":
        scores = add("Add", scores, shaped(add("Add", rows, columns), heads, qy * qx, ky * kx))
    out = add("MatMul", add("Softmax", scores, axis=-1), v)
    constants["flat"] = np.int64((qy * qx, width))
    nodes.append(node("Reshape", [add("Transpose", out, perm=[1, 0, 2]), "flat"], ["y"]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [qy * qx, width]),
                                           helper.make_tensor_value_info("m", TensorProto.FLOAT, [ky * kx, width])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def judged(millrace, tmp_path, model, machine="tsp-v1", precision="fp16", bound=3e-3):
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, precision, inputs, tmp_path, ["--check"])
    assert not got.report["host_ops"]
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) <= bound
    return got.report


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("machine, precision, bound", [("tsp-v1", "bf16", 3e-2), ("mesh-4x4", "fp16", 3e-3), ("lp30", "fp16", 3e-3)])
def test_positions_on_other_machines(millrace, tmp_path, way, machine, precision, bound):
    judged(millrace, tmp_path, attention(way, 2, 16, (5, 4), (4, 6)), machine, precision, bound)


@pytest.mark.parametrize("seed", range(10))
def test_drawn_positions(millrace, tmp_path, seed):
    """Rows and columns of any extent, of one pixel too; more keys than lanes."""
    draw = random.Random(seed)
    extents = [draw.randint(1, 20) for _ in range(4)]
    judged(millrace, tmp_path, attention(draw.choice(WAYS[1:]), draw.randint(1, 4), draw.choice([8, 16, 32]), extents[:2], extents[2:], seed,
                                         draw.random() < 0.7))


@pytest.mark.parametrize("apart, most", [(False, 1.6), (True, 2.5)])
@pytest.mark.parametrize("way", WAYS[1:])
def test_scores_lie_along_all_keys(millrace, tmp_path, way, apart, most):
    """Not along a row of them for each row, which takes 16 times as many vectors: 37 times as many cycles as without positions."""
    cycles = {each: judged(millrace, tmp_path, attention(each, 4, 64, (16, 16), (16, 16), apart=apart))["measured_cycles"] for each in ["none", way]}
    assert cycles[way] < most * cycles["none"], cycles


def attention_of_convolutions(batch, channels, rows, columns, flat):
    """Scores of all pixels for all pixels of images; `flat`: keys are taken of pixels in one row from the start."""
    draw = np.random.default_rng(3)
    pixels = rows * columns
    constants = {"w": np.float32(draw.standard_normal((3 * channels, channels, 1, 1)) / channels**0.5),
                 "wide": np.int64([batch, channels, 1, pixels]), "row": np.int64([batch, channels, pixels]),
                 "parts": np.int64([channels] * 3), "scale": np.float32(channels**-0.5)}
    nodes = [node("Reshape", ["x", "wide"], ["f"]), node("Conv", ["f" if flat else "x", "w"], ["c"]),
             node("Split", ["c", "parts"], ["q4", "k4", "v4"], axis=1)]
    nodes += [node("Reshape", [f"{name}4", "row"], [name]) for name in "qkv"]
    nodes += [node("Transpose", ["q"], ["qt"], perm=[0, 2, 1]), node("MatMul", ["qt", "k"], ["s"]),
              node("Mul", ["s", "scale"], ["t"]), node("Softmax", ["t"], ["p"], axis=-1),
              node("Transpose", ["p"], ["pt"], perm=[0, 2, 1]), node("MatMul", ["v", "pt"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, rows, columns])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("batch, channels, rows, columns", [(4, 16, 7, 7), (1, 32, 8, 8), (9, 16, 4, 4), (2, 24, 5, 9)])
def test_keys_in_rows_of_pixels(millrace, tmp_path, batch, channels, rows, columns):
    """Scores have all keys in their lanes, not those of one row of pixels: maxima that are subtracted of them lie there, too."""
    cycles = {}
    for flat in (False, True):
        model = attention_of_convolutions(batch, channels, rows, columns, flat)
        cycles[flat] = judged(millrace, tmp_path, model)["mxm_alone_cycles"]
    assert cycles[False] <= 1.25 * cycles[True]
