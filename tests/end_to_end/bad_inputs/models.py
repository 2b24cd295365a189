# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX files that are damaged, wrong, or ask for what no machine can do."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bad_inputs.case import Workplace, case

FLOAT = TensorProto.FLOAT
W = numpy_helper.from_array(np.ones((4, 3), np.float32), "W")
X, Y = ("x", FLOAT, [1, 4]), ("y", FLOAT, [1, 3])
PRODUCT = [helper.make_node("MatMul", ["x", "W"], ["y"], name="product")]


def graph(nodes, inputs, outputs, constants=(), opset=17, ir_version=8, domains=()) -> onnx.ModelProto:
    info = lambda value: helper.make_tensor_value_info(*value)
    body = helper.make_graph(nodes, "g", [info(v) for v in inputs], [info(v) for v in outputs], list(constants))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(body, opset_imports=opsets, ir_version=ir_version)


def one_node(kind: str, *, inputs=("x",), x=(FLOAT, [1, 4]), y=(FLOAT, [1, 4]), constants=(), domains=(),
             domain="", **attributes) -> onnx.ModelProto:
    node = helper.make_node(kind, list(inputs), ["y"], name="node", domain=domain, **attributes)
    return graph([node], [("x", *x)], [("y", *y)], constants, domains=domains)


GOOD = graph(PRODUCT, [X], [Y], [W])


def model(kind: str, contents: onnx.ModelProto | bytes, *more, files: dict[str, bytes] | None = None) -> None:
    @case("model", kind)
    def _(place: Workplace):
        place.write("model.onnx", contents if isinstance(contents, bytes) else contents.SerializeToString())
        for name, text in (files or {}).items():
            place.write(name, text)
        return ["compile", "model.onnx", "-o", "model.mrp", *more]


@case("model", "model that does not exist")
def _(place: Workplace):
    return ["compile", "none.onnx", "-o", "model.mrp"]


@case("model", "folder for a model")
def _(place: Workplace):
    (place.folder / "folder").mkdir()
    return ["compile", "folder", "-o", "model.mrp"]


model("empty file as a model", b"")
model("text as a model", b"hello world, this is no model\n")
model("model that is cut off", GOOD.SerializeToString()[:100])
model("model without a graph", graph([], [], []))
model("graph without outputs", graph(PRODUCT, [X], [], [W]))
model("opset too old", graph(PRODUCT, [X], [Y], [W], opset=5))
model("opset not known yet", graph(PRODUCT, [X], [Y], [W], opset=99))
model("no opset", onnx.ModelProto(ir_version=8, graph=GOOD.graph))
model("tensor that nothing computes", graph([helper.make_node("MatMul", ["x", "V"], ["y"], name="product")], [X], [Y]))
model("output that nothing computes", graph(PRODUCT, [X], [("z", FLOAT, [1, 3])], [W]))
model("nodes in a cycle", graph([helper.make_node("Add", ["x", "b"], ["a"], name="first"),
                                 helper.make_node("Add", ["a", "x"], ["b"], name="second")],
                                [X], [("b", FLOAT, [1, 4])]))
model("tensor computed twice", graph([helper.make_node("Relu", ["x"], ["y"], name="first"),
                                      helper.make_node("Relu", ["x"], ["y"], name="second")],
                                     [X], [("y", FLOAT, [1, 4])]))
model("constant given twice", graph(PRODUCT, [X], [Y], [W, W]))
model("matrices that do not fit", graph(PRODUCT, [("x", FLOAT, [1, 5])], [Y], [W]))
model("operands of two types", graph(PRODUCT, [("x", TensorProto.DOUBLE, [1, 4])], [Y], [W]))
model("axis beyond any rank", one_node("Softmax", axis=2**40))
model("letters that no equation has", one_node("Einsum", equation="ij->i\0j"))
model("half an arrow in an equation", one_node("Einsum", equation="i-j->i"))
model("text tensors", one_node("Identity", x=(TensorProto.STRING, [1, 4]), y=(TensorProto.STRING, [1, 4])))
model("operation newer than its opset, without its inputs", one_node("TensorScatter"))
model("operation of no outputs", graph([helper.make_node("Gelu", ["x"], [], name="node", domain="com.microsoft"), *PRODUCT],
                                        [X], [Y], [W], domains=["com.microsoft"]))
