# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transposed convolutions run on the grid, in a network's midst too: no zeros are put between elements, by nobody."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import cycles_on_grid

node = helper.make_node


def transposed(shape, results, kernel, group=1, bias=True, between=False, **options) -> onnx.ModelProto:
    """Of x, or of a convolution of x with another one behind it."""
    draw, channels, ones = np.random.default_rng(len(shape) + results), shape[1], (1,) * len(kernel)
    constants = {"w": draw.standard_normal((channels, results // group, *kernel)) / (channels / group * np.prod(kernel))**0.5,
                 "b": draw.standard_normal(results)}
    middle = node("ConvTranspose", ["p" if between else "x", "w", "b"][:3 if bias else 2], ["q" if between else "y"],
                  group=group, **options)
    nodes = [middle]
    if between:
        nodes = [node("Conv", ["x", "w0"], ["p"]), middle, node("Relu", ["q"], ["r"]), node("Conv", ["r", "w1"], ["y"])]
        constants |= {"w0": draw.standard_normal((channels, channels, *ones)) / channels**0.5,
                      "w1": draw.standard_normal((8, results, *(2 * extent for extent in ones))) / results**0.5 / 2}
    constants = {name: value for name, value in constants.items() if bias or name != "b"}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("shape, results, kernel, options", [
    ([1, 12, 5, 6], 8, (2, 2), {"strides": [2, 2]}),
    ([1, 12, 5, 6], 8, (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ([1, 12, 5, 6], 8, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ([2, 6, 4, 3], 5, (5, 3), {"strides": [3, 2], "pads": [0, 1, 2, 0]}),
    ([1, 6, 4, 4], 5, (2, 2), {"strides": [4, 3], "output_padding": [2, 0]}),  # results that take nothing
    ([1, 6, 7, 4], 5, (3, 2), {"strides": [2, 3], "dilations": [3, 2]}),
    ([1, 6, 7, 4], 5, (3, 3), {"dilations": [2, 1], "pads": [4, 0, 1, 2]}),
    ([1, 6, 4, 4], 5, (4, 4), {"strides": [2, 2], "output_shape": [7, 8]}),
    ([1, 6, 4, 4], 5, (3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ([1, 6, 4, 4], 5, (5, 4), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    ([1, 6, 4, 4], 5, (3, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
    ([1, 6, 9], 5, (4,), {"strides": [3], "pads": [1, 2]}),
    ([1, 4, 3, 3, 2], 3, (3, 2, 2), {"strides": [2, 1, 2], "pads": [1, 0, 0, 0, 1, 0]}),
    ([1, 16, 6, 5], 16, (4, 4), {"group": 16, "strides": [2, 2], "pads": [1, 1, 1, 1]}),  # bilinear upsampling as networks learn it
    ([1, 12, 6, 5], 6, (4, 4), {"group": 3, "strides": [2, 2]}),
    ([1, 8, 6, 5], 20, (4, 4), {"group": 2, "dilations": [1, 2], "output_padding": [1, 0], "strides": [2, 1]}),
    ([1, 8, 7], 16, (3,), {"group": 4, "strides": [2]}),
    ([1, 6, 3, 3, 4], 4, (2, 3, 2), {"group": 2, "strides": [2, 1, 2]}),
], ids=str)
@pytest.mark.parametrize("between", [False, True])
def test_any_stride_and_pad_as_onnxruntime(millrace, tmp_path, shape, results, kernel, options, between):
    model = transposed(shape, results, kernel, bias=results != 5 or not between, between=between, **options)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) > 0


@pytest.mark.parametrize("channels, results, extent, stride, most", [(64, 64, 14, 4, 15_000), (128, 64, 28, 2, 15_500)])
def test_what_is_made_block_by_block_is_packed_for_who_reads_it(millrace, tmp_path, channels, results, extent, stride, most):
    """19,445 cycles for the first when the host put zeros between the elements, of which the grid then took 16 products for one."""
    model = transposed([1, channels, extent, extent], results, (stride, stride), strides=[stride] * 2, between=True)
    assert cycles_on_grid(millrace, model, probe.seeded_inputs(model), tmp_path, 2e-3) < most


@pytest.mark.parametrize("shape, kernel, options, text", [
    ([1, 2, 2, 2], (2, 2), {"pads": [4, 4, 4, 4]}, "'y' has a dimension of"),
], ids=str)
def test_what_cannot_be_is_refused(call, tmp_path, shape, kernel, options, text):
    (tmp_path / "bad.onnx").write_bytes(transposed(shape, 2, kernel, **options).SerializeToString())
    assert text in call("compile", "bad.onnx", "-o", "bad.mrp", code=3)[1]
    assert not (tmp_path / "bad.mrp").exists()
