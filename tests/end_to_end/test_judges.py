# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges that do not share the compiler's mistakes, and the count of what a format could not hold."""
import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import random_transformers

JUDGES = ["reference", "onnxruntime"]


def numbers(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def model_of(nodes, inputs, constants, outputs=("y",)) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for name, a in inputs.items()]
    graph = helper.make_graph(nodes, "judged", values,
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture
def run(millrace, tmp_path):
    """run(model, inputs, *options): exit code, report, what was written to the standard error."""
    def execute(model, inputs, *options, environment=None):
        path = tmp_path / "m.onnx"
        onnx.save(model, path)
        for name, value in inputs.items():
            np.save(tmp_path / f"{name}.npy", value)
            options += "--input", f"{name}={tmp_path / name}.npy"
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        done = subprocess.run([millrace, "run", path, "--json", report, *options], capture_output=True, text=True,
                              check=False, env={**os.environ, **(environment or {})})
        return done.returncode, json.loads(report.read_text()) if report.exists() else None, done.stderr
    return execute


def layers(count, gain_at=None, gain=1.0, width=32):
    """A chain of products, each of which is stored; one may multiply its values by `gain`."""
    nodes, constants = [], {}
    for k in range(count):
        constants[f"w{k}"] = numbers(width, width, seed=k + 1, scale=width**-0.5 * (gain if k == gain_at else 1))
        nodes.append(helper.make_node("MatMul", ["x" if k == 0 else f"h{k - 1}", f"w{k}"],
                                      ["y" if k == count - 1 else f"h{k}"], name=f"layer{k}"))
    return nodes, constants


@pytest.mark.parametrize("judge", JUDGES)
def test_judges_agree_with_a_right_run_and_name_no_value(run, judge):
    nodes, constants = layers(5)
    inputs = {"x": numbers(4, 32)}
    code, report, errors = run(model_of(nodes, inputs, constants), inputs, f"--check={judge}")
    assert code == 0 and not errors.count("warning"), errors
    kernels, other = report["check"]["judges"]
    assert kernels["judge"] == "kernels" and kernels["outputs"][0]["differing_elements"] == 0
    output, = other["outputs"]
    assert other["judge"] == judge and output["name"] == "y" and output["elements"] == 128
    assert 0 < output["relative_l2"] < 2e-3
    assert report["check"]["values_compared"] == 5 and report["check"]["first_departure"] is None
    assert report["lost_values"] == []


@pytest.mark.parametrize("judge", JUDGES)
def test_the_first_value_that_departs_is_named(run, judge):
    """What layer 2 makes is beyond fp16; all that follows is wrong, too, and is not named."""
    nodes, constants = layers(5, gain_at=2, gain=2e5, width=256)
    inputs = {"x": numbers(4, 256)}
    model = model_of(nodes, inputs, constants)
    code, report, errors = run(model, inputs, f"--check={judge}")
    assert code == 1 and f"from that of {judge}" in errors and "the first value that departs is 'h2'" in errors
    assert report["check"]["first_departure"]["value"] == "h2"
    assert report["check"]["first_departure"]["before_relative_l2"] < 2e-3
    lost = report["lost_values"]
    assert lost[0]["nodes"] == "layer2" and lost[0]["became"] == "saturated" and lost[0]["format"] == "fp16"
    assert 700 < lost[0]["lanes"] <= 1024
    assert "kernel 'layer2' stored" in errors and "--precision bf16" in errors
    code, report, errors = run(model, inputs, f"--check={judge}", "--precision", "bf16")
    assert code == 0 and report["lost_values"] == [] and "warning" not in errors


def test_a_value_that_is_kept_in_fp32_departs_no_more(run):
    """The mean square of values beyond fp16 divides them again."""
    constants = {"w0": numbers(64, 64, scale=1 / 8), "w1": numbers(64, 64, seed=1, scale=1600),
                 "w2": numbers(64, 64, seed=2, scale=1 / 8), "ten": np.float32([10]), "last": np.int64([-1])}
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("MatMul", ["h", "w1"], ["large"]),
             helper.make_node("Mul", ["large", "ten"], ["larger"]), helper.make_node("Mul", ["larger", "larger"], ["s"]),
             helper.make_node("ReduceMean", ["s", "last"], ["m"]), helper.make_node("Sqrt", ["m"], ["r"]),
             helper.make_node("Div", ["larger", "r"], ["d"]), helper.make_node("MatMul", ["d", "w2"], ["y"])]
    inputs = {"x": numbers(4, 64)}
    model = model_of(nodes, inputs, constants)
    code, report, errors = run(model, inputs, "--check=reference")
    assert code == 1 and "the first value that departs is 'larger'" in errors
    code, report, errors = run(model, inputs, "--check=reference", "--keep-fp32", "larger")
    assert code == 0, errors
    assert report["lost_values"] == [] and report["host_ops"] == []
    assert report["check"]["judges"][1]["outputs"][0]["relative_l2"] < 2e-3


def test_a_product_of_a_value_in_fp32_is_the_hosts(run):
    nodes, constants = layers(3)
    inputs = {"x": numbers(4, 32)}
    code, report, errors = run(model_of(nodes, inputs, constants), inputs, "--check=reference", "--keep-fp32", "h0")
    assert code == 0, errors
    assert report["host_ops"] == ["layer1"]
    code, report, errors = run(model_of(nodes, inputs, constants), inputs, "--check=reference", "--keep-fp32", "x")
    assert code == 0, errors
    assert report["host_ops"] == ["layer0"]


