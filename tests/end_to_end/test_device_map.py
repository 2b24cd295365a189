# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of a transformer on the GPU path, the rest on the grid: ONNX Runtime's values, one timeline, one report."""
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

import probe
from bert_base import Shape, transformer
from families import Net, decoder_model, grouped_query_step, swiglu
from oracle import relative_l2, run_millrace, save_model
from schema import errors

BOUND = 3e-3  # relative L2 in fp16, as test_families has it: all values in memory are rounded to 16 bits


SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "spec" / "report.schema.json").read_text())


def gpt2(layers: int = 2, count: int = 11, width: int = 48, heads: int = 3, words: int = 50):
    """GPT-2: norms first, one product for Q, K and V that is cut in three, a mask of booleans, tanh's Gelu."""
    g, depth = Net("gpt2", 3), width // heads
    x = g.add("Gather", g.normal((words, width), 1.0), g.input("ids", [1, count], np.int64), axis=0)
    x = g.add("Add", x, g.normal((1, count, width), 0.3))
    allowed = g.constant(np.tril(np.ones((1, 1, count, count), bool)))

    def norm(y):
        return g.add("LayerNormalization", y, g.uniform((width,), 0.8, 1.2), g.normal((width,), 0.1), axis=-1)

    for _ in range(layers):
        parts = g.add("Split", g.linear(norm(x), width, 3 * width), outputs=3, axis=2)
        q, k, v = (g.add("Transpose", g.reshape(part, 1, count, heads, depth), perm=[0, 2, 1, 3]) for part in parts)
        scores = g.add("MatMul", q, g.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.add("Div", scores, g.constant(np.float32(math.sqrt(depth))))
        scores = g.add("Where", allowed, scores, g.constant(np.float32(np.finfo(np.float32).min)))
        mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), v)
        mixed = g.reshape(g.add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, count, width)
        x = g.add("Add", x, g.linear(mixed, width, width))
        inner = g.linear(norm(x), width, 4 * width)
        cube = g.add("Mul", g.add("Pow", inner, g.constant(np.float32(3))), g.constant(np.float32(0.044715)))
        bent = g.add("Tanh", g.add("Mul", g.add("Add", inner, cube), g.constant(np.float32(math.sqrt(2 / math.pi)))))
        inner = g.add("Mul", g.add("Mul", inner, g.constant(np.float32(0.5))), g.add("Add", bent, g.constant(np.float32(1))))
        x = g.add("Add", x, g.linear(inner, 4 * width, width))
    g.output(g.add("Identity", norm(x), name="y"), [1, count, width])
    return g.model()


