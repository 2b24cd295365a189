# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`millrace check` lists everything that keeps a model from being compiled, in one go."""
import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import relative_l2, run_millrace


def tensor(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, inputs, outputs, constants=None, opset=17):
    graph = helper.make_graph(nodes, "graph", inputs, outputs,
                              [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def check(millrace, tmp_path):
    """check(model, *options): exit code, findings, all that was printed."""
    def run(model, *options):
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        done = subprocess.run([millrace, "check", path, "--json", tmp_path / "check.json", *options],
                              capture_output=True, text=True, check=False)
        report = json.loads((tmp_path / "check.json").read_text())
        return done.returncode, report["findings"], done.stdout + done.stderr
    return run


def away(model, *names):
    """The named constants lie in files that do not exist."""
    for constant in model.graph.initializer:
        if constant.name in names:
            constant.ClearField("raw_data")
            constant.data_location = TensorProto.EXTERNAL
            constant.external_data.add(key="location", value=f"{constant.name}.bin")
    return model


def test_every_kind_of_finding_comes_in_one_go_with_its_node(check):
    nodes = [helper.make_node("Add", ["a", "late"], ["b"], name="early"),
             helper.make_node("Frobnicate", ["x"], ["a"], name="first unknown"),
             helper.make_node("NonZero", ["x"], ["z"], name="second unknown"),
             helper.make_node("Relu", ["x"], ["late"], name="maker"),
             helper.make_node("Softmax", ["b"], ["c"], name="wrong attribute", axis="one"),
             helper.make_node("Einsum", ["c", "w"], ["d"], name="wrong equation", equation="ij,j-k"),
             helper.make_node("Add", ["d", "v"], ["e"], name="constants"),
             helper.make_node("Mul", ["e", "nowhere"], ["y"], name="lost")]
    model = away(model_of(nodes, [tensor("x", ["batch", "length"]), tensor("t", [2], TensorProto.STRING)],
                          [tensor("y", None), tensor("z", None, TensorProto.INT64)],
                          {"w": np.zeros(4, np.float32), "v": np.zeros(4, np.float32)}), "w", "v")
    code, findings, printed = check(model)
    assert code == 3
    errors = {(f["kind"], f["node"]): f["text"] for f in findings if f["severity"] == "error"}
    texts = "\n".join(f["text"] for f in findings)
    assert ("operator", "first unknown") in errors and ("operator", "second unknown") in errors
    assert ("attribute", "wrong attribute") in errors
    for words in ("dimension 0 of input 'x' is symbolic", "--dim batch=N", "--dim length=N", "w.bin' is missing",
                  "v.bin' is missing", "input 't' has element type STRING", "Einsum 'wrong equation'",
                  "input 'nowhere' of Mul 'lost' is computed by no node"):
        assert words in texts, words
    for finding in findings:
        assert finding["text"] in printed and "\n" not in finding["text"]
        assert ";" in finding["text"], "a finding says what to do"


def test_a_model_without_findings_is_exit_code_0(check):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", [2, 3])], [tensor("y", [2, 3])])
    code, findings, printed = check(model)
    assert (code, findings) == (0, []) and "none" in printed and "opset" in printed
    code, findings, printed = check(model, "-q")
    assert (code, findings, printed) == (0, [], "")


def test_every_node_that_cannot_be_imported_is_listed_but_none_that_follows_it(check):
    nodes = [helper.make_node("Cast", ["n"], ["s"], to=TensorProto.INT64),
             helper.make_node("Reshape", ["x", "s"], ["a"], name="one"),
             helper.make_node("Reshape", ["x", "s"], ["b"], name="other"),
             helper.make_node("Add", ["a", "b"], ["y"], name="follows")]
    model = model_of(nodes, [tensor("x", [4]), tensor("n", [2])], [tensor("y", None)])
    code, findings, _ = check(model)
    assert code == 3
    assert [f["node"] for f in findings] == ["one", "other"]


def unsorted_model():
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Relu", ["b"], ["c"], name="third"),
             helper.make_node("Add", ["a", "bias"], ["b"], name="second"),
             helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
             helper.make_node("Mul", ["c", "a"], ["y"], name="fourth")]
    return model_of(nodes, [tensor("x", [3, 8])], [tensor("y", [3, 5])],
                    {"w": rng.standard_normal((8, 5)).astype(np.float32),
                     "bias": rng.standard_normal(5).astype(np.float32)})


def test_nodes_in_another_order_are_a_note(check):
    code, findings, _ = check(unsorted_model())
    assert code == 0
    assert [(f["severity"], f["kind"], f["node"]) for f in findings] == [("note", "order", "third")]
    assert "2 nodes stand before one whose value they use" in findings[0]["text"]


def agrees_with_onnx_runtime(millrace, model, inputs, folder):
    """Within the rounding of fp16, on tsp-small."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    expected = dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))
    got = run_millrace(millrace, path, "tsp-small", "fp16", inputs, folder)
    for name, values in expected.items():
        assert relative_l2(got.outputs[name], values) < 2e-3, name


def test_nodes_in_another_order_run_as_onnx_runtime_runs_them(millrace, tmp_path):
    inputs = {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)}
    agrees_with_onnx_runtime(millrace, unsorted_model(), inputs, tmp_path)


@pytest.mark.parametrize("op, opset, extra", [("SimplifiedLayerNormalization", 17, []),
                                              ("SimplifiedLayerNormalization", 13, []),
                                              ("LayerNormalization", 13, ["b"])])
def test_operations_that_onnx_runtime_has_in_the_standard_domain_run(millrace, tmp_path, op, opset, extra):
    """ONNX's checker knows no such operation in this opset; ONNX Runtime does."""
    rng = np.random.default_rng(2)
    nodes = [helper.make_node(op, ["x", "g", *extra], ["n"], name="norm", axis=-1, epsilon=1e-5),
             helper.make_node("Relu", ["n"], ["y"])]
    constants = {name: rng.standard_normal(16).astype(np.float32) for name in ["g", *extra]}
    model = model_of(nodes, [tensor("x", [4, 16])], [tensor("y", [4, 16])], constants, opset)
    inputs = {"x": rng.standard_normal((4, 16)).astype(np.float32)}
    agrees_with_onnx_runtime(millrace, model, inputs, tmp_path)


def test_a_cycle_is_named_with_its_nodes(check):
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], name="first"),
             helper.make_node("Relu", ["a"], ["b"], name="second"),
             helper.make_node("Relu", ["b"], ["y"], name="behind")]
    code, findings, _ = check(model_of(nodes, [tensor("x", [2])], [tensor("y", [2])]))
    assert code == 3
    assert any("'second' -> 'first' -> 'second'" in f["text"] or "'first' -> 'second' -> 'first'" in f["text"]
               for f in findings), findings


def test_a_file_that_is_no_model_is_one_finding(millrace, tmp_path):
    path = tmp_path / "x.onnx"
    path.write_text("hello")
    done = subprocess.run([millrace, "check", path, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert [f["kind"] for f in json.loads(done.stdout)["findings"]] == ["file"]
    assert onnx.__version__ and done.stderr.count("millrace: error:") == 1