model("floats where an operation of com.microsoft takes bytes",
      one_node("QLinearSigmoid", inputs=("x", "one", "", "one", ""), domain="com.microsoft", domains=["com.microsoft"],
               constants=[numpy_helper.from_array(np.float32(1), "one")]))
model("concatenation of half a part",
      one_node("QLinearConcat", inputs=("one", "zero", "x", "one"), x=(TensorProto.INT8, [1, 4]),
               y=(TensorProto.INT8, [1, 4]), domain="com.microsoft", domains=["com.microsoft"], axis=1,
               constants=[numpy_helper.from_array(np.float32(1), "one"), numpy_helper.from_array(np.int8(0), "zero")]))
model("more tokens than positions",
      one_node("EmbedLayerNormalization", inputs=("x", "", "words", "positions", "", "ones", "ones"),
               x=(TensorProto.INT32, [1, 4]), y=(FLOAT, [1, 4, 8]), domain="com.microsoft", domains=["com.microsoft"],
               constants=[numpy_helper.from_array(np.ones((9, 8), np.float32), "words"),
                          numpy_helper.from_array(np.ones((3, 8), np.float32), "positions"),
                          numpy_helper.from_array(np.ones(8, np.float32), "ones")]))
model("attribute of a wrong type", one_node("Softmax", axis="one"))
model("attribute out of range", one_node("Softmax", axis=7))
model("channels that fit no groups",
      one_node("Conv", inputs=("x", "K"), x=(FLOAT, [1, 4, 8, 8]), y=(FLOAT, [1, 4, 6, 6]), group=3,
               constants=[numpy_helper.from_array(np.ones((4, 2, 3, 3), np.float32), "K")]))
model("boxes that decide how often they are sampled",
      one_node("RoiAlign", inputs=("x", "boxes", "images"), x=(FLOAT, [1, 4, 8, 8]), y=(FLOAT, ["a", 4, 1, 1]),
               constants=[numpy_helper.from_array(np.ones((3, 4), np.float32), "boxes"), numpy_helper.from_array(np.zeros(3, np.int64), "images")]))
model("offsets that fit no windows",
      one_node("DeformConv", inputs=("x", "K", "offsets"), x=(FLOAT, [1, 4, 8, 8]), y=(FLOAT, [1, 4, "a", "b"]),
               constants=[numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "K"),
                          numpy_helper.from_array(np.zeros((1, 18, 5, 6), np.float32), "offsets")]))
model("more tokens than a cache has places",
      one_node("TensorScatter", inputs=("x", "update"), x=(FLOAT, [1, 4, 8]), y=(FLOAT, [1, 4, 8]),
               constants=[numpy_helper.from_array(np.ones((1, 5, 8), np.float32), "update")]))
model("points of more dimensions than there are",
      one_node("ScatterND", inputs=("x", "points", "update"), x=(FLOAT, [4]), y=(FLOAT, [4]),
               constants=[numpy_helper.from_array(np.zeros((1, 2), np.int64), "points"),
                          numpy_helper.from_array(np.ones(1, np.float32), "update")]))
model("points outside of the data",
      one_node("GatherND", inputs=("x", "points"), x=(FLOAT, [4, 4]), y=(FLOAT, [1]),
               constants=[numpy_helper.from_array(np.int64([[5, 0]]), "points")]))
model("a normalisation without its scale", one_node("RMSNormalization"))
model("a norm that is none", one_node("LpPool", x=(FLOAT, [1, 4, 8]), y=(FLOAT, [1, 4, "a"]), kernel_shape=[2], p=0))
model("blocks of an image of three dimensions",
      one_node("SpaceToDepth", x=(FLOAT, [1, 4, 4]), y=(FLOAT, ["a", "b", "c"]), blocksize=2))
