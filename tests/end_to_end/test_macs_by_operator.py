# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Multiply-accumulates in the report: those of the ONNX model's shapes, by operator and by who does
them. scripts/macs.py, which knows no compiler, counts the same."""
import json
import subprocess

import numpy as np
import onnx
import pytest

import probe
from fixtures import FOLDER
from graph import Graph
from macs import count_macs
from oracle import save_model


def reported(millrace, path, folder, *flags) -> dict:
    """The report of a run without data, and its table as "table"."""
    done = subprocess.run([millrace, "run", path, "--cycles-only", "--json", folder / "r.json",
                           *map(str, flags)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "r.json").read_text()) | {"table": done.stdout}


def rows_of(report: dict, model: onnx.ModelProto, dims=None) -> dict:
    """MACs by (operator, device), after what must hold of every report."""
    rows = {(row["operator"], row["device"]): row["macs"] for row in report["macs_by_operator"]}
    assert len(rows) == len(report["macs_by_operator"])
    counted, found = count_macs(model, dims), {}
    for (operator, device), macs in rows.items():
        assert device in ("grid", "host", "none") and macs > 0
        name = operator.rpartition(".")[2]
        found[name] = found.get(name, 0) + macs
    expected = {}
    for row in counted["by_node"]:
        expected[row["op"]] = expected.get(row["op"], 0) + row["macs"]
    assert found == expected
    assert report["macs_total"] == counted["macs_total"] == sum(rows.values())
    assert report["macs_on_grid"] == sum(m for (_, device), m in rows.items() if device == "grid")
    return rows


def convolution(**attributes) -> onnx.ModelProto:
    g = Graph("conv")
    x = g.input("x", [2, 8, 9, 9])
    weights = g.normal((8, 8 // attributes.get("group", 1), 3, 3), 1.0)
    g.output(g.add("Conv", x, weights, **attributes), [2, 8, "height", "width"])
    return g.model()


def transposed() -> onnx.ModelProto:
    g = Graph("deconv")
    x = g.input("x", [1, 4, 5, 5])
    g.output(g.add("ConvTranspose", x, g.normal((4, 6, 3, 3), 1.0), strides=[2, 2]), [1, 6, 11, 11])
    return g.model()


def products() -> onnx.ModelProto:
    """MatMul with batches, Gemm with both operands transposed, Einsum."""
    g = Graph("products")
    x = g.input("x", [2, 5, 7])
    y = g.add("MatMul", x, g.normal((2, 7, 4), 1.0))
    z = g.add("Gemm", g.add("Reshape", y, g.constant(np.array([10, 4]))), g.normal((6, 10), 1.0),
              transA=1, transB=1)
    g.output(g.add("Einsum", z, g.normal((6, 3), 1.0), equation="ab,bc->ac"), [4, 3])
    g.output(g.add("Einsum", y, g.normal((4, 3), 1.0), equation="...b,bc->...c"), [2, 5, 3])
    return g.model()


def contrib_attention() -> onnx.ModelProto:
    """Attention after a past, and MultiHeadAttention to other keys."""
    g = Graph("attention")
    x, past = g.input("x", [2, 6, 32]), g.input("past", [2, 2, 4, 3, 8])
    y, present = g.add("Attention", x, g.normal((32, 96), 0.1), g.normal((96,), 0.1), "", past,
                       domain=probe.CONTRIB, outputs=2, num_heads=4)
    g.output(g.add("MultiHeadAttention", y, g.normal((2, 5, 32), 1.0), g.normal((2, 5, 32), 1.0),
                   domain=probe.CONTRIB, num_heads=4), [2, 6, 32])
    g.output(present, [2, 2, 4, 9, 8])
    return g.model()


def onnx_attention() -> onnx.ModelProto:
    """Four heads of queries share two of keys."""
    g = Graph("attention")
    g.domains[""] = 23
    q, k, v = g.input("q", [1, 6, 32]), g.input("k", [1, 7, 16]), g.input("v", [1, 7, 16])
    g.output(g.add("Attention", q, k, v, q_num_heads=4, kv_num_heads=2), [1, 6, 32])
    return g.model()


def integers() -> onnx.ModelProto:
    g = Graph("integers")
    x, a = g.input("x", [1, 3, 6, 6], np.int8), g.input("a", [5, 7], np.int8)
    y = g.add("ConvInteger", x, g.constant(np.ones((4, 3, 3, 3), np.int8)))
    z = g.add("MatMulInteger", a, g.constant(np.ones((7, 2), np.int8)))
    g.output(g.add("Cast", y, to=1), [1, 4, 4, 4])
    g.output(g.add("Cast", z, to=1), [5, 2])
    return g.model()


CASES = {
    "plain": (convolution(), {"Conv": 2 * 8 * 7 * 7 * 8 * 9}),
    "groups": (convolution(group=2, strides=[2, 2]), {"Conv": 2 * 8 * 4 * 4 * 4 * 9}),
    "transposed": (transposed(), {"ConvTranspose": 4 * 5 * 5 * 6 * 9}),
    "products": (products(), {"MatMul": 2 * 5 * 7 * 4, "Gemm": 4 * 10 * 6, "Einsum": 4 * 6 * 3 + 2 * 5 * 4 * 3}),
    "contrib": (contrib_attention(),
                {"com.microsoft.Attention": 2 * 6 * 32 * 96 + 2 * 2 * 6 * 9 * 32,
                 "com.microsoft.MultiHeadAttention": 2 * 2 * 6 * 5 * 32}),
    "opset 23": (onnx_attention(), {"Attention": 2 * 4 * 6 * 7 * 8}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_contraction_is_counted_by_the_shapes_of_the_model(millrace, tmp_path, name):
    model, expected = CASES[name]
    rows = rows_of(reported(millrace, save_model(model, tmp_path), tmp_path), model)
    assert rows == {(operator, "grid"): macs for operator, macs in expected.items()}


def test_a_depthwise_convolution_counts_where_it_runs(millrace, tmp_path):
    model = convolution(group=8, pads=[1, 1, 1, 1])
    report = reported(millrace, save_model(model, tmp_path), tmp_path)
    device = "host" if "conv_0" in report["host_ops"] else "grid"
    assert rows_of(report, model) == {("Conv", device): 2 * 8 * 9 * 9 * 9}


def test_integer_contractions_count_whoever_does_them(millrace, tmp_path):
    model = integers()
    rows = rows_of(reported(millrace, save_model(model, tmp_path), tmp_path), model)
    counts = {operator: macs for (operator, _), macs in rows.items()}
    assert counts == {"ConvInteger": 4 * 4 * 4 * 27, "MatMulInteger": 5 * 7 * 2}


def test_what_the_host_multiplies_is_not_on_the_grid(millrace, tmp_path):
    """The grid has no products of int32."""
    g = Graph("both")
    x, n = g.input("x", [5, 7]), g.input("n", [3, 4], np.int32)
    g.output(g.add("MatMul", x, g.normal((7, 2), 1.0)), [5, 2])
    g.output(g.add("MatMul", n, g.constant(np.arange(8, dtype=np.int32).reshape(4, 2))), [3, 2], np.int32)
    model = g.model()
    report = reported(millrace, save_model(model, tmp_path), tmp_path)
    assert report["host_ops"] == ["matmul_1"]
    assert rows_of(report, model) == {("MatMul", "grid"): 5 * 7 * 2, ("MatMul", "host"): 3 * 4 * 2}
    assert "\n  MACs on the grid        70 of 94\n" in report["table"]
    assert "\n    MatMul                70 on the grid, 24 on the host\n" in report["table"]


def test_an_equal_node_is_multiplied_once(millrace, tmp_path):
    g = Graph("twice")
    x, w = g.input("x", [5, 7]), g.normal((7, 2), 1.0)
    g.output(g.add("Add", g.add("MatMul", x, w), g.add("Relu", g.add("MatMul", x, w))), [5, 2])
    model = g.model()
    report = reported(millrace, save_model(model, tmp_path), tmp_path)
    assert rows_of(report, model) == {("MatMul", "grid"): 70, ("MatMul", "none"): 70}
    assert "70 on the grid, 70 by nobody (equal or without effect)" in report["table"]


def test_shapes_are_no_numbers_of_the_input(millrace, tmp_path):
    """A product of what a shape says is constant, and folded."""
    g = Graph("shape")
    x = g.input("x", [5, 7])
    extents = g.add("Cast", g.add("Shape", x), to=1)
    product = g.add("MatMul", extents, g.normal((2, 7), 1.0))
    g.output(g.add("Add", x, product), [5, 7])
    model = g.model()
    assert rows_of(reported(millrace, save_model(model, tmp_path), tmp_path), model) == {}


@pytest.mark.parametrize("name, flags, dims", [
    ("convnet", (), {}), ("convnet_int8", ("-p", "int8"), {}), ("attention", (), {}),
    ("tiny_gpt2", (), {"batch_size": 1, "seq_len": 2, "past_seq_len": 5, "total_seq_len": 7})])
def test_whole_models_are_counted_alike(millrace, tmp_path, name, flags, dims):
    path = FOLDER / f"{name}.onnx"
    given = [word for dim, n in dims.items() for word in ("--dim", f"{dim}={n}")]
    rows = rows_of(reported(millrace, path, tmp_path, *flags, *given), onnx.load(path), dims)
    assert {device for _, device in rows} == {"grid"}


def test_counts_are_kept_at_every_level(millrace, tmp_path):
    """Entering at a level gives the same counts as going through in one go."""
    model = contrib_attention()
    path = save_model(model, tmp_path)
    whole = reported(millrace, path, tmp_path)
    for level in ("tensor", "spatial"):
        text = tmp_path / f"model.{level}"
        subprocess.run([millrace, "compile", path, "--to", level, "-o", text], check=True)
        entered = reported(millrace, text, tmp_path, "--from", level)
        for key in ("macs_total", "macs_on_grid", "macs_by_operator"):
            assert entered[key] == whole[key], (level, key)
