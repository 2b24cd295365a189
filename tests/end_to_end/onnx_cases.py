# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own test cases, run by `millrace batch`, and what became of each.

usage: onnx_cases.py [--machine M] [--precision P] [--gpu DEVICE] [--slow] [--update] [--only REGEX] [--jobs N]

Prints what differs from the table `onnx_cases.tsv` beside this file, which is true of tsp-v1 in
fp16; --update writes the table anew. A line of it is

    NAME  RESULT  DETAIL      separated by tabs

with RESULT one of
    grid      right, and every node ran on the grid
    mixed     right, some nodes on the grid and those in DETAIL on the host
    host      right, and every node ran on the host
    refused   exit code 3 or 4 with the error in DETAIL
    wrong, crashed, timed out, broken      which none may be; DETAIL says how

One case of four is compiled as by default, the others with --effort 0.

A case whose inputs give shapes, axes or the like at run time, and which is refused as these are not
constant, has a second line `NAME [INPUT, ...]` for the same case with these inputs as constants of the model.

What is right: integers and booleans equal ONNX's expectation. So do infinities and NaN, in place and
sign. A finite float lies within ONNX's own rtol and atol, more by what the roundings of the
precision do: one of the result, and those of inputs and of what kernels store as far as they move
it (`difference`, `response_to_rounding`).
"""
from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from campaigns import effort_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_suffix(".tsv")
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
RIGHT = ("grid", "mixed", "host")
# Large windows of one channel: half a minute of scheduling and more. They run with --slow, are no
# rows of the table, and no test waits for them.
SLOW = re.compile("pool_3d_dilations.*_large|MaxPool[12]d_stride_padding_dilation")


@dataclass
class Case:
    """A model, its inputs and outputs as arrays (None: no tensor, or of a type numpy has no name for)."""
    name: str
    model: onnx.ModelProto
    inputs: list
    outputs: list
    rtol: float
    atol: float
    constants: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        return self.name + (f" [{', '.join(self.constants)}]" if self.constants else "")


def collect() -> list[Case]:
    """Every node test of the installed onnx, and the whole models that lie beside them as files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        cases = [Case(c.name, c.model, *c.data_sets[0], c.rtol, c.atol) for c in collect_testcases(None)]
    for folder in sorted(DATA.glob("*/test_*")):
        sets = sorted(folder.glob("test_data_set_*"))
        if (folder / "model.onnx").is_file() and sets:
            read = lambda kind: [load_tensor(sets[0] / f"{kind}_{k}.pb")
                                 for k in range(len(list(sets[0].glob(f"{kind}_*.pb"))))]
            cases.append(Case(f"{folder.parent.name}/{folder.name}", onnx.load(folder / "model.onnx"),
                              read("input"), read("output"), 1e-3, 1e-7))
    return cases


def load_tensor(file: Path):
    """A tensor of a .pb file; None if it holds something else."""
    try:
        return onnx.load_tensor(file)
    except Exception:  # a sequence or optional parses as no tensor
        return None


def as_array(value) -> np.ndarray | None:
    """A value of a case as an array that numpy.save writes as the element type says; None if none does."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind in "OUS":
        return None
    return np.asarray(value, order="C")


def with_constants(case: Case) -> Case | None:
    """The case with shapes, axes, scales and other scalars behind its first input as initializers."""
    model, names, inputs = onnx.ModelProto(), [], list(case.inputs)
    model.CopyFrom(case.model)
    for k in range(len(inputs) - 1, 0, -1):
        value, array = model.graph.input[k], as_array(inputs[k])
        if array is None:
            continue
        if array.dtype == np.int64 or array.size <= 1 or value.name in ("scales", "sizes", "roi"):
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            names.insert(0, value.name)
            del model.graph.input[k], inputs[k]
    return Case(case.name, model, inputs, case.outputs, case.rtol, case.atol, tuple(names)) if names else None


# ---- running


@dataclass
class Options:
    millrace: Path
    machine: str = "tsp-v1"
    precision: str = "fp16"
    gpu: str = "off"  # where host steps run as generated kernels
    jobs: int = 2
    seconds: float = 60  # that one case may take
    isSlow: bool = False  # run those of SLOW, too


def write_job(case: Case, folder: Path, options: Options, effort: int = 1) -> dict:
    """Puts a case into an empty folder; the line for `millrace batch`."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    words = [folder / "model.onnx", "--machine", options.machine, "--precision", options.precision,
             "--gpu", options.gpu, "--effort", effort, "--output-dir", folder]
    for k, value in enumerate(case.inputs):
        if (array := as_array(value)) is not None:
            np.save(folder / f"in{k}.npy", array)
            words += ["--input", f"{case.model.graph.input[k].name}={folder / f'in{k}.npy'}"]
    return {"name": case.row, "options": [str(word) for word in words]}


