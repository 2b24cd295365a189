# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of tables looked up on the grid: indices come from inputs, nothing runs on the host."""
import subprocess

import numpy as np
import onnx
import pytest

import probe
from bert_base import Shape, embed
from graph import Graph
from oracle import relative_l2, run_millrace, save_inputs, save_model

BERT = Shape(layers=0, words=30522)  # 128 tokens of 768 channels


def summed(words: int, width: int, shape: list[int], dtype=np.int64) -> onnx.ModelProto:
    """Rows of two tables, added; indices of any rank."""
    g = Graph("embeddings", 3)
    ids, kinds = g.input("ids", shape, dtype), g.input("kinds", shape, dtype)
    rows = g.add("Add", g.add("Gather", g.normal((words, width), 1.0), ids),
                 g.add("Gather", g.normal((2, width), 1.0), kinds), name="rows")
    g.output(rows, [*shape, width])
    return g.model()


def indices(shape: list[int], words: int, dtype=np.int64) -> dict[str, np.ndarray]:
    """The corners of both tables from either side, then any row."""
    rng = np.random.default_rng(5)
    ids = rng.integers(-words, words, shape).astype(dtype)
    ids.reshape(-1)[:4] = [0, words - 1, -words, -1]
    return {"ids": ids, "kinds": rng.integers(-2, 2, shape).astype(dtype)}


@pytest.mark.parametrize("machine", ["tsp-v1", "tsp-small", "lp30", "mesh-4x4"])
@pytest.mark.parametrize("shape, dtype", [([9], np.int64), ([2, 3, 4], np.int32)],
                         ids=["vector_int64", "rank_3_int32"])
def test_rows_at_indices_of_any_shape_and_sign_are_those_of_onnx_runtime(millrace, tmp_path,
                                                                       machine, shape, dtype):
    model, inputs = summed(500, 70, shape, dtype), indices(shape, 500, dtype)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path)
    assert got.report["host_ops"] == []
    assert got.report["measured_cycles"] == got.report["predicted_cycles"] > 0
    assert relative_l2(got.outputs["rows"], probe.run(model, inputs)["rows"]) <= 1e-3


def bert() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """BERT-base's three tables, added and normalised."""
    g = Graph("bert_embeddings", 0)
    rows, _ = embed(g, BERT)
    g.output(rows, [1, BERT.sequence, BERT.hidden])
    model = g.model()
    kept = [value for value in model.graph.input if value.name != "attention_mask"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    used = {rows} | {name for node in model.graph.node if node.op_type in
                     ("Gather", "Add", "LayerNormalization") for name in node.output}
    nodes = [node for node in model.graph.node if set(node.output) & used]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    inputs = indices([1, BERT.sequence], BERT.words)
    return model, {"input_ids": inputs["ids"], "token_type_ids": inputs["kinds"]}


def test_the_words_of_bert_lie_in_four_slices_a_byte_and_are_joined(millrace, tmp_path):
    model, inputs = bert()
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path)
    assert got.report["host_ops"] == []
    assert got.report["measured_cycles"] == got.report["predicted_cycles"]
    (name, expected), = probe.run(model, inputs).items()
    assert relative_l2(got.outputs[name], expected) <= 2e-3
    # 128 tokens x 3 lane tiles, two of them in one hemisphere: 256 rows and the way there and back.
    lookups = got.report["kernels"][0]
    assert lookups["last_cycle"] - lookups["first_cycle"] < 256 + 100


def test_a_table_that_takes_more_than_half_of_the_memory_stays_with_the_host(millrace, tmp_path):
    """22 MiB of memory: 100,000 rows of 70 fp16 numbers fit, and would leave too little."""
    model = summed(100_000, 70, [9])
    inputs = indices([9], 100_000)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-small", "fp16", inputs, tmp_path,
                       ["--check"])
    assert len(got.report["host_ops"]) == 1
    (line,) = got.report["packed"]
    assert "of 14000000 bytes stays with the host" in line
    assert got.report["measured_cycles"] == got.report["predicted_cycles"]
    (name, expected), = probe.run(model, inputs).items()
    assert relative_l2(got.outputs[name], expected) <= 2e-3
    image = tmp_path / "m.mrp"
    subprocess.run([millrace, "compile", tmp_path / "model.onnx", "-m", "tsp-small", "-o", image],
                   check=True, capture_output=True)
    text = subprocess.run([millrace, "dump", image, "--no-instructions"], check=True,
                          capture_output=True, text=True).stdout
    assert "host constant" in text


def test_superlanes_of_one_lane_hold_no_address_so_tables_stay_with_the_host(millrace, tmp_path):
    """R12: a superlane's address is two bytes, on two of its lanes."""
    machine = tmp_path / "thin.yaml"
    machine.write_text("name: thin\nbase: tsp-small\nsuperlanes: 32\nlanes_per_superlane: 1\n")
    model, inputs = summed(20, 70, [9]), indices([9], 20)
    got = run_millrace(millrace, save_model(model, tmp_path), machine, "fp16", inputs, tmp_path)
    assert len(got.report["packed"]) == 2
    for line in got.report["packed"]:
        assert "stays with the host: superlanes of one lane hold no address" in line
    assert got.report["measured_cycles"] == got.report["predicted_cycles"]
    (name, expected), = probe.run(model, inputs).items()
    assert relative_l2(got.outputs[name], expected) <= 2e-3


def test_an_index_outside_its_table_is_refused_before_the_simulation(millrace, tmp_path):
    model = save_model(summed(500, 70, [9]), tmp_path)
    inputs = indices([9], 500)
    inputs["ids"][7] = 500
    files = [f"--input={name}={file}" for name, file in save_inputs(inputs, tmp_path).items()]
    done = subprocess.run([millrace, "run", model, "-m", "tsp-small", *files],
                          capture_output=True, text=True)
    assert done.returncode == 3
    assert ("input 'ids': element 7 is 500, but the table that it looks up has 500 rows: give "
            "-500 to 499") in done.stderr