model("blocks that do not divide the pixels",
      one_node("SpaceToDepth", x=(FLOAT, [1, 1, 4, 5]), y=(FLOAT, [1, "a", "b", "c"]), blocksize=2))
model("blocks that do not divide the channels",
      one_node("DepthToSpace", x=(FLOAT, [1, 6, 2, 2]), y=(FLOAT, [1, "a", "b", "c"]), blocksize=2))
model("blocks without a side",
      one_node("DepthToSpace", x=(FLOAT, [1, 6, 2, 2]), y=(FLOAT, [1, "a", "b", "c"]), blocksize=0))
model("reshape to another number of elements",
      one_node("Reshape", inputs=("x", "s"), y=(FLOAT, [3, 2]),
               constants=[numpy_helper.from_array(np.array([3, 2]), "s")]))
model("shape that is computed", graph([helper.make_node("Reshape", ["x", "s"], ["y"], name="node")],
                                      [X, ("s", TensorProto.INT64, [2])], [("y", FLOAT, ["a", "b"])]))
model("operations that nobody knows",
      graph([helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
             helper.make_node("NonZero", ["x"], ["b"], name="second"),
             helper.make_node("Strange", ["a"], ["y"], name="third", domain="elsewhere")],
            [X], [("y", FLOAT, [1, 4]), ("b", TensorProto.INT64, [2, "n"])], domains=["elsewhere"]))
model("dimensions without a value", one_node("Relu", x=(FLOAT, ["n", "m"]), y=(FLOAT, ["n", "m"])))
model("value for an unknown dimension", one_node("Relu", x=(FLOAT, ["n", 4]), y=(FLOAT, ["n", 4])),
      "--dim", "n=2", "--dim", "batch=2")
model("negative dimension", one_node("Relu", x=(FLOAT, [-1, 4]), y=(FLOAT, [-1, 4])))
model("output without elements", one_node("Relu", x=(FLOAT, ["n", 4]), y=(FLOAT, ["n", 4])), "--dim", "n=0")
model("more elements than any memory holds", one_node("Relu", x=(FLOAT, [1 << 40, 1 << 40]),
                                                      y=(FLOAT, [1 << 40, 1 << 40])))
model("an extent beyond any memory beside an empty one", one_node("Relu", x=(FLOAT, [0, 1 << 40]), y=(FLOAT, [0, 1 << 40])))
model("float model in int8", GOOD, "--precision", "int8")


def short_weights() -> onnx.ModelProto:
    short = onnx.TensorProto()
    short.CopyFrom(W)
    short.raw_data = short.raw_data[:-4]
    return graph(PRODUCT, [X], [Y], [short])


def outside(**entries: str) -> onnx.ModelProto:
    """The product with its weights in another file."""
    tensor = onnx.TensorProto(name="W", data_type=FLOAT, dims=[4, 3], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return graph(PRODUCT, [X], [Y], [tensor])


model("weights that are too short", short_weights())
model("external data that is missing", outside(location="weights.bin"))
model("external data that is too short", outside(location="weights.bin", offset="0", length="48"),
      files={"weights.bin": bytes(16)})
model("external data outside of the folder", outside(location="../weights.bin"))
model("external data without a file", outside())
model("external data at no number", outside(location="weights.bin", offset="x"), files={"weights.bin": bytes(48)})
model("constants larger than memory",
      graph([helper.make_node("MatMul", ["x", "W"], ["y"], name="product")], [("x", FLOAT, [1, 4096])],
            [("y", FLOAT, [1, 4096])],
            [numpy_helper.from_array(np.arange(4096 * 4096, dtype=np.float32).reshape(4096, 4096) % 31, "W")]),
      "--machine", "tsp-small")
model("activations larger than memory", one_node("Relu", x=(FLOAT, [2048, 8192]), y=(FLOAT, [2048, 8192])),
      "--machine", "tsp-small")
model("activations of one channel, a vector each, larger than memory",
      one_node("AveragePool", kernel_shape=[3, 3], x=(FLOAT, [1, 1, 8000, 8000]), y=(FLOAT, [1, 1, 7998, 7998])))
