# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of inputs that are not what the program wants."""
import io

import numpy as np

from bad_inputs.case import Workplace, case


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


GOOD = np.zeros((1, 1, 28, 28), np.float32)


def tensor(kind: str, contents: bytes | None, name: str = "image") -> None:
    @case("tensor", kind)
    def _(place: Workplace):
        place.fixture("mnist.onnx")
        if contents is not None:
            place.write("x.npy", contents)
        return ["run", "mnist.onnx", "--input", f"{name}=x.npy", "--output-dir", "out"]


tensor("file that does not exist", None)
tensor("unknown input", npy(GOOD), "imge")
tensor("file that is no array", b"hello world")
tensor("empty file", b"")
tensor("header that is cut off", npy(GOOD)[:40])
tensor("elements that are cut off", npy(GOOD)[:-100])
tensor("header without a type", npy(GOOD).replace(b"'descr'", b"'dexcr'"))
tensor("header without a shape", npy(GOOD).replace(b"'shape'", b"'shope'"))
tensor("shape larger than any file", npy(GOOD).replace(b"(1, 1, 28, 28)", b"(9999999999999)"))
tensor("wrong type", npy(GOOD.astype(np.float64)))
tensor("wrong number of elements", npy(np.zeros((1, 1, 28, 27), np.float32)))
tensor("wrong rank", npy(GOOD[0]))
tensor("transposed shape", npy(np.zeros((1, 28, 28, 1), np.float32)))
tensor("Fortran order", npy(np.asfortranarray(GOOD)))
tensor("big-endian elements", npy(GOOD.astype(">f4")))
tensor("complex elements", npy(GOOD.astype(np.complex64)))
tensor("archive of arrays", b"PK\x03\x04" + bytes(60))


@case("tensor", "index outside its table")
def _(place: Workplace):
    place.fixture("tiny_gpt2.onnx")
    place.write("x.npy", npy(np.array([[3, 1000]], np.int32)))
    dims = {"batch_size": 1, "seq_len": 2, "past_seq_len": 0, "total_seq_len": 2}
    return ["run", "tiny_gpt2.onnx", "--machine", "tsp-small", "--input", "input_ids=x.npy",
            *(f"--dim={name}={extent}" for name, extent in dims.items())]
