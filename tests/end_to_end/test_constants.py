# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model computes of constants alone is a constant: with ONNX Runtime's values, and without a step of the host."""
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from oracle import relative_l2, run_millrace, save_model

RANDOM = np.random.default_rng(0)
NUMBERS = np.concatenate([RANDOM.standard_normal(8000) * 4, [0, -0.0, 1, -1, 100, -100, np.inf, -np.inf, np.nan]]).astype(np.float32)


def model_of(nodes: list, constants: dict[str, np.ndarray], shape: list[int], element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """`nodes` compute `c` of constants; y = x + c."""
    x, y = (helper.make_tensor_value_info(name, element, shape) for name in "xy")
    graph = helper.make_graph(nodes + [helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y],
                              [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def node(op: str, inputs: str, output: str, **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


def position_bias(window: int, heads: int):
    """Of Swin V2: coordinates, two layers, one row for each pair of pixels, 16 sigmoid."""
    size = 2 * window - 1
    steps = np.linspace(-8, 8, size, dtype=np.float32)
    table = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1)
    pixels = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij"), -1).reshape(-1, 2)
    apart = pixels[:, None] - pixels[None] + window - 1
    constants = {"table": (np.sign(table) * np.log2(np.abs(table) + 1) / 3)[None],
                 "w0": RANDOM.standard_normal((2, 512)).astype(np.float32), "b0": RANDOM.standard_normal(512).astype(np.float32),
                 "w1": RANDOM.standard_normal((512, heads)).astype(np.float32) / 16,
                 "rows": np.int64([size * size, heads]), "index": (apart[..., 0] * size + apart[..., 1]).reshape(-1),
                 "square": np.int64([window**2, window**2, heads]), "sixteen": np.float32(16)}
    nodes = [node("MatMul", "table w0", "h"), node("Add", "h b0", "i"), node("Relu", "i", "j"), node("MatMul", "j w1", "k"),
             node("Reshape", "k rows", "l"), node("Gather", "l index", "m"), node("Reshape", "m square", "n"),
             node("Transpose", "n", "o", perm=[2, 0, 1]), node("Sigmoid", "o", "p"), node("Mul", "p sixteen", "c")]
    return model_of(nodes, constants, [heads, window**2, window**2])


def bucket_bias(tokens: int, heads: int):
    """Of T5: a row of a table for the logarithm of each distance, that of 0 is cast to an integer and not chosen."""
    position = np.arange(tokens)
    constants = {"to": position[:, None], "from": position[None], "eight": np.int64(8), "nearest": np.float32(8),
                 "factor": np.float32(2.885), "most": np.int64(15), "bias": RANDOM.standard_normal((16, heads)).astype(np.float32)}
    nodes = [node("Sub", "to from", "d"), node("Abs", "d", "a"), node("Less", "a eight", "near"),
             node("Cast", "a", "f", to=TensorProto.FLOAT), node("Div", "f nearest", "g"), node("Log", "g", "h"),
             node("Mul", "h factor", "i"), node("Cast", "i", "j", to=TensorProto.INT64), node("Add", "j eight", "k"),
             node("Min", "k most", "l"), node("Where", "near a l", "m"), node("Gather", "bias m", "n"),
             node("Transpose", "n", "c", perm=[2, 0, 1])]
    return model_of(nodes, constants, [heads, tokens, tokens])


@pytest.mark.parametrize("model", [position_bias(8, 6), bucket_bias(96, 4)], ids=["swin v2", "t5"])
def test_biases_of_positions_are_constants_on_the_grid(millrace, tmp_path, model):
    inputs = {"x": RANDOM.standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]).astype(np.float32)}
    expected, = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    assert not got.report["host_ops"]
    assert relative_l2(got.outputs["y"], expected) <= 1e-3


@pytest.fixture
def folded(millrace, tmp_path):
    """folded(nodes, constants) is `c` as import makes a constant of it, and as ONNX Runtime computes it."""
    def fold(nodes, constants):
        graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("c")],
                                  [numpy_helper.from_array(array, name) for name, array in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        model = onnx.shape_inference.infer_shapes(model)
        command = [millrace.parents[1] / "tests/bin/import-and-run", save_model(model, tmp_path), tmp_path]
        text = subprocess.run([*command, "--print"], check=True, capture_output=True, text=True).stdout
        assert "linalg.generic" not in text
        subprocess.run(command, check=True, capture_output=True)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return np.load(tmp_path / "output_0.npy"), \
            onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {})[0]
    return fold


FUNCTIONS = {"Exp": 2, "Log": 2, "Sqrt": 0, "Tanh": 4, "Sigmoid": 2, "Erf": 4, "Floor": 0, "Ceil": 0, "Round": 0, "Reciprocal": 0,
             "Abs": 0, "Neg": 0, "Relu": 0, "Sin": 2, "Cos": 2, "Atan": 4, "Softsign": 2, "Sign": 0}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_of_constants_are_those_of_onnx_runtime(folded, op):
    """In units of the last place, as far as its approximations are off; its sigmoid is by parts of 1, not of itself."""
    found, expected = folded([node(op, "a", "c")], {"a": NUMBERS})
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    same = (found == expected) | np.isnan(found)
    far = np.abs(found[~same] - expected[~same]) / np.spacing(np.maximum(np.abs(expected[~same]), np.float32(1 if op == "Sigmoid" else 1e-7)))
    assert not far.size or far.max() <= FUNCTIONS[op]


TYPES = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64]
# What ONNX Runtime has on the CPU.
ARITHMETIC = [(op, type_) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min") for type_ in TYPES] + \
    [(op, type_) for op in ("Less", "Equal") for type_ in (np.float32, np.float64, np.int32, np.int64)] + [("Pow", np.float32)]


@pytest.mark.parametrize("op, type_", ARITHMETIC, ids=lambda of: of if isinstance(of, str) else of.__name__)
def test_arithmetic_of_constants_is_that_of_onnx_runtime(folded, op, type_):
    """To the last bit, but for powers."""
    a, b = (RANDOM.integers(-100, 100, 5000) for _ in range(2))
    if np.issubdtype(type_, np.floating):
        a, b = a / 16, b / 16 + 1 / 32
    elif type_ == np.uint8:
        a, b = a + 100, b + 101
    b[b == 0] = 7
    found, expected = folded([node(op, "a b", "c")], {"a": a.astype(type_), "b": b.astype(type_)})
    if op == "Pow":
        np.testing.assert_allclose(found, expected, rtol=3e-7)
    else:
        np.testing.assert_array_equal(found, expected)
