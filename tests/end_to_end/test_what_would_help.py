# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--explain what-would-help`: for one more of each resource two estimates, in their order, and the cycles of a compilation
for that machine, which are those of `--set`."""
import json
from pathlib import Path

import pytest

from bert_base import Shape, transformer
from fixtures import FOLDER
from graph import save
from small import convnet, gemm

RESOURCES = ["planes", "buffers", "accumulators", "alus", "streams", "banks", "slices"]
WAITED_FOR = RESOURCES[1:]  # more of which changes no kernel's work
BOUNDED = ["accumulators", "alus", "streams", "banks", "slices"]  # compiled, they gain no more than estimated without end


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("help")
    save(convnet(), folder / "convnet.onnx")
    save(gemm(), folder / "gemm.onnx")
    for name, layers in (("bert", 1), ("deep", 2)):
        save(transformer(Shape(layers=layers, hidden=64, heads=4, sequence=16, embeddings=False)), folder / f"{name}.onnx")
    return folder


def explained(call, tmp_path, *words):
    text, _ = call("compile", *words, "--explain", "what-would-help", "--json", "h.json")
    return text, json.loads((tmp_path / "h.json").read_text())


@pytest.mark.parametrize("name, machine, more", [("convnet", "tsp-small", ["pes"]), ("bert", "lp30", ["pes"]),
                                                 ("gemm", "mesh-4x4", ["links", "pes"]), ("bert", "tsp-v1", ["pes"])])
def test_each_resource_has_estimates_in_order_and_the_cycles_of_a_compilation(call, models, tmp_path, name, machine, more):
    model = models / f"{name}.onnx"
    _, out = explained(call, tmp_path, model, "-m", machine)
    call("compile", model, "-m", machine, "--explain", "cycles", "-q", "--json", "c.json")
    account = json.loads((tmp_path / "c.json").read_text())["cycle_account"]
    assert (out["machine"], out["precision"]) == (machine, "fp16")
    help_ = out["what_would_help"]
    assert set(help_) == {"cycles", "resources"} and help_["cycles"] == account["cycles"]
    assert [row["resource"] for row in help_["resources"]] == RESOURCES + more
    for row in help_["resources"]:
        assert set(row) == {"resource", "keys", "estimated_cycles", "unlimited_cycles", "compiled_cycles", "refusal"}
        assert 0 < row["unlimited_cycles"] <= row["estimated_cycles"] <= account["cycles"], row
        assert (row["compiled_cycles"] is None) != (row["refusal"] is None)
        if row["resource"] in WAITED_FOR:
            assert row["unlimited_cycles"] >= account["bounds"]["by_kind"]["critical_path_cycles"], row
        if row["resource"] in BOUNDED:
            assert row["compiled_cycles"] >= row["unlimited_cycles"] - 0.02 * account["cycles"], row
        settings = [f"--set={change['key']}={change['to']}" for change in row["keys"]]
        call("run", model, "-m", machine, "--cycles-only", "-q", "--json", "r.json", *settings)
        assert json.loads((tmp_path / "r.json").read_text())["measured_cycles"] == row["compiled_cycles"], row


@pytest.mark.parametrize("model, scarce, resource", [("deep", "mxm.buffers=1", "buffers"), ("bert", "memory.banks=1", "banks"),
                                                     ("bert", "streams=16", "streams")])
def test_what_is_scarce_is_estimated_to_help_and_does(call, models, tmp_path, model, scarce, resource):
    settings = [f"--set={scarce}"]
    if resource == "banks":  # as its rows were placed first: with others in search of it one bank serves as well as two
        settings += ["--set=memory.rows_per_bank=8192", "--effort=0"]
    _, out = explained(call, tmp_path, models / f"{model}.onnx", "-m", "tsp-v1", *settings)
    cycles = out["what_would_help"]["cycles"]
    row = next(r for r in out["what_would_help"]["resources"] if r["resource"] == resource)
    assert row["estimated_cycles"] < cycles and row["compiled_cycles"] < cycles, row


def test_the_table_says_what_the_json_says_and_quiet_says_nothing(call, models, tmp_path):
    model = models / "gemm.onnx"
    text, out = explained(call, tmp_path, model)
    help_ = out["what_would_help"]
    lines = text.splitlines()
    assert lines[0] == f"what would help {model} on tsp-v1 in fp16: {help_['cycles']:,} cycles"
    assert lines[1].split() == ["one", "more", "estimated", "unlimited", "compiled"]
    assert len(lines) == 2 + len(help_["resources"])
    for row in help_["resources"]:
        change = ", ".join(f"{c['key']}={c['to']} (from {c['from']})" for c in row["keys"])
        line, = [line for line in lines if line.startswith(f"  {change}  ")]
        words = line[2 + len(change):].split()
        for at, key in enumerate(("estimated_cycles", "unlimited_cycles", "compiled_cycles")):
            assert words[3 * at] == f"{row[key]:,}"
            assert float(words[3 * at + 1]) == pytest.approx(100 * (row[key] / help_["cycles"] - 1), abs=0.051)
    compiled = [int(line.split()[-3].replace(",", "")) for line in lines[2:]]
    assert compiled == sorted(compiled)
    assert call("compile", model, "--explain", "what-would-help", "-q") == ("", "")


def test_it_changes_no_image_and_uses_the_settings_that_are_given(call, models, tmp_path):
    model = models / "gemm.onnx"
    call("compile", model, "-o", "a.mrp", "--set", "mxm.planes=4")
    _, out = explained(call, tmp_path, model, "-o", "b.mrp", "--set", "mxm.planes=4")
    assert (tmp_path / "a.mrp").read_bytes() == (tmp_path / "b.mrp").read_bytes()
    planes = out["what_would_help"]["resources"][0]
    assert planes["keys"] == [{"key": "mxm.planes", "from": "4", "to": "6"}]


def test_a_schedule_whose_bundles_moved_is_estimated_as_it_is(call, models, tmp_path):
    text, out = explained(call, tmp_path, models / "convnet.onnx", "-m", "tsp-small", "--effort", "2", "--order", "graph")
    call("run", models / "convnet.onnx", "-m", "tsp-small", "--effort", "2", "--order", "graph", "--cycles-only", "-q",
         "--json", "r.json")
    assert out["what_would_help"]["cycles"] == json.loads((tmp_path / "r.json").read_text())["measured_cycles"]
    for row in out["what_would_help"]["resources"]:
        assert 0 < row["unlimited_cycles"] <= row["estimated_cycles"] <= out["what_would_help"]["cycles"], row


def test_it_is_refused_where_it_can_say_nothing(call, models):
    for words, said in ((("run", models / "gemm.onnx"), "give it to `millrace compile`"),
                        (("compile", models / "gemm.onnx", "--to", "spatial", "-o", "-"),
                         "--explain what-would-help is about the schedule"),
                        (("compile", FOLDER / "mnist.onnx", "--from", "spatial"), "enter with --from tensor")):
        _, error = call(*words, "--explain", "what-would-help", code=2)
        assert said in error