def run_cases(cases: list[Case], options: Options, look=lambda row, result: None) -> dict[str, tuple[str, str]]:
    """Result and detail of every case, by row. `look` gets each line of the batch."""
    folder = Path(tempfile.mkdtemp())
    try:
        lines = [json.dumps(write_job(case, folder / str(k), options, effort_of(k))) for k, case in enumerate(cases)]
        (folder / "jobs.jsonl").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [options.millrace, "batch", folder / "jobs.jsonl", "--json-lines", folder / "results.jsonl",
             "--jobs", str(options.jobs), "--job-seconds", str(options.seconds), "--job-mebibytes", "4096"],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"millrace batch: exit code {done.returncode}: {done.stderr}")
        results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        for case, result in zip(cases, results, strict=True):
            look(case.row, result)
        return {case.row: judge(case, result, folder / str(k), options)
                for k, (case, result) in enumerate(zip(cases, results, strict=True))}
    finally:
        shutil.rmtree(folder)


def judge(case: Case, result: dict, folder: Path, options: Options) -> tuple[str, str]:
    """Result and detail of one case."""
    if result["outcome"] == "timed out":
        return "timed out", ""
    if result["outcome"] == "crashed":
        return "crashed", f"signal {result['signal']}"
    if result["exit_code"] in (3, 4):
        text = result["error"].replace(f"{folder / 'model.onnx'}", "").replace(str(folder), "")
        return "refused", re.sub(r"\s+", " ", text.removeprefix(": ").removeprefix(f" on {options.machine}: "))
    if result["exit_code"] != 0:
        return "broken", f"exit code {result['exit_code']}: {result['error']}"
    report = result["report"]
    responses = []

    def reach(k):
        responses.extend([] if responses else response_to_rounding(case, len(report["kernels"]), options.precision))
        return np.broadcast_to(responses[k], np.shape(expected))
    files = {row["name"]: row["file"] for row in report["outputs"]}
    for k, (output, value) in enumerate(zip(case.model.graph.output, case.outputs)):
        expected = as_array(value)
        if expected is None:
            return "wrong", f"output '{output.name}' is no tensor of numbers, and it was not refused"
        if output.name not in files:
            return "wrong", f"output '{output.name}' is missing"
        got = load_output(files[output.name], expected)
        if error := difference(got, expected, lambda k=k: reach(k), case, options.precision):
            return "wrong", f"output '{output.name}': {error}"
    host = report["host_ops"]
    if not host:
        return "grid", ""
    return ("mixed" if report["kernels"] else "host"), ", ".join(sorted(set(host)))


def load_output(file: str, expected: np.ndarray) -> np.ndarray:
    got = np.load(file)
    if got.dtype.kind == "V" and expected.dtype.itemsize == got.dtype.itemsize:  # numpy has no bfloat16
        got = got.view(expected.dtype)
    return got


# ---- comparing

# Half the distance of two neighbours near 1: what storing a value in a type changes at most, relative.
ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-8, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24,
            "float64": 2.0**-53}
LEAST = {"fp16": 2.0**-25, "bf16": 2.0**-134}  # half of the least number that is not 0
DRAWS = 16  # of rounding errors