def with_sinks(count: int = 9, width: int = 64, heads: int = 8, groups: int = 2):
    """Grouped heads whose softmax has one more score per head, as gpt-oss writes it: appended, then cut off."""
    g, depth = Net("sinks", 5), width // heads
    x = g.input("x", [1, count, width])
    y = g.rms_norm(x, width)
    q = g.heads(g.linear(y, width, width, bias=False), count, heads, depth)
    wide = []
    for _ in range(2):
        part = g.heads(g.linear(y, width, groups * depth, bias=False), count, groups, depth)
        part = g.add("Expand", g.reshape(part, 1, groups, 1, count, depth),
                     g.constant(np.int64([1, groups, heads // groups, count, depth])))
        wide.append(g.reshape(part, 1, heads, count, depth))
    scores = g.add("Mul", g.add("MatMul", q, g.add("Transpose", wide[0], perm=[0, 1, 3, 2])),
                   g.constant(np.float32(depth ** -0.5)))
    scores = g.add("Add", scores, g.constant(np.triu(np.full((count, count), -1e4, np.float32), 1)[None, None]))
    sinks = g.add("Expand", g.reshape(g.normal((heads,), 1.0), 1, heads, 1, 1), g.constant(np.int64([1, heads, count, 1])))
    scores = g.add("Concat", scores, sinks, axis=3)
    most = g.add("ReduceMax", scores, axes=[-1], keepdims=1)
    weights = g.add("Softmax", g.add("Sub", scores, most), axis=-1)
    mixed = g.add("MatMul", g.slice(weights, 0, count, 3), wide[1])
    x = g.add("Add", x, g.linear(g.joined(mixed, count, width), width, width, bias=False))
    g.output(g.add("Add", x, swiglu(g, g.rms_norm(x, width), width), name="y"), [1, count, width])
    return g.model()


MODELS = {"gpt2": gpt2,
          "bert": lambda: transformer(Shape(layers=2, sequence=16, hidden=64, heads=4, inner=128, words=50), 1),
          "llama": lambda: decoder_model("llama", 2, count=10, heads=6, groups=2, width=48),
          "llama_step": grouped_query_step,
          "sinks": with_sinks}
LAYERS = {"gpt2": 2, "bert": 2, "llama": 1, "llama_step": 1, "sinks": 1}


def run(millrace, model, tmp_path, *flags):
    inputs = probe.seeded_inputs(model)
    got = run_millrace(millrace, save_model(model, tmp_path), "tsp-v1", "fp16", inputs, tmp_path, flags)
    return got, max(relative_l2(got.outputs[name], value) for name, value in probe.run(model, inputs).items())


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_on_the_gpu_and_the_rest_on_the_grid_has_onnx_runtimes_values(millrace, tmp_path, name, device):
    got, apart = run(millrace, MODELS[name](), tmp_path, "--device-map", "attention=gpu,ffn=grid", "--gpu", device)
    report = got.report
    assert apart <= BOUND
    assert report["predicted_cycles"] == report["measured_cycles"] > 0
    own = [step for step in report["host_kernels"] if step["assigned"] == "gpu"]
    assert len(own) == LAYERS[name]
    assert all(step["device"] == device and not step["left"] and not step["notes"] for step in own)
    # One kernel computes what is between the products; others round its operands, or bring them into their order.
    assert all(sum(kernel.startswith("attention_") for kernel in step["kernels"]) == 1 for step in own)
    assert not [kernel for step in own for kernel in step["kernels"] if kernel.startswith(("rows_", "reduce_"))]
    check_timeline(report)


def check_timeline(report):
    assert not errors(report, SCHEMA)
    line, steps = report["timeline"], report["steps"]
    grid = [entry for entry in line["entries"] if entry["kind"] == "grid"]
    assert [entry["cycles"] for entry in grid] == [step["measured_cycles"] for step in steps if step["kind"] == "grid"]
    assert line["grid_cycles"] == report["measured_cycles"], "nothing but cycles of the grid is in them"
    transfers = [entry for entry in line["entries"] if entry["kind"] == "transfer"]
    assert line["transfer_link_cycles"] == sum(entry["link_cycles"] for entry in transfers)
    assert transfers[0]["from"] == "host" and transfers[-1]["to"] == "host"
    for n, step in enumerate(steps):
        if step["device"] == "gpu":
            mine = [entry for entry in line["entries"] if entry["step"] == n and (entry.get("from"), entry.get("to")) != ("host", "grid")]
            way = [entry["kind"] for entry in mine]
            assert way.count("kernels") == 1 and way[0] == way[-1] == "transfer", "data come and results go"
            assert all("gpu" in (entry["from"], entry["to"]) for entry in mine if entry["kind"] == "transfer")
            kernels = mine[way.index("kernels")]
            assert kernels["estimated_seconds"] == pytest.approx(sum(one["estimated_seconds"] for one in kernels["launches"]))
    chip = line["estimated_chip"]
    for entry in line["entries"]:
        for one in entry.get("launches", []):
            share = min(1, one["programs"] / chip["processors"])
            work = max(one["bytes"] / chip["bytes_per_second"], one["matrix_flops"] / chip["matrix_flops_per_second"] / share,
                       one["other_flops"] / chip["other_flops_per_second"] / share)
            assert one["estimated_seconds"] == pytest.approx(chip["launch_seconds"] + work)
    if all(step["device"] in ("grid", "gpu") for step in steps):
        cycles = line["grid_cycles"] + line["transfer_link_cycles"]
        assert line["all_estimated_seconds"] == pytest.approx(cycles / report["clock_hertz"] + line["kernels_estimated_seconds"])


def test_transfers_are_what_the_step_reads_and_writes(millrace, tmp_path):
    """Q, K and V of 16 bits to the GPU, the result back, by the link's latency and rate."""
    got, _ = run(millrace, MODELS["gpt2"](), tmp_path, "--device-map", "attention=gpu")
    rows = 11 * 48 * 2
    moved = [(entry["from"], entry["to"], entry["bytes"]) for entry in got.report["timeline"]["entries"]
             if entry["kind"] == "transfer" and "gpu" in (entry["from"], entry["to"])]
    assert moved == [("grid", "gpu", 3 * rows), ("gpu", "grid", rows)] * 2


@pytest.mark.parametrize("kinds", ["ffn=gpu", "norm=gpu", "embedding=gpu", "product=gpu", "attention=cpu",
                                   "attention=gpu,ffn=gpu,norm=gpu,embedding=gpu,product=gpu", "attention=gpu,norm=cpu"])
def test_every_kind_may_leave_the_grid(millrace, tmp_path, kinds):
    got, apart = run(millrace, MODELS["llama"](), tmp_path, "--device-map", kinds)
    assert apart <= BOUND
    assert not errors(got.report, SCHEMA)
    devices = {entry.split("=")[1] for entry in kinds.split(",")}
    assert devices <= {step["device"] for step in got.report["steps"]}
    if devices == {"gpu"}:
        check_timeline(got.report)
    else:
        assert got.report["timeline"]["all_estimated_seconds"] is None, "nobody predicts a CPU"


@pytest.mark.parametrize("device", ["cpu", "emulate"])
@pytest.mark.parametrize("name", MODELS)
def test_products_on_the_gpu_use_tensor_cores_with_all_that_is_elementwise_behind_them(millrace, tmp_path, name, device):
    """A feed-forward part is as many kernels as it has products: bias, activation, gate and residual are parts of these."""
    kinds = "product=gpu" if name == "llama_step" else "ffn=gpu,product=gpu"
    got, apart = run(millrace, MODELS[name](), tmp_path, "--device-map", kinds, "--gpu", device)
    assert apart <= BOUND
    own = [step for step in got.report["host_kernels"] if step["assigned"] == "gpu"]
    assert own and all(step["device"] == device and not step["left"] and not step["notes"] for step in own)
    kernels = [kernel for step in own for kernel in step["kernels"]]
    assert any(kernel.startswith("product_") for kernel in kernels)
    assert not [kernel for kernel in kernels if not kernel.startswith(("product_", "copy_"))]
    launches = [one for entry in got.report["timeline"]["entries"] for one in entry.get("launches", [])]
    assert all(one["matrix_flops"] > 0 for one in launches if one["kernel"].startswith("product_"))
    if name != "llama_step":  # which has further outputs, of the grid
        check_timeline(got.report)


@pytest.mark.parametrize("kinds", ["default", "default,ffn=gpu", "embedding=grid,default"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "sinks"])
def test_the_default_policy_sends_what_it_says_and_the_report_says_why(millrace, tmp_path, name, kinds):
    if name == "sinks" and "embedding" in kinds:
        return  # it has none, and what is named must be there
    got, apart = run(millrace, MODELS[name](), tmp_path, "--device-map", kinds)
    assert apart <= BOUND and not errors(got.report, SCHEMA)
    placement = got.report["placement"]
    assert [row["device"] for row in placement] == [step["device"] for step in got.report["steps"]]
    sent = {work: row["why"] for row in placement for work in row["work"]}
    wanted = {"attention"} | ({"embedding"} if name != "sinks" and "grid" not in kinds else set())
    assert set(sent) == wanted | ({"ffn"} if "ffn" in kinds else set())
    assert all(sent[work] == "the default policy" for work in wanted) and "ffn" not in wanted
    assert all(row["why"] == "the map sends it nowhere else" for row in placement if row["device"] == "grid")


def test_the_default_policy_sends_nothing_of_a_model_without_such_work(millrace, tmp_path):
    g = Net("product", 1)
    g.output(g.linear(g.input("x", [4, 32]), 32, 16), [4, 16])
    got, _ = run(millrace, g.model(), tmp_path, "--device-map", "default")
    assert [row["device"] for row in got.report["placement"]] == ["grid"] and got.report["timeline"] is None


def test_without_a_map_nothing_changes(millrace, tmp_path):
    plain, _ = run(millrace, MODELS["llama"](), tmp_path)
    stays, _ = run(millrace, MODELS["llama"](), tmp_path, "--device-map", "attention=grid,ffn=grid")
    assert plain.report["timeline"] is None and stays.report["timeline"] is None
    assert [step["device"] for step in plain.report["steps"]] == ["grid"]
    assert plain.report["measured_cycles"] == stays.report["measured_cycles"]


def test_an_image_keeps_devices_and_the_timeline(millrace, tmp_path):
    model = save_model(MODELS["llama"](), tmp_path)
    run_of, image, text = ["run", model], tmp_path / "a.mrp", tmp_path / "a.sched"
    flags = ["--machine", "tsp-v1", "--device-map", "attention=gpu"]
    direct = json.loads(subprocess.run([millrace, *run_of, *flags, "-q", "--json", "-"], capture_output=True, check=True).stdout)
    subprocess.run([millrace, "compile", model, *flags, "-q", "-o", image], check=True)
    simulated = json.loads(subprocess.run([millrace, "simulate", image, "-q", "--json", "-"], capture_output=True,
                                          check=True).stdout)
    assert simulated["timeline"] == direct["timeline"]
    assert [step["device"] for step in simulated["steps"]] == [step["device"] for step in direct["steps"]]
    subprocess.run([millrace, "compile", model, *flags, "-q", "--to", "spatial", "-o", tmp_path / "a.mlir"], check=True)
    assert 'device = "gpu"' in (tmp_path / "a.mlir").read_text()
    subprocess.run([millrace, "compile", tmp_path / "a.mlir", "--from", "spatial", "--machine", "tsp-v1", "-q", "--to",
                    "sched", "-o", text], check=True)
    assert 'step gpu "host_1"' in text.read_text()


@pytest.mark.parametrize("kinds, code, said", [
    ("attention", 2, "--device-map 'attention' is not kind=device or default; kinds are attention, ffn, embedding, sampling, norm, product, devices "
                     "grid, gpu and cpu"),
    ("heads=gpu", 2, "--device-map has no kind 'heads'; kinds are attention, ffn, embedding, sampling, norm, product"),
    ("ffn=tpu", 2, "--device-map has no device 'tpu'; devices are grid, gpu and cpu"),
    ("ffn=gpu,ffn=grid", 2, "--device-map names ffn twice; keep one"),
    ("attention=gpu", 3, "--device-map attention: the model has none; it has product (1)"),
])
def test_a_map_without_sense_is_refused(millrace, tmp_path, kinds, code, said):
    g = Net("product", 1)
    g.output(g.linear(g.input("x", [4, 32]), 32, 16), [4, 16])
    done = subprocess.run([millrace, "run", save_model(g.model(), tmp_path), "--machine", "tsp-v1", "--device-map", kinds],
                          capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
