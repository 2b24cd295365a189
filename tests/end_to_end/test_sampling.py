# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Top-k and argmax on the GPU path: the values and places of NumPy, by one kernel per result, ties included."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import run_millrace, save_model

# Rows, columns, how many are chosen: one part of a row and several, fewer rows than lanes, all of a row.
TOP_K = [(1, 2, 2), (3, 5, 5), (2, 16, 4), (7, 31, 2), (4, 32, 8), (3, 33, 3), (9, 40, 2), (1, 64, 6), (2, 100, 10), (5, 128, 4),
         (1, 255, 3), (3, 257, 2), (2, 500, 16), (1, 1000, 8), (2, 1024, 4), (1, 1025, 5), (3, 2000, 2), (1, 3001, 7), (2, 4096, 3),
         (1, 5000, 4), (130, 8, 2)]
ARG_MAX = [(1, 2), (3, 31), (2, 32), (5, 33), (1, 1000), (2, 1024), (3, 1025), (1, 4099), (64, 7)]


def model(node, outputs, constants):
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, outputs.pop("x"))],
                              [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def draw(rows, columns):
    """A few different numbers, so that many are equal; some rows have infinities."""
    x = np.random.default_rng(rows * 7919 + columns).integers(-9, 10, (rows, columns)).astype(np.float32) / 4
    x[0, columns // 2] = -np.inf
    return x


def run(millrace, tmp_path, graph, x, device):
    got = run_millrace(millrace, save_model(graph, tmp_path), "tsp-v1", "fp16", {"x": x}, tmp_path,
                       ("--device-map", "sampling=gpu", "--gpu", device))
    steps = [step for step in got.report["host_kernels"] if step["assigned"] == "gpu"]
    assert steps and all(step["device"] == device and not step["left"] and not step["notes"] for step in steps)
    return got, [kernel for step in steps for kernel in step["kernels"]]


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("rows, columns, k", TOP_K)
def test_top_k_has_the_values_and_places_of_a_stable_sort(millrace, tmp_path, rows, columns, k, device):
    x, largest = draw(rows, columns), (rows + columns) % 2
    graph = model(helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest),
                  {"x": [rows, columns], "v": (TensorProto.FLOAT, [rows, k]), "i": (TensorProto.INT64, [rows, k])},
                  {"k": np.array([k])})
    got, kernels = run(millrace, tmp_path, graph, x, device)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    assert np.array_equal(got.outputs["i"], order)
    assert np.array_equal(got.outputs["v"], np.take_along_axis(x, order, 1))
    assert any(kernel.startswith("top_k_") for kernel in kernels)


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("rows, columns", ARG_MAX)
@pytest.mark.parametrize("last", [0, 1])
def test_argmax_is_one_kernel_that_takes_the_first_or_the_last_of_equal_elements(millrace, tmp_path, rows, columns, last, device):
    x = draw(rows, columns)
    graph = model(helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0, select_last_index=last),
                  {"x": [rows, columns], "i": (TensorProto.INT64, [rows])}, {})
    got, kernels = run(millrace, tmp_path, graph, x, device)
    wanted = columns - 1 - np.argmax(x[:, ::-1], axis=1) if last else np.argmax(x, axis=1)
    assert np.array_equal(got.outputs["i"], wanted)
    assert [kernel for kernel in kernels if not kernel.startswith("copy_")] == ["top_k_1"]
