# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The quantise recipe: signed, per-channel, near the float model, the same bytes each time."""
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import probe
import quantize as recipe
from graph import save
from oracle import cut_softmax, relative_l2, run, same_top1, split_layers
from quantize import fold_batchnorm, prepare, quantize
from resnet50 import resnet50
from small import convnet

VARIANTS = [(a, f) for a in ("symmetric", "asymmetric") for f in ("qdq", "qoperator")]


def operators(model: onnx.ModelProto) -> Counter:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("activations, form", VARIANTS)
def test_the_int8_model_stays_within_3_percent_of_the_float_model(activations, form):
    model = convnet(seed=2)
    int8 = quantize(model, activations, form)
    inputs = probe.seeded_inputs(model, seed=77)  # not a calibration input
    (expected,) = run(cut_softmax(model), inputs).values()
    (actual,) = run(cut_softmax(int8), inputs).values()
    assert 0 < relative_l2(actual, expected) <= 0.03
    assert same_top1(actual, expected)


@pytest.mark.parametrize("activations", ["symmetric", "asymmetric"])
def test_tensors_are_signed_and_weights_have_a_scale_per_channel(activations):
    model = quantize(convnet(), activations)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert not any(value.dtype == np.uint8 for value in constants.values())
    kernels = biases = 0
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            value, scale, zero = (constants[name] for name in node.input)
            if value.ndim >= 2:
                kernels += 1
                assert scale.shape == (value.shape[0],) and value.dtype == np.int8
                assert not zero.any()
            else:
                biases += 1
                assert value.dtype == np.int32
    assert (kernels, biases) == (6, 6)
    zeros = {int(constants[n.input[2]]) for n in model.graph.node if n.op_type == "QuantizeLinear"}
    assert zeros == {0} if activations == "symmetric" else -128 in zeros


def test_a_relu_is_rounded_once_and_never_before_it():
    model = quantize(convnet(), "symmetric")
    producer = {name: node.op_type for node in model.graph.node for name in node.output}
    sources = [producer[n.input[0]] for n in model.graph.node if n.op_type == "Relu"]
    assert sorted(sources) == ["Add", "Conv", "Conv", "Conv", "Conv"]


def test_folding_batchnorm_keeps_the_function():
    model = resnet50(width=8, size=32, classes=10)
    folded = prepare(model)
    assert operators(model)["BatchNormalization"] == 53
    assert operators(folded)["BatchNormalization"] == 0
    inputs = probe.seeded_inputs(model)
    (expected,) = run(cut_softmax(model), inputs).values()
    (actual,) = run(cut_softmax(folded), inputs).values()
    assert relative_l2(actual, expected) <= 1e-5


def test_a_batchnorm_whose_convolution_has_another_reader_stays():
    model = resnet50(width=8, size=32, classes=10, blocks=(1,))
    norm = next(n for n in model.graph.node if n.op_type == "BatchNormalization")
    model.graph.output.append(onnx.ValueInfoProto(name=norm.input[0]))
    model.graph.node.add(op_type="Relu", input=[norm.input[0]], output=["other"])
    fold_batchnorm(model.graph)
    assert operators(model)["BatchNormalization"] == 1


def test_the_bytes_do_not_depend_on_string_hashing(tmp_path):
    save(convnet(), tmp_path / "in.onnx")
    files = []
    for seed in ("1", "2"):
        files.append(tmp_path / f"out{seed}.onnx")
        subprocess.run([sys.executable, recipe.__file__, tmp_path / "in.onnx", files[-1]],
                       check=True, env={"PYTHONHASHSEED": seed})
    assert files[0].read_bytes() == files[1].read_bytes()


def test_unknown_activations_are_refused():
    with pytest.raises(ValueError, match="symmetric or asymmetric, not 'unsigned'"):
        quantize(convnet(), "unsigned")


@pytest.mark.parametrize("activations, form", VARIANTS)
def test_every_layer_alone_repeats_the_whole_model_bit_by_bit(activations, form):
    model = quantize(convnet(), activations, form)
    inputs = probe.seeded_inputs(model, seed=5)
    whole = probe.run_all(model, inputs)
    layers = split_layers(model, inputs)
    for layer in layers:
        assert np.array_equal(layer.expected, whole[layer.name]), layer.name
    contractions = sum(any(op.endswith(("Conv", "Gemm")) for op in layer.operators)
                       for layer in layers)
    assert contractions == 6
