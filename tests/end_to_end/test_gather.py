# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of tables on the GPU path: the elements of ONNX Runtime, bit by bit, whatever rank, axis and sign the indices have."""
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import run_millrace, save_model

# Shape of the table, axis, shape of the indices.
GATHERS = [((5, 33), 0, (3,)), ((9, 64), 0, (1,)), ((50, 40), 0, (2, 5)), ((7, 65), 0, (2, 3, 4)), ((30, 127), 0, (4,)),
           ((11, 128), 0, (3, 1)), ((3, 129), 0, (6,)), ((100, 256), 0, (1, 7)), ((4, 257), 0, (2,)), ((17, 500), 0, (3,)),
           ((2, 768), 0, (2, 2)), ((3, 1023), 0, (2,)), ((5, 1030), 0, (3,)), ((2, 2048), 0, (2,)), ((6, 3, 35), 0, (4,)),
           ((4, 2, 3, 33), 0, (3,)), ((3, 7, 40), 1, (2,)), ((2, 9, 4, 36), 1, (2, 2)), ((1, 32), 0, (5,)), ((64, 31), 0, (3,)),
           ((8, 5), 0, (9,)), ((6, 40), 1, (5,)), ((3, 6, 10), 2, (4,))]


def table(shape, seed):
    """Numbers that fp16 holds, all different as far as it can."""
    return (np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape) % 2048).astype(np.float32)


def gather(shape, axis, indices, dtype):
    out = [*shape[:axis], *indices, *shape[axis + 1:]]
    kind = TensorProto.INT64 if dtype == np.int64 else TensorProto.INT32
    graph = helper.make_graph([helper.make_node("Gather", ["t", "i"], ["y"], axis=axis)], "g",
                              [helper.make_tensor_value_info("i", kind, list(indices))],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
                              [numpy_helper.from_array(table(shape, 1), "t")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(millrace, tmp_path, graph, inputs, device):
    path = save_model(graph, tmp_path)
    got = run_millrace(millrace, path, "tsp-v1", "fp16", inputs, tmp_path, ("--device-map", "embedding=gpu", "--gpu", device))
    steps = [step for step in got.report["host_kernels"] if step["assigned"] == "gpu"]
    assert steps and all(step["device"] == device and not step["left"] and not step["notes"] for step in steps)
    wanted, = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
    return got, wanted, [kernel for step in steps for kernel in step["kernels"]]


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("number", range(len(GATHERS)))
def test_rows_are_those_of_onnx_runtime(millrace, tmp_path, number, device):
    shape, axis, indices = GATHERS[number]
    dtype = (np.int64, np.int32)[number % 2]
    i = np.random.default_rng(number).integers(-shape[axis], shape[axis], indices).astype(dtype)
    got, wanted, kernels = run(millrace, tmp_path, gather(shape, axis, indices, dtype), {"i": i}, device)
    assert np.array_equal(got.outputs["y"], wanted)
    assert any(kernel.startswith("gather_") for kernel in kernels), kernels


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("width", [40, 130, 768])
def test_words_places_and_kinds_are_added_by_one_kernel(millrace, tmp_path, width, device):
    """Three tables, one of which is taken in order."""
    tokens = 11
    tables = {"words": table((50, width), 1) / 4, "kinds": table((2, width), 2) / 4, "places": table((tokens, width), 3) / 4}
    nodes = [helper.make_node("Gather", ["words", "i"], ["a"]), helper.make_node("Gather", ["kinds", "k"], ["b"]),
             helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Add", ["c", "places"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, TensorProto.INT64, [1, tokens]) for name in "ik"],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, tokens, width])],
                              [numpy_helper.from_array(value, name) for name, value in tables.items()])
    rng = np.random.default_rng(width)
    inputs = {"i": rng.integers(-50, 50, (1, tokens)), "k": rng.integers(0, 2, (1, tokens))}
    got, wanted, kernels = run(millrace, tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
                               inputs, device)
    assert np.abs(got.outputs["y"] - wanted).max() <= 2.0 ** -11 * np.abs(wanted).max()  # the sum is stored in fp16
    assert any(kernel.startswith("gather_") for kernel in kernels), kernels
