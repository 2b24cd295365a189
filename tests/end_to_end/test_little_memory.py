# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What fits in bytes fits: weights and what is alive beside them below nine tenths of the memory."""
import subprocess

import numpy as np
import pytest
from onnx import helper

from oracle import relative_l2, run, run_millrace, save_model
from test_quantised_forms import model_of

node = helper.make_node


def test_weights_of_what_is_read_in_two_ways_are_stored_once(millrace, tmp_path):
    """An MLP-Mixer: what a channel product adds to is transposed for the next product of tokens. Weights take 0.75 MiB of 0.86."""
    draw = np.random.default_rng(0)
    weights = lambda *shape: (draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
    constants, nodes, x = {}, [], "x"
    for b in range(3):
        constants |= {f"a{b}": weights(128, 512), f"b{b}": weights(512, 128), f"t{b}": weights(8, 8)}
        nodes += [node("Transpose", [x], [f"u{b}"], perm=[0, 2, 1]), node("MatMul", [f"u{b}", f"t{b}"], [f"v{b}"]),
                  node("Transpose", [f"v{b}"], [f"w{b}"], perm=[0, 2, 1]), node("Add", [x, f"w{b}"], [f"s{b}"]),
                  node("MatMul", [f"s{b}", f"a{b}"], [f"h{b}"]), node("Relu", [f"h{b}"], [f"g{b}"]), node("MatMul", [f"g{b}", f"b{b}"], [f"m{b}"]),
                  node("Add", [f"s{b}", f"m{b}"], ["y" if b == 2 else f"x{b}"])]
        x = f"x{b}"
    inputs = {"x": draw.standard_normal((1, 8, 128)).astype(np.float32)}
    machine = tmp_path / "little.yaml"
    machine.write_text("name: little\nbase: tsp-small\nmemory: { rows_per_bank: 160 }\n")
    model = model_of(nodes, inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3


def test_patches_longer_than_a_vector(millrace, tmp_path):
    """Patches of 32 x 32 x 3 where vectors have 32 lanes: pixels lie in a row as far as they fit, and so do the weights."""
    draw = np.random.default_rng(1)
    inputs = {"x": draw.standard_normal((1, 3, 96, 96)).astype(np.float32)}
    model = model_of([node("Conv", ["x", "w"], ["y"], strides=[32, 32])], inputs, {"w": (draw.standard_normal((64, 3, 32, 32)) / 55).astype(np.float32)})
    for machine in ("mesh-4x4", "tsp-small"):
        got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
        assert any(line.startswith("x: ") and " a row" in line for line in got.report["packed"]), got.report["packed"]
        assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 1e-3


def test_a_table_stays_with_the_host_before_the_rest_gets_slow(millrace, tmp_path):
    """An embedding before three blocks: with its table on the grid the rest fits badly (52,351 cycles of 272 rows a bank) or not at all (256, 304)."""
    draw = np.random.default_rng(2)
    weights = lambda *shape: (draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
    constants, nodes, x = {"table": weights(1000, 128)}, [node("Gather", ["table", "ids"], ["x0"])], "x0"
    for b in range(3):
        constants |= {f"a{b}": weights(128, 512), f"b{b}": weights(512, 128), f"g{b}": np.ones(128, np.float32), f"o{b}": np.zeros(128, np.float32)}
        nodes += [node("MatMul", [x, f"a{b}"], [f"h{b}"]), node("Relu", [f"h{b}"], [f"r{b}"]), node("MatMul", [f"r{b}", f"b{b}"], [f"m{b}"]),
                  node("Add", [x, f"m{b}"], [f"s{b}"]), node("LayerNormalization", [f"s{b}", f"g{b}", f"o{b}"], ["y" if b == 2 else f"x{b + 1}"])]
        x = f"x{b + 1}"
    for tokens, rows, most in ((64, 256, 30_000), (64, 272, 30_000), (160, 304, 100_000)):
        inputs = {"ids": draw.integers(0, 1000, (1, tokens)).astype(np.int64)}
        model = model_of(nodes, inputs, constants)
        machine = tmp_path / f"little{rows}.yaml"
        machine.write_text(f"name: little\nbase: tsp-small\nmemory: {{ rows_per_bank: {rows} }}\n")
        got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
        assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3
        assert got.report["predicted_cycles"] < most


def branches(draw, conv):
    """A stem, and blocks of three convolutions beside a maximum over neighbours."""
    nodes = [conv("x", "c", 3, 32, 5, 2), node("Relu", ["c"], ["r"]), node("MaxPool", ["r"], ["x0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])]
    x, channels = "x0", 32
    for b in range(2):
        parts = [(f"p{b}", 1, x), (f"q{b}", 3, x), (f"s{b}", 5, x), (f"t{b}", 1, f"m{b}")]
        nodes.append(node("MaxPool", [x], [f"m{b}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        for name, size, source in parts:
            nodes += [conv(source, f"{name}c", channels, 24, size), node("Relu", [f"{name}c"], [name])]
        nodes.append(node("Concat", [name for name, _, _ in parts], ["y" if b else f"x{b + 1}"], axis=1))
        x, channels = f"x{b + 1}", 96
    return nodes


def inverted(draw, conv):
    """Blocks that widen, look at neighbours channel by channel, and narrow."""
    nodes, x, channels = [conv("x", "x0", 3, 16, 3, 2)], "x0", 16
    for b in range(3):
        nodes += [conv(x, f"w{b}", channels, 72), node("Clip", [f"w{b}", "zero", "six"], [f"v{b}"]), conv(f"v{b}", f"d{b}", 72, 72, 3, 1 + b % 2, 72),
                  node("Clip", [f"d{b}", "zero", "six"], [f"e{b}"]), conv(f"e{b}", "y" if b == 2 else f"x{b + 1}", 72, 24)]
        x, channels = f"x{b + 1}", 24
    return nodes


@pytest.mark.parametrize("build,rows,refused", [(branches, 128, 24), (inverted, 128, 16)], ids=["branches", "inverted"])
def test_values_count_beside_weights(millrace, tmp_path, build, rows, refused):
    """Convolutional networks whose values take most of a small memory; what does not fit is refused by name."""
    draw = np.random.default_rng(3)
    constants = {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}

    def conv(source, name, channels, filters, size=1, stride=1, group=1):
        constants[f"{name}.w"] = (draw.standard_normal((filters, channels // group, size, size)) / np.sqrt(channels // group * size * size)).astype(np.float32)
        return node("Conv", [source, f"{name}.w"], [name], strides=[stride, stride], pads=[size // 2] * 4, group=group)

    inputs = {"x": draw.standard_normal((1, 3, 64, 64)).astype(np.float32)}
    nodes = build(draw, conv)
    if build is branches:
        constants = {name: value for name, value in constants.items() if name.endswith(".w")}
    model = model_of(nodes, inputs, constants)
    path = save_model(model, tmp_path)
    machine = tmp_path / "little.yaml"
    machine.write_text(f"name: little\nbase: tsp-small\nmemory: {{ rows_per_bank: {rows} }}\n")
    got = run_millrace(millrace, path, machine, None, inputs, tmp_path)
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3
    machine.write_text(f"name: little\nbase: tsp-small\nmemory: {{ rows_per_bank: {refused} }}\n")
    done = subprocess.run([millrace, "compile", path, "-m", machine, "-o", tmp_path / "no.img"], capture_output=True, text=True)
    assert done.returncode == 4 and "use a machine with more memory" in done.stderr, done.stderr


def test_a_channel_that_is_a_row_is_a_vector_long(millrace, tmp_path):
    """Scales and offsets of 32 channels that lie in rows of 1,600 positions: 50 vectors of each channel took 0.40 of 0.65 MiB."""
    draw = np.random.default_rng(3)
    constants, nodes, x = {}, [], "x"
    for b in range(3):
        constants |= {f"w{b}": (draw.standard_normal((32, 32)) / 6).astype(np.float32), f"s{b}": draw.uniform(0.5, 1.5, (32, 1)).astype(np.float32),
                      f"o{b}": draw.standard_normal((32, 1)).astype(np.float32)}
        nodes += [node("MatMul", [f"w{b}", x], [f"m{b}"]), node("Mul", [f"m{b}", f"s{b}"], [f"p{b}"]), node("Add", [f"p{b}", f"o{b}"], [f"q{b}"]),
                  node("Tanh", [f"q{b}"], ["y" if b == 2 else f"x{b}"])]
        x = f"x{b}"
    inputs = {"x": draw.standard_normal((32, 1600)).astype(np.float32)}
    machine = tmp_path / "little.yaml"
    machine.write_text("name: little\nbase: tsp-small\nmemory: { rows_per_bank: 120 }\n")
    model = model_of(nodes, inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 1e-3


def test_columns_of_zeros_are_not_stored(millrace, tmp_path):
    """Four convolutions of groups of 24 channels in vectors of 32 lanes, which a pass takes by halves: most columns have weights in one
    half alone. Before, 112 rows a bank were needed."""
    draw = np.random.default_rng(3)
    constants, nodes, x = {}, [], "x"
    for b in range(4):
        constants[f"w{b}"] = (draw.standard_normal((96, 24, 3, 3)) / 15).astype(np.float32)
        nodes += [node("Conv", [x, f"w{b}"], [f"c{b}"], group=4, pads=[1] * 4), node("Relu", [f"c{b}"], ["y" if b == 3 else f"r{b}"])]
        x = f"r{b}"
    inputs = {"x": draw.standard_normal((1, 96, 7, 7)).astype(np.float32)}
    machine = tmp_path / "little.yaml"
    machine.write_text("name: little\nbase: tsp-small\nmemory: { rows_per_bank: 64 }\n")
    model = model_of(nodes, inputs, constants)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, None, inputs, tmp_path)
    assert relative_l2(got.outputs["y"], run(model, inputs)["y"]) < 2e-3
