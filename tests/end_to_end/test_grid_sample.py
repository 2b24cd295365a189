# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An image at places that the model computes: gathered by the host, the rest on the grid."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

node = helper.make_node


@pytest.mark.parametrize("mode, bound", [("linear", 1.5e-2), ("nearest", 0.2)])  # a place that is rounded may have another nearest
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligns", [0, 1])
def test_a_batch_between_convolutions(millrace, tmp_path, mode, bound, padding, aligns):
    draw = np.random.default_rng(5)
    constants = {"w0": draw.standard_normal((16, 4, 3, 3)) / 6, "w1": draw.standard_normal((8, 16, 1, 1)) / 4,
                 "turn": draw.standard_normal((6, 2)) * 0.6}
    nodes = [node("Conv", ["x", "w0"], ["p"], pads=[1] * 4), node("MatMul", ["g", "turn"], ["places"]),
             node("GridSample", ["p", "places"], ["q"], "sampled", mode=mode, padding_mode=padding, align_corners=aligns),
             node("Conv", ["q", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 12]),
                                           helper.make_tensor_value_info("g", TensorProto.FLOAT, [2, 7, 5, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, [])
    assert set(got.report["host_ops"]) == {"sampled"}
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < bound


def model_of(nodes, shapes, constants, kinds=None):
    kinds = kinds or {}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("group, parts, stride, dilation, masks", [(1, 1, 1, 1, True), (2, 2, 2, 1, False), (1, 4, 1, 2, True)])
def test_a_convolution_whose_taps_move(millrace, tmp_path, group, parts, stride, dilation, masks):
    """Offsets and masks are convolutions of the image, as deformable networks make them."""
    draw = np.random.default_rng(7)
    weights = lambda *shape: np.float32(draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))  # noqa: E731
    window = {"pads": [dilation] * 4, "strides": [stride] * 2, "dilations": [dilation] * 2}
    constants = {"w0": weights(8, 3, 3, 3), "wo": weights(parts * 18, 8, 3, 3), "wm": weights(parts * 9, 8, 3, 3),
                 "w": weights(12, 8 // group, 3, 3), "b": weights(12)}
    nodes = [node("Conv", ["x", "w0"], ["p"], pads=[1] * 4), node("Conv", ["p", "wo"], ["o"], **window),
             *([node("Conv", ["p", "wm"], ["m0"], **window), node("Sigmoid", ["m0"], ["m"])] if masks else []),
             node("DeformConv", ["p", "w", "o", "b", "m" if masks else ""], ["q"], "moved", group=group, offset_group=parts, **window),
             node("Relu", ["q"], ["y"])]
    model = model_of(nodes, {"x": [2, 3, 10, 13]}, {name: value for name, value in constants.items() if masks or name != "wm"})
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, [])
    assert set(got.report["host_ops"]) == {"moved"}
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert got.report["macs_on_grid"] == got.report["macs_total"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < 5e-3


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_boxes_of_an_image(millrace, tmp_path, mode, corners):
    """Boxes on both images, one of them beyond the border."""
    draw = np.random.default_rng(8)
    constants = {"w0": np.float32(draw.standard_normal((16, 3, 3, 3)) / 5), "w1": np.float32(draw.standard_normal((8, 16, 1, 1)) / 4)}
    nodes = [node("Conv", ["x", "w0"], ["p"], pads=[1] * 4),
             node("RoiAlign", ["p", "boxes", "images"], ["q"], "aligned", mode=mode, coordinate_transformation_mode=corners, output_height=3,
                  output_width=5, sampling_ratio=2, spatial_scale=0.5),
             node("Conv", ["q", "w1"], ["y"])]
    model = model_of(nodes, {"x": [2, 3, 12, 14], "boxes": [4, 4], "images": [4]}, constants, {"images": TensorProto.INT64})
    inputs = {**probe.seeded_inputs(model), "images": np.array([1, 0, 0, 1]),
              "boxes": np.array([[0, 0, 20, 16], [3.5, 2.25, 9, 17], [-9, -7, 30, 40], [4, 4, 4.5, 4.5]], np.float32)}
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, [])
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    assert relative_l2(got.outputs["y"], probe.run(model, inputs)["y"]) < 5e-3


def test_boxes_that_decide_how_often_they_are_sampled(call, tmp_path):
    model = model_of([node("RoiAlign", ["x", "boxes", "images"], ["y"], "aligned")], {"x": [1, 3, 12, 14], "boxes": [4, 4], "images": [4]}, {},
                     {"images": TensorProto.INT64})
    assert "sampling_ratio 0" in call("check", save_model(model, tmp_path), code=3)[1]
