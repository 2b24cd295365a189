# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes one decoder layer as in Llama, of the width of TinyLlama 1.1B unless told otherwise, with seeded weights.

usage: python models/recipes/llama_layer.py OUTPUT [options]

RMS normalisation, queries of all --heads and keys and values of --groups of them with rotary positions, a causal mask, SwiGLU of
--inner lanes, and two residuals. Input `x` [1, tokens, width], result `y` of the same shape. With --past P also `past_key` and
`past_value` [1, groups, P, width / heads], and `key` and `value` [1, groups, P + tokens, width / heads] as results.

Examples:

  python models/recipes/llama_layer.py prefill.onnx --tokens 64          # all tokens of a prompt
  python models/recipes/llama_layer.py decode.onnx --tokens 1 --past 64  # the next token
"""
import argparse
from pathlib import Path

import onnx

from families import Net, decoder_layer, swiglu


def llama_layer(tokens: int, past: int, width: int, inner: int, heads: int, groups: int, seed: int = 0) -> onnx.ModelProto:
    """The layer's model; see the module for its shapes."""
    if width % heads or heads % groups:
        raise ValueError(f"width {width} must be a multiple of heads {heads}, and heads of groups {groups}")
    g = Net("llama_layer", seed)
    x = g.input("x", [1, tokens, width])
    shape = [1, groups, past, width // heads]
    before = (g.input("past_key", shape), g.input("past_value", shape), past) if past else None
    feed = lambda g, x, width: swiglu(g, x, width, inner)
    y, key, value = decoder_layer(g, x, tokens, width, heads, groups, before, feed)
    g.output(g.add("Identity", y, name="y"), [1, tokens, width])
    for name, part in (("key", key), ("value", value)) if past else ():
        g.output(g.add("Identity", part, name=name), [1, groups, past + tokens, width // heads])
    return g.model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    defaults = {"tokens": 64, "past": 0, "width": 2048, "inner": 5632, "heads": 32, "groups": 4, "seed": 0}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    arguments = parser.parse_args()
    options = {name: value for name, value in vars(arguments).items() if name != "output"}
    try:
        model = llama_layer(**options)
    except ValueError as error:
        parser.error(str(error))
    onnx.save(model, arguments.output)


if __name__ == "__main__":
    main()
