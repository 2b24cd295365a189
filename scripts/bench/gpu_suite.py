# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that scripts/bench/gpu checks and times: functions of the tensor level as text, and what PyTorch does instead.

A case has an op, element type, sizes, the text of @main, the most relative L2 error between two executions of its
kernels, and the source of a PyTorch function of no arguments that does the same on the GPU. Errors are bounded by the
roundings between two executions: sums of n fp32 numbers in another order, 2^-24 (8 + 2 sqrt n) relative to the sum;
what is rounded to 16 bits on the way may fall on the other side, 2^-11; int8 results may differ by a step.
"""
from dataclasses import dataclass, field
from math import sqrt

MAPS = """
#v = affine_map<(d0) -> (d0)>
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
#c = affine_map<(d0, d1) -> (d1)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#wt = affine_map<(d0, d1, d2) -> (d1, d2)>
#mm = affine_map<(d0, d1, d2) -> (d0, d1)>
#m3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#q4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#k4 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#v4 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#s4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#p4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
"""


@dataclass
class Case:
    """`torch`: statements that make inputs, then `run`, a function, and perhaps `others`, by name more of them that do the
    same; the fastest is the baseline. Empty: none. `d` is the device. `compiles`: torch.compile(run) is one, too."""
    op: str
    type: str
    sizes: tuple
    text: str
    most_error: float
    flags: list = field(default_factory=list)
    torch: str = ""
    compiles: bool = False

    @property
    def name(self):
        return f"{self.op} {self.type} {'x'.join(map(str, self.sizes))}"


def sums(n):
    """The most error of a value that sums of n fp32 numbers in two orders make."""
    return (8 + 2 * sqrt(n)) * 2.0 ** -24


def tensor(*sizes, of="f32"):
    return "tensor<" + "".join(f"{size}x" for size in sizes) + of + ">"


class Text:
    """Writes @main, operation by operation. Values are (name, type)."""

    def __init__(self):
        self.lines, self.arguments, self.count, self.empties = [], [], 0, {}

    def new(self):
        self.count += 1
        return f"%v{self.count}"

    def argument(self, *sizes, of="f32"):
        value = (f"%x{len(self.arguments)}", tensor(*sizes, of=of))
        self.arguments.append(value)
        return value

    def constant(self, number, of="f32"):
        name = self.new()
        self.lines.append(f"{name} = arith.constant {number} : {of}")
        return name

    def empty(self, kind):
        if kind not in self.empties:
            self.empties[kind] = self.new()
            self.lines.append(f"{self.empties[kind]} = tensor.empty() : {kind}")
        return self.empties[kind]

    def filled(self, number, kind, of="f32"):
        constant, empty, name = self.constant(number, of), self.empty(kind), self.new()
        self.lines.append(f"{name} = linalg.fill ins({constant} : {of}) outs({empty} : {kind}) -> {kind}")
        return (name, kind)

    def generic(self, maps, loops, inputs, outputs, body, types):
        """`body`: text with %0, %1 ... of the inputs and %o0 ... of the outputs; `types`: of these elements."""
        name, count = self.new(), len(outputs)
        kinds = {"p": '"parallel"', "r": '"reduction"'}
        names = [f"%{i}" for i in range(len(inputs))] + [f"%o{i}" for i in range(count)]
        results = ", ".join(kind for _, kind in outputs)
        ins = f"ins({', '.join(n for n, _ in inputs)} : {', '.join(k for _, k in inputs)}) " if inputs else ""
        self.lines.append(
            f"{name}{f':{count}' if count > 1 else ''} = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            f"iterator_types = [{', '.join(kinds[loop] for loop in loops)}]}} {ins}"
            f"outs({', '.join(n for n, _ in outputs)} : {results}) {{\n"
            f"^bb0({', '.join(f'{n}: {t}' for n, t in zip(names, types))}):\n{body}\n}} -> {f'({results})' if count > 1 else results}")
        return [(f"{name}#{i}", kind) for i, (_, kind) in enumerate(outputs)] if count > 1 else (name, outputs[0][1])

    def map2(self, maps, inputs, kind, body, types, loops="pp"):
        return self.generic(maps, loops, inputs, [(self.empty(kind), kind)], body, types)

    def reduce_rows(self, value, kind, start, operation):
        return self.generic(["#m", "#r"], "pr", [value], [self.filled(start, kind)],
                            f"%y = arith.{operation} %o0, %0 : f32\nlinalg.yield %y : f32", ["f32", "f32"])

    def main(self, *results):
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.arguments)
        types = ", ".join(kind for _, kind in results)
        return (f"{MAPS}func.func @main({arguments}) -> ({types}) {{\n" + "\n".join(self.lines) +
                f"\nreturn {', '.join(name for name, _ in results)} : {types}\n}}\n")


def add(n):
    t = Text()
    x, y = t.argument(n), t.argument(n)
    z = t.map2(["#v", "#v", "#v"], [x, y], tensor(n), "%s = arith.addf %0, %1 : f32\nlinalg.yield %s : f32", ["f32"] * 3, "p")
    return Case("add", "f32", (n,), t.main(z), 0,
                torch=f"x, y = torch.randn({n}, device=d), torch.randn({n}, device=d)\nrun = lambda: x + y")


def softmax(rows, columns):
    t = Text()
    kind, row = tensor(rows, columns), tensor(rows)
    x = t.argument(rows, columns)
    most = t.reduce_rows(x, row, "0xFF800000", "maximumf")
    exps = t.map2(["#m", "#r", "#m"], [x, most], kind,
                  "%a = arith.subf %0, %1 : f32\n%b = math.exp %a : f32\nlinalg.yield %b : f32", ["f32"] * 3)
    total = t.reduce_rows(exps, row, "0.0", "addf")
    y = t.map2(["#m", "#r", "#m"], [exps, total], kind, "%a = arith.divf %0, %1 : f32\nlinalg.yield %a : f32", ["f32"] * 3)
    return Case("softmax", "f32", (rows, columns), t.main(y), sums(columns),
                torch=f"x = torch.randn({rows}, {columns}, device=d)\nrun = lambda: torch.softmax(x, 1)", compiles=True)


def normalise(t, x, rows, columns, mean):
    """Rows over the root of the mean of their squares, about their mean if wanted: the values, and what to multiply by."""
    kind, row = tensor(rows, columns), tensor(rows)
    count, least, one = t.constant(f"{columns}.0"), t.constant("1.0e-5"), t.constant("1.0")
    if mean:
        total = t.reduce_rows(x, row, "0.0", "addf")
        x = t.map2(["#m", "#r", "#m"], [x, total], kind,
                   f"%a = arith.divf %1, {count} : f32\n%b = arith.subf %0, %a : f32\nlinalg.yield %b : f32", ["f32"] * 3)
    squares = t.generic(["#m", "#r"], "pr", [x], [t.filled("0.0", row)],
                        "%a = arith.mulf %0, %0 : f32\n%b = arith.addf %o0, %a : f32\nlinalg.yield %b : f32", ["f32"] * 2)
    factor = t.map2(["#v", "#v"], [squares], row,
                    f"%a = arith.divf %0, {count} : f32\n%b = arith.addf %a, {least} : f32\n%c = math.sqrt %b : f32\n"
                    f"%e = arith.divf {one}, %c : f32\nlinalg.yield %e : f32", ["f32"] * 2, "p")
    return x, factor


def add_layer_norm(rows, columns):
    t = Text()
    kind = tensor(rows, columns)
    x, residual, gain, offset = t.argument(rows, columns), t.argument(rows, columns), t.argument(columns), t.argument(columns)
    s = t.map2(["#m", "#m", "#m"], [x, residual], kind, "%a = arith.addf %0, %1 : f32\nlinalg.yield %a : f32", ["f32"] * 3)
    centred, factor = normalise(t, s, rows, columns, mean=True)
    y = t.map2(["#m", "#r", "#c", "#c", "#m"], [centred, factor, gain, offset], kind,
               "%a = arith.mulf %0, %1 : f32\n%b = arith.mulf %a, %2 : f32\n%e = arith.addf %b, %3 : f32\nlinalg.yield %e : f32",
               ["f32"] * 5)
    return Case("add_layer_norm", "f32", (rows, columns), t.main(y, s), 2 * sums(columns),
                torch=f"x, r = torch.randn(2, {rows}, {columns}, device=d)\ng, o = torch.randn(2, {columns}, device=d)\n"
                      f"def run():\n  s = x + r\n  return torch.nn.functional.layer_norm(s, ({columns},), g, o), s", compiles=True)


def rms_norm_int8(rows, columns):
    t = Text()
    kind = tensor(rows, columns, of="i8")
    x, gain = t.argument(rows, columns), t.argument(columns)
    _, factor = normalise(t, x, rows, columns, mean=False)
    low, high, scale = t.constant("-128.0"), t.constant("127.0"), t.constant("16.0")
    y = t.map2(["#m", "#r", "#c", "#m"], [x, factor, gain], kind,
               f"%a = arith.mulf %0, %1 : f32\n%b = arith.mulf %a, %2 : f32\n%e = arith.mulf %b, {scale} : f32\n"
               f"%f = math.roundeven %e : f32\n%g = arith.maximumf %f, {low} : f32\n%h = arith.minimumf %g, {high} : f32\n"
               "%i = arith.fptosi %h : f32 to i8\nlinalg.yield %i : i8", ["f32"] * 3 + ["i8"])
    return Case("rms_norm_int8", "f32", (rows, columns), t.main(y), 1e-3,
                torch=f"x, g = torch.randn({rows}, {columns}, device=d), torch.randn({columns}, device=d)\n"
                      "def run():\n  y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * g\n"
                      "  return (y * 16).round().clamp(-128, 127).to(torch.int8)", compiles=True)


def product(t, a, w, kind, weights, of):
    """A (m x k) times W: fp32 sums of products of what `of` holds."""
    widen = "" if of == "f32" else f"%a = arith.extf %0 : {of} to f32\n%b = arith.extf %1 : {of} to f32\n"
    left, right = ("%0", "%1") if of == "f32" else ("%a", "%b")
    return t.generic(["#a", weights, "#mm"], "ppr", [a, w], [t.filled("0.0", kind)],
                     f"{widen}%p = arith.mulf {left}, {right} : f32\n%s = arith.addf %o0, %p : f32\nlinalg.yield %s : f32",
                     [of, of, "f32"])


def matmul(m, n, k):
    t = Text()
    c = product(t, t.argument(m, k, of="f16"), t.argument(k, n, of="f16"), tensor(m, n), "#w", "f16")
    return Case("matmul", "f16", (m, n, k), t.main(c), sums(k), ["--type", "f16"],
                torch=f"a, w = torch.randn({m}, {k}, device=d).half(), torch.randn({k}, {n}, device=d).half()\nrun = lambda: a @ w")


def matmul_bias_gelu(m, n, k):
    t = Text()
    a, w, bias = t.argument(m, k, of="f16"), t.argument(k, n, of="f16"), t.argument(n)
    c = product(t, a, w, tensor(m, n), "#w", "f16")
    half, one, k0, k1 = t.constant("0.5"), t.constant("1.0"), t.constant("0.7978845608"), t.constant("0.044715")
    y = t.map2(["#m", "#c", "#m"], [c, bias], tensor(m, n, of="f16"),
               f"%a = arith.addf %0, %1 : f32\n%b = arith.mulf %a, %a : f32\n%e = arith.mulf %b, %a : f32\n"
               f"%f = arith.mulf %e, {k1} : f32\n%g = arith.addf %a, %f : f32\n%h = arith.mulf %g, {k0} : f32\n"
               f"%i = math.tanh %h : f32\n%j = arith.addf %i, {one} : f32\n%k = arith.mulf %a, {half} : f32\n"
               "%l = arith.mulf %k, %j : f32\n%n = arith.truncf %l : f32 to f16\nlinalg.yield %n : f16", ["f32", "f32", "f16"])
    return Case("matmul_bias_gelu", "f16", (m, n, k), t.main(y), sums(k) + 2.0 ** -11, ["--type", "f16"],
                torch=f"a, w = torch.randn({m}, {k}, device=d).half(), torch.randn({k}, {n}, device=d).half()\n"
                      f"b = torch.randn({n}, device=d).half()\n"
                      "run = lambda: torch.nn.functional.gelu(torch.addmm(b, a, w), approximate='tanh')", compiles=True)


def matmul_int4(m, n, k):
    """Weights of four bits, two a byte, a scale for each 32 along k."""
    t = Text()
    w, pairs, blocks = tensor(n, k), tensor(n, k // 2, 2), tensor(n, k // 32, 32)
    a, codes, scales = t.argument(m, k), t.argument(n, k // 2, of="i8"), t.argument(n, k // 32)
    four, fifteen, eight = (t.constant(number, "i32") for number in (4, 15, 8))
    u = t.generic(["#mm", "#m3"], "ppp", [codes], [(t.empty(pairs), pairs)],
                  f"%i = linalg.index 2 : index\n%a = arith.index_cast %i : index to i32\n%b = arith.muli %a, {four} : i32\n"
                  f"%e = arith.extui %0 : i8 to i32\n%f = arith.shrui %e, %b : i32\n%g = arith.andi %f, {fifteen} : i32\n"
                  f"%h = arith.subi %g, {eight} : i32\n%j = arith.sitofp %h : i32 to f32\nlinalg.yield %j : f32", ["i8", "f32"])
    flat, block, joined = t.new(), t.new(), t.new()
    t.lines += [f"{flat} = tensor.collapse_shape {u[0]} [[0], [1, 2]] : {pairs} into {w}",
                f"{block} = tensor.expand_shape {flat} [[0], [1, 2]] output_shape [{n}, {k // 32}, 32] : {w} into {blocks}"]
    scaled = t.generic(["#m3", "#mm", "#m3"], "ppp", [(block, blocks), scales], [(t.empty(blocks), blocks)],
                       "%a = arith.mulf %0, %1 : f32\nlinalg.yield %a : f32", ["f32"] * 3)
    t.lines.append(f"{joined} = tensor.collapse_shape {scaled[0]} [[0], [1, 2]] : {blocks} into {w}")
    c = product(t, a, (joined, w), tensor(m, n), "#wt", "f32")
    return Case("matmul_int4", "f16", (m, n, k), t.main(c), sums(k), ["--type", "f16", "--integers-below", "128"],
                torch=f"a, w = torch.randn({m}, {k}, device=d).half(), torch.randn({k}, {n}, device=d).half()\n"
                      "run = lambda: a @ w  # of weights that are f16 already")


def attention(heads, queries, keys, depth):
    t = Text()
    row, kind = tensor(heads, queries), tensor(heads, queries, keys)
    q, k, v = t.argument(heads, queries, depth, of="f16"), t.argument(heads, keys, depth, of="f16"), t.argument(heads, keys, depth, of="f16")
    widened = ("%a = arith.extf %0 : f16 to f32\n%b = arith.extf %1 : f16 to f32\n%p = arith.mulf %a, %b : f32\n"
               "%s = arith.addf %o0, %p : f32\nlinalg.yield %s : f32")
    scores = t.generic(["#q4", "#k4", "#s4"], "pppr", [q, k], [t.filled("0.0", kind)], widened, ["f16", "f16", "f32"])
    scale = t.constant(repr(depth ** -0.5))
    scores = t.generic(["#m3", "#m3"], "ppp", [scores], [(t.empty(kind), kind)],
                       f"%a = arith.mulf %0, {scale} : f32\nlinalg.yield %a : f32", ["f32"] * 2)

    def along_keys(value, start, operation):
        return t.generic(["#m3", "#mm"], "ppr", [value], [t.filled(start, row)],
                         f"%a = arith.{operation} %o0, %0 : f32\nlinalg.yield %a : f32", ["f32"] * 2)
    most = along_keys(scores, "0xFF800000", "maximumf")
    exps = t.generic(["#m3", "#mm", "#m3"], "ppp", [scores, most], [(t.empty(kind), kind)],
                     "%a = arith.subf %0, %1 : f32\n%b = math.exp %a : f32\nlinalg.yield %b : f32", ["f32"] * 3)
    total = along_keys(exps, "0.0", "addf")
    weights = t.generic(["#m3", "#mm", "#m3"], "ppp", [exps, total], [(t.empty(kind), kind)],
                        "%a = arith.divf %0, %1 : f32\nlinalg.yield %a : f32", ["f32"] * 3)
    out = tensor(heads, queries, depth)
    y = t.generic(["#p4", "#v4", "#s4"], "pppr", [weights, v], [t.filled("0.0", out)],
                  "%b = arith.extf %1 : f16 to f32\n%p = arith.mulf %0, %b : f32\n%s = arith.addf %o0, %p : f32\nlinalg.yield %s : f32",
                  ["f32", "f16", "f32"])
    return Case("attention", "f16", (heads, queries, keys, depth), t.main(y), 2.0 ** -11 + 4 * sums(keys) + 4 * sums(depth),
                ["--type", "f16"],
                torch=f"q = torch.randn(1, {heads}, {queries}, {depth}, device=d).half()\n"
                      f"k, v = torch.randn(2, 1, {heads}, {keys}, {depth}, device=d).half()\n"
                      "run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
                      "def cudnn():\n  with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):\n"
                      "    return run()\nothers = {'torch, cuDNN': cudnn}")


def argmax(rows, columns):
    t = Text()
    row, places = tensor(rows), tensor(rows, of="i64")
    x = t.argument(rows, columns)
    y = t.generic(["#m", "#r", "#r"], "pr", [x], [t.filled("0xFF800000", row), t.filled("0", places, "i64")],
                  "%i = linalg.index 1 : index\n%j = arith.index_cast %i : index to i64\n%b = arith.cmpf olt, %o0, %0 : f32\n"
                  "%c = arith.select %b, %0, %o0 : f32\n%e = arith.select %b, %j, %o1 : i64\nlinalg.yield %c, %e : f32, i64",
                  ["f32", "f32", "i64"])
    return Case("argmax", "f32", (rows, columns), t.main(y[1]), 0,
                torch=f"x = torch.randn({rows}, {columns}, device=d)\nrun = lambda: torch.argmax(x, 1)")


def top_k(rows, columns, chosen):
    """Rounds of a maximum and its first place, among what stands behind the last round's."""
    t = Text()
    row, kind, one = tensor(rows), tensor(rows, columns), tensor(rows, 1)
    x, low, many = t.argument(rows, columns), t.constant("0xFF800000"), t.constant(f"{columns}.0")
    where = t.new()
    t.lines.append(f"{where} = arith.constant dense<[{', '.join(f'{i}.0' for i in range(columns))}]> : {tensor(columns)}")
    place, best, at, values, indices = (where, tensor(columns)), None, None, [], []
    behind = ("%e = arith.cmpf oeq, %0, %2 : f32\n%l = arith.cmpf olt, %0, %2 : f32\n%g = arith.cmpf olt, %3, %1 : f32\n"
              "%in = arith.select %e, %g, %l : i1\n")
    for _ in range(chosen):
        left, others = x, ([best, at] if best else [])
        if best:
            left = t.map2(["#m", "#c", "#r", "#r", "#m"], [x, place, best, at], kind,
                          behind + f"%y = arith.select %in, %0, {low} : f32\nlinalg.yield %y : f32", ["f32"] * 5)
        most = t.reduce_rows(left, row, "0xFF800000", "maximumf")
        last = 2 + len(others)
        equal = f"%q = arith.cmpf oeq, %0, %{last} : f32\n%z = arith.select %q, %1, {many} : f32\n"
        found = t.map2(["#m", "#c"] + ["#r"] * len(others) + ["#r", "#m"], [x, place] + others + [most], kind,
                       equal + (behind + f"%y = arith.select %in, %z, {many} : f32\nlinalg.yield %y : f32" if best
                                else "linalg.yield %z : f32"), ["f32"] * (last + 2))
        best, at = most, t.reduce_rows(found, row, f"{columns}.0", "minimumf")
        for value, lists in ((best, values), (at, indices)):
            name = t.new()
            t.lines.append(f"{name} = tensor.expand_shape {value[0]} [[0, 1]] output_shape [{rows}, 1] : {row} into {one}")
            lists.append(name)
    joined = []
    for lists in (values, indices):
        name, kinds = t.new(), ", ".join([one] * chosen)
        t.lines.append(f"{name} = tensor.concat dim(1) {', '.join(lists)} : ({kinds}) -> {tensor(rows, chosen)}")
        joined.append((name, tensor(rows, chosen)))
    return Case("top_k", "f32", (rows, columns, chosen), t.main(*joined), 0,
                torch=f"x = torch.randn({rows}, {columns}, device=d)\nrun = lambda: torch.topk(x, {chosen}, 1)")


