# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks are made on the grid or before it runs, and lanes that two loops step through are one row: windows and tokens of images."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

NUMBERS = np.random.default_rng(5)
node = helper.make_node


def model_of(nodes, inputs, constants, opset=18) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in inputs.items()]
    graph = helper.make_graph(nodes, "graph", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(millrace, tmp_path, nodes, inputs, constants, machine="tsp-v1", bound=3e-3, opset=18):
    """Runs it; the values are ONNX Runtime's, NaN in the same places. Returns the report."""
    model = model_of(nodes, inputs, constants, opset)
    expected = probe.run(model, inputs)["y"]
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path,
                       ["--check"]).outputs["y"]
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert relative_l2(np.nan_to_num(got), np.nan_to_num(expected)) <= bound
    return json.loads((tmp_path / "report.json").read_text())


LOGIC = {
    "and of comparisons": [node("Less", ["a", "b"], ["p"]), node("Greater", ["a", "c"], ["q"]), node("And", ["p", "q"], ["m"])],
    "or of comparisons": [node("Less", ["a", "b"], ["p"]), node("Greater", ["a", "c"], ["q"]), node("Or", ["p", "q"], ["m"])],
    "xor of comparisons": [node("Less", ["a", "b"], ["p"]), node("Greater", ["a", "c"], ["q"]), node("Xor", ["p", "q"], ["m"])],
    "not of a comparison": [node("Less", ["a", "b"], ["p"]), node("Not", ["p"], ["m"])],
    "and of a comparison and a constant": [node("Less", ["a", "b"], ["p"]), node("And", ["p", "flags"], ["m"])],
    "xor of a constant and a comparison": [node("Less", ["a", "b"], ["p"]), node("Xor", ["flags", "p"], ["m"])],
    "neither is a number": [node("Div", ["a", "zeros"], ["d"]), node("IsNaN", ["d"], ["p"]), node("Not", ["p"], ["m"])],
    "or with all that is so": [node("Less", ["a", "b"], ["p"]), node("Or", ["p", "true"], ["m"])],
    "and with nothing": [node("Less", ["a", "b"], ["p"]), node("And", ["p", "false"], ["m"])],
}


@pytest.mark.parametrize("name", LOGIC)
@pytest.mark.parametrize("shape", [(4, 24), (3, 5, 7)])
def test_logic_runs_on_the_grid(millrace, tmp_path, name, shape):
    a, b, c = (NUMBERS.integers(-2, 3, shape).astype(np.float32) for _ in range(3))
    report = check(millrace, tmp_path, [*LOGIC[name], node("Where", ["m", "a", "c"], ["y"])], {"a": a, "b": b, "c": c},
                   {"flags": NUMBERS.integers(0, 2, shape).astype(bool), "zeros": np.zeros(shape, np.float32),
                    "true": np.ones((), bool), "false": np.zeros((), bool)})
    assert report["host_ops"] == []


def test_a_row_that_is_hidden_altogether_is_made_zero_on_the_grid(millrace, tmp_path):
    """As PyTorch's exporter writes attention: a Softmax of nothing but -inf is NaN, and then 0."""
    scores = NUMBERS.standard_normal((2, 6, 9)).astype(np.float32)
    mask = np.where(NUMBERS.integers(0, 2, (2, 6, 9)), 0, -np.inf).astype(np.float32)
    mask[0, 3] = -np.inf
    report = check(millrace, tmp_path,
                   [node("Add", ["x", "mask"], ["s"]), node("Softmax", ["s"], ["p"]), node("IsNaN", ["p"], ["n"]),
                    node("Where", ["n", "zero", "p"], ["y"])], {"x": scores}, {"mask": mask, "zero": np.zeros((), np.float32)})
    assert report["host_ops"] == []


def test_masks_of_constants_are_made_before_the_program_runs(millrace, tmp_path):
    regions = NUMBERS.integers(0, 3, (16, 49)).astype(np.float32)
    nodes = [node("Equal", ["d", "zero"], ["e"]), node("Not", ["e"], ["n"]),
             node("Where", ["n", "hidden", "d"], ["w"]), node("Where", ["e", "zero", "w"], ["m"]), node("Add", ["x", "m"], ["y"])]
    constants = {"d": regions[:, :, None] - regions[:, None, :], "zero": np.zeros((), np.float32), "hidden": np.float32(-100)}
    x = {"x": NUMBERS.standard_normal((16, 49, 49)).astype(np.float32)}
    made = check(millrace, tmp_path, nodes, x, constants)
    folded = np.where(regions[:, :, None] == regions[:, None, :], 0, -100).astype(np.float32)
    given = check(millrace, tmp_path, [node("Add", ["x", "m"], ["y"])], x, {"m": folded})
    assert made["host_ops"] == [] and made["measured_cycles"] <= 1.02 * given["measured_cycles"]


