# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small synthetic models, one operator pattern each, with seeded random weights.

    python models/recipes/small.py {gemm,conv,softmax,convnet} OUT.onnx [--seed 0] [--set m=64 ...]

Attention blocks and transformer chains: bert_base.py --no-embeddings.
"""
from __future__ import annotations

import argparse
import inspect

import numpy as np
import onnx

from graph import Graph, parse_dims, save


def gemm(seed: int = 0, m: int = 64, k: int = 96, n: int = 80) -> onnx.ModelProto:
    """y [m, n] = x [m, k] W + b."""
    g = Graph("gemm", seed)
    x = g.input("x", [m, k])
    y = g.add("Gemm", x, g.normal((k, n), np.sqrt(1.0 / k)), g.normal((n,), 0.1), name="y")
    g.output(y, [m, n])
    return g.model()


def conv(seed: int = 0, c: int = 16, h: int = 14, w: int = 14, filters: int = 24, kernel: int = 3,
         stride: int = 1, dilation: int = 1, group: int = 1) -> onnx.ModelProto:
    """y [1, filters, ceil(h/stride), ceil(w/stride)] = conv(x [1, c, h, w]) + b, odd kernels."""
    g = Graph("conv", seed)
    x = g.input("x", [1, c, h, w])
    fan_in = c // group * kernel * kernel
    y = g.add("Conv", x, g.normal((filters, c // group, kernel, kernel), np.sqrt(2.0 / fan_in)),
              g.normal((filters,), 0.1), name="y", strides=[stride] * 2, dilations=[dilation] * 2,
              group=group, pads=[dilation * (kernel // 2)] * 4)
    g.output(y, [1, filters, -(-h // stride), -(-w // stride)])
    return g.model()


def softmax(seed: int = 0, m: int = 33, n: int = 100) -> onnx.ModelProto:
    """y [m, n] = softmax of each row of x [m, n]."""
    g = Graph("softmax", seed)
    g.output(g.add("Softmax", g.input("x", [m, n]), name="y", axis=-1), [m, n])
    return g.model()


def convnet(seed: int = 0, h: int = 19, w: int = 23, c: int = 12) -> onnx.ModelProto:
    """A classifier of 7 from x [1, 3, h, w] with one of each: strided, dilated, grouped and
    pointwise convolution, residual sum, max and average pooling, concatenation, softmax."""
    g = Graph("convnet", seed)

    def layer(x: str, channels: int, filters: int, kernel: int, scale: float = 1.0, **extra) -> str:
        shape = (filters, channels // extra.get("group", 1), kernel, kernel)
        weight = g.normal(shape, scale * np.sqrt(2.0 / np.prod(shape[1:])))
        return g.add("Conv", x, weight, g.normal((filters,), 0.1), kernel_shape=[kernel] * 2,
                     **extra)

    x = g.input("x", [1, 3, h, w])
    x = g.add("Relu", layer(x, 3, c, 5, strides=[2, 2], pads=[2, 2, 2, 2]))
    y = g.add("Relu", layer(x, c, 2 * c, 1))
    y = g.add("Relu", layer(y, 2 * c, 2 * c, 3, pads=[1, 1, 1, 1], group=4))
    x = g.add("Relu", g.add("Add", layer(y, 2 * c, c, 1, 0.3), x))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    wide = g.add("Relu", layer(x, c, c + 1, 3, pads=[2, 2, 2, 2], dilations=[2, 2]))
    x = g.add("Concat", x, wide, axis=1)
    x = g.add("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1])
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    width = 2 * c + 1
    x = g.add("Gemm", x, g.normal((7, width), np.sqrt(1.0 / width)), g.normal((7,), 0.1), transB=1,
              name="classifier")
    g.output(g.add("Softmax", x, name="probabilities", axis=1), [1, 7])
    return g.model()


RECIPES = {f.__name__: f for f in (gemm, conv, softmax, convnet)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=N",
                        help="extent, one of the recipe's parameters")
    arguments = parser.parse_args()
    recipe, extents = RECIPES[arguments.recipe], parse_dims(arguments.set)
    known = set(inspect.signature(recipe).parameters) - {"seed"}
    for name in set(extents) - known:
        parser.error(f"'{arguments.recipe}' has no extent '{name}', only {sorted(known)}")
    save(recipe(arguments.seed, **extents), arguments.output)


if __name__ == "__main__":
    main()
