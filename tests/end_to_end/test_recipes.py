# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The recipes build what they say: same seed, same bytes; bounded activations; known shapes."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import probe
import small
from bert_base import Shape, transformer
from macs import count_macs
from randomize import RESIDUAL_SCALE, last_kernels_of_residual_branches, load, randomize
from resnet50 import resnet50

SMALL = dict(width=8, size=32, classes=10)


def written(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "inception_v1", "densenet121",
                                  "shufflenet"])
def test_random_weights_keep_every_activation_below_the_bound_and_outputs_apart(name):
    model = randomize(load(f"light:{name}"), seed=1)
    inputs = probe.seeded_inputs(model, seed=1)
    assert 0.1 < probe.check_bounded(model, inputs, limit=1e4)
    (output,) = probe.run(model, inputs).values()
    assert output.size == 1000 and output.max() > 1.5 * np.median(output)


def test_the_light_graph_itself_breaks_the_activation_bound():
    model = load("light:resnet50")
    with pytest.raises(ValueError, match="the limit is 10000"):
        probe.check_bounded(model, probe.seeded_inputs(model))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_weights():
    first, again, other = (randomize(load("light:squeezenet"), seed) for seed in (3, 3, 4))
    assert written(first) == written(again)
    kernel = first.graph.node[0].input[1]
    assert not np.array_equal(weights(first)[kernel], weights(other)[kernel])


def test_randomize_finds_sixteen_residual_branches_in_resnet50_and_none_in_squeezenet():
    model = randomize(load("light:resnet50"))
    kernels = last_kernels_of_residual_branches(model.graph)
    assert len(kernels) == 16
    values = weights(model)
    for name, value in values.items():
        if value.ndim == 4:
            deviation = value.std() / np.sqrt(2.0 / np.prod(value.shape[1:]))
            expected = RESIDUAL_SCALE if name in kernels else 1.0
            assert deviation == pytest.approx(expected, rel=0.1), name
    assert not last_kernels_of_residual_branches(load("light:squeezenet").graph)


def test_a_graph_without_constant_weights_is_refused():
    model = load("light:squeezenet")
    del model.graph.node[:]
    with pytest.raises(ValueError, match="no constant float weights"):
        randomize(model)


@pytest.mark.parametrize("folded", [False, True])
def test_resnet50_has_53_convolutions_and_strides_in_the_3x3(folded):
    model = resnet50(folded=folded, **SMALL)
    convolutions = [n for n in model.graph.node if n.op_type == "Conv"]
    assert len(convolutions) == 53
    assert any(n.op_type == "BatchNormalization" for n in model.graph.node) != folded
    shapes = {t.name: t.dims for t in model.graph.initializer}
    strided = [shapes[n.input[1]][2] for n in convolutions
               if list(onnx.helper.get_node_attr_value(n, "strides")) == [2, 2]]
    assert sorted(strided) == [1, 1, 1, 3, 3, 3, 7]  # shortcuts, blocks, stem
    probe.check_bounded(model, probe.seeded_inputs(model), limit=1e3)


def test_resnet50_is_the_same_bytes_for_the_same_seed():
    assert written(resnet50(5, **SMALL)) == written(resnet50(5, **SMALL))


@pytest.mark.parametrize("embeddings", [True, False])
def test_an_encoder_chain_of_24_layers_stays_bounded(embeddings):
    shape = Shape(24, 7, 16, 2, 32, words=50, embeddings=embeddings)
    model = transformer(shape)
    assert sum(n.op_type == "Softmax" for n in model.graph.node) == 24
    inputs = probe.seeded_inputs(model)
    probe.check_bounded(model, inputs, limit=2e4)
    assert probe.run(model, inputs)["last_hidden_state"].shape == (1, 7, 16)


def test_a_bert_base_layer_has_931_135_488_macs_at_128_tokens():
    layer = 4 * 128 * 768**2 + 2 * 128**2 * 768 + 2 * 128 * 768 * 3072
    counted = count_macs(transformer(Shape(layers=1, words=8)))["macs_total"]
    assert counted - 768**2 == layer == 931_135_488  # less the pooler


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="5 heads do not divide the hidden width 12"):
        transformer(Shape(hidden=12, heads=5))


@pytest.mark.parametrize("recipe, shape, macs", [
    (small.gemm(m=3, k=5, n=7), (3, 7), 3 * 5 * 7),
    (small.conv(c=6, h=9, w=10, filters=8, stride=2, group=2), (1, 8, 5, 5), 5 * 5 * 8 * 3 * 9),
    (small.softmax(m=2, n=3), (2, 3), 0),
    (small.convnet(), (1, 7), 374_935)])
def test_small_models_have_their_stated_shape_and_macs(recipe, shape, macs):
    (output,) = probe.run(recipe, probe.seeded_inputs(recipe)).values()
    assert output.shape == shape
    assert count_macs(recipe)["macs_total"] == macs
