# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over pixels, quantised by ONNX Runtime: vectors are as full as those of the same model in fp16."""
import numpy as np
import pytest
from onnx import helper

from oracle import quantised_statically, relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of
from test_relative_positions import numbers, padded_and_flattened

node = helper.make_node
SIDE = 16  # pixels of a row, and of a column
PIXELS = SIDE * SIDE


def positions(tag, heads, width, turns, permutation):
    """What BoTNet adds to scores for the rows, or for the columns, of an image."""
    _, nodes, constants = padded_and_flattened(heads * SIDE, SIDE)
    rename = {name: tag + name for n in nodes for name in [*n.input, *n.output]}
    for n in nodes:
        n.input[:] = [rename[name] for name in n.input]
        n.output[:] = [rename[name] for name in n.output]
    queries = [node("Transpose", ["q_image"], [tag + "q"], perm=[0, 2, 1, 3])] if turns else [node("Identity", ["q_image"], [tag + "q"])]
    nodes = [*queries, node("MatMul", [tag + "q", tag + "table"], [tag + "m"]), node("Reshape", [tag + "m", tag + "flat_rows"], [tag + "x"]), *nodes,
             node("Reshape", [tag + "y", tag + "one_row"], [tag + "r"]), node("Expand", [tag + "r", tag + "rows"], [tag + "e"]),
             node("Transpose", [tag + "e"], [tag + "turned"], perm=permutation)]
    constants = {tag + name: value for name, value in constants.items()}
    constants[tag + "table"] = np.random.default_rng(len(tag)).standard_normal((width, 2 * SIDE - 1)).astype(np.float32)
    constants |= {tag + "flat_rows": numbers(heads * SIDE, SIDE, 2 * SIDE - 1), tag + "one_row": numbers(heads, SIDE, 1, SIDE, SIDE),
                  tag + "rows": numbers(heads, SIDE, SIDE, SIDE, SIDE)}
    return nodes, constants


def relative(draw):
    """BoTNet: queries meet a table of relative rows and one of relative columns."""
    heads, width = 2, 32
    along, its = positions("w_", heads, width, False, [0, 1, 3, 2, 4])
    across, others = positions("hh_", heads, width, True, [0, 3, 1, 4, 2])
    nodes = [node("Conv", ["x", "qkv"], ["c"]), node("Split", ["c"], ["sq", "sk", "sv"], axis=1, num_outputs=3),
             *(node("Reshape", [f"s{name}", "heads"], [f"r{name}"]) for name in "qkv"), node("Transpose", ["rq"], ["q"], perm=[0, 2, 1]),
             node("Transpose", ["rv"], ["v"], perm=[0, 2, 1]), node("MatMul", ["q", "rk"], ["qk"]), node("Mul", ["qk", "scale"], ["scaled"]),
             node("Reshape", ["q", "image"], ["q_image"]), *along, *across, node("Add", ["hh_turned", "w_turned"], ["both"]), node("Reshape", ["both", "square"], ["joined"]),
             node("Add", ["scaled", "joined"], ["scores"]), node("Softmax", ["scores"], ["a"], axis=-1), node("MatMul", ["a", "v"], ["av"]),
             node("Transpose", ["av"], ["t"], perm=[0, 2, 1]), node("Reshape", ["t", "back"], ["y"])]
    channels = heads * width
    constants = {**its, **others, "qkv": draw.standard_normal((3 * channels, 48, 1, 1)).astype(np.float32) / 7, "scale": np.float32(width**-0.5),
                 "heads": numbers(heads, width, PIXELS), "image": numbers(heads, SIDE, SIDE, width), "square": numbers(heads, PIXELS, PIXELS),
                 "back": numbers(1, channels, SIDE, SIDE)}
    return nodes, constants


def gated(draw):
    """LeViT: what the values become is joined to channels of an image, which a gate and a convolution take."""
    heads, width = 4, 48
    nodes = [node("Conv", ["x", "qkv"], ["c"]), node("Reshape", ["c", "heads"], ["r"]), node("Split", ["r", "parts"], ["q", "k", "v"], axis=2),
             node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["t", "k"], ["scores"]), node("Softmax", ["scores"], ["a"], axis=-1),
             node("Transpose", ["a"], ["at"], perm=[0, 1, 3, 2]), node("MatMul", ["v", "at"], ["av"]), node("Reshape", ["av", "image"], ["i"]),
             node("Sigmoid", ["i"], ["g"]), node("Mul", ["i", "g"], ["s"]), node("Conv", ["s", "w"], ["y"])]
    constants = {"qkv": draw.standard_normal((heads * (32 + width), 48, 1, 1)).astype(np.float32) / 7, "heads": numbers(1, heads, 32 + width, PIXELS),
                 "parts": numbers(16, 16, width), "image": numbers(1, heads * width, SIDE, SIDE),
                 "w": draw.standard_normal((64, heads * width, 1, 1)).astype(np.float32) / 14}
    return nodes, constants


@pytest.mark.parametrize("attention, sweeps, rows", [(relative, 1.25, 2), (gated, 1.3, 1.5)])
def test_vectors_are_as_full_as_in_fp16(millrace, tmp_path, attention, sweeps, rows):
    draw = np.random.default_rng(23)
    inputs = {"x": draw.standard_normal((1, 48, SIDE, SIDE)).astype(np.float32)}
    nodes, constants = attention(draw)
    model = model_of(nodes, inputs, constants)
    quantised = quantised_statically(model, inputs, tmp_path)
    real, rounded = run(model, inputs)["y"], run(quantised, inputs)["y"]
    fp16 = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    int8 = run_millrace(millrace, save_model(quantised, tmp_path), "tsp-v1", "int8", inputs, tmp_path)
    assert relative_l2(fp16.outputs["y"], real) < 3e-3
    assert relative_l2(int8.outputs["y"], real) < 1.5 * relative_l2(rounded, real)
    assert int8.report["host_ops"] == []
    for what, more in (("mxm_vectors", sweeps), ("vxm_vectors", rows)):
        took = [sum(kernel[what] for kernel in got.report["kernels"]) for got in (fp16, int8)]
        assert took[1] < more * took[0], what
