# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet-50 v1.5, batch 1, 224 x 224, with seeded random weights.

    python models/recipes/resnet50.py OUT.onnx [--seed 0] [--fold-batchnorm] [--width 64] ...

He et al. 2015 ("Deep residual learning for image recognition"), with the stride of a stage's first
block in its 3x3 convolution (v1.5) instead of the 1x1 before it. 4,089,184,256 MACs in
convolutions and the classifier, unpadded.
"""
from __future__ import annotations

import argparse

import numpy as np
import onnx

import probe
from graph import Graph, save

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
RESIDUAL_SCALE = 0.3  # of the last batch-norm gain of a block: keeps sums of 16 blocks near 1


class Builder:
    """Adds ResNet parts to a graph; `folded` leaves batch-norm as the convolution's bias."""

    def __init__(self, seed: int, folded: bool):
        self.graph, self.folded = Graph("resnet50_v1_5", seed), folded

    def conv(self, x: str, name: str, channels: int, filters: int, kernel: int, stride: int,
             scale: float = 1.0) -> str:
        """Convolution and batch-norm. `channels` in, `filters` out; pads to ceil(extent/stride)."""
        g, fan_in = self.graph, channels * kernel * kernel
        weight = g.normal((filters, channels, kernel, kernel), scale * np.sqrt(2.0 / fan_in))
        attributes = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2,
                          pads=[kernel // 2] * 4)
        if self.folded:
            return g.add("Conv", x, weight, g.normal((filters,), 0.1), name=name, **attributes)
        y = g.add("Conv", x, weight, name=name, **attributes)
        return g.add("BatchNormalization", y, g.uniform((filters,), 0.8, 1.2),
                     g.normal((filters,), 0.1), g.normal((filters,), 0.1),
                     g.uniform((filters,), 0.8, 1.2), name=name + "_bn", epsilon=1e-5)

    def block(self, x: str, name: str, channels: int, width: int, stride: int) -> str:
        """Bottleneck: 1x1, 3x3 with the stride, 1x1 to EXPANSION * width, plus shortcut."""
        g, filters = self.graph, EXPANSION * width
        y = g.add("Relu", self.conv(x, name + "_a", channels, width, 1, 1))
        y = g.add("Relu", self.conv(y, name + "_b", width, width, 3, stride))
        y = self.conv(y, name + "_c", width, filters, 1, 1, RESIDUAL_SCALE)
        if channels != filters or stride != 1:
            x = self.conv(x, name + "_d", channels, filters, 1, stride)
        return g.add("Relu", g.add("Add", y, x, name=name + "_sum"))


def resnet50(seed: int = 0, folded: bool = False, width: int = 64, size: int = 224,
             classes: int = 1000, blocks: tuple[int, ...] = BLOCKS) -> onnx.ModelProto:
    """Input `data` [1, 3, size, size] float32, output `probabilities` [1, classes].

    `width`, `size`, `classes` and `blocks` shrink the network for tests.
    """
    b = Builder(seed, folded)
    g = b.graph
    x = g.input("data", [1, 3, size, size])
    x = g.add("Relu", b.conv(x, "stem", 3, width, 7, 2))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            x = b.block(x, f"stage{stage + 1}_block{index}", channels, width << stage, stride)
            channels = EXPANSION * (width << stage)
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    weight = g.normal((classes, channels), np.sqrt(1.0 / channels))
    x = g.add("Gemm", x, weight, g.normal((classes,), 0.1), name="classifier", transB=1)
    x = g.add("Softmax", x, name="probabilities", axis=1)
    g.output(x, [1, classes])
    return g.model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fold-batchnorm", action="store_true")
    parser.add_argument("--width", type=int, default=64, help="channels of the stem")
    parser.add_argument("--size", type=int, default=224, help="image height and width, pixels")
    arguments = parser.parse_args()
    model = resnet50(arguments.seed, arguments.fold_batchnorm, arguments.width, arguments.size)
    largest = probe.check_bounded(model, probe.seeded_inputs(model, seed=arguments.seed))
    save(model, arguments.output)
    print(f"{arguments.output}: largest |activation| {largest:.3g}")


if __name__ == "__main__":
    main()