def difference(got: np.ndarray, expected: np.ndarray, reach, case: Case, precision: str) -> str:
    """What is wrong with an output; empty if it is right. `reach()` gives the response to roundings."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind in "biu":
        wrong = got != expected
        return f"{wrong.sum()} of {wrong.size} elements differ" if wrong.any() else ""
    kind = str(expected.dtype)
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    special = ~np.isfinite(expected)
    same = np.array_equal(got[special], expected[special], equal_nan=True)
    if not same or not np.isfinite(got[~special]).all():
        return "infinities or NaN differ"
    got, expected = got[~special], expected[~special]
    error, size = np.abs(got - expected), np.abs(expected)
    if not error.size:
        return ""
    # The result is rounded as it is stored, and both it and the expectation as the model's type is.
    allowed = (case.rtol + ROUNDING[precision] + 2 * ROUNDING[kind]) * size + case.atol + LEAST[precision]
    if (error > allowed).any():
        # Where roundings leave less than four bits of the result, nothing of it is right.
        response = np.minimum(reach()[~special], size.max() / 16)
        allowed += 3 * response
        if error.size >= DRAWS and np.linalg.norm(error) > np.linalg.norm(allowed - 2 * response):
            allowed[:] = 0  # each within its bounds, but all of them at their ends: no rounding does that
    worst = np.argmax(error - allowed)
    if error[worst] <= allowed[worst]:
        return ""
    norm = np.linalg.norm(size)
    return (f"{error[worst]:.2g} from {size[worst]:.2g}, where {allowed[worst]:.2g} is allowed; relative L2 "
            f"{np.linalg.norm(error) / norm if norm else np.inf:.2g}")


def response_to_rounding(case: Case, kernels: int, precision: str) -> list:
    """How far roundings move each element of each output: root mean squares over draws of errors.

    An input that is stored with a relative error of at most u moves an output by J x u. Errors are
    independent, of either sign and at most u; the reference is run with +-u on every element, which
    is sqrt(3) times their standard deviation. A kernel stores its result once, an error of the same
    kind, so that with K kernels variances add up to K + 1 times that of the inputs.
    """
    from onnx.reference import ReferenceEvaluator
    try:
        session, random = ReferenceEvaluator(case.model), np.random.default_rng(0)
        names = [value.name for value in case.model.graph.input]
        given = {name: as_array(value) for name, value in zip(names, case.inputs)}
        exact = session.run(None, given)
        total = [np.zeros(np.shape(value)) for value in exact]
        for _ in range(DRAWS):
            moved = session.run(None, {name: disturbed(value, ROUNDING[precision], random)
                                       for name, value in given.items()})
            for sum_, x, y in zip(total, moved, exact):
                with np.errstate(all="ignore"):
                    sum_ += np.nan_to_num(x.astype(np.float64) - y.astype(np.float64), posinf=0, neginf=0)**2
        return [np.sqrt(value / DRAWS * (kernels + 1)) for value in total]
    except Exception:  # what the reference cannot run is judged without
        return [0.0 for _ in case.outputs]


def disturbed(value, rounding: float, random) -> np.ndarray:
    if value.dtype.kind in "biu":
        return value
    moved = value.astype(np.float64) * (1 + rounding * random.choice([-1, 1], value.shape))
    return moved.astype(value.dtype)


def run_all(options: Options, only: str = "") -> dict[str, tuple[str, str]]:
    """Result and detail of every case whose name matches, by row, in the order of the names."""
    cases = [case for case in collect() if is_chosen(case.name, only, options.isSlow)]
    rows = run_cases(cases, options)
    refused = [case for case in cases if "constant" in rows[case.row][1] and rows[case.row][0] == "refused"]
    rows |= run_cases([second for case in refused if (second := with_constants(case))], options)
    return dict(sorted(rows.items()))


def is_chosen(name: str, only: str, isSlow: bool) -> bool:
    return bool(re.search(only, name)) and (isSlow or not SLOW.search(name))


def read_table() -> dict[str, tuple[str, str]]:
    return {name: (result, detail)
            for name, result, detail in (line.split("\t") for line in TABLE.read_text().splitlines())}


def write_table(rows: dict[str, tuple[str, str]], file: Path) -> None:
    file.write_text("".join(f"{name}\t{result}\t{detail}\n" for name, (result, detail) in rows.items()))


def changes(table: dict[str, tuple[str, str]], rows: dict[str, tuple[str, str]]) -> list[str]:
    """A line for every row that is new, gone or another."""
    text = lambda row: " ".join(row) if row else "no such case"
    return [f"{name}: the table says: {text(table.get(name))}; now: {text(rows.get(name))}"
            for name in sorted({*table, *rows}) if table.get(name) != rows.get(name)]


def summary(rows: dict[str, tuple[str, str]]) -> str:
    """How many cases have which result; those that are right only with constants apart."""
    first = [result for name, (result, _) in rows.items() if "[" not in name]
    second = [result for name, (result, _) in rows.items() if "[" in name]
    return "; ".join(f"{title}: " + ", ".join(f"{list_.count(kind)} {kind}" for kind in sorted(set(list_)))
                     for title, list_ in [(f"{len(first)} cases", first), ("with constants", second)] if list_)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", type=Path, default=ROOT / "build/bin/millrace")
    parser.add_argument("--machine", default="tsp-v1")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--gpu", default=Options.gpu)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="that one case may take")
    parser.add_argument("--slow", action="store_true", help="run those that take long, too")
    parser.add_argument("--only", default="", help="cases whose name holds this regular expression")
    parser.add_argument("--output", type=Path, help="file for the table of this run")
    parser.add_argument("--update", action="store_true", help="make it the table in the tree, as far as it goes")
    given = parser.parse_args()
    options = Options(given.millrace, given.machine, given.precision, given.gpu, given.jobs, given.seconds, given.slow)
    rows = run_all(options, given.only)
    if given.output:
        write_table(rows, given.output)
    table = read_table() if TABLE.exists() else {}
    before = {name: row for name, row in table.items() if is_chosen(name, given.only, given.slow)}
    if given.update:
        kept = {name: row for name, row in table.items() if name not in before}
        kept |= {name: row for name, row in rows.items() if not SLOW.search(name)}
        write_table(dict(sorted(kept.items())), TABLE)
    print(*(changes(before, rows) if table else []), summary(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
