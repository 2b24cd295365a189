# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose shape, not whose operators, was too much: precisions in turns, long chains, many
operands at once, classifiers of a batch. ONNX Runtime judges; nothing searches for ever."""
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import probe
from oracle import relative_l2, run_millrace, save_model

MACHINES = ["tsp-v1", "tsp-small", "mesh-4x4"]


def model_of(nodes, inputs, outputs, constants):
    """inputs and outputs: name to float32 shape; constants: name to array."""
    def infos(shapes):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs),
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def judged(millrace, tmp_path, model, machine, precision, bound, timeout=60):
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, precision, inputs, tmp_path,
                       timeout=timeout)
    assert got.report["predicted_cycles"] == got.report["measured_cycles"]
    for name, value in probe.run(model, inputs).items():
        assert relative_l2(got.outputs[name], value) <= bound, name
    return got


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rounds", [1, 3])
def test_precisions_that_alternate_leave_each_other_s_weights_alone(millrace, tmp_path, machine, rounds):
    """Softmax in fp16 takes pairs of planes, products of quantised values single ones: the second
    plane of a pair loses its part of a tile (the ones of the sum) to an int8 tile."""
    rng = np.random.default_rng(rounds)
    constants = {"s": np.float32(1 / 127), "z": np.int8(0), "ws": np.float32(0.05)}
    nodes, x = [helper.make_node("Softmax", ["x"], ["p0"], axis=-1)], "p0"
    for r in range(rounds):
        constants[f"w{r}"] = rng.integers(-127, 128, (32, 32)).astype(np.int8)
        nodes += [helper.make_node("QuantizeLinear", [x, "s", "z"], [f"q{r}"]),
                  helper.make_node("DequantizeLinear", [f"q{r}", "s", "z"], [f"d{r}"]),
                  helper.make_node("DequantizeLinear", [f"w{r}", "ws", "z"], [f"v{r}"]),
                  helper.make_node("MatMul", [f"d{r}", f"v{r}"], [f"m{r}"]),
                  helper.make_node("Softmax", [f"m{r}"], ["y" if r + 1 == rounds else f"p{r + 1}"], axis=-1)]
        x = f"p{r + 1}"
    model = model_of(nodes, {"x": [40, 32]}, {"y": [40, 32]}, constants)
    judged(millrace, tmp_path, model, machine, "int8", 2e-2)


def chain(layers, width=24):
    rng = np.random.default_rng(layers)
    constants, nodes, x = {}, [], "x"
    for n in range(layers):
        constants[f"w{n}"] = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
        nodes += [helper.make_node("MatMul", [x, f"w{n}"], [f"m{n}"]),
                  helper.make_node("Tanh", [f"m{n}"], ["y" if n + 1 == layers else f"t{n}"])]
        x = f"t{n}"
    return model_of(nodes, {"x": [4, width]}, {"y": [4, width]}, constants)


@pytest.mark.parametrize("layers", [192, 1000])
def test_a_long_chain_of_layers_compiles(millrace, tmp_path, layers):
    judged(millrace, tmp_path, chain(layers), "tsp-v1", "bf16" if layers > 192 else "fp16", 0.1)


@pytest.mark.parametrize("operands", [8, 14])
@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small"])
def test_many_constants_of_full_shape_at_once_are_split_over_kernels(millrace, tmp_path, machine, operands):
    """More fp32 operands than a hemisphere has streams: the epilogue is cut, not searched for ever."""
    rng = np.random.default_rng(operands)
    constants, nodes, x = {}, [], "x"
    for n in range(operands):
        constants[f"c{n}"] = rng.uniform(0.5, 1.5, (16, 64)).astype(np.float32)
        nodes.append(helper.make_node("Mul" if n % 2 else "Add", [x, f"c{n}"],
                                      ["y" if n + 1 == operands else f"t{n}"]))
        x = f"t{n}"
    model = model_of(nodes, {"x": [16, 64]}, {"y": [16, 64]}, constants)
    judged(millrace, tmp_path, model, machine, "fp16", 2e-3)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("flags", [[], ["--exact-qdq"]])
def test_an_int8_classifier_of_a_batch_takes_its_maximum_over_channels(millrace, tmp_path, batch, flags):
    """The maximum of the Softmax runs over the channels of the product, whose bias and scales per
    channel then do not lie along the lanes."""
    rng = np.random.default_rng(batch)
    constants = {"z": np.int8(0), "xs": np.float32(0.03), "ys": np.float32(0.1), "bias": rng.standard_normal(10).astype(np.float32),
                 "ws": rng.uniform(0.005, 0.02, 10).astype(np.float32), "wz": np.zeros(10, np.int8),
                 "w": rng.integers(-127, 128, (10, 16)).astype(np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "xs", "z"], ["d"]),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0),
             helper.make_node("Gemm", ["d", "v", "bias"], ["g"], transB=1),
             helper.make_node("QuantizeLinear", ["g", "ys", "z"], ["gq"]),
             helper.make_node("DequantizeLinear", ["gq", "ys", "z"], ["gd"]),
             helper.make_node("Softmax", ["gd"], ["y"], axis=-1)]
    model = model_of(nodes, {"x": [batch, 16]}, {"y": [batch, 10]}, constants)
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "int8", inputs, tmp_path, flags)
    assert np.abs(got.outputs["y"] - probe.run(model, inputs)["y"]).max() <= 0.03


def test_windows_that_step_unevenly_in_three_dimensions_are_scheduled_in_seconds(millrace, tmp_path):
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5, 5], strides=[3, 3, 3], dilations=[2, 2, 2],
                            ceil_mode=1)
    model = model_of([node], {"x": [1, 1, 20, 20, 20]}, {"y": [1, 1, 5, 5, 5]}, {})
    judged(millrace, tmp_path, model, "tsp-v1", "fp16", 1e-3)


def test_what_would_take_millions_of_sweeps_is_refused_at_once(millrace, tmp_path):
    """A normalisation of a flattened image, 50,176 lanes that come from 784 rows: scheduling it took
    hours. It may be lowered otherwise one day; it must never be searched for without a bound."""
    shape = np.array([1, 64, 28, 28], np.int64)
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["f"]),
             helper.make_node("InstanceNormalization", ["f", "scale", "bias"], ["n"]),
             helper.make_node("Reshape", ["n", "shape"], ["y"])]
    model = model_of(nodes, {"x": shape.tolist()}, {"y": shape.tolist()},
                     {"flat": np.array([1, 1, -1], np.int64), "shape": shape,
                      "scale": np.ones(1, np.float32), "bias": np.zeros(1, np.float32)})
    done = subprocess.run([millrace, "compile", save_model(model, tmp_path), "-o", tmp_path / "x.mrp"],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        assert done.returncode == 4 and "sweeps through the machine" in done.stderr, done.stderr


@pytest.mark.parametrize("machine", MACHINES)
def test_what_was_stored_for_another_part_is_copied_into_a_concatenation(millrace, tmp_path, machine):
    """A pyramid: a feature map of two readers is added to what was made of it at half the size."""
    rng = np.random.default_rng(3)
    weights = {"wa": (16, 8, 1, 1), "wb": (24, 16, 3, 3), "wc": (8, 40, 1, 1)}
    constants = {name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
                 for name, shape in weights.items()}
    constants["scales"] = np.float32([1, 1, 2, 2])
    nodes = [helper.make_node("Conv", ["x", "wa"], ["a"]),
             helper.make_node("Sigmoid", ["a"], ["s"]),
             helper.make_node("Mul", ["a", "s"], ["fine"]),
             helper.make_node("Conv", ["fine", "wb"], ["coarse"], strides=[2, 2], pads=[1, 1, 1, 1]),
             helper.make_node("Resize", ["coarse", "", "scales"], ["up"], mode="nearest",
                              coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
             helper.make_node("Concat", ["up", "fine"], ["both"], axis=1),
             helper.make_node("Conv", ["both", "wc"], ["y"])]
    model = model_of(nodes, {"x": [1, 8, 12, 12]}, {"y": [1, 8, 12, 12]}, constants)
    got = judged(millrace, tmp_path, model, machine, "fp16", 3e-3)
    assert got.report["host_ops"] == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("order", ["last", "first"])
@pytest.mark.parametrize("host", [False, True])
def test_patches_that_are_normalised_before_a_product(millrace, tmp_path, machine, order, host):
    """einops' patches: pixels of a patch, three channels each, lie apart in the image. The host writes them side by side, also where the sizes differ and a
    convolution reads the image as it is."""
    rng = np.random.default_rng(5)
    b, c, h, w, p, q = 2, 3, 4, 3, 4, 8
    side = [0, 2, 4, 3, 5, 1] if order == "last" else [0, 2, 4, 1, 3, 5]
    width = p * q * c
    constants = {"six": np.array([b, c, h, p, w, q]), "rows": np.array([b, h * w, width]), "g": rng.uniform(0.5, 1.5, width).astype(np.float32),
                 "o": rng.standard_normal(width).astype(np.float32), "k": (rng.standard_normal((width, 40)) / 10).astype(np.float32),
                 "f": (rng.standard_normal((8, c, 3, 3)) / 5).astype(np.float32)}
    nodes = [helper.make_node("Reshape", ["x", "six"], ["cut"]), helper.make_node("Transpose", ["cut"], ["turned"], perm=side),
             helper.make_node("Reshape", ["turned", "rows"], ["patches"]), helper.make_node("LayerNormalization", ["patches", "g", "o"], ["n"], axis=-1),
             helper.make_node("MatMul", ["n", "k"], ["y"]), helper.make_node("Conv", ["x", "f"], ["z"])]
    outputs = {"y": [b, h * w, 40], "z": [b, 8, h * p - 2, w * q - 2]}
    if host: # that takes the patches, too
        nodes += [helper.make_node("Cast", ["patches"], ["d"], to=TensorProto.DOUBLE), helper.make_node("Sin", ["d"], ["e"]),
                  helper.make_node("Cast", ["e"], ["s"], to=TensorProto.FLOAT)]
        outputs["s"] = [b, h * w, width]
    model = model_of(nodes, {"x": [b, c, h * p, w * q]}, outputs, constants)
    got = judged(millrace, tmp_path, model, machine, "fp16", 2e-3)
    assert bool(got.report["host_ops"]) == host
    if machine == "tsp-v1" and not host:
        assert got.report["predicted_cycles"] < 4000  # 4,980 with sums over runs of three lanes


@pytest.mark.parametrize("machine", MACHINES)
def test_patches_of_shifted_images_that_are_normalised_first(millrace, tmp_path, machine):
    """Shifted patch tokenisation: the image and its neighbours one pixel on, channel by channel, cut into patches. Sums over single lanes took 277,804 cycles of a
    small transformer, of 8,823 now."""
    rng = np.random.default_rng(6)
    c, h, w, p = 3, 12, 12, 4
    width = 5 * c * p * p
    constants = {"six": np.array([1, 5 * c, h, p, w, p]), "rows": np.array([1, h * w, width]), "g": rng.uniform(0.5, 1.5, width).astype(np.float32),
                 "o": rng.standard_normal(width).astype(np.float32), "k": (rng.standard_normal((width, 40)) / 16).astype(np.float32)}
    nodes, parts = [], ["x"]
    for name, ends in {"l": [0, 0, 0, 1, 0, 0, 0, -1], "r": [0, 0, 0, -1, 0, 0, 0, 1], "t": [0, 0, 1, 0, 0, 0, -1, 0], "b": [0, 0, -1, 0, 0, 0, 1, 0]}.items():
        constants[name] = np.array(ends)
        nodes.append(helper.make_node("Pad", ["x", name], [f"x{name}"]))
        parts.append(f"x{name}")
    nodes += [helper.make_node("Concat", parts, ["all"], axis=1), helper.make_node("Reshape", ["all", "six"], ["cut"]),
              helper.make_node("Transpose", ["cut"], ["turned"], perm=[0, 2, 4, 3, 5, 1]), helper.make_node("Reshape", ["turned", "rows"], ["patches"]),
              helper.make_node("LayerNormalization", ["patches", "g", "o"], ["n"], axis=-1), helper.make_node("MatMul", ["n", "k"], ["y"])]
    model = model_of(nodes, {"x": [1, c, h * p, w * p]}, {"y": [1, h * w, 40]}, constants)
    got = judged(millrace, tmp_path, model, machine, "fp16", 2e-3)
    if machine == "tsp-v1":
        assert got.report["predicted_cycles"] < 3000


def grouped(groups, each, made, behind, size=7):
    """A convolution in groups between two others, with what is `behind` it first."""
    rng = np.random.default_rng(groups)
    first, last = groups * each, groups * made

    def weights(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    constants = {"a": weights(first, 20, 1, 1), "b": weights(last, each, 3, 3), "c": weights(24, last, 1, 1)}
    nodes = [helper.make_node("Conv", ["x", "a"], ["wide"]), helper.make_node("Conv", ["wide", "b"], ["sums"], group=groups, pads=[1, 1, 1, 1])]
    taken = "sums"
    if behind == "excitation":
        constants |= {"s": weights(8, last, 1, 1), "e": weights(last, 8, 1, 1)}
        nodes += [helper.make_node("Relu", ["sums"], ["positive"]), helper.make_node("GlobalAveragePool", ["positive"], ["mean"]),
                  helper.make_node("Conv", ["mean", "s"], ["squeezed"]), helper.make_node("Relu", ["squeezed"], ["few"]),
                  helper.make_node("Conv", ["few", "e"], ["all"]), helper.make_node("Sigmoid", ["all"], ["gate"]),
                  helper.make_node("Mul", ["positive", "gate"], ["scaled"])]
        taken = "scaled"
    elif behind == "two":
        nodes += [helper.make_node("Tanh", ["sums"], ["bent"]), helper.make_node("Add", ["sums", "bent"], ["both"])]
        taken = "both"
    nodes.append(helper.make_node("Conv", [taken, "c"], ["y"]))
    return model_of(nodes, {"x": [1, 20, size, size]}, {"y": [1, 24, size, size]}, constants)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("behind", ["nothing", "two", "excitation"])
@pytest.mark.parametrize("groups, each, made", [(14, 24, 24), (5, 12, 7)])
def test_groups_that_no_map_follows(millrace, tmp_path, machine, behind, groups, each, made):
    """What a convolution in groups sums is stored with its groups joined, whoever takes it: 3,681 cycles of a row for each group, 1,266 with groups that begin
    where parts of vectors do."""
    got = judged(millrace, tmp_path, grouped(groups, each, made, behind), machine, "fp16", 2e-3)
    if machine == "tsp-v1" and behind == "nothing" and groups == 14:
        assert got.report["predicted_cycles"] < 1500


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("constant", [True, False])
def test_a_product_whose_sum_waits_for_a_long_curve(millrace, tmp_path, machine, constant):
    """Gelu by tanh needs its argument first and last, and no bias comes between: 19 ALUs were asked for, of 16."""
    weights = (np.random.default_rng(7).standard_normal((64, 40)) / 8).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Gelu", ["s"], ["y"], approximate="tanh")]
    model = model_of(nodes, {"x": [3, 17, 64]} | ({} if constant else {"w": [64, 40]}), {"y": [3, 17, 40]}, {"w": weights} if constant else {})
    model.opset_import[0].version = 20
    judged(millrace, tmp_path, model, machine, "fp16", 3e-3)
