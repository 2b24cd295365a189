# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that are no program, or no program for the machine."""
from bad_inputs.case import Workplace, case


def text(kind: str, contents: str | bytes) -> None:
    """`{}` stands for a machine, a tensor of ten rows and the beginning of a step."""
    @case("assembly", kind)
    def _(place: Workplace):
        start = "machine tsp-small\ntensor X west slice=3 rows=0..9\nstep grid cycles=60\npe 0\n"
        place.write("program.s", contents.replace("{}", start) if isinstance(contents, str) else contents)
        return ["assemble", "program.s", "-o", "program.mrp"]


@case("assembly", "text that does not exist")
def _(place: Workplace):
    return ["assemble", "none.s", "-o", "program.mrp"]


text("empty text", "")
text("text without a machine", "step grid\n")
text("text for an unknown machine", "machine tsp-smal\n")
text("random bytes", bytes(range(128, 200)))
text("unknown statement", "machine tsp-small\nstap grid\n")
text("unknown instruction", "{}@0 alu.0 nup\n")
text("instruction without a cycle", "{}alu.0 nop\n")
text("cycle that is no number", "{}@x alu.0 nop\n")
text("unknown queue", "{}@0 alv.0 nop\n")
text("queue that the machine does not have", "{}@0 alu.99 nop\n")
text("instruction of another unit", "{}@0 alu.0 read out=w.in.5 tensor=X\n")
text("unknown operand", "{}@0 mem.w.3 read n0=10 outt=w.in.5 tensor=X\n")
text("operand given twice", "{}@0 mem.w.3 read n0=10 n0=5 out=w.in.5 tensor=X\n")
text("operand that is no number", "{}@0 mem.w.3 read n0=ten out=w.in.5 tensor=X\n")
text("unknown stream", "{}@0 mem.w.3 read out=w.up.5 tensor=X\n")
text("stream that the machine does not have", "{}@0 mem.w.3 read out=w.in.500 tensor=X\n")
text("stream of the other hemisphere", "{}@0 mem.w.3 read out=e.in.5 tensor=X\n")
text("unknown function", "{}@0 alu.0 alu function=ad.i32 a=w.in.0\n")
text("loop of no rounds", "{}@0 mem.w.3 read n0=0 out=w.in.5 tensor=X\n")
text("unknown tensor", "{}@0 mem.w.3 read out=w.in.5 tensor=Z\n")
text("producer that does not exist", "{}@0 mem.w.3 read out=w.in.5 tensor=X from memory: add\n")
text("data of an unknown tensor", "machine tsp-small\ndata Z iota\n")
text("data that is too long for a row", "machine tsp-small\ntensor X west slice=3 rows=0..0\ndata X hex " + "00" * 99 + "\n")
text("text without its closing quotes", "machine tsp-small\nnote \"a\n")
