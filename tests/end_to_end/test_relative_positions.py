# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relative positions of attention: rows that padding, reshaping to longer rows and cutting move along their lanes by as much as
their number says, in the ways in which libraries write it."""
import numpy as np
import pytest
from onnx import helper

from oracle import relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of

node = helper.make_node


def numbers(*values):
    return np.array(values, np.int64)


def padded_and_flattened(heads, rows):
    """BoTNet: behind each row one, behind all of them rows - 1, rows of 2 rows - 1 again."""
    nodes = [node("Pad", ["x", "one"], ["p"]), node("Reshape", ["p", "flat"], ["f"]), node("Pad", ["f", "rest"], ["g"]),
             node("Reshape", ["g", "longer"], ["l"]), node("Slice", ["l", "from", "to", "axes"], ["y"])]
    return 2 * rows - 1, nodes, {"one": numbers(0, 0, 0, 0, 0, 1), "flat": numbers(heads, 2 * rows * rows), "rest": numbers(0, 0, 0, rows - 1),
                                 "longer": numbers(heads, rows + 1, 2 * rows - 1), "from": numbers(0, rows - 1), "to": numbers(rows, 2 * rows - 1),
                                 "axes": numbers(1, 2)}


def zeros_before(heads, rows):
    """Transformer-XL, Conformer: a column of zeros before all, read as rows of the other extent, the first of which goes."""
    lanes = 2 * rows - 1
    nodes = [node("Concat", ["zeros", "x"], ["p"], axis=2), node("Reshape", ["p", "turned"], ["t"]), node("Slice", ["t", "from", "end", "axis"], ["s"]),
             node("Reshape", ["s", "back"], ["b"]), node("Slice", ["b", "begin", "to", "last"], ["y"])]
    return lanes, nodes, {"zeros": np.zeros((heads, rows, 1), np.float32), "turned": numbers(heads, lanes + 1, rows), "from": numbers(1), "end": numbers(2**31),
                          "axis": numbers(1), "back": numbers(heads, rows, lanes), "begin": numbers(0), "to": numbers(rows), "last": numbers(2)}


def without_padding(heads, rows):
    """XLNet: read as rows of the other extent, the first of which goes, and as one row less."""
    lanes = 2 * rows
    nodes = [node("Reshape", ["x", "turned"], ["t"]), node("Slice", ["t", "from", "end", "axis"], ["s"]), node("Reshape", ["s", "back"], ["b"]),
             node("Slice", ["b", "begin", "to", "last"], ["y"])]
    return lanes, nodes, {"turned": numbers(heads, lanes, rows), "from": numbers(1), "end": numbers(2**31), "axis": numbers(1),
                          "back": numbers(heads, rows, lanes - 1), "begin": numbers(0), "to": numbers(rows), "last": numbers(2)}


@pytest.mark.parametrize("machine, heads, rows", [("tsp-v1", 8, 24), ("mesh-4x4", 2, 13), ("tsp-small", 3, 9)])
@pytest.mark.parametrize("way", [padded_and_flattened, zeros_before, without_padding])
def test_rows_move_by_their_number(millrace, tmp_path, way, machine, heads, rows):
    lanes, nodes, constants = way(heads, rows)
    draw = np.random.default_rng(13)
    inputs = {"q": draw.standard_normal((heads, rows, 32)).astype(np.float32)}
    constants["k"] = draw.standard_normal((32, lanes)).astype(np.float32)
    model = model_of([node("MatMul", ["q", "k"], ["x"]), *nodes], inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    want = run(model, inputs)["y"]
    assert want.shape == (heads, rows, rows) and got.report["host_ops"] == []
    assert relative_l2(got.outputs["y"], want) < 1e-3
    sweeps = heads * rows * rows  # of rows that are moved element by element
    assert got.report["measured_cycles"] < max(1500, sweeps)
