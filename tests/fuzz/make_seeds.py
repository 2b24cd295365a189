#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the first corpora: what the fuzzers of tests/fuzz start from.

usage: make_seeds.py MILLRACE FOLDER    (the built program; FOLDER/{machine,assembly,image,onnx})

machine   the installed machines, each as its file and resolved
assembly  the programs written by hand (tests/contract/programs)
image     the same, assembled; their machine is text of a few lines on a base
onnx      a model of each operation, from the test cases that the onnx package makes

and dictionaries for the two that are text, from docs/spec.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LARGEST = 16384  # bytes of a seed; fuzzers are slow on more
ROOT = pathlib.Path(__file__).resolve().parents[2]


def nested(settings):
    """{'a.b': 1} as {'a': {'b': 1}}."""
    tree = {}
    for path, value in settings:
        # An operation's mnemonic has a dot of its own: latency.alu_ops.exp.f32.
        *sections, key = path.split(".", 2 if path.startswith("latency.alu_ops.") else -1)
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[key] = value
    return tree


def machines(millrace, folder):
    for path in sorted((ROOT / "arch/machines").glob("*.yaml")):
        shutil.copy(path, folder / f"legal-{path.name}")
        resolved = subprocess.run([millrace, "describe", path.stem, "--yaml"], check=True,
                                  capture_output=True).stdout
        (folder / f"legal-resolved-{path.name}").write_bytes(resolved)


def programs():
    return sorted(path for path in (ROOT / "tests/contract/programs").glob("*.mas") if not path.stem.startswith("refused-"))


def images(millrace, folder):
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for path in programs():
            text = path.read_text()
            name = re.search(r"^machine (\S+)", text, re.MULTILINE)[1]
            settings = re.findall(r"^; set: ([^=\s]+)=(.+)$", text, re.MULTILINE)
            yaml = json.dumps({"name": "m", "base": name, **nested(settings)})
            (work / "m.yaml").write_text(yaml)
            quoted = yaml.replace("\\", "\\\\").replace('"', '\\"')
            lines = text.replace(f"machine {name}", f'machine {work}/m.yaml\nyaml "{quoted}"', 1)
            lines = "\n".join(line for line in lines.splitlines() if not line.startswith(";"))
            (work / "p.mas").write_text(lines)
            image = folder / f"legal-{path.stem}"
            subprocess.run([millrace, "assemble", work / "p.mas", "-o", image], check=True)
            if image.stat().st_size > LARGEST:
                image.unlink()


def models(folder):
    import onnx
    from onnx.backend.test.case.node import collect_testcases
    for number, case in enumerate(collect_testcases(None)):
        model = case.model
        # A conversion at import takes longer than all else there: most begin at the newest opset.
        if number % 4:
            try:
                model = onnx.version_converter.convert_version(model, onnx.defs.onnx_opset_version())
            except Exception:  # pylint: disable=broad-except
                pass  # not every operation can be converted; this one keeps its opset
        data = model.SerializeToString()
        if len(data) <= LARGEST:
            (folder / case.name).write_bytes(data)


def dictionary(path, words):
    """libFuzzer's form: one quoted word a line."""
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in sorted(words))
    path.write_text("".join(f'"{word}"\n' for word in quoted))


def dictionaries(target):
    """Keys of the schema; instructions, operands, operations and statements of the assembler."""
    spec = ROOT / "docs/spec"
    keys = re.findall(r"^\| `([a-z0-9_.*]+)`", (spec / "machine-keys.md").read_text(), re.MULTILINE)
    dictionary(target / "machine.dict",
               {part for key in keys for part in key.split(".")} |
               {"base: ", "value: ", "source: ", "trust: ", "#set ", "inferred", "GHz", "ns", "MiB",
                "GB/s", "cycles", "fp16", "int8", "e4m3", "single", "mesh", "torus", "ring", "full",
                "list", "{ ", " }", "[", "]", "&a ", "*a", "<<: "})
    isa = (spec / "isa.md").read_text()
    words = re.findall(r"^\| `?([a-z0-9_.]+)`? ", isa, re.MULTILINE)
    assembly = (spec / "assembly.md").read_text()
    words += re.findall(r"\b([a-z]\w*=)", assembly)
    words += [word for code in re.findall(r"`([^`\n]+)`", assembly) for word in code.split()
              if re.fullmatch(r"[a-z][a-z0-9.]*", word)]
    dictionary(target / "assembly.dict",
               {word for word in words if not word.isdigit()} |
               {"n0=", "c0=", "n1=", "c1=", "s0=", "s1=", "address=", "out=", "a=", "b=", "c=",
                "tensor=", "function=", "immediate=", "k0=", "k1=", "g0=", "g1=", "w.out.", "e.in.",
                "mem.w.", "mem.e.", "from a: ", "from memory: ", "step grid cycles=", "@0 "})


def main():
    millrace, target = sys.argv[1], pathlib.Path(sys.argv[2])
    folders = {name: target / name for name in ("machine", "assembly", "image", "onnx")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    machines(millrace, folders["machine"])
    for path in programs():
        shutil.copy(path, folders["assembly"])
    images(millrace, folders["image"])
    models(folders["onnx"])
    dictionaries(target)


if __name__ == "__main__":
    main()
