# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random attention blocks and transformer layers, compared on a machine with ONNX Runtime.

    python tests/end_to_end/random_transformers.py FIRST COUNT MACHINE [BINARY [PRECISION]]

Model number n is `transformer_models.draw_model(n)`. Values must be ONNX Runtime's within what
roundings to 16 bits explain, infinities and NaN in their places. Of a model that fails, nodes are
taken away as long as what is left fails in the same way (a node's results become inputs); it is
printed, and written to FAILED when that environment variable names a folder. Exit code 1 when a value
differs or a run fails otherwise than by a refusal (exit code 4).
"""
from __future__ import annotations

import collections
import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from campaigns import effort_of
from transformer_models import Model, draw_model

# A unit of the last place, relative to values of 1 to 2.
UNIT = {"fp16": 2.0**-10, "bf16": 2.0**-7}
EXACT = 2.0**-22  # what the machine does in fp32


# --- judging ---


def evaluate(m: Model, model: onnx.ModelProto | None = None) -> list[np.ndarray]:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    quiet.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession((model or m.proto()).SerializeToString(), quiet)
    taken = {value.name for value in session.get_inputs()}
    return session.run(m.outputs, {name: array for name, array in m.inputs.items() if name in taken})


MASKED = 10000.0  # what com.microsoft's operations subtract from scores that a mask hides


def seen_keys(m: Model, node: onnx.NodeProto, values: dict) -> tuple[np.ndarray, np.ndarray] | None:
    """What a com.microsoft operation's mask leaves, and what comes before a query: each batch x queries x keys."""
    at = {"Attention": 3, "MultiHeadAttention": 4}.get(node.op_type)
    if node.domain != "com.microsoft" or at is None or len(node.input) <= at or not node.input[at]:
        return None
    first = node.input[0]
    batch, queries, _ = values.get(first, m.inputs.get(first)).shape
    mask = m.inputs[node.input[at]]
    if mask.ndim == 1:  # counts of at least 1
        return None
    mask = np.broadcast_to(mask[:, None] if mask.ndim == 2 else mask, (batch, queries, mask.shape[-1])) > 0
    before = np.ones(mask.shape[1:], bool)
    if any(a.name == "unidirectional" and a.i for a in node.attribute):
        before = np.tril(before, mask.shape[-1] - queries)
    return mask, np.broadcast_to(before, mask.shape)


def leaves_range(m: Model, node: onnx.NodeProto, values: dict) -> bool:
    """Whether a bias takes all that a query sees to the lowest number, where nothing is told apart in 16 bits."""
    if (seen := seen_keys(m, node, values)) is None or not node.input[5:] or not node.input[5]:
        return False
    name = node.input[5]
    bias = values.get(name, m.inputs.get(name, m.constants.get(name)))
    mask, before = seen
    low = np.isfinite(bias) & (bias < -BEYOND)
    return bool((low | ~(mask & before)[:, None]).all(-1).any() and low.any())


def hidden_rows(m: Model, node: onnx.NodeProto, values: dict) -> np.ndarray | None:
    """Where a mask hides all keys that a query of a com.microsoft operation sees: batch x 1 x queries x keys.

    There all scores are near -10000, and rounding them to 16 bits takes most of what tells them apart; it happens
    within the node, where no rounding of a node's results reaches.
    """
    if (seen := seen_keys(m, node, values)) is None:
        return None
    mask, before = seen
    rows = ~(mask & before).any(-1, keepdims=True)
    return (np.broadcast_to(rows, mask.shape))[:, None] if rows.any() else None


def rounded(m: Model, values: dict, seed: int, unit: float) -> Model:
    """The model with every real number off by up to a unit of the last place of what holds it.

    `values`: what every node of it gives.
    """
    random = np.random.default_rng(seed)

    def factor(array, unit):
        off = random.uniform(-1, 1, array.shape) * unit
        if largest(array) > 1e37:  # the lowest number does not become infinite
            off = -np.abs(off)
        return (1 + off).astype(np.float32)

    def disturb(name, array):
        if any(node.op_type == "Pow" and name == node.input[1] for node in m.nodes):
            return array  # a square stays one
        is_angle = any(name in node.input and node.output[0] in m.exact for node in m.nodes)
        return array * factor(array, EXACT if is_angle else unit) if array.dtype == np.float32 else array

    less = Model()
    less.outputs = m.outputs
    with np.errstate(all="ignore"):
        less.inputs = {name: disturb(name, array) for name, array in m.inputs.items()}
        less.constants = {name: disturb(name, array) for name, array in m.constants.items()}
    for node in m.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if (rows := hidden_rows(m, node, values)) is not None:
            noise = (rows * random.uniform(-1, 1, rows.shape) * unit * MASKED).astype(np.float32)
            less.constants[node.name + ".bias"] = noise
            copy.input.extend([""] * (6 - len(copy.input)))
            if node.input[5:] and node.input[5]:
                less.nodes.append(helper.make_node("Add", [node.input[5], node.name + ".bias"], [node.name + ".biases"]))
            copy.input[5] = node.name + (".biases" if node.input[5:] and node.input[5] else ".bias")
        less.nodes.append(copy)
        for i, name in enumerate(node.output):
            array = values.get(name)
            if array is None or array.dtype != np.float32:
                continue
            copy.output[i] = name + ".exact"
            less.constants[name + ".factor"] = factor(array, EXACT if name in m.exact else unit)
            less.nodes.append(helper.make_node("Mul", [name + ".exact", name + ".factor"],
                                               [name + ".near" if name in m.steps else name]))
            if name in m.steps:  # a value at the border of two steps may fall to either
                less.constants[name + ".step"] = (m.steps[name] * random.integers(-1, 2, array.shape)).astype(np.float32)
                less.nodes.append(helper.make_node("Add", [name + ".near", name + ".step"], [name]))
    return less


def values_of(m: Model) -> dict[str, np.ndarray]:
    """What every node gives."""
    every = Model()
    every.nodes, every.constants, every.inputs = m.nodes, m.constants, m.inputs
    every.outputs = [name for node in m.nodes for name in node.output]
    model = every.proto()
    for output in model.graph.output:  # ONNX Runtime knows the types
        output.ClearField("type")
    return dict(zip(every.outputs, evaluate(every, model)))


@dataclasses.dataclass
class Verdict:
    kind: str  # "agrees", "refused", "differs", "fails", "skipped"
    detail: str = ""


def largest(array) -> float:
    """Of what is finite."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


NOISES, SAFETY = 4, 4
MORE_NOISES = 40  # before a value is called different: a row that roundings decide may fall the same way four times
BEYOND = 30000.0  # values that 16 bits may not hold


def bounds_of(m: Model, expected, unit: float, noises: int = NOISES):
    """Per output: what roundings explain, and where infinities and NaN stand whatever they are."""
    values = values_of(m)
    bounds = [2 * unit * largest(array) for array in expected]
    steady = [np.ones(array.shape, bool) for array in expected]
    for seed in range(noises):
        for i, array in enumerate(evaluate(rounded(m, values, seed, unit))):
            both = np.isfinite(array) & np.isfinite(expected[i])
            error = np.abs(np.where(both, array, 0).astype(np.float64) - np.where(both, expected[i], 0))
            bounds[i] = max(bounds[i], SAFETY * float(error.max(initial=0)))
            steady[i] &= both | (array == expected[i]) | (np.isnan(array) & np.isnan(expected[i]))
    return bounds, steady


def difference(got, expected, bound, steady) -> str:
    """Nothing, or how a value departs."""
    if (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return f"is {got.dtype}{list(got.shape)}, not {expected.dtype}{list(expected.shape)}"
    special = ~np.isfinite(expected)
    wrong = steady & ((special & ~((got == expected) | (np.isnan(got) & np.isnan(expected)))) |
                      (~special & ~np.isfinite(got)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"at {list(at)} is {got[at]}, not {expected[at]} ({int(wrong.sum())} of {wrong.size})"
    both = np.isfinite(got) & ~special
    error = np.abs(np.where(both, got, 0).astype(np.float64) - np.where(both, expected, 0)).max(initial=0)
    if error > bound:
        return f"by {error:.2e} (bound {bound:.2e}, values up to {largest(expected):.2e})"
    return ""


def departs_from_onnx(m: Model, inside: dict) -> bool:
    """Whether ONNX Runtime's Attention is not what ONNX's own implementation gives.

    Its causal mask is the lowest number, not -inf: where infinite keys and a mask take all scores of a row to -inf, it
    attends to keys that come later. ONNX gives NaN there, or 0.
    """
    for node in m.nodes:
        if node.op_type != "Attention" or node.domain:
            continue
        every = {**m.inputs, **m.constants, **inside}
        given = {name: every[name] for name in node.input if name}
        if all(np.isfinite(array).all() for name, array in given.items() if name != (list(node.input) + [""] * 4)[3]):
            continue
        alone = copied(m)
        alone.nodes, alone.inputs, alone.constants, alone.outputs = [node], given, {}, [node.output[0]]
        with np.errstate(all="ignore"):
            defined = ReferenceEvaluator(alone.proto()).run(None, given)[0]
        if not np.allclose(defined, inside[node.output[0]], rtol=1e-3, atol=1e-3, equal_nan=True):
            return True
    return False


def judge(m: Model, machine: str, millrace: str, folder: Path, precision: str = "fp16",
          effort: int = 1) -> Verdict:
    try:
        expected = evaluate(m)
        inside = values_of(m)
    except Exception as refusal:  # pylint: disable=broad-except  (of whatever kind ONNX Runtime raises)
        return Verdict("skipped", f"ONNX Runtime: {str(refusal)[:200]}")
    for node in m.nodes:
        # The largest or the lowest whole number, or zero: ONNX leaves it open, processors differ.
        if node.op_type == "QuantizeLinear" and np.isnan(inside.get(node.input[0], m.inputs.get(node.input[0]))).any():
            return Verdict("skipped", "NaN is quantised")
        # ONNX Runtime takes no bias beside a past, so that how these scores round cannot be said.
        if len(node.input) > 4 and node.op_type == "Attention" and hidden_rows(m, node, inside) is not None:
            return Verdict("skipped", "all keys are hidden beside a past")
        if leaves_range(m, node, inside):
            return Verdict("skipped", "values beyond fp16")
    if departs_from_onnx(m, inside):
        return Verdict("skipped", "ONNX Runtime attends to later keys")
    for name, array in inside.items():
        if array.dtype == np.float32 and name not in m.exact:
            sizes = np.abs(array[np.isfinite(array)])
            if ((sizes > BEYOND) & (sizes < 1e37)).any() or name in m.outputs and (sizes > BEYOND).any():
                return Verdict("skipped", "values beyond fp16")
    bounds, steady = bounds_of(m, expected, UNIT[precision])
    if any(places.mean() < 0.5 for places in steady):
        return Verdict("skipped", "roundings decide where infinities are")
    onnx.save(m.proto(), folder / "model.onnx")
    command = [millrace, "run", str(folder / "model.onnx"), "--machine", machine, "--check",
               "--precision", precision, "--effort", str(effort), "--output-dir", str(folder / "outputs")]
    taken = m.taken()
    for name, array in m.inputs.items():
        if name in taken:
            np.save(folder / f"{name}.npy", array)
            command += ["--input", f"{name}={folder / name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 4:
        return Verdict("refused", done.stderr.strip().splitlines()[-1])
    if done.returncode:
        return Verdict("fails", f"exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    def departs(bounds, steady) -> str:
        for name, array, bound, places in zip(m.outputs, expected, bounds, steady):
            if wrong := difference(np.load(folder / "outputs" / f"{name}.npy"), array, bound, places):
                return f"{name} {wrong}"
        return ""

    wrong = departs(bounds, steady) and departs(*bounds_of(m, expected, UNIT[precision], MORE_NOISES))
    return Verdict("differs", wrong) if wrong else Verdict("agrees")


# --- reducing ---


def pruned(m: Model) -> Model:
    """Without nodes that no output needs."""
    needed, nodes = set(m.outputs), []
    for node in reversed(m.nodes):
        if needed.intersection(node.output):
            nodes.insert(0, node)
            needed.update(node.input)
    m.nodes = nodes
    return m


def copied(m: Model) -> Model:
    less = Model()
    less.nodes, less.constants, less.inputs = list(m.nodes), dict(m.constants), dict(m.inputs)
    less.exact, less.steps, less.outputs, less.tags = m.exact, m.steps, list(m.outputs), m.tags
    return less


def smaller(m: Model):
    """Models with less: one output, an earlier output, a node's results as inputs."""
    for name in m.outputs if len(m.outputs) > 1 else []:
        less = copied(m)
        less.outputs = [name]
        yield pruned(less)
    values = values_of(m)
    last = m.nodes[-1]
    for name in last.input:
        if len(m.outputs) == 1 and name in values and values[name].dtype == np.float32:
            less = copied(m)
            less.outputs = [name]
            yield pruned(less)
    for node in m.nodes:
        if set(node.output) & set(m.outputs):
            continue
        less = copied(m)
        less.nodes = [other for other in m.nodes if other is not node]
        less.inputs |= {name: values[name] for name in node.output if name}
        yield pruned(less)


def reduced(m: Model, verdict: Verdict, judged) -> tuple[Model, Verdict]:
    """As few nodes as fail in the same way."""
    changed = True
    while changed:
        changed = False
        for less in smaller(m):
            if not less.nodes:
                continue
            again = judged(less)
            if again.kind == verdict.kind:
                m, verdict, changed = less, again, True
                break
    return m, verdict


def text(m: Model) -> str:
    """The model for people: a line per node, small constants and kinds of inputs."""
    def operand(name):
        array = m.constants.get(name)
        if array is not None:
            return str(array.tolist()) if array.size <= 6 else f"{name}:{array.dtype}{list(array.shape)}"
        array = m.inputs.get(name)
        return name if array is None else f"{name}:{array.dtype}{list(array.shape)}"

    lines = [f"    # {' '.join(m.tags)}"]
    for node in m.nodes:
        options = " ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
        lines.append(f"    {', '.join(node.output)} = {node.op_type}({', '.join(map(operand, node.input))}) {options}")
    return "\n".join([*lines, f"    outputs {m.outputs}"])


def keep(m: Model, number: int) -> None:
    """Model and inputs in the folder FAILED, if there is one."""
    if folder := os.environ.get("FAILED"):
        place = Path(folder) / str(number)
        place.mkdir(parents=True, exist_ok=True)
        onnx.save(m.proto(), place / "model.onnx")
        for name, array in m.inputs.items():
            if name in m.taken():
                np.save(place / f"{name}.npy", array)


def campaign(first: int, count: int, machine: str, millrace: str, report=print, precision="fp16",
             reduces=True) -> dict[str, int]:
    """Judges `count` models from number `first` on; how many of each verdict."""
    counts = collections.Counter(agrees=0, refused=0, skipped=0, differs=0, fails=0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            def judged(m, effort=effort_of(number)):
                return judge(m, machine, millrace, Path(folder), precision, effort)
            m = draw_model(number)
            verdict = judged(m)
            counts[verdict.kind] += 1
            if verdict.kind == "skipped":
                report(f"model {number} skipped: {verdict.detail}")
            if verdict.kind in ("differs", "fails", "refused"):
                m, verdict = reduced(m, verdict, judged) if reduces else (m, verdict)
                report(f"model {number} {verdict.kind}: {verdict.detail}\n{text(m)}")
                keep(m, number)
    return dict(counts)


def main() -> int:
    if len(sys.argv) not in (4, 5, 6) or sys.argv[5:] not in ([], *([known] for known in UNIT)):
        print(__doc__, file=sys.stderr)
        return 2
    first, count, machine = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    binary, precision = (sys.argv[4:] + ["build/bin/millrace", "fp16"][len(sys.argv) - 4:])
    counts = campaign(first, count, machine, binary, lambda line: print(line, flush=True), precision)
    print(f"{count} transformers on {machine} in {precision}: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return 1 if counts["differs"] or counts["fails"] else 0


if __name__ == "__main__":
    sys.exit(main())
