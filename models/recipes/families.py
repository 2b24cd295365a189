# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of the families that vision and language networks are built of, with seeded random weights.

    python models/recipes/families.py FAMILY OUT.onnx [--seed 0]      # FAMILY "all": OUT is a folder

Each has what makes its family hard to compile, at extents that compile in a moment, and ends before any last Softmax.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx

from graph import Graph, save


class Net(Graph):
    """A graph with the layers that the families share. Images are [1, channels, height, width]."""

    def conv(self, x: str, channels: int, filters: int, kernel=1, *, stride: int = 1, dilation: int = 1, group: int = 1,
             scale: float = 1.0) -> str:
        """Same extents but for the stride; kernels of odd extents."""
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = (filters, channels // group, *kernel)
        weight = self.normal(shape, scale * np.sqrt(2.0 / np.prod(shape[1:])))
        pads = [dilation * (extent // 2) for extent in kernel] * 2
        return self.add("Conv", x, weight, self.normal((filters,), 0.1), kernel_shape=list(kernel), strides=[stride] * 2,
                        dilations=[dilation] * 2, group=group, pads=pads)

    def relu(self, x: str) -> str:
        return self.add("Relu", x)

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def swish(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def hard_swish(self, x: str) -> str:
        return self.add("Mul", x, self.add("HardSigmoid", x, alpha=1 / 6))

    def gelu(self, x: str) -> str:
        half = self.add("Mul", x, self.constant(np.float32(0.5)))
        curve = self.add("Erf", self.add("Div", x, self.constant(np.float32(np.sqrt(2)))))
        return self.add("Mul", half, self.add("Add", curve, self.constant(np.float32(1))))

    def norm(self, x: str, channels: int) -> str:
        """Batch normalisation as a trained one: gains, offsets and statistics that differ by channel."""
        return self.add("BatchNormalization", x, self.uniform((channels,), 0.5, 1.0), self.uniform((channels,), 0.0, 1.0),
                        self.normal((channels,), 0.1), self.uniform((channels,), 0.5, 1.5))

    def layer_norm(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.uniform((width,), 0.5, 1.5), self.normal((width,), 0.1), axis=-1)

    def rms_norm(self, x: str, width: int) -> str:
        square = self.add("ReduceMean", self.add("Pow", x, self.constant(np.float32(2))), axes=[-1])
        root = self.add("Sqrt", self.add("Add", square, self.constant(np.float32(1e-6))))
        return self.add("Mul", self.add("Div", x, root), self.uniform((width,), 0.5, 1.5))

    def linear(self, x: str, width: int, columns: int, *, bias: bool = True, scale: float = 1.0) -> str:
        y = self.add("MatMul", x, self.normal((width, columns), scale * width**-0.5))
        return self.add("Add", y, self.normal((columns,), 0.1)) if bias else y

    def reshape(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(np.int64(shape)))

    def transpose(self, x: str, *order: int) -> str:
        return self.add("Transpose", x, perm=list(order))

    def slice(self, x: str, begin: int, end: int, axis: int) -> str:
        return self.add("Slice", x, *(self.constant(np.int64([n])) for n in (begin, end, axis)))

    def classify(self, x: str, channels: int, classes: int = 10) -> onnx.ModelProto:
        """The average over all pixels, and a product."""
        x = self.add("Flatten", self.add("GlobalAveragePool", x))
        y = self.add("Gemm", x, self.normal((classes, channels), channels**-0.5), self.normal((classes,), 0.1), transB=1,
                     name="y")
        self.output(y, [1, classes])
        return self.model()

    def heads(self, x: str, count: int, heads: int, depth: int) -> str:
        """[1, count, heads * depth] as [1, heads, count, depth]."""
        return self.transpose(self.reshape(x, 1, count, heads, depth), 0, 2, 1, 3)

    def attend(self, q: str, k: str, v: str, depth: int, mask: str | None = None) -> str:
        """Softmax(q k' / sqrt(depth) + mask) v over the last two dimensions, of rank 4."""
        scores = self.add("MatMul", q, self.transpose(k, 0, 1, 3, 2))
        scores = self.add("Mul", scores, self.constant(np.float32(depth**-0.5)))
        if mask:
            scores = self.add("Add", scores, mask)
        return self.add("MatMul", self.add("Softmax", scores, axis=-1), v)

    def joined(self, x: str, count: int, width: int) -> str:
        """[1, heads, count, depth] as [1, count, width]."""
        return self.reshape(self.transpose(x, 0, 2, 1, 3), 1, count, width)

    def attention(self, x: str, count: int, width: int, heads: int, mask: str | None = None) -> str:
        """Self-attention with its product behind, without residual."""
        q, k, v = (self.heads(self.linear(x, width, width), count, heads, width // heads) for _ in range(3))
        return self.linear(self.joined(self.attend(q, k, v, width // heads, mask), count, width), width, width, scale=0.5)

    def mlp(self, x: str, width: int, inner: int) -> str:
        return self.linear(self.gelu(self.linear(x, width, inner)), inner, width, scale=0.5)


FAMILIES = {}


def family(build):
    """Makes `build` a family by its name, the underscores hyphens."""
    FAMILIES[build.__name__.replace("_", "-")] = build
    return build


@family
def depthwise(seed: int = 0) -> onnx.ModelProto:
    """MobileNet: a window over each channel, then a product over channels."""
    g = Net("depthwise", seed)
    x, channels = g.relu(g.conv(g.input("x", [1, 3, 32, 32]), 3, 16, 3, stride=2)), 16
    for filters, stride in ((24, 1), (40, 2), (40, 1)):
        x = g.relu(g.norm(g.conv(x, channels, channels, 3, stride=stride, group=channels), channels))
        x, channels = g.relu(g.norm(g.conv(x, channels, filters), filters)), filters
    return g.classify(x, channels)


@family
def inverted_residual(seed: int = 0) -> onnx.ModelProto:
    """MobileNet v2: wide inside, narrow outside, the sum over the narrow ends."""
    g = Net("inverted_residual", seed)
    x, channels = g.relu6(g.conv(g.input("x", [1, 3, 24, 24]), 3, 16, 3, stride=2)), 16
    for filters, stride in ((16, 1), (24, 2), (24, 1)):
        wide = 6 * channels
        y = g.relu6(g.norm(g.conv(x, channels, wide), wide))
        y = g.relu6(g.norm(g.conv(y, wide, wide, 3, stride=stride, group=wide), wide))
        y = g.norm(g.conv(y, wide, filters), filters)
        x = g.add("Add", x, y) if (stride, filters) == (1, channels) else y
        channels = filters
    return g.classify(x, channels)


@family
def squeeze_excite(seed: int = 0) -> onnx.ModelProto:
    """MobileNet v3, EfficientNet: each channel is scaled by what two products make of all averages."""
    g = Net("squeeze_excite", seed)
    x, channels = g.hard_swish(g.conv(g.input("x", [1, 3, 24, 24]), 3, 16, 3, stride=2)), 16
    for gate in (lambda y: g.add("HardSigmoid", y, alpha=1 / 6), lambda y: g.add("Sigmoid", y)):
        y = g.swish(g.norm(g.conv(x, channels, 64), 64))
        y = g.swish(g.norm(g.conv(y, 64, 64, 5, group=64), 64))
        squeezed = g.relu(g.conv(g.add("GlobalAveragePool", y), 64, 8))
        y = g.add("Mul", y, gate(g.conv(squeezed, 8, 64)))
        x = g.add("Add", x, g.conv(y, 64, channels, scale=0.5))
    return g.classify(x, channels)


@family
def shuffle(seed: int = 0) -> onnx.ModelProto:
    """ShuffleNet v2: half of the channels pass, the other half is filtered, then both are interleaved."""
    g = Net("shuffle", seed)
    x, half = g.relu(g.conv(g.input("x", [1, 3, 24, 24]), 3, 48, 3, stride=2)), 24
    for _ in range(2):
        left, right = g.slice(x, 0, half, 1), g.slice(x, half, 2 * half, 1)
        right = g.relu(g.conv(right, half, half))
        right = g.relu(g.conv(g.conv(right, half, half, 3, group=half), half, half))
        x = g.reshape(g.add("Concat", left, right, axis=1), 1, 2, half, 12, 12)
        x = g.reshape(g.transpose(x, 0, 2, 1, 3, 4), 1, 2 * half, 12, 12)
    return g.classify(x, 2 * half)


@family
def dense(seed: int = 0) -> onnx.ModelProto:
    """DenseNet: each layer reads what all layers before it made; then half of the channels and of the extents."""
    g = Net("dense", seed)
    x, channels = g.relu(g.conv(g.input("x", [1, 3, 24, 24]), 3, 16, 3, stride=2)), 16
    for _ in range(2):
        parts = [x]
        for _ in range(3):
            x = g.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
            y = g.relu(g.conv(g.relu(g.norm(x, channels)), channels, 32))
            parts.append(g.conv(y, 32, 8, 3))
            channels += 8
        x = g.conv(g.relu(g.norm(g.add("Concat", *parts, axis=1), channels)), channels, channels // 2)
        channels //= 2
        x = g.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return g.classify(x, channels)


@family
def dual_path(seed: int = 0, *, added: int = 52, grown: int = 12) -> onnx.ModelProto:
    """A dual path network: of each block's channels the first are added to those before, the others put beside them."""
    g = Net("dual_path", seed)

    def block(y: str, channels: int, filters: int, group: int = 4) -> str:
        y = g.relu(g.conv(g.relu(g.norm(y, channels)), channels, 32))
        return g.conv(g.relu(g.conv(y, 32, 32, 3, group=group)), 32, filters, scale=0.5)

    x = g.relu(g.conv(g.input("x", [1, 3, 14, 14]), 3, 24, 3, stride=2))
    wide = g.conv(g.relu(g.norm(x, 24)), 24, added + grown)
    sums, beside, channels = g.slice(wide, 0, added, 1), g.slice(wide, added, added + grown, 1), added + grown
    y = block(x, 24, added + 4)
    for last in (False, True):
        sums = g.add("Add", sums, g.slice(y, 0, added, 1))
        x, channels = g.add("Concat", sums, beside, g.slice(y, added, added + 4, 1), axis=1), channels + 4
        if last:
            return g.classify(g.relu(g.norm(x, channels)), channels)
        sums, beside = g.slice(x, 0, added, 1), g.slice(x, added, channels, 1)
        y = block(x, channels, added + 4)


@family
def dilated(seed: int = 0) -> onnx.ModelProto:
    """DeepLab's pyramid: windows of several dilations and an average over all pixels, side by side; a label per pixel."""
    g = Net("dilated", seed)
    x = g.relu(g.conv(g.input("x", [1, 3, 24, 24]), 3, 24, 3, stride=2))
    parts = [g.relu(g.conv(x, 24, 16))] + [g.relu(g.conv(x, 24, 16, 3, dilation=d)) for d in (2, 4, 6)]
    pooled = g.relu(g.conv(g.add("GlobalAveragePool", x), 24, 16))
    parts.append(g.add("Resize", pooled, "", "", g.constant(np.int64([1, 16, 12, 12])), mode="nearest"))
    x = g.conv(g.relu(g.conv(g.add("Concat", *parts, axis=1), 80, 24)), 24, 5)
    y = g.add("Resize", x, "", "", g.constant(np.int64([1, 5, 24, 24])), mode="linear",
              coordinate_transformation_mode="half_pixel", name="y")
    g.output(y, [1, 5, 24, 24])
    return g.model()


@family
def grouped(seed: int = 0) -> onnx.ModelProto:
    """ResNeXt, RegNet: the window inside a bottleneck sees one group of channels."""
    g = Net("grouped", seed)
    x, channels = g.relu(g.conv(g.input("x", [1, 3, 24, 24]), 3, 32, 3, stride=2)), 32
    for filters, stride, groups in ((32, 1, 4), (48, 2, 6), (48, 1, 6)):
        y = g.relu(g.norm(g.conv(x, channels, filters), filters))
        y = g.relu(g.norm(g.conv(y, filters, filters, 3, stride=stride, group=groups), filters))
        y = g.conv(y, filters, filters, scale=0.5)
        x = g.relu(g.add("Add", y, x if filters == channels else g.conv(x, channels, filters, stride=stride)))
        channels = filters
    return g.classify(x, channels)


@family
def u_shape(seed: int = 0) -> onnx.ModelProto:
    """U-Net: down by poolings, up by a transposed convolution and a Resize, with what was there before beside it."""
    g = Net("u_shape", seed)
    top = g.relu(g.conv(g.input("x", [1, 3, 32, 32]), 3, 8, 3))
    middle = g.relu(g.conv(g.add("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), 8, 16, 3))
    bottom = g.relu(g.conv(g.add("MaxPool", middle, kernel_shape=[2, 2], strides=[2, 2]), 16, 32, 3))
    up = g.add("ConvTranspose", bottom, g.normal((32, 16, 2, 2), 32**-0.5), g.normal((16,), 0.1), kernel_shape=[2, 2],
               strides=[2, 2])
    x = g.relu(g.conv(g.add("Concat", up, middle, axis=1), 32, 16, 3))
    up = g.add("Resize", x, "", g.constant(np.float32([1, 1, 2, 2])), mode="nearest",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = g.relu(g.conv(g.add("Concat", up, top, axis=1), 24, 8, 3))
    g.output(g.add("Conv", x, g.normal((4, 8, 1, 1), 0.35), name="y", kernel_shape=[1, 1]), [1, 4, 32, 32])
    return g.model()


@family
def diffusion(seed: int = 0) -> onnx.ModelProto:
    """A diffusion model's U-Net: groups of channels normalised as PyTorch exports it, a value per channel made of the time added
    in the middle of each block, attention over all pixels of the coarse map, and what was there before beside the fine one."""
    g = Net("diffusion", seed)
    extent, fine, coarse, groups = 16, 32, 48, 8
    time = g.swish(g.add("Gemm", g.input("time", [1, 24]), g.normal((24, 32), 0.2), g.normal((32,), 0.1)))

    def norm(x: str, channels: int, size: int) -> str:
        ones, zeros = g.constant(np.ones(groups, np.float32)), g.constant(np.zeros(groups, np.float32))
        x = g.add("InstanceNormalization", g.add("Reshape", x, g.constant(np.int64([0, groups, -1]))), ones, zeros)
        x = g.add("Reshape", x, g.constant(np.int64([1, channels, size, size])))
        return g.add("Add", g.add("Mul", x, g.uniform((channels, 1, 1), 0.5, 1.5)), g.normal((channels, 1, 1), 0.1))

    def block(x: str, channels: int, filters: int, size: int) -> str:
        inner = g.conv(g.swish(norm(x, channels, size)), channels, filters, 3)
        shift = g.add("Gemm", time, g.normal((32, filters), 0.2), g.normal((filters,), 0.1))
        inner = g.add("Add", inner, g.add("Reshape", shift, g.constant(np.int64([1, filters, 1, 1]))))
        inner = g.conv(g.swish(norm(inner, filters, size)), filters, filters, 3)
        return g.add("Add", inner, x if channels == filters else g.conv(x, channels, filters))

    top = block(g.conv(g.input("x", [1, 3, extent, extent]), 3, fine, 3), fine, fine, extent)
    x = block(g.conv(top, fine, fine, 3, stride=2), fine, coarse, extent // 2)
    parts = g.add("Split", g.add("Reshape", g.conv(norm(x, coarse, extent // 2), coarse, 3 * coarse),
                                 g.constant(np.int64([1, 3 * coarse, -1]))), axis=1, outputs=3)
    scores = g.add("MatMul", g.add("Transpose", parts[0], perm=[0, 2, 1]), parts[1])
    weights = g.add("Softmax", g.add("Mul", scores, g.constant(np.float32(coarse**-0.5))), axis=-1)
    read = g.add("Reshape", g.add("MatMul", parts[2], g.add("Transpose", weights, perm=[0, 2, 1])),
                 g.constant(np.int64([1, coarse, extent // 2, extent // 2])))
    x = g.add("Add", x, g.conv(read, coarse, coarse))
    up = g.add("Resize", x, "", g.constant(np.float32([1, 1, 2, 2])), mode="nearest",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = block(g.add("Concat", up, top, axis=1), coarse + fine, fine, extent)
    last = g.swish(norm(x, fine, extent))
    g.output(g.add("Conv", last, g.normal((3, fine, 3, 3), 0.06), name="y", kernel_shape=[3, 3], pads=[1] * 4), [1, 3, extent, extent])
    return g.model()


@family
def branches(seed: int = 0) -> onnx.ModelProto:
    """Inception: windows of several shapes side by side, and a pooling that keeps the extents."""
    g = Net("branches", seed)
    x = g.relu(g.conv(g.input("x", [1, 3, 24, 24]), 3, 24, 3, stride=2))
    tall = g.relu(g.conv(g.relu(g.conv(g.relu(g.conv(x, 24, 12)), 12, 12, (1, 7))), 12, 16, (7, 1)))
    wide = g.relu(g.conv(g.relu(g.conv(x, 24, 12)), 12, 16, 5))
    average = g.add("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    largest = g.add("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    parts = [tall, wide, g.relu(g.conv(average, 24, 8)), g.relu(g.conv(largest, 24, 8))]
    return g.classify(g.add("Concat", *parts, axis=1), 48)


@family
def fire(seed: int = 0) -> onnx.ModelProto:
    """SqueezeNet: few channels in, two kinds of windows out, side by side; poolings of odd extents."""
    g = Net("fire", seed)
    x, channels = g.relu(g.conv(g.input("x", [1, 3, 33, 33]), 3, 16, 3, stride=2)), 16
    for squeezed, filters in ((8, 16), (8, 24)):
        x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        x = g.relu(g.conv(x, channels, squeezed))
        x = g.add("Concat", g.relu(g.conv(x, squeezed, filters)), g.relu(g.conv(x, squeezed, filters, 3)), axis=1)
        channels = 2 * filters
    return g.classify(x, channels)


@family
def channels_last(seed: int = 0) -> onnx.ModelProto:
    """ConvNeXt: a wide window over each channel, then a normalisation and products over channels, moved last."""
    g = Net("channels_last", seed)
    x = g.conv(g.input("x", [1, 3, 24, 24]), 3, 32, 3, stride=2)
    for _ in range(2):
        y = g.transpose(g.conv(x, 32, 32, 7, group=32), 0, 2, 3, 1)
        y = g.mlp(g.layer_norm(y, 32), 32, 96)
        y = g.add("Mul", y, g.uniform((32,), 0.2, 0.6))
        x = g.add("Add", x, g.transpose(y, 0, 3, 1, 2))
    return g.classify(x, 32)


@family
def pyramid(seed: int = 0) -> onnx.ModelProto:
    """The maps of a detector: coarse ones are enlarged and added to finer ones; an output of every scale."""
    g = Net("pyramid", seed)
    x, maps, channels = g.input("x", [1, 3, 32, 32]), [], 3
    for filters in (16, 24, 32):
        x, channels = g.relu(g.conv(x, channels, filters, 3, stride=2)), filters
        maps.append(g.conv(x, filters, 16))
    merged = maps[-1]
    for i, extent in ((2, 4), (1, 8), (0, 16)):
        if i < 2:
            up = g.add("Resize", merged, "", "", g.constant(np.int64([1, 16, extent, extent])), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            merged = g.add("Add", up, maps[i])
        weight = g.normal((16, 16, 3, 3), np.sqrt(1 / 144))
        g.output(g.add("Conv", merged, weight, name=f"p{i}", kernel_shape=[3, 3], pads=[1] * 4), [1, 16, extent, extent])
    return g.model()


@family
def windowed_attention(seed: int = 0, window: int = 4, extent: int = 8, width: int = 32, heads: int = 2) -> onnx.ModelProto:
    """Swin: attention inside windows, with a bias for each pair of places; windows shifted by a half, with a mask."""
    g = Net("windowed_attention", seed)
    x = g.layer_norm(g.linear(g.input("x", [1, extent, extent, 16]), 16, width), width)
    places, count = window * window, (extent // window)**2
    for shift in (0, window // 2):
        y = g.layer_norm(x, width)
        for axis in (1, 2) if shift else ():
            y = g.add("Concat", g.slice(y, shift, extent, axis), g.slice(y, 0, shift, axis), axis=axis)
        y = g.reshape(y, 1, extent // window, window, extent // window, window, width)
        y = g.reshape(g.transpose(y, 0, 1, 3, 2, 4, 5), count, places, width)
        q, k, v = (g.transpose(g.reshape(g.linear(y, width, width), count, places, heads, width // heads), 0, 2, 1, 3)
                   for _ in range(3))
        mask = g.normal((1, heads, places, places), 0.5)
        if shift:
            mask = g.add("Add", mask, g.constant(shifted_mask(window, extent, shift)))
        y = g.transpose(g.attend(q, k, v, width // heads, mask), 0, 2, 1, 3)
        y = g.linear(g.reshape(y, count, places, width), width, width, scale=0.5)
        y = g.reshape(y, 1, extent // window, extent // window, window, window, width)
        y = g.reshape(g.transpose(y, 0, 1, 3, 2, 4, 5), 1, extent, extent, width)
        for axis in (1, 2) if shift else ():
            y = g.add("Concat", g.slice(y, extent - shift, extent, axis), g.slice(y, 0, extent - shift, axis), axis=axis)
        x = g.add("Add", x, y)
        x = g.add("Add", x, g.mlp(g.layer_norm(x, width), width, 2 * width))
    g.output(g.add("Identity", x, name="y"), [1, extent, extent, width])
    return g.model()


def shifted_mask(window: int, extent: int, shift: int) -> np.ndarray:
    """-100 for each pair of places that are neighbours only since the image was rolled: [windows, 1, places, places]."""
    region = np.searchsorted([extent - window, extent - shift], np.arange(extent), side="right")
    regions = 3 * region[:, None] + region[None, :]
    parts = regions.reshape(extent // window, window, extent // window, window).transpose(0, 2, 1, 3)
    parts = parts.reshape(-1, window * window)
    return np.where(parts[:, None, :] == parts[:, :, None], 0, -100).astype(np.float32)[:, None]


@family
def patch_embedding(seed: int = 0, width: int = 48) -> onnx.ModelProto:
    """ViT: patches by a convolution of their stride, a token and places added, attention, the token's result alone."""
    g = Net("patch_embedding", seed)
    weight = g.normal((width, 3, 8, 8), np.sqrt(1 / 192))
    x = g.add("Conv", g.input("x", [1, 3, 32, 32]), weight, kernel_shape=[8, 8], strides=[8, 8])
    x = g.transpose(g.reshape(x, 1, width, 16), 0, 2, 1)
    x = g.add("Add", g.add("Concat", g.normal((1, 1, width), 1.0), x, axis=1), g.normal((1, 17, width), 0.5))
    x = g.add("Add", x, g.attention(g.layer_norm(x, width), 17, width, 3))
    x = g.add("Add", x, g.mlp(g.layer_norm(x, width), width, 96))
    token = g.add("Gather", g.layer_norm(x, width), g.constant(np.int64(0)), axis=1)
    y = g.add("Gemm", token, g.normal((width, 10), width**-0.5), g.normal((10,), 0.1), name="y")
    g.output(y, [1, 10])
    return g.model()


@family
def mlp_mixer(seed: int = 0, width: int = 32, patches: int = 16) -> onnx.ModelProto:
    """MLP-Mixer: products over channels, and over patches."""
    g = Net("mlp_mixer", seed)
    x = g.linear(g.input("x", [1, patches, 48]), 48, width)
    for _ in range(2):
        y = g.transpose(g.layer_norm(x, width), 0, 2, 1)
        x = g.add("Add", x, g.transpose(g.mlp(y, patches, 24), 0, 2, 1))
        x = g.add("Add", x, g.mlp(g.layer_norm(x, width), width, 64))
    g.output(g.add("ReduceMean", g.layer_norm(x, width), name="y", axes=[1], keepdims=0), [1, width])
    return g.model()


def rotated(g: Net, x: str, first: int, count: int, depth: int) -> str:
    """Rotary positions: halves of each head turned by an angle that grows with the place."""
    angles = np.arange(first, first + count)[:, None] * 100.0**(-np.arange(depth // 2) / (depth // 2))[None]
    cosine, sine = (g.constant(np.tile(f(angles), 2).astype(np.float32)[None, None]) for f in (np.cos, np.sin))
    halves = g.slice(x, 0, depth // 2, 3), g.slice(x, depth // 2, depth, 3)
    turned = g.add("Concat", g.add("Neg", halves[1]), halves[0], axis=3)
    return g.add("Add", g.add("Mul", x, cosine), g.add("Mul", turned, sine))


def decoder_layer(g: Net, x: str, count: int, width: int, heads: int, groups: int, past: tuple[str, str, int] | None = None,
                  feed=None) -> tuple[str, str, str]:
    """A layer as in Llama: `groups` heads of keys and values, each read by heads / groups of queries; with a past of so many
    tokens, keys and values of all tokens are results."""
    depth, length = width // heads, past[2] if past else 0
    y = g.rms_norm(x, width)
    q = rotated(g, g.heads(g.linear(y, width, width, bias=False), count, heads, depth), length, count, depth)
    k = rotated(g, g.heads(g.linear(y, width, groups * depth, bias=False), count, groups, depth), length, count, depth)
    v = g.heads(g.linear(y, width, groups * depth, bias=False), count, groups, depth)
    if past:
        k, v = (g.add("Concat", before, now, axis=2) for before, now in zip(past, (k, v)))
    wide = []
    for part in (k, v):
        part = g.reshape(part, 1, groups, 1, length + count, depth)
        part = g.add("Expand", part, g.constant(np.int64([1, groups, heads // groups, length + count, depth])))
        wide.append(g.reshape(part, 1, heads, length + count, depth))
    hidden = np.triu(np.full((count, length + count), -1e4, np.float32), 1 + length)[None, None]
    y = g.attend(q, *wide, depth, g.constant(hidden) if count > 1 else None)
    x = g.add("Add", x, g.linear(g.joined(y, count, width), width, width, bias=False, scale=0.5))
    return g.add("Add", x, (feed or swiglu)(g, g.rms_norm(x, width), width)), k, v


def swiglu(g: Net, x: str, width: int, inner: int = 64) -> str:
    gate = g.swish(g.linear(x, width, inner, bias=False))
    return g.linear(g.add("Mul", gate, g.linear(x, width, inner, bias=False)), inner, width, bias=False, scale=0.5)


def decoder_model(name: str, seed: int, count: int, heads: int, groups: int, length: int = 0, feed=None,
                  width: int = 32, words: int = 60) -> onnx.ModelProto:
    g = Net(name, seed)
    x = g.add("Gather", g.normal((words, width), 1.0), g.input("ids", [1, count], np.int64), axis=0)
    past = None
    if length:
        shape = [1, groups, length, width // heads]
        past = (g.input("past_key", shape), g.input("past_value", shape), length)
    x, k, v = decoder_layer(g, x, count, width, heads, groups, past, feed)
    x = g.add("MatMul", g.rms_norm(x, width), g.normal((width, words), width**-0.5), name="y")
    g.output(x, [1, count, words])
    for part, value in (("key", k), ("value", v)) if length else ():
        g.output(g.add("Identity", value, name=part), [1, groups, length + count, width // heads])
    return g.model()


@family
def decoder(seed: int = 0) -> onnx.ModelProto:
    """Llama's layer on all tokens: RMS normalisation, rotary positions, a causal mask, SwiGLU."""
    return decoder_model("decoder", seed, count=12, heads=4, groups=4)


@family
def decoder_step(seed: int = 0) -> onnx.ModelProto:
    """The same for one token behind a past, whose keys and values grow by one."""
    return decoder_model("decoder_step", seed, count=1, heads=4, groups=4, length=9)


@family
def long_step(seed: int = 0) -> onnx.ModelProto:
    """The same, wide and behind a long past: maxima of many lanes, and values that join the past as lanes of their own."""
    return decoder_model("long_step", seed, count=1, heads=16, groups=16, length=128, width=512)


@family
def grouped_query(seed: int = 0) -> onnx.ModelProto:
    """Keys and values of two heads, each for three of queries."""
    return decoder_model("grouped_query", seed, count=10, heads=6, groups=2, width=48)


@family
def grouped_query_step(seed: int = 0) -> onnx.ModelProto:
    """The same for one token behind a past."""
    return decoder_model("grouped_query_step", seed, count=1, heads=6, groups=2, length=7, width=48)


def experts(g: Net, x: str, width: int, count: int = 4, inner: int = 32, chosen: int | None = None) -> str:
    """The sum of `count` SwiGLUs weighed by a Softmax over products; with `chosen`, the largest weights alone count."""
    scores = g.linear(x, width, count, bias=False)
    if chosen:
        largest, _ = g.add("TopK", scores, g.constant(np.int64([chosen])), outputs=2, axis=-1)
        least = g.slice(largest, chosen - 1, chosen, 2)
        below = g.add("Less", scores, least)
        scores = g.add("Where", below, g.constant(np.float32(-1e4)), scores)
    weights, total = g.add("Softmax", scores, axis=-1), None
    for i in range(count):
        part = g.add("Mul", swiglu(g, x, width, inner), g.slice(weights, i, i + 1, 2))
        total = g.add("Add", total, part) if total else part
    return total


@family
def mixture_of_experts(seed: int = 0) -> onnx.ModelProto:
    """A layer whose inner products are those of all experts, weighed by token."""
    return decoder_model("mixture_of_experts", seed, count=8, heads=4, groups=2, feed=experts)


@family
def sparse_experts(seed: int = 0) -> onnx.ModelProto:
    """Mixtral: the same, with weights for the two largest scores of each token alone (TopK)."""
    return decoder_model("sparse_experts", seed, count=8, heads=4, groups=2,
                         feed=lambda g, x, width: experts(g, x, width, chosen=2))


@family
def cross_attention(seed: int = 0, width: int = 32, count: int = 6, memory: int = 10) -> onnx.ModelProto:
    """A decoder's layer of a translator: causal attention, then attention to what an encoder made, then an MLP."""
    g = Net("cross_attention", seed)
    x, made = g.input("x", [1, count, width]), g.input("encoded", [1, memory, width])
    mask = g.constant(np.triu(np.full((count, count), -1e4, np.float32), 1)[None, None])
    x = g.layer_norm(g.add("Add", x, g.attention(x, count, width, 2, mask)), width)
    q = g.heads(g.linear(x, width, width), count, 2, width // 2)
    k, v = (g.heads(g.linear(made, width, width), memory, 2, width // 2) for _ in range(2))
    y = g.linear(g.joined(g.attend(q, k, v, width // 2), count, width), width, width, scale=0.5)
    x = g.layer_norm(g.add("Add", x, y), width)
    g.output(g.add("Add", x, g.mlp(x, width, 64), name="y"), [1, count, width])
    return g.model()


@family
def masked_encoder(seed: int = 0, width: int = 48, count: int = 16, heads: int = 4) -> onnx.ModelProto:
    """BERT as PyTorch exports it: a mask of padding is an input, and rows of which all is hidden give zero, not NaN."""
    g = Net("masked_encoder", seed)
    x, depth = g.input("x", [1, count, width]), width // heads
    kept = g.add("Cast", g.input("attention_mask", [1, count], np.int64), to=onnx.TensorProto.BOOL)
    kept = g.reshape(kept, 1, 1, 1, count)
    for _ in range(2):
        q, k, v = (g.heads(g.linear(x, width, width), count, heads, depth) for _ in range(3))
        root = g.constant(np.float32(depth**-0.25))
        scores = g.add("MatMul", g.add("Mul", q, root), g.transpose(g.add("Mul", k, root), 0, 1, 3, 2))
        hidden = g.add("Where", kept, g.constant(np.float32(0)), g.constant(np.float32(-np.inf)))
        weights = g.add("Softmax", g.add("Add", scores, hidden), axis=-1)
        weights = g.add("Where", g.add("IsNaN", weights), g.constant(np.float32(0)), weights)
        y = g.linear(g.joined(g.add("MatMul", weights, v), count, width), width, width, scale=0.5)
        x = g.layer_norm(g.add("Add", x, y), width)
        x = g.layer_norm(g.add("Add", x, g.mlp(x, width, 64)), width)
    g.output(g.add("Identity", x, name="y"), [1, count, width])
    return g.model()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("family", choices=["all", *FAMILIES])
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.family != "all":
        save(FAMILIES[arguments.family](arguments.seed), arguments.output)
        return
    for name, build in FAMILIES.items():
        save(build(arguments.seed), Path(arguments.output) / f"{name}.onnx")


if __name__ == "__main__":
    main()
