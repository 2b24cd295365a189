# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that are multiplied by a constant matrix each chooses at run time, as libraries write a mixture of experts: all on the grid."""
import numpy as np
import pytest
from onnx import helper

from oracle import relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of

node = helper.make_node


def chosen_rows(tokens, width, experts, best):
    """The experts of each token's greatest scores; a row for each choice."""
    nodes = [node("MatMul", ["x", "router"], ["scores"]), node("Softmax", ["scores"], ["shares"]), node("TopK", ["shares", "best"], ["values", "index"], axis=1),
             node("Reshape", ["index", "all"], ["chosen"]), node("Unsqueeze", ["x", "one"], ["u"]), node("Expand", ["u", "times"], ["e"]),
             node("Reshape", ["e", "rows"], ["r"])]
    constants = {"best": np.array([best]), "all": np.array([-1]), "one": np.array([1]), "times": np.array([tokens, best, width]),
                 "rows": np.array([tokens * best, width, 1])}
    return nodes, constants


@pytest.mark.parametrize("machine, tokens, width, inner, experts, best", [
    ("tsp-v1", 16, 64, 96, 4, 2), ("tsp-v1", 1, 128, 72, 6, 2), ("mesh-4x4", 5, 32, 24, 3, 1), ("tsp-small", 3, 40, 48, 8, 3)])
@pytest.mark.parametrize("written", ["matrix first", "row first", "counted from the end"])
def test_experts_chosen_at_run_time(millrace, tmp_path, written, machine, tokens, width, inner, experts, best):
    draw = np.random.default_rng(17)
    nodes, constants = chosen_rows(tokens, width, experts, best)
    constants |= {"router": draw.standard_normal((width, experts)).astype(np.float32),
                  "table": (draw.standard_normal((experts, inner, width)) / np.sqrt(width)).astype(np.float32)}
    index = "chosen"
    if written == "counted from the end":
        constants["count"] = np.array([experts])
        nodes.append(node("Sub", ["chosen", "count"], ["negative"]))
        index = "negative"
    nodes.append(node("Gather", ["table", index], ["own"], axis=0))
    if written == "row first":
        constants["row"] = np.array([tokens * best, 1, width])
        nodes += [node("Reshape", ["r", "row"], ["rr"]), node("Transpose", ["own"], ["turned"], perm=[0, 2, 1]), node("MatMul", ["rr", "turned"], ["p"])]
    else:
        nodes.append(node("MatMul", ["own", "r"], ["p"]))
    constants["flat"] = np.array([tokens * best, inner])
    nodes += [node("Reshape", ["p", "flat"], ["f"]), node("Relu", ["f"], ["y"])]
    inputs = {"x": draw.standard_normal((tokens, width)).astype(np.float32)}
    model = model_of(nodes, inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    if written != "counted from the end":
        assert got.report["host_ops"] == []
    assert got.report["macs_on_grid"] == got.report["macs_total"]
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3