def points(*extents):
    return np.stack(np.meshgrid(*(np.arange(e) for e in extents), indexing="ij"), -1)


GATHERS = {
    "a mask for every query": (lambda: (points(2, 1, 5, 8)[..., [0, 3]], (2, 8)), 0),
    "from the second on": (lambda: (points(3, 4)[..., [1]] + 1, (5, 6)), 0),
    "every third": (lambda: (points(3, 2)[..., [0]] * 3, (9, 4)), 0),
    "counted from the end": (lambda: (points(4, 1)[..., [0]] - 4, (7, 3)), 0),
    "turned": (lambda: (points(3, 4)[..., [1, 0]], (4, 3, 5)), 0),
    "one element": (lambda: (np.int64([[2, 1]]), (4, 3)), 0),
    "a diagonal": (lambda: (points(4)[..., [0, 0]], (4, 4)), 0),
    "backwards": (lambda: (3 - points(4)[..., [0]], (4, 6)), 0),
    "unevenly": (lambda: (np.int64([[0], [1], [4]]), (5, 6)), 0),
    "of each image": (lambda: (points(2, 3)[..., [1]] + 1, (2, 5, 4)), 1),
}


@pytest.mark.parametrize("name", GATHERS)
def test_constant_indices_read_what_they_name(millrace, tmp_path, name):
    make, batch = GATHERS[name]
    indices, shape = make()
    x = NUMBERS.standard_normal(shape).astype(np.float32)
    report = check(millrace, tmp_path, [node("GatherND", ["x", "i"], ["g"], batch_dims=batch), node("Relu", ["g"], ["y"])],
                   {"x": x}, {"i": np.asarray(indices, np.int64)})
    assert report["host_ops"] == [] or name in ("a diagonal", "backwards", "unevenly")


@pytest.mark.parametrize("extents", [(14, 14), (7, 7), (3, 20), (24, 13), (5, 1)])
@pytest.mark.parametrize("machine", ["tsp-v1", "mesh-4x4"])
def test_tokens_of_an_image_are_mixed_in_whole_rows(millrace, tmp_path, extents, machine):
    """ResMLP, MLP-Mixer: what a convolution makes of an image is multiplied along its pixels."""
    high, wide = extents
    tokens, channels = high * wide, 24
    x = {"x": NUMBERS.standard_normal((1, 8, high, wide)).astype(np.float32)}
    constants = {"w": NUMBERS.normal(0, 0.3, (channels, 8, 1, 1)).astype(np.float32),
                 "mix": NUMBERS.normal(0, 0.1, (tokens, tokens)).astype(np.float32),
                 "back": NUMBERS.normal(0, 0.1, (tokens, tokens)).astype(np.float32), "shape": np.int64([1, channels, tokens])}
    check(millrace, tmp_path,
          [node("Conv", ["x", "w"], ["c"]), node("Reshape", ["c", "shape"], ["f"]), node("MatMul", ["f", "mix"], ["m"]),
           node("Relu", ["m"], ["r"]), node("MatMul", ["r", "back"], ["s"]), node("Add", ["s", "f"], ["t"]),
           node("Transpose", ["t"], ["y"], perm=[0, 2, 1])], x, constants, machine)


