# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`--explain layouts` says for each tensor what was chosen, what the runner-up costs and which kernels decide, in words and
as JSON, and changes nothing else."""
import json
from pathlib import Path

import pytest

from bert_base import Shape, transformer
from graph import save
from schema import errors
from small import convnet

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/spec/report.schema.json").read_text())["properties"]["layouts"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("explain") / "convnet.onnx"
    save(convnet(), path)
    return path


def explained(tensors, name):
    return next(tensor for tensor in tensors if tensor["names"][0] == name)


def block_of(text: str, name: str) -> list[str]:
    """The lines of one tensor."""
    return next(block for block in text.split("\n\n") if block.startswith(f"  {name} ")).splitlines()


def test_each_tensor_has_its_layout_the_runner_up_and_what_decides(call, model, tmp_path):
    text, _ = call("compile", model, "--explain", "layouts", "--json", "e.json")
    report = json.loads((tmp_path / "e.json").read_text())
    assert (report["machine"], report["precision"], report["solver"]) == ("tsp-v1", "fp16", "exact")
    layouts = report["layouts"]
    assert errors(layouts, SCHEMA) == []
    assert layouts["cycles"] == layouts["least_cycles"] < layouts["all_plain_cycles"]
    tensor = explained(layouts["tensors"], "relu_3")
    assert tensor["layout"]["text"] == "2 a row in 24 lanes: dim 3"
    assert tensor["runner_up"]["exact"] and tensor["runner_up"]["fits"]
    assert tensor["runner_up"]["layout"] != tensor["layout"]
    assert 0 <= tensor["runner_up"]["extra_cycles"] < tensor["if_plain"]["extra_cycles"]
    for other in (tensor["runner_up"], tensor["if_plain"]):
        kernels = sum(kernel["other_cycles"] - kernel["cycles"] for kernel in other["kernels"])
        assert kernels + other["extra_cycles_of_other_kernels"] == pytest.approx(other["extra_cycles"])
    lines = block_of(text, "relu_3, relu_0")
    assert lines[0] == "  relu_3, relu_0 [1, 12, 10, 12]"
    assert lines[1] == f"    layout     {tensor['layout']['text']}; {tensor['layout']['rows']} rows"
    assert any(line.startswith("    decided by relu_3 -") and "waits for accumulators 42 to 10" in line for line in lines)


def test_rows_that_hold_elements_more_than_once_are_replicas(call, model, tmp_path):
    call("compile", model, "--explain", "layouts", "--json", "e.json", "-q")
    layouts = json.loads((tmp_path / "e.json").read_text())["layouts"]
    replica = explained(layouts["tensors"], "x")["replica"]
    assert replica["rows_per_element"] > 1
    assert replica["without"]["extra_cycles"] > 0
    assert "relu_0" in [kernel["name"] for kernel in replica["without"]["kernels"]]
    assert explained(layouts["tensors"], "relu_1")["replica"] is None


def test_copies_name_the_reader_that_forces_them(call, tmp_path):
    save(transformer(Shape(layers=1, hidden=64, heads=4, sequence=16)), tmp_path / "bert.onnx")
    text, _ = call("compile", "bert.onnx", "--explain", "layouts", "--json", "e.json")
    copies = json.loads((tmp_path / "e.json").read_text())["layouts"]["copies"]
    columns = [copy for copy in copies if copy["columns"]]
    assert columns, "an attention installs its keys"
    for copy in columns:
        assert f"    {copy['name']}: columns, as {copy['columns_forced_by']} installs it; " in text


def test_a_run_prints_it_and_its_report_has_it(call, model, tmp_path):
    text, _ = call("run", model, "--cycles-only", "--explain", "layouts", "--json", "r.json")
    assert text.startswith(f"layouts of {model} on tsp-v1 in fp16, chosen by exact\n")
    assert "cycles measured" in text
    layouts = json.loads((tmp_path / "r.json").read_text())["layouts"]
    assert errors(layouts, SCHEMA) == [] and layouts["tensors"]


def test_it_changes_no_image_and_quiet_prints_nothing(call, model, tmp_path):
    call("compile", model, "-o", "a.mrp")
    assert call("compile", model, "-o", "b.mrp", "--explain", "layouts", "-q") == ("", "")
    assert (tmp_path / "a.mrp").read_bytes() == (tmp_path / "b.mrp").read_bytes()


def test_what_programs_read_from_the_standard_output_is_not_mixed_with_words(call, model):
    out, words = call("compile", model, "--explain", "layouts", "--json", "-")
    assert json.loads(out)["layouts"]["tensors"]
    assert words.startswith("layouts of ")


def test_other_layouts_than_the_least_are_explained_by_what_they_lose(call, model, tmp_path):
    text, _ = call("compile", model, "--layouts", "plain", "--explain", "layouts", "--json", "e.json")
    layouts = json.loads((tmp_path / "e.json").read_text())["layouts"]
    assert layouts["cycles"] == layouts["all_plain_cycles"] > layouts["least_cycles"]
    assert explained(layouts["tensors"], "relu_1")["runner_up"]["extra_cycles"] < 0
    assert "in the layouts of least cost" in text


def test_a_decision_that_is_not_known_is_named_with_those_that_are(call, model):
    _, said = call("compile", model, "--explain", "layout", code=2)
    assert said == "millrace: error: --explain: layout not in {layouts,cycles,what-would-help}; see `millrace compile --help`\n"
