# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""BERT-like encoders in plain ONNX operators, with seeded random weights.

    python models/recipes/bert_base.py OUT.onnx                      # BERT-base, 128 tokens
    python models/recipes/bert_base.py OUT.onnx --layers 24 --hidden 64 --heads 4 --sequence 16
        --no-embeddings                                              # a 24-layer chain

Devlin et al. 2018 ("BERT: pre-training of deep bidirectional transformers"): post-normalised
layers, exact Gelu x/2 (1 + erf(x/sqrt 2)), base = 12 layers, hidden 768, 12 heads, 30,522 words.
"""
from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import onnx

import probe
from graph import Graph, save


@dataclass
class Shape:
    """Extents of an encoder; `inner` is the feed-forward width."""
    layers: int = 12
    sequence: int = 128
    hidden: int = 768
    heads: int = 12
    inner: int = 3072
    words: int = 30522
    embeddings: bool = True


def dense(g: Graph, x: str, inputs: int, outputs: int) -> str:
    """x W + b for x [..., inputs]; weight variance 1/inputs."""
    y = g.add("MatMul", x, g.normal((inputs, outputs), np.sqrt(1.0 / inputs)))
    return g.add("Add", y, g.normal((outputs,), 0.1))


def normalise(g: Graph, x: str, width: int) -> str:
    """Layer normalisation over the last axis."""
    return g.add("LayerNormalization", x, g.uniform((width,), 0.8, 1.2), g.normal((width,), 0.1),
                 axis=-1, epsilon=1e-5)


def gelu(g: Graph, x: str) -> str:
    """x/2 (1 + erf(x / sqrt 2)), exact, element-wise."""
    scaled = g.add("Div", x, g.constant(np.float32(np.sqrt(2.0))))
    bent = g.add("Add", g.add("Erf", scaled), g.constant(np.float32(1.0)))
    return g.add("Mul", g.add("Mul", x, bent), g.constant(np.float32(0.5)))


def attention(g: Graph, x: str, s: Shape, mask: str | None) -> str:
    """Multi-head self-attention of x [1, S, H] without the final addition; `mask` [1, 1, 1, S] is
    added to the scores."""
    width = s.hidden // s.heads

    def split(y: str, order: list[int]) -> str:
        shape = g.constant(np.array([1, s.sequence, s.heads, width], np.int64))
        return g.add("Transpose", g.add("Reshape", y, shape), perm=order)

    query = split(dense(g, x, s.hidden, s.hidden), [0, 2, 1, 3])
    key = split(dense(g, x, s.hidden, s.hidden), [0, 2, 3, 1])
    value = split(dense(g, x, s.hidden, s.hidden), [0, 2, 1, 3])
    scores = g.add("Div", g.add("MatMul", query, key), g.constant(np.float32(np.sqrt(width))))
    if mask:
        scores = g.add("Add", scores, mask)
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), value)
    merged = g.add("Reshape", g.add("Transpose", mixed, perm=[0, 2, 1, 3]),
                   g.constant(np.array([1, s.sequence, s.hidden], np.int64)))
    return dense(g, merged, s.hidden, s.hidden)


def encoder_layer(g: Graph, x: str, s: Shape, mask: str | None) -> str:
    """Attention and feed-forward, each added to its input and normalised; [1, S, H]."""
    x = normalise(g, g.add("Add", attention(g, x, s, mask), x), s.hidden)
    y = dense(g, gelu(g, dense(g, x, s.hidden, s.inner)), s.inner, s.hidden)
    return normalise(g, g.add("Add", y, x), s.hidden)


def embed(g: Graph, s: Shape) -> tuple[str, str]:
    """Word + position + segment embeddings [1, S, H], and the additive mask [1, 1, 1, S] (0 where
    `attention_mask` is 1, -10,000 where it is 0)."""
    words = g.input("input_ids", [1, s.sequence], np.int64)
    segments = g.input("token_type_ids", [1, s.sequence], np.int64)
    keep = g.input("attention_mask", [1, s.sequence], np.int64)
    x = g.add("Gather", g.normal((s.words, s.hidden), 1.0), words)
    x = g.add("Add", x, g.normal((1, s.sequence, s.hidden), 0.3))
    x = g.add("Add", x, g.add("Gather", g.normal((2, s.hidden), 0.3), segments))
    keep = g.add("Unsqueeze", g.add("Cast", keep, to=onnx.TensorProto.FLOAT),
                 g.constant(np.array([1, 2], np.int64)))
    hidden = g.add("Sub", g.constant(np.float32(1.0)), keep)
    return (normalise(g, x, s.hidden),
            g.add("Mul", hidden, g.constant(np.float32(-10000.0))))


def transformer(s: Shape, seed: int = 0) -> onnx.ModelProto:
    """Outputs `last_hidden_state` [1, S, H]; with embeddings also `pooler_output` [1, H].

    Inputs: `input_ids`, `token_type_ids`, `attention_mask`, int64 [1, S]; without embeddings
    `hidden_states` float32 [1, S, H]. Raises ValueError when the heads do not divide H.
    """
    if s.hidden % s.heads:
        raise ValueError(f"{s.heads} heads do not divide the hidden width {s.hidden}")
    g = Graph("transformer", seed)
    if s.embeddings:
        x, mask = embed(g, s)
    else:
        x, mask = g.input("hidden_states", [1, s.sequence, s.hidden]), None
    for _ in range(s.layers):
        x = encoder_layer(g, x, s, mask)
    last = g.add("Identity", x, name="last_hidden_state")
    g.output(last, [1, s.sequence, s.hidden])
    if s.embeddings:
        first = g.add("Gather", x, g.constant(np.int64(0)), axis=1)
        pooled = g.add("Tanh", dense(g, first, s.hidden, s.hidden), name="pooler_output")
        g.output(pooled, [1, s.hidden])
    return g.model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    for name in ("layers", "sequence", "hidden", "heads", "words"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape, name))
    parser.add_argument("--inner", type=int, help="feed-forward width (default: 4 x hidden)")
    parser.add_argument("--no-embeddings", action="store_true", help="input is hidden states")
    a = parser.parse_args()
    shape = Shape(a.layers, a.sequence, a.hidden, a.heads, a.inner or 4 * a.hidden, a.words,
                  not a.no_embeddings)
    model = transformer(shape, a.seed)
    largest = probe.check_bounded(model, probe.seeded_inputs(model, seed=a.seed), limit=2e4)
    save(model, a.output)
    print(f"{a.output}: largest |activation| {largest:.3g}")


if __name__ == "__main__":
    main()
