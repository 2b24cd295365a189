# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of many rows into few results do not wait for each other, and products turn after they are made where that takes less."""
import numpy as np
import pytest
from onnx import helper

from test_masks_and_windows import check

NUMBERS = np.random.default_rng(6)
node = helper.make_node


@pytest.mark.parametrize("channels,extent", [(64, 28), (40, 9), (512, 7)])
def test_statistics_of_a_whole_image(millrace, tmp_path, channels, extent):
    """GroupNorm of one group, as PyTorch exports it: a single mean and deviation. An accumulator takes a product in 34 cycles;
    one sum of all rows would take 34 cycles a row, twice for the squares."""
    weights = NUMBERS.standard_normal((channels, 8, 1, 1)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Reshape", ["a", "flat"], ["r"]),
             node("InstanceNormalization", ["r", "scale", "bias"], ["n"]), node("Reshape", ["n", "whole"], ["i"]),
             node("Mul", ["i", "gamma"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal((1, 8, extent, extent)).astype(np.float32)},
                   {"w": weights, "flat": np.int64([1, 1, -1]), "scale": np.ones(1, np.float32), "bias": np.zeros(1, np.float32),
                    "whole": np.int64([1, channels, extent, extent]),
                    "gamma": NUMBERS.standard_normal((channels, 1, 1)).astype(np.float32)})
    assert report["host_ops"] == []
    rows = extent * extent * -(-channels // 320)
    sums = [kernel for kernel in report["kernels"] if kernel["mxm_vectors"] and not kernel["macs"]]
    assert len(sums) >= 2
    for kernel in sums:
        assert kernel["last_cycle"] - kernel["first_cycle"] < 34 * rows / 2 + 1500


@pytest.mark.parametrize("tokens,width,heads", [(128, 768, 12), (100, 960, 6), (64, 1280, 4)])
def test_values_of_attention_turn_after_their_product(millrace, tmp_path, tokens, width, heads):
    """P V takes V with tokens along its lanes. Made so, all rows of its weights are swept for each tile of the depth; made with
    its own lanes and turned, tokens are, and its lanes once more."""
    depth = width // heads
    matrix = lambda: (NUMBERS.standard_normal((width, width)) / width**0.5).astype(np.float32)
    nodes = [node("Clip", ["x", "low", "high"], ["h"])]  # of what may be infinite, bytes would turn apart
    for name in "qkv":
        nodes += [node("MatMul", ["h", "w" + name], ["m" + name]), node("Add", ["m" + name, "b" + name], ["a" + name]),
                  node("Reshape", ["a" + name, "split"], ["r" + name]),
                  node("Transpose", ["r" + name], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["q", "k"], ["s"]), node("Mul", ["s", "scale"], ["t"]), node("Softmax", ["t"], ["p"]),
              node("MatMul", ["p", "v"], ["o"]), node("Transpose", ["o"], ["u"], perm=[0, 2, 1, 3]),
              node("Reshape", ["u", "join"], ["y"])]
    constants = {"split": np.int64([1, tokens, heads, depth]), "join": np.int64([1, tokens, width]),
                 "scale": np.float32(depth**-0.5), "low": np.float32(-4), "high": np.float32(4)}
    for name in "qkv":
        constants |= {"w" + name: matrix(), "b" + name: NUMBERS.standard_normal(width).astype(np.float32)}
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal((1, tokens, width)).astype(np.float32)}, constants)
    assert report["host_ops"] == []
    projections = [kernel["mxm_vectors"] for kernel in report["kernels"] if kernel["macs"] == tokens * width * width]
    assert len(projections) == 3 and max(projections) == tokens * -(-width // 160) * -(-width // 320)
    turned = [kernel for kernel in report["kernels"]
              if kernel["name"].endswith(".transposed") and not kernel["name"].startswith("Softmax")]
    assert 0 < sum(kernel["mxm_vectors"] for kernel in turned) <= width


@pytest.mark.parametrize("channels,groups,extent", [(64, 32, 32), (48, 6, 20)])
def test_statistics_of_groups_of_channels(millrace, tmp_path, channels, groups, extent):
    """A group is a part of the lanes of a row: the grid's values are those of the evaluation, bit for bit (--check)."""
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Reshape", ["a", "groups"], ["r"]),
             node("ReduceMean", ["r", "axes"], ["m"]), node("Sub", ["r", "m"], ["d"]), node("Mul", ["d", "d"], ["q"]),
             node("ReduceMean", ["q", "axes"], ["v"]), node("Add", ["v", "epsilon"], ["e"]), node("Sqrt", ["e"], ["s"]),
             node("Div", ["d", "s"], ["n"]), node("Reshape", ["n", "whole"], ["o"]),
             node("Mul", ["o", "gamma"], ["b"]), node("Relu", ["b"], ["c"]), node("Conv", ["c", "u"], ["y"], pads=[1, 1, 1, 1])]
    check(millrace, tmp_path, nodes, {"x": 1 + NUMBERS.standard_normal((1, 4, extent, extent)).astype(np.float32)},
          {"w": NUMBERS.standard_normal((channels, 4, 3, 3)).astype(np.float32), "axes": np.int64([2, 3, 4]),
           "groups": np.int64([1, groups, channels // groups, extent, extent]), "epsilon": np.float32(1e-5),
           "whole": np.int64([1, channels, extent, extent]), "gamma": NUMBERS.standard_normal((channels, 1, 1)).astype(np.float32),
           "u": NUMBERS.standard_normal((channels, channels, 3, 3)).astype(np.float32)})


@pytest.mark.parametrize("channels,groups,pixels", [(64, 8, 784), (320, 4, 196), (48, 6, 400)])
def test_sums_of_parts_of_rows_are_not_refused(millrace, tmp_path, channels, groups, pixels):
    check(millrace, tmp_path,
          [node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "groups"], ["r"]), node("ReduceMean", ["r", "axes"], ["y"])],
          {"x": NUMBERS.standard_normal((1, pixels, 16)).astype(np.float32)},
          {"w": 1 + NUMBERS.standard_normal((16, channels)).astype(np.float32), "axes": np.int64([1, 3]),
           "groups": np.int64([1, pixels, groups, channels // groups])})


@pytest.mark.parametrize("channels,groups,pixels", [(64, 32, 768), (64, 8, 100)])
def test_differences_from_means_of_parts_of_rows(millrace, tmp_path, channels, groups, pixels):
    """Sums of 768 rows into 32 results: nobody takes one before the last row, and every step has weights of its own."""
    check(millrace, tmp_path,
          [node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "groups"], ["r"]), node("ReduceMean", ["r", "axes"], ["m"]),
           node("Sub", ["r", "m"], ["y"])],
          {"x": NUMBERS.standard_normal((1, pixels, 16)).astype(np.float32)},
          {"w": NUMBERS.standard_normal((16, channels)).astype(np.float32), "axes": np.int64([1, 3]),
           "groups": np.int64([1, pixels, groups, channels // groups])})


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceL2"])
@pytest.mark.parametrize("channels,groups,extent", [(64, 32, 16), (240, 3, 8), (480, 5, 8)])
def test_sums_of_parts_of_channels_are_not_refused(millrace, tmp_path, channels, groups, extent, op):
    """Every other row of what is installed, or every 80th, is no column beside the one before it."""
    check(millrace, tmp_path,
          [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Reshape", ["a", "groups"], ["r"]),
           node(op, ["r", "axes"], ["y"])],
          {"x": 1 + NUMBERS.standard_normal((1, 4, extent, extent)).astype(np.float32)},
          {"w": 0.1 + NUMBERS.standard_normal((channels, 4, 3, 3)).astype(np.float32), "axes": np.int64([2, 3, 4]),
           "groups": np.int64([1, groups, channels // groups, extent, extent])})


def attention(tokens, heads, depth, mask=None):
    """Scores of two products of `x`, perhaps masked, a Softmax, its product with a third, a product, a normalisation."""
    width = heads * depth
    nodes = [node("Clip", ["x", "low", "high"], ["h"])]
    for name in "qkv":
        nodes += [node("MatMul", ["h", "w" + name], ["m" + name]), node("Reshape", ["m" + name, "split"], ["r" + name]),
                  node("Transpose", ["r" + name], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["q", "k"], ["s"]), node("Mul", ["s", "scale"], ["t"])]
    nodes += [node("Add", ["t", "mask"], ["z"])] if mask is not None else []
    nodes += [node("Softmax", ["t" if mask is None else "z"], ["p"]), node("MatMul", ["p", "v"], ["o"]),
              node("Transpose", ["o"], ["u"], perm=[0, 2, 1, 3]), node("Reshape", ["u", "join"], ["j"]),
              node("MatMul", ["j", "wo"], ["g"]), node("LayerNormalization", ["g", "gamma", "beta"], ["y"])]
    constants = {"split": np.int64([1, tokens, heads, depth]), "join": np.int64([1, tokens, width]),
                 "scale": np.float32(depth**-0.5), "low": np.float32(-4), "high": np.float32(4),
                 "gamma": 1 + NUMBERS.random(width).astype(np.float32), "beta": NUMBERS.random(width).astype(np.float32)}
    constants |= {"w" + name: (NUMBERS.standard_normal((width, width)) / width**0.5).astype(np.float32) for name in "qkvo"}
    constants |= {} if mask is None else {"mask": mask}
    return nodes, {"x": NUMBERS.standard_normal((1, tokens, width)).astype(np.float32)}, constants


@pytest.mark.parametrize("tokens,heads,depth,turned", [(128, 12, 64, 1536), (96, 16, 80, 2304), (197, 12, 64, 4728)])
def test_a_softmax_lies_along_its_maxima(millrace, tmp_path, tokens, heads, depth, turned):
    """Scores are made once, with queries along the lanes, as their maxima lie; what becomes of them is turned, a vector for each
    query and 160 tokens or so (two for a head whose queries lie across two passes), for the product with V: no second product for
    the scores, no row for each maximum, no sum over lanes. And a normalisation of long rows adds their whole squares first, in two terms; the mean, whose square is taken off, keeps its bits."""
    report = check(millrace, tmp_path, *attention(tokens, heads, depth))
    kernels, width = report["kernels"], heads * depth
    assert [kernel["macs"] for kernel in kernels].count(heads * tokens * tokens * depth) == 2
    normalised = sum(kernel["mxm_vectors"] for kernel in kernels if kernel["name"].startswith("LayerNorm"))
    assert 0 < normalised < 2.25 * tokens * -(-width // 160)  # 3 times as many, unless
    helpers = sum(kernel["mxm_vectors"] for kernel in kernels if not kernel["macs"])
    assert helpers <= turned + normalised + width  # V may be turned, too


@pytest.mark.parametrize("tokens,heads,depth", [(128, 12, 64), (10, 2, 16)])
def test_what_is_hidden_altogether_is_no_number_and_spoils_no_other(millrace, tmp_path, tokens, heads, depth):
    mask = np.where(NUMBERS.random((1, 1, tokens, tokens)) < 0.2, -np.inf, 0).astype(np.float32)
    mask[0, 0, 3] = -np.inf
    check(millrace, tmp_path, *attention(tokens, heads, depth, mask))


@pytest.mark.parametrize("channels,extent,most", [(64, 28, 6_000), (256, 14, 6_000)])
def test_a_window_over_the_means_of_channels(millrace, tmp_path, channels, extent, most):
    """Efficient channel attention: a convolution along the channels wants a mean in each row. What is summed keeps its lanes, and
    the means are turned: 228,542 cycles for 64 channels, when the image was made once more with a row for each of its values."""
    normal = NUMBERS.standard_normal
    nodes = [node("Conv", ["x", "w0"], ["a"], pads=[1] * 4), node("ReduceMean", ["a", "axes"], ["m"], keepdims=0),
             node("Reshape", ["m", "row"], ["v"]), node("Conv", ["v", "w1"], ["c"], pads=[2, 2]), node("Sigmoid", ["c"], ["s"]),
             node("Reshape", ["s", "gates"], ["g"]), node("Mul", ["a", "g"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": normal((1, 3, extent, extent)).astype(np.float32)},
                   {"w0": (normal((channels, 3, 3, 3)) / 5).astype(np.float32), "w1": normal((1, 1, 5)).astype(np.float32),
                    "axes": np.int64([2, 3]), "row": np.int64([1, 1, channels]), "gates": np.int64([1, channels, 1, 1])})
    assert report["host_ops"] == [] and report["measured_cycles"] < most


@pytest.mark.parametrize("groups,few,long,cycles", [(4, 16, 40, 4000), (1, 21, 64, 6000), (3, 7, 19, 4000)])
def test_a_softmax_over_channels_and_its_expectation(millrace, tmp_path, groups, few, long, cycles):
    """The distances of a detector's boxes: a softmax over 16 channels for each of four sides, then a convolution with 0 to 15. Each of its maxima was laid out
    along the lanes again by a diagonal: 16,459 cycles of 40 x 40 anchors, and at 80 x 80 and its pyramid no room."""
    nodes = [node("Conv", ["x", "w", "b"], ["v"]), node("Reshape", ["v", "cut"], ["r"]), node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
             node("Softmax", ["t"], ["p"], axis=1), node("Conv", ["p", "k"], ["q"]), node("Reshape", ["q", "flat"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal((1, 32, long, long)).astype(np.float32)},
                   {"w": (NUMBERS.standard_normal((groups * few, 32, 1, 1)) / 3).astype(np.float32), "b": NUMBERS.standard_normal(groups * few).astype(np.float32),
                    "k": np.arange(few, dtype=np.float32).reshape(1, few, 1, 1), "cut": np.int64([1, groups, few, long * long]),
                    "flat": np.int64([1, groups, long * long])})
    assert report["host_ops"] == []
    assert report["predicted_cycles"] < cycles


@pytest.mark.parametrize("channels,groups,extent", [(16, 2, 40), (24, 3, 24)])
def test_a_convolution_is_not_made_again_for_its_statistics(millrace, tmp_path, channels, groups, extent):
    """EvoNorm as timm has it: deviations of groups of channels. Their sums want rows of the image along the lanes; the convolution
    was made a second time for that, of weights that stream."""
    weights = (NUMBERS.standard_normal((channels, 8, 3, 3)) / 8).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"), node("Reshape", ["c", "apart"], ["g"]),
             node("ReduceMean", ["g", "axes"], ["m"]), node("Sub", ["g", "m"], ["d"]), node("Mul", ["d", "d"], ["s"]),
             node("ReduceMean", ["s", "axes"], ["v"]), node("Add", ["v", "epsilon"], ["e"]), node("Sqrt", ["e"], ["q"]),
             node("Expand", ["q", "apart"], ["all"]), node("Reshape", ["all", "whole"], ["i"]), node("Sigmoid", ["c"], ["gate"]),
             node("Mul", ["c", "gate"], ["h"]), node("Div", ["h", "i"], ["y"])]
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal((1, 8, extent, extent)).astype(np.float32)},
                   {"w": weights, "apart": np.int64([1, groups, channels // groups, extent, extent]), "axes": np.int64([2, 3, 4]),
                    "epsilon": np.float32(1e-5), "whole": np.int64([1, channels, extent, extent])})
    assert report["host_ops"] == []
    assert max(kernel["mxm_vectors"] for kernel in report["kernels"]) <= 9 * extent * extent


@pytest.mark.parametrize("tokens,channels,hidden,times", [(49, 512, 256, 2), (100, 384, 320, 2)])
def test_a_sum_of_products_is_turned_for_the_next_tokens_to_mix(millrace, tmp_path, tokens, channels, hidden, times):
    """An MLP-mixer: one product over channels, one over tokens, in turn. What the product over channels was added to lay along
    channels for a normalisation and, computed once more with a pass for each 160 of the long depth, along tokens."""
    matrix = lambda *shape: (NUMBERS.standard_normal(shape) / shape[0]**0.5).astype(np.float32)
    nodes, constants, last = [], {"axis": np.int64([-1])}, "x"
    for block in range(times):
        name = lambda text: f"{text}{block}"
        for kind, width in (("t", tokens), ("c", channels)):
            scale, bias = name("scale" + kind), name("bias" + kind)
            nodes += [node("LayerNormalization", [last, scale, bias], [name("n" + kind)])]
            constants |= {scale: np.ones(channels, np.float32), bias: np.zeros(channels, np.float32)}
            source = name("n" + kind)
            if kind == "t":
                nodes += [node("Transpose", [source], [name("r")], perm=[0, 2, 1])]
                source = name("r")
            inner = hidden if kind == "t" else 4 * channels
            nodes += [node("MatMul", [source, name("u" + kind)], [name("p" + kind)]), node("Relu", [name("p" + kind)], [name("q" + kind)]),
                      node("MatMul", [name("q" + kind), name("v" + kind)], [name("s" + kind)])]
            constants |= {name("u" + kind): matrix(width, inner), name("v" + kind): matrix(inner, width)}
            made = name("s" + kind)
            if kind == "t":
                nodes += [node("Transpose", [made], [name("b")], perm=[0, 2, 1])]
                made = name("b")
            nodes += [node("Add", [last, made], [name("a" + kind)])]
            last = name("a" + kind)
    nodes += [node("LayerNormalization", [last, "scale", "bias"], ["y"])]
    constants |= {"scale": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}
    constants.pop("axis")
    report = check(millrace, tmp_path, nodes, {"x": NUMBERS.standard_normal((1, tokens, channels)).astype(np.float32)}, constants)
    assert report["host_ops"] == []
    passes = sum(tokens * -(-inner // 160) * -(-outer // 320) for inner, outer in ((channels, 4 * channels), (4 * channels, channels)))
    mixing = times * (passes + sum(channels * -(-inner // 160) * -(-outer // 320) for inner, outer in ((tokens, hidden), (hidden, tokens))))
    assert sum(kernel["mxm_vectors"] for kernel in report["kernels"]) < 1.55 * mixing


@pytest.mark.parametrize("parts,width,pixels,sums", [(4, 384, 49, 39), (4, 96, 196, 12), (3, 200, 100, 18)])
def test_a_normalisation_of_joined_parts_takes_their_sum_once(millrace, tmp_path, parts, width, pixels, sums):
    """Swin merges four patches and normalises them: each piece of a vector that the joint left, or each part, summed all of them.
    `sums`: passes of one row at most, for the mean and two halves of the squares; 288, 42 and 54 before."""
    nodes = [node("Relu", [f"x{p}"], [f"r{p}"]) for p in range(parts)]
    nodes += [node("Concat", [f"r{p}" for p in range(parts)], ["c"], axis=-1),
              node("LayerNormalization", ["c", "scale", "bias"], ["n"]), node("MatMul", ["n", "w"], ["y"])]
    normal = NUMBERS.standard_normal
    report = check(millrace, tmp_path, nodes, {f"x{p}": normal((1, pixels, width)).astype(np.float32) for p in range(parts)},
                   {"scale": np.ones(parts * width, np.float32), "bias": np.zeros(parts * width, np.float32),
                    "w": (normal((parts * width, 64)) / 30).astype(np.float32)})
    assert report["host_ops"] == []
    assert sum(kernel["mxm_vectors"] for kernel in report["kernels"] if kernel["name"].startswith("LayerNorm")) <= sums * pixels
