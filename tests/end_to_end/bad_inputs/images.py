# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that are damaged, made for another machine, or hold programs that break an invariant.

What lies behind the checksum is damaged too: `seal` computes it again (docs/spec/image.md).
"""
import struct

from bad_inputs.case import ROOT, Workplace, case

EXAMPLE = (ROOT / "docs/spec/assembly.md").read_text().split("```\n")[1]
MASK = (1 << 64) - 1


def assemble(place: Workplace, text: str = EXAMPLE) -> bytes:
    """program.mrp of an assembly text, by default the example of docs/spec/assembly.md."""
    place.write("program.s", text)
    place.make("assemble", "program.s", "-o", "program.mrp")
    return (place.folder / "program.mrp").read_bytes()


def seal(image: bytearray) -> bytearray:
    """Makes both checksums fit the contents again."""
    version, sections, size = struct.unpack_from("<IIQ", image, 8)
    (data,) = struct.unpack_from("<Q", image, 64 + 32 * (sections - 1) + 8)
    if data > len(image) or data % 64:
        data = len(image)
    struct.pack_into("<Q", image, 32, checksum((), image[data:]))
    (of_data,) = struct.unpack_from("<Q", image, 32)
    struct.pack_into("<Q", image, 24, checksum((version, sections, size, of_data), image[64:data]))
    return image


def checksum(numbers: tuple, contents: bytes) -> int:
    step = lambda state, word: rotate(((state ^ word) * 0x9E3779B97F4A7C15) & MASK, 29)
    lanes = [(0x9E3779B97F4A7C15 * (k + 1)) & MASK for k in range(8)]
    for k, word in enumerate(numbers):
        lanes[k] = step(lanes[k], word)
    for at, (word,) in enumerate(struct.iter_unpack("<Q", contents)):
        lanes[at % 8] = step(lanes[at % 8], word)
    total = 0xC2B2AE3D27D4EB4F
    for lane in lanes:
        total = ((total ^ lane) * 0xC2B2AE3D27D4EB4F) & MASK
        total ^= total >> 32
    return total


def rotate(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & MASK


def section(image: bytes, kind: int) -> tuple[int, int]:
    """Offset of a section's contents, and of its row in the table."""
    for row in range(64, 64 + 32 * struct.unpack_from("<I", image, 12)[0], 32):
        if struct.unpack_from("<I", image, row)[0] == kind:
            return struct.unpack_from("<Q", image, row + 8)[0], row
    raise ValueError(f"the image has no section {kind}")


def damaged(kind: str, *more):
    """A case whose image is what the decorated function makes of the example's bytes."""
    def register(change):
        @case("image", kind)
        def _(place: Workplace):
            image = bytearray(assemble(place))
            place.write("damaged.mrp", bytes(change(image) or image))
            return ["simulate", "damaged.mrp", "--json", "r.json", *more]
    return register


@case("image", "image that does not exist")
def _(place: Workplace):
    return ["simulate", "none.mrp"]


@case("image", "model for an image")
def _(place: Workplace):
    return ["simulate", place.fixture("mnist.onnx")]


@case("image", "folder for an image")
def _(place: Workplace):
    (place.folder / "folder").mkdir()
    return ["simulate", "folder"]


@case("image", "empty image")
def _(place: Workplace):
    return ["simulate", place.write("empty.mrp", b"")]


damaged("image that is cut off")(lambda image: image[:-64])
damaged("image with more behind it")(lambda image: image + bytes(64))
damaged("image of which one bit flipped")(lambda image: flip(image, len(image) // 2))
damaged("image of which a bit of the data flipped")(lambda image: flip(image, section(image, 11)[0]))
damaged("image of another version")(lambda image: put(image, "<I", 8, 1))
damaged("image with a wrong number of sections")(lambda image: seal(put(image, "<I", 12, 9)))
damaged("section beyond the file")(lambda image: seal(put(image, "<Q", section(image, 3)[1] + 16, 1 << 40)))
damaged("more records than the section holds")(lambda image: seal(put(image, "<Q", section(image, 1)[1] + 24, 999)))
damaged("step that runs instructions which do not exist")(
    lambda image: seal(put(image, "<I", section(image, 3)[0] + 1 + 1 + 8 + 8 + 4, 99)))
damaged("step of an unknown kind")(lambda image: seal(put(image, "<B", section(image, 3)[0], 7)))
damaged("block of a tensor that does not exist")(lambda image: seal(put(image, "<I", section(image, 4)[0] + 16, 99)))
damaged("tensor of a PE that does not exist")(lambda image: seal(put(image, "<H", section(image, 5)[0] + 4, 77)))
damaged("machine hash that is not that of the machine")(
    lambda image: seal(put(image, "<Q", section(image, 0)[0] + 8 + len("tsp-small"), 1)))
damaged("machine in the image that is no YAML")(
    lambda image: seal(put(image, "<4s", image.index(b"\nsuperlanes:") + 1, b"[[[[")))


def flip(image: bytearray, at: int) -> bytearray:
    image[at] ^= 1
    return image


def put(image: bytearray, form: str, at: int, value) -> bytearray:
    struct.pack_into(form, image, at, value)
    return image


@case("image", "image for another machine")
def _(place: Workplace):
    assemble(place)
    return ["simulate", "program.mrp", "--machine", "tsp-v1"]


@case("image", "image for a machine with other numbers")
def _(place: Workplace):
    assemble(place)
    return ["simulate", "program.mrp", "--set", "latency.hop=2"]


@case("image", "image on a machine that it was not made for, by force")
def _(place: Workplace):
    assemble(place)
    return ["simulate", "program.mrp", "--set", "latency.hop=2", "--ignore-machine-hash"]


def violating(kind: str, old: str, new: str) -> None:
    """The example with a change that breaks an invariant."""
    @case("image", kind)
    def _(place: Workplace):
        assert old in EXAMPLE
        assemble(place, EXAMPLE.replace(old, new))
        return ["simulate", "program.mrp"]


def assembled(kind: str, text: str) -> None:
    """A program that assembles, on a machine where it cannot be."""
    @case("image", kind)
    def _(place: Workplace):
        assemble(place, text)
        return ["simulate", "program.mrp"]


assembled("tensor in a slice that does not exist",
          "machine tsp-small\ntensor X west slice=999 rows=0..9\nstep grid cycles=1\n")
assembled("tensor beyond its slice", "machine tsp-small\ntensor X west slice=3 rows=0..99999999\nstep grid cycles=1\n")
assembled("host functions that are no MLIR",
          "machine tsp-small\nhostmodule \"func @f\"\nstep host \"f\"\nstep grid cycles=1\n")
assembled("host step of a function that does not exist",
          "machine tsp-small\nhostmodule \"func.func @f() { return }\"\nstep host \"g\"\nstep grid cycles=1\n")
violating("program with a wrong count of cycles", "cycles=60", "cycles=61")
violating("program that samples a stream too early", "@2  alu.2", "@1  alu.2")
violating("program that writes what has not arrived", "@11 mem.w.4", "@12 mem.w.4")
violating("program that writes outside of its tensor", "address=100 ", "address=105 ")
violating("program that does not say whose rows it reads", " from memory: X[0]", "")