def gather(rows, columns, taken):
    """Rows of a table at indices that are data."""
    t = Text()
    table, indices = t.argument(rows, columns, of="f16"), t.argument(taken, of="i64")
    y = t.map2(["#r", "#m"], [indices], tensor(taken, columns, of="f16"),
               "%i = arith.index_cast %0 : i64 to index\n%j = linalg.index 1 : index\n"
               f"%y = tensor.extract {table[0]}[%i, %j] : {table[1]}\nlinalg.yield %y : f16", ["i64", "f16"])
    return Case("gather", "f16", (rows, columns, taken), t.main(y), 0, ["--integers-below", str(rows)],
                torch=f"x = torch.randn({rows}, {columns}, device=d).half()\ni = torch.randint({rows}, ({taken},), device=d)\n"
                      "run = lambda: torch.index_select(x, 0, i)")


# Of each op the sizes at which values are checked (odd ones among them), and those that are timed.
SUITE = [
    (add, [(1,), (1000,), (4099,)], [(1 << 26,)]),
    (softmax, [(5, 17), (3, 1000), (2, 5000), (33, 33)], [(8192, 4096), (4096, 32768)]),
    (add_layer_norm, [(3, 31), (4, 768), (2, 4097)], [(8192, 4096), (16384, 1024)]),
    (rms_norm_int8, [(3, 33), (4, 1024), (2, 1030)], [(8192, 4096), (16384, 8192)]),
    (matmul, [(17, 23, 31), (64, 64, 32), (70, 130, 48), (1, 40, 33), (300, 520, 136), (16, 512, 256)], [(4096, 4096, 4096), (16, 8192, 8192)]),
    (matmul_bias_gelu, [(33, 65, 16), (5, 7, 9), (64, 72, 100), (129, 304, 136)], [(4096, 4096, 4096), (16, 8192, 8192)]),
    (matmul_int4, [(3, 24, 32), (16, 31, 64), (33, 66, 96)], [(16, 8192, 8192), (512, 8192, 8192)]),
    (attention, [(2, 17, 33, 16), (3, 1, 100, 64), (1, 70, 65, 40), (2, 130, 257, 128), (40, 300, 500, 128), (140, 70, 90, 64)],
     [(32, 4096, 4096, 128), (64, 4096, 4096, 64), (64, 1, 16384, 128)]),
    (argmax, [(3, 31), (2, 1025), (5, 33)], [(256, 131072)]),
    (top_k, [(3, 33, 3), (2, 500, 8), (1, 1025, 4)], [(256, 131072, 8)]),
    (gather, [(50, 24, 7), (33, 1, 20), (10, 1023, 5)], [(32768, 4096, 16384)]),
]

# The product of build-gemm, of Hopper alone: tiles along M and N, stages, warpgroups that multiply, CTAs of a cluster.
GEMM_CHIP = "sm_90a"
GEMM_SCHEDULES = [(64, 64, 2, 1, 1), (128, 128, 4, 2, 1), (128, 256, 3, 2, 2), (128, 256, 3, 2, 1)]
GEMM_CHECKS = [(129, 77, 72), (100, 33, 257)]
GEMM_TIMES = [(4096, 4096, 4096), (4096, 14336, 4096), (8192, 8192, 8192)]


def build_gemm(m, n, k, *schedule):
    """Not of the tensor level: GemmProbe of the tests makes and judges it, and `text` is its arguments."""
    return Case("build_gemm", "bf16", (m, n, k, *schedule), " ".join(map(str, (m, n, k, *schedule))), 0,
                torch=f"a, w = torch.randn({m}, {k}, device=d).bfloat16(), torch.randn({n}, {k}, device=d).bfloat16()\n"
                      f"b = torch.randn({n}, device=d).bfloat16()\nrun = lambda: torch.nn.functional.linear(a, w, b)")
