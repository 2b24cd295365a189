# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The oracle itself: inputs stay in range, the Softmax is cut, differences are seen."""
import json
import stat

import numpy as np
import onnx
import pytest

import probe
from bert_base import Shape, transformer
from graph import Graph
from oracle import (cut_softmax, file_stem, final_softmax, largest_unit_difference, relative_l2,
                    run, run_millrace, same_top1)
from small import convnet, softmax

TINY = Shape(layers=1, sequence=5, hidden=12, heads=3, inner=24, words=11)


def test_index_inputs_stay_below_the_extent_that_they_index():
    model = transformer(TINY)
    draws = [probe.seeded_inputs(model, seed=seed) for seed in range(40)]
    words = np.stack([draw["input_ids"] for draw in draws])
    segments = np.stack([draw["token_type_ids"] for draw in draws])
    assert (words.min(), words.max()) == (0, 10)
    assert (segments.min(), segments.max()) == (0, 1)


def test_equal_seeds_give_equal_inputs_and_a_zero_extent_gives_an_empty_one():
    g = Graph("past")
    g.output(g.add("Relu", g.input("past", [2, "length", 3])), [2, "length", 3])
    model = g.model()
    assert probe.seeded_inputs(model, {"length": 0})["past"].shape == (2, 0, 3)
    first, again = (probe.seeded_inputs(model, {"length": 4}, 9)["past"] for _ in range(2))
    assert np.array_equal(first, again)
    with pytest.raises(ValueError, match="give --dim length=n"):
        probe.seeded_inputs(model)


def test_cutting_the_softmax_gives_the_logits_whose_softmax_is_the_output():
    model = convnet()
    inputs = probe.seeded_inputs(model)
    (logits,) = run(cut_softmax(model), inputs).values()
    (probabilities,) = run(model, inputs).values()
    exponentials = np.exp(logits - logits.max())
    assert relative_l2(exponentials / exponentials.sum(), probabilities) <= 1e-6
    assert same_top1(logits, probabilities)


def test_a_softmax_behind_a_view_is_cut_and_one_inside_attention_is_not():
    g = Graph("viewed")
    y = g.add("Softmax", g.add("Relu", g.input("x", [2, 3])), axis=-1)
    g.output(g.add("Flatten", y, axis=0), [1, 6])
    cut = cut_softmax(g.model())
    assert [n.op_type for n in cut.graph.node] == ["Relu"]
    model = transformer(TINY)
    assert final_softmax(model) is None
    assert len(cut_softmax(model).graph.node) == len(model.graph.node)


def test_the_cut_model_is_valid_and_keeps_a_static_output_shape():
    cut = cut_softmax(convnet())
    onnx.checker.check_model(cut)
    assert [d.dim_value for d in cut.graph.output[0].type.tensor_type.shape.dim] == [1, 7]


def test_a_model_that_is_only_a_softmax_cannot_be_cut_to_nothing():
    assert final_softmax(softmax()) is not None
    assert len(cut_softmax(softmax()).graph.node) == 0


def test_differences_are_measured_as_they_are_defined():
    expected = np.array([3.0, 4.0], np.float32)
    assert relative_l2(expected + np.array([0, 0.05], np.float32), expected) == \
        pytest.approx(0.01, rel=1e-5)
    assert relative_l2(np.array([np.nan, 4.0]), expected) == float("inf")
    assert relative_l2(np.ones(2), np.zeros(2)) == float("inf")
    with pytest.raises(ValueError, match="shape"):
        relative_l2(np.ones(3), expected)
    assert not same_top1(np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]))
    assert same_top1(np.ones((1, 4, 1, 1)), np.ones((1, 4, 1, 1)))
    assert largest_unit_difference(np.array([-128], np.int8), np.array([127], np.int8)) == 255
    with pytest.raises(ValueError, match="cannot be compared by unit"):
        largest_unit_difference(expected, expected)


def test_tensor_names_become_file_names():
    assert file_stem("gpu_0/data:1.x-y") == "gpu_0_data_1.x-y"


def fake_millrace(folder, body: str):
    """A script in place of the binary: it sees the arguments as `a`, a list."""
    script = folder / "millrace"
    script.write_text("#!/usr/bin/env python3\nimport json, sys, pathlib, shutil\n"
                      "a = sys.argv[1:]\n"
                      "value = lambda flag: a[a.index(flag) + 1]\n" + body)
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return script


def test_run_millrace_passes_inputs_and_loads_outputs(tmp_path):
    script = fake_millrace(tmp_path, """
out = pathlib.Path(value("--output-dir")); out.mkdir()
name, file = value("--input").split("=")
shutil.copy(file, out / "y_0.npy")
report = {"outputs": [{"name": "y/0", "file": "y_0.npy"}], "arguments": a}
pathlib.Path(value("--json")).write_text(json.dumps(report))
""")
    given = {"in/x": np.arange(3, dtype=np.float32)}
    done = run_millrace(script, "m.onnx", "tsp-v1", "fp16", given, tmp_path, ["--dim", "n=1"])
    assert np.array_equal(done.outputs["y/0"], given["in/x"])
    text = json.dumps(done.report["arguments"])
    assert '"run", "m.onnx", "--machine", "tsp-v1"' in text and '"--precision", "fp16"' in text


def test_run_millrace_repeats_the_message_of_a_failure(tmp_path):
    script = fake_millrace(tmp_path, "sys.exit('machine tsp-v9 is unknown')\n")
    with pytest.raises(AssertionError, match="machine tsp-v9 is unknown"):
        run_millrace(script, "m.onnx", "tsp-v9", None, {}, tmp_path)