@pytest.mark.parametrize("window, heads, shift", [(4, 2, 0), (7, 3, 0), (7, 3, 3), (3, 1, 1)])
def test_attention_in_windows(millrace, tmp_path, window, heads, shift):
    """Swin: windows of an image, rolled or not, with a mask of constants."""
    across, width = 2 * window, 16 * heads
    tokens, windows = window * window, 4
    x = {"x": NUMBERS.standard_normal((1, across, across, width)).astype(np.float32)}
    constants = {"qkv": NUMBERS.normal(0, 0.3, (width, 3 * width)).astype(np.float32),
                 "parts": np.int64([1, 2, window, 2, window, width]), "tokens": np.int64([windows, tokens, width]),
                 "cut": np.int64([windows, tokens, 3, heads, 16]), "bias": NUMBERS.normal(0, 1, (1, heads, tokens, tokens)).astype(np.float32),
                 "mask": np.where(NUMBERS.integers(0, 3, (windows, 1, tokens, tokens)), 0, -100).astype(np.float32),
                 **{name: np.int64(i) for i, name in enumerate("qkv")}, "a": np.int64([shift]), "z": np.int64([0]), "end": np.int64([across]),
                 "one": np.int64([1]), "two": np.int64([2])}
    constants["mask"][:, :, range(tokens), range(tokens)] = 0
    constants = {("number_" + n if n in "qkv" and len(n) == 1 else n): a for n, a in constants.items()}
    constants["weights"] = constants.pop("qkv")
    nodes, seen = [], "x"
    if shift:
        for axis in ("one", "two"):
            nodes += [node("Slice", [seen, "a", "end", axis], [seen + axis + "r"]), node("Slice", [seen, "z", "a", axis], [seen + axis + "l"]),
                      node("Concat", [seen + axis + "r", seen + axis + "l"], [seen + axis], axis=1 if axis == "one" else 2)]
            seen += axis
    nodes += [node("Reshape", [seen, "parts"], ["apart"]), node("Transpose", ["apart"], ["turned"], perm=[0, 1, 3, 2, 4, 5]),
              node("Reshape", ["turned", "tokens"], ["t"]), node("MatMul", ["t", "weights"], ["all"]), node("Reshape", ["all", "cut"], ["five"]),
              node("Transpose", ["five"], ["heads"], perm=[2, 0, 3, 1, 4])]
    for name in "qkv":
        nodes.append(node("Gather", ["heads", "number_" + name], [name], axis=0))
    nodes += [node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s"]), node("Add", ["s", "bias"], ["sb"]),
              node("Add", ["sb", "mask"], ["sm"]), node("Softmax", ["sm"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"])]
    report = check(millrace, tmp_path, nodes, x, constants, bound=4e-3)
    assert report["host_ops"] == []


@pytest.mark.parametrize("tokens, channels", [(49, 64), (20, 400), (3, 7)])
def test_a_normalisation_that_is_read_along_its_rows_stays_on_the_grid(millrace, tmp_path, tokens, channels):
    """MLP-Mixer: LayerNormalization over the channels, then a product along the tokens."""
    weights = {"w": NUMBERS.normal(0, 0.2, (channels, channels)), "g": NUMBERS.normal(1, 0.2, channels), "b": NUMBERS.normal(0, 0.2, channels),
               "mix": NUMBERS.normal(0, 0.2, (tokens, 30)), "back": NUMBERS.normal(0, 0.2, (30, tokens))}
    report = check(millrace, tmp_path,
                   [node("MatMul", ["x", "w"], ["a"]), node("LayerNormalization", ["a", "g", "b"], ["n"], axis=-1),
                    node("Transpose", ["n"], ["t"], perm=[0, 2, 1]), node("MatMul", ["t", "mix"], ["m"]), node("Relu", ["m"], ["r"]),
                    node("MatMul", ["r", "back"], ["s"]), node("Transpose", ["s"], ["u"], perm=[0, 2, 1]), node("Add", ["a", "u"], ["y"])],
                   {"x": NUMBERS.standard_normal((1, tokens, channels)).astype(np.float32)},
                   {name: a.astype(np.float32) for name, a in weights.items()})
    assert report["host_ops"] == []


@pytest.mark.parametrize("machine", ["tsp-v1", "lp30", "mesh-4x4"])
def test_patches_whose_channels_are_joined_with_rows(millrace, tmp_path, machine):
    """MobileViT: channels and rows of patches are one dimension while patches are moved; tokens have channels along the lanes all the same."""
    channels, extent = 48, 16
    half = extent // 2
    draw = np.random.default_rng(5)
    shapes = {"unfolded": (channels * half, 2, half, 2), "pixels": (1, channels, half * half, 4), "moved": (channels * half, half, 2, 2),
              "image": (1, channels, extent, extent)}
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("Reshape", ["a", "unfolded"], ["b"]), node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3]),
             node("Reshape", ["c", "pixels"], ["d"]), node("Transpose", ["d"], ["e"], perm=[0, 3, 2, 1]),
             node("LayerNormalization", ["e", "g", "s"], ["n"]), node("MatMul", ["n", "m"], ["p"]), node("Add", ["p", "e"], ["t"]),
             node("Transpose", ["t"], ["f"], perm=[0, 3, 2, 1]), node("Reshape", ["f", "moved"], ["h"]), node("Transpose", ["h"], ["i"], perm=[0, 2, 1, 3]),
             node("Reshape", ["i", "image"], ["j"]), node("Conv", ["j", "w1"], ["y"])]
    constants = {name: np.array(shape, np.int64) for name, shape in shapes.items()}
    constants |= {"w0": draw.standard_normal((channels, 8, 1, 1)), "w1": draw.standard_normal((8, channels, 1, 1)) / 8, "g": draw.random(channels) + 1,
                  "s": draw.random(channels), "m": draw.standard_normal((channels, channels)) / 7}
    constants = {name: array if array.dtype == np.int64 else array.astype(np.float32) for name, array in constants.items()}
    report = check(millrace, tmp_path, nodes, {"x": draw.standard_normal((1, 8, extent, extent)).astype(np.float32)}, constants, machine)
    assert report["host_ops"] == []
    assert report["measured_cycles"] < 5_000


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small", "mesh-4x4"])
@pytest.mark.parametrize("tokens", [8, 24])
def test_the_largest_masked_scores_are_those_that_were_compared(millrace, tmp_path, machine, tokens):
    """Scores of which all but the largest few are masked: those that are found are the scores themselves, bit by bit,
    however each is stored, as they are found by comparison with what was found before."""
    kept, lowest = 4, np.finfo(np.float32).min
    constants = {"mask": np.triu(np.ones((tokens, tokens), bool), 1), "lowest": lowest, "count": np.int64([kept]),
                 "last": np.int64([kept - 1])}
    nodes = [helper.make_node("MatMul", ["q", "k"], ["scores"]),
             helper.make_node("Where", ["mask", "lowest", "scores"], ["masked"]),
             helper.make_node("TopK", ["masked", "count"], ["found", "places"], axis=-1),
             helper.make_node("Gather", ["found", "last"], ["least"], axis=-1),
             helper.make_node("GreaterOrEqual", ["masked", "least"], ["isKept"]),
             helper.make_node("Where", ["isKept", "masked", "lowest"], ["sparse"]),
             helper.make_node("Softmax", ["sparse"], ["y"], axis=-1)]
    floats = {"y": [2, tokens, tokens], "masked": [2, tokens, tokens], "found": [2, tokens, kept]}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
         for name, shape in {"q": [2, tokens, 16], "k": [2, 16, tokens]}.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in floats.items()] +
        [helper.make_tensor_value_info("places", TensorProto.INT64, [2, tokens, kept])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", probe.seeded_inputs(model), tmp_path).outputs
    assert (got["found"] == -np.sort(-got["masked"], axis=-1)[..., :kept]).all()
    assert (got["found"] == np.take_along_axis(got["masked"], got["places"].astype(np.int64), axis=-1)).all()
    assert ((got["y"] > 0).sum(axis=-1) <= np.minimum(kept, np.arange(tokens) + 1)).all()
    assert ((got["y"] > 0).sum(axis=-1) > np.minimum(kept, np.arange(tokens) + 1) // 2).all()


@pytest.mark.parametrize("shape, attributes", [((17, 1, 17), {"kernel_shape": [3]}), ((40, 3, 33), {"kernel_shape": [9]}),
                                               ((17, 1, 17), {"kernel_shape": [5], "pads": [2, 2]}),
                                               ((5, 1, 17, 8), {"kernel_shape": [3, 3], "strides": [2, 1]})])
def test_a_window_slides_along_lanes_of_another_reader(millrace, tmp_path, shape, attributes):
    """The average is taken of rows, lane by lane, along the lanes that the softmax over dimension 0 has."""
    nodes = [node("Tanh", ["x"], ["t"]), node("Softmax", ["t"], ["s"], axis=0), node("AveragePool", ["t"], ["p"], **attributes),
             node("ReduceSum", ["s", "rest"], ["q"], keepdims=1), node("Mul", ["p", "q"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal(shape).astype(np.float32)},
                   {"rest": np.arange(1, len(shape), dtype=np.int64)})
    assert report["host_ops"] == []


@pytest.mark.parametrize("size, channels", [(88, 64), (112, 96)])
def test_results_that_end_alike_share_a_mask(millrace, tmp_path, call, size, channels):
    """Bands of columns reach beyond the image; what a normalisation stores of a row, centred and squared, is cut off there by one operand."""
    nodes = [node("Conv", ["x", "w0"], ["a"], strides=[4, 4]), node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
             node("LayerNormalization", ["t", "s", "b"], ["l"], axis=-1), node("Transpose", ["l"], ["u"], perm=[0, 3, 1, 2]),
             node("Conv", ["u", "w1"], ["v"], pads=[1] * 4), node("Relu", ["v"], ["y"])]
    constants = {"w0": NUMBERS.standard_normal((channels, 3, 4, 4)) / 7, "s": NUMBERS.standard_normal(channels),
                 "b": NUMBERS.standard_normal(channels), "w1": NUMBERS.standard_normal((channels, channels, 3, 3)) / 20}
    constants = {name: np.float32(a) for name, a in constants.items()}
    check(millrace, tmp_path, nodes, {"x": np.float32(NUMBERS.standard_normal((1, 3, size, size)))}, constants)
    call("compile", next(tmp_path.glob("*.onnx")), "-m", "tsp-v1", "--to", "spatial", "-o", tmp_path / "kernels.mlir")
    kernels = (tmp_path / "kernels.mlir").read_text().split("spatial.kernel ")[1:]
    masked = [[line for line in kernel.splitlines() if "spatial.operand" in line and ".inside" in line] for kernel in kernels]
    results = [kernel.count("spatial.write") for kernel in kernels]
    assert any(lines and several > 1 for lines, several in zip(masked, results))
    assert all(len(lines) <= 1 for lines in masked)