def test_inputs_and_constants_beyond_the_format_are_counted(run):
    inputs = {"x": np.float32([[1, 7e4, -1e38, 65519, np.inf, 0]]), "z": np.int64([3, 1])}
    constants = {"c": numbers(4, 6)}
    constants["c"][1, 2], constants["c"][3, 3] = 1e6, -1e30
    nodes = [helper.make_node("Gather", ["c", "z"], ["g"]), helper.make_node("Add", ["x", "g"], ["y"])]
    code, report, errors = run(model_of(nodes, inputs, constants), inputs)
    assert code == 0
    first = report["lost_values"][0]
    assert first == {"input": "x", "nodes": None, "format": "fp16", "became": "saturated", "lanes": 2}
    assert any("constant 'c': 2 of 24 elements are beyond fp16" in line for line in report["packed"])
    assert "input 'x' has 2 finite values" in errors
    _, report, errors = run(model_of(nodes, inputs, constants), inputs, "--quiet")
    assert "warning" not in errors and report["lost_values"][0] == first


def test_float16_models_overflow_to_infinity_as_they_say_and_it_is_counted(run):
    inputs = {"x": np.float16([[300, -300, 1, 0]])}
    model = model_of([helper.make_node("Mul", ["x", "x"], ["y"], name="square")], inputs, {})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    code, report, errors = run(model, inputs, "--check=onnxruntime")
    assert code == 0, errors
    assert [(row["became"], row["lanes"]) for row in report["lost_values"]] == [("infinite", 2)]


def test_cycles_alone_lose_and_check_nothing(run):
    nodes, constants = layers(2)
    _, report, _ = run(model_of(nodes, {"x": numbers(4, 32)}, constants), {}, "--cycles-only")
    assert report["lost_values"] is None and report["check"] is None


@pytest.mark.parametrize("kernel, stride", [(7, 2), (3, 1)])
def test_values_that_a_rewriting_replaced_are_not_compared(run, kernel, stride):
    """A stem of three channels is packed with its pooling: what lies between is written by nobody."""
    constants = {"w": numbers(16, 3, kernel, kernel, scale=0.1), "v": numbers(8, 16, 3, 3, scale=0.1)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[kernel // 2] * 4, strides=[stride] * 2),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
             helper.make_node("Conv", ["p", "v"], ["y"])]
    inputs = {"x": numbers(1, 3, 64, 64)}
    code, report, errors = run(model_of(nodes, inputs, constants), inputs, "--check=reference")
    assert code == 0, errors
    assert any("neighbours" in line for line in report["packed"]), "the stem is not packed: nothing is shown"
    assert report["check"]["first_departure"] is None and report["check"]["values_compared"] >= 1


@pytest.mark.parametrize("seed", range(6))
def test_random_transformers_are_judged_alike(run, seed):
    drawn = random_transformers.draw_model(seed)
    inputs = {name: array for name, array in drawn.inputs.items() if name in drawn.taken()}
    found = {}
    for judge in JUDGES:
        code, report, errors = run(drawn.proto(), inputs, f"--check={judge}")
        if code not in (0, 1):
            pytest.skip(errors)
        found[judge] = {o["name"]: o["relative_l2"] for o in report["check"]["judges"][1]["outputs"]}
    for name, error in found["reference"].items():
        assert found["onnxruntime"][name] == pytest.approx(error, rel=0.05, abs=1e-4), name


@pytest.mark.parametrize("judge", JUDGES)
def test_an_input_whose_shape_alone_matters_is_none_of_the_program(run, judge):
    nodes = [helper.make_node("Shape", ["z"], ["s"]), helper.make_node("Expand", ["x", "s"], ["y"])]
    inputs = {"x": numbers(1, 32), "z": np.zeros((4, 32), np.int64)}
    model = model_of(nodes, inputs, {})
    code, report, errors = run(model, {"x": inputs["x"]}, f"--check={judge}")
    assert code == 0, errors
    assert report["check"]["judges"][1]["outputs"][0]["relative_l2"] < 1e-3


def test_outputs_that_are_all_but_0_are_told_as_well_as_fp16_can(run):
    """A sigmoid of -16 to -18 is a step or two of the smallest numbers of fp16."""
    nodes = [helper.make_node("Sub", ["x", "c"], ["d"]), helper.make_node("Sigmoid", ["d"], ["y"])]
    inputs = {"x": numbers(8, 32, scale=0.3)}
    code, report, errors = run(model_of(nodes, inputs, {"c": np.float32(17)}), inputs, "--check=onnxruntime")
    assert code == 0, errors
    assert report["check"]["judges"][1]["outputs"][0]["relative_l2"] > 0.05


def test_who_cannot_judge_says_so(run):
    nodes, constants = layers(2)
    inputs = {"x": numbers(4, 32)}
    model = model_of(nodes, inputs, constants)
    code, report, errors = run(model, inputs, "--check=onnxruntime", environment={"MILLRACE_PYTHON": "/no/python"})
    assert code == 3 and "cannot start '/no/python'" in errors and report is None
    code, _, errors = run(model, inputs, "--check=somebody")
    assert code == 2 and "somebody" in errors
