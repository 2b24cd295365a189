# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine files that say nothing, too much, or something that contradicts itself."""
from bad_inputs.case import Workplace, case


def machine(kind: str, text: str | bytes, *more) -> None:
    """A machine.yaml; `{}` stands for the first lines of a variant of tsp-v1."""
    @case("machine", kind)
    def _(place: Workplace):
        place.fixture("mnist.onnx")
        start = "name: variant\nbase: tsp-v1\n"
        place.write("machine.yaml", text.replace("{}", start) if isinstance(text, str) else text)
        return ["run", "mnist.onnx", "--machine", "machine.yaml", *more]


def option(kind: str, *arguments) -> None:
    @case("machine", kind)
    def _(place: Workplace):
        place.fixture("mnist.onnx")
        return ["run", "mnist.onnx", *arguments]


option("unknown machine", "--machine", "tsp-vl")
option("machine file that does not exist", "--machine", "my.yaml")
option("`--set` without a value", "--set", "memory.slices")
option("`--set` of an unknown key", "--set", "memory.slicez=16")
option("`--set` out of range", "--set", "vxm.alus=0")
option("several `--set` that are wrong", "--set", "vxm.alus=0", "--set", "streams=many", "--set",
       "memory.slices=16")
option("several unknown keys", "--set", "memory.slicez=16", "--set", "frobnication=1")
option("`--set` against the machine's other numbers", "--machine", "tsp-v1", "--set", "mxm.rows=128", "--set",
       "mxm.columns=1024", "--set", "memory.slices=45")
option("columns that are installed in no whole groups", "--set", "mxm.columns_per_install=8")
option("results that would leave before the last column is used", "--set", "superlanes=64", "--set",
       "mxm.rows=1024", "--set", "mxm.columns=1024")
option("fewer slices than an install takes vectors", "--set", "memory.slices=12")
option("a format that is not multiplied", "--set", "mxm.formats.fp32.planes=4", "--set",
       "mxm.formats.fp32.lanes_per_pass=320")
option("more PEs than links between all allow", "--set", "fabric.topology=full", "--set", "fabric.rows=65535")
option("a machine that no computer holds", "--set", "latency.hop=100000", "--set", "memory.rows_per_bank=16777216")
machine("empty machine file", "")
machine("machine file that is no YAML", "name: [x\n")
machine("machine file of random bytes", bytes(range(128, 160)))
machine("machine without a base that lacks a key", "name: x\nclock: 1 GHz\n")
machine("unknown base", "name: x\nbase: tsp-v9\n")
machine("base of itself", "name: x\nbase: machine.yaml\n")
machine("unknown key", "{}memory: { slice: 44 }\n")
machine("unknown section", "{}memry: { slices: 44 }\n")
machine("key given twice", "{}streams: 32\nstreams: 64\n")
machine("value for a section", "{}memory: 220 MiB\n")
machine("list for a value", "{}streams: [32, 32]\n")
machine("value that is no number", "{}streams: many\n")
machine("value that is no whole number", "{}streams: 32.5\n")
machine("value out of range", "{}vxm: { alus: 1000 }\n")
machine("clock without a unit", "{}clock: 900\n")
machine("unit of another kind", "{}clock: 900 MiB\n")
machine("time that is no whole number of cycles", "{}latency: { hop: 1.5 ns }\n")
machine("latency of an unknown operation", "{}latency: { alu_ops: { exp.f23: 9 cycles } }\n")
machine("rates of an unknown format", "{}mxm: { formats: { fp17: { planes: 2 } } }\n")
machine("planes that do not fit the vector", "{}mxm: { rows: 128 }\n")
machine("slices that do not fill the registers", "{}memory: { slices: 45 }\n")
machine("unknown topology", "{}fabric: { topology: star }\n")
machine("link between PEs that do not exist",
        "{}fabric: { topology: list, rows: 1, columns: 2, links: "
        "[{ from: 0, to: 5, port: 0, to_port: 0 }] }\n")
machine("unknown trust", "{}streams: { value: 32, trust: rumour }\n")
