# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantises a float ONNX model to int8 with calibration on seeded inputs.

    python models/recipes/quantize.py IN.onnx OUT.onnx [--activations symmetric|asymmetric]
        [--format qdq|qoperator] [--seed 0] [--samples 4] [--dim name=n]...

Activations and weights are signed, weights have one scale per output channel and zero point 0,
biases are int32 with scale (input scale x weight scale). Batch-norm is folded first. ONNX Runtime's
static quantiser does the work; this recipe prepares the graph for it and tidies what it leaves.
"""
from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, version_converter
from onnxruntime import quantization as ortq

import probe
from graph import attribute, parse_dims, save

OPSET = 17  # per-channel scales need 13
QUANTISED = ["Conv", "Gemm", "MatMul", "Add", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool",
             "Concat", "Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze"]
FORMATS = {"qdq": ortq.QuantFormat.QDQ, "qoperator": ortq.QuantFormat.QOperator}


def quantize(model: onnx.ModelProto, activations: str = "symmetric", form: str = "qdq",
             seed: int = 0, samples: int = 4,
             dims: dict[str, int] | None = None) -> onnx.ModelProto:
    """The int8 model; graph inputs and outputs stay float32.

    `activations`: "symmetric" (zero point 0) or "asymmetric" (after a Relu the zero point is -128
    and saturation does its work). `form`: "qdq" (QuantizeLinear/DequantizeLinear around float
    operators) or "qoperator" (QLinearConv and the like). Calibrates by minimum and maximum over
    `samples` seeded inputs. Raises KeyError for an unknown form, ValueError for unknown
    activations or when nothing was quantised.
    """
    if activations not in ("symmetric", "asymmetric"):
        raise ValueError(f"activations are symmetric or asymmetric, not '{activations}'")
    ready = onnx.shape_inference.infer_shapes(prepare(model))
    feeds = Feeds([probe.seeded_inputs(ready, dims, seed + i) for i in range(samples)])
    result = quantize_static(ready, activations, form, feeds)
    skip_rounding_before_relu(result.graph)
    if not any(t.data_type == onnx.TensorProto.INT8 for t in result.graph.initializer):
        raise ValueError(f"nothing was quantised; the graph has none of {', '.join(QUANTISED)}")
    normalise_order(result)
    onnx.checker.check_model(result)
    return result


def quantize_static(model: onnx.ModelProto, activations: str, form: str,
                    feeds: Feeds) -> onnx.ModelProto:
    """ONNX Runtime's static quantiser with the options of this recipe."""
    logging.disable(logging.WARNING)  # it recommends preparations that are done here
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "int8.onnx"
            ortq.quantize_static(
                model, path, feeds, quant_format=FORMATS[form], per_channel=True,
                op_types_to_quantize=QUANTISED, activation_type=ortq.QuantType.QInt8,
                weight_type=ortq.QuantType.QInt8, calibrate_method=ortq.CalibrationMethod.MinMax,
                extra_options={"ActivationSymmetric": activations == "symmetric",
                               "WeightSymmetric": True})
            return onnx.load(path)
    finally:
        logging.disable(logging.NOTSET)


class Feeds(ortq.CalibrationDataReader):
    """Hands the calibration inputs to the quantiser, one after the other."""

    def __init__(self, inputs: list[dict[str, np.ndarray]]):
        self.rest = iter(inputs)

    def get_next(self):
        return next(self.rest, None)


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy at opset >= 13 with two-operand Sum as Add and batch-norm folded."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    version = next(o.version for o in copy.opset_import if o.domain in ("", "ai.onnx"))
    if version < 13:
        copy = version_converter.convert_version(copy, OPSET)
        copy.ir_version = max(copy.ir_version, 8)
    for node in copy.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    fold_batchnorm(copy.graph)
    return copy


def fold_batchnorm(graph: onnx.GraphProto) -> None:
    """Folds each BatchNormalization behind a Conv that nothing else reads, both with constant
    parameters, into the Conv: W' = W g, b' = (b - mean) g + beta, g = gain / sqrt(var + eps)."""
    values = {t.name: t for t in graph.initializer}
    convs = {n.output[0]: n for n in graph.node if n.op_type == "Conv"}
    readers = [name for node in graph.node for name in node.input]
    for norm in [n for n in graph.node if n.op_type == "BatchNormalization"]:
        conv = convs.get(norm.input[0])
        if conv is None or readers.count(norm.input[0]) != 1 or \
                any(name not in values for name in [*norm.input[1:5], *conv.input[1:]]):
            continue
        gain, beta, mean, variance = (
            numpy_helper.to_array(values[name]).astype(np.float64) for name in norm.input[1:5])
        gain = gain / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
        weight = numpy_helper.to_array(values[conv.input[1]])
        bias = numpy_helper.to_array(values[conv.input[2]]) if len(conv.input) > 2 else 0.0
        folded = {conv.output[0] + "_weight": weight * gain.reshape(-1, *[1] * (weight.ndim - 1)),
                  conv.output[0] + "_bias": (bias - mean) * gain + beta}
        for name, value in folded.items():
            graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
        del conv.input[1:]
        conv.input.extend(folded)
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    used = {name for node in graph.node for name in node.input}
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)


def skip_rounding_before_relu(graph: onnx.GraphProto) -> None:
    """Turns x -> Quantize -> Dequantize -> Relu into x -> Relu where nothing else reads between:
    ONNX Runtime rounds there when activations are symmetric, which only loses precision."""
    producer = {n.output[0]: n for n in graph.node}
    readers = [name for node in graph.node for name in node.input]
    for relu in [n for n in graph.node if n.op_type == "Relu"]:
        back = producer.get(relu.input[0])
        if back is None or back.op_type != "DequantizeLinear":
            continue
        forth = producer.get(back.input[0])
        # A tensor that feeds the grid only through this pair has a float producer.
        if forth is None or forth.op_type != "QuantizeLinear" or forth.input[0] not in producer:
            continue
        if readers.count(back.output[0]) == readers.count(forth.output[0]) == 1:
            relu.input[0] = forth.input[0]
            graph.node.remove(back)
            graph.node.remove(forth)


def normalise_order(model: onnx.ModelProto) -> None:
    """Sorts nodes topologically (ties by first output's name) and initializers by name; drops
    stored shapes and unread initializers. The quantiser's own order depends on string hashing."""
    graph = model.graph
    waiting = sorted(graph.node, key=lambda n: n.output[0])
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {""}
    ordered = []
    while waiting:
        ready = [n for n in waiting if all(name in known for name in n.input)]
        ordered += [onnx.NodeProto.FromString(n.SerializeToString()) for n in ready]
        known.update(name for n in ready for name in n.output)
        waiting = [n for n in waiting if n.output[0] not in known]
    used = {name for node in ordered for name in node.input}
    constants = sorted((onnx.TensorProto.FromString(t.SerializeToString())
                        for t in graph.initializer if t.name in used), key=lambda t: t.name)
    opsets = sorted(((o.domain, o.version) for o in model.opset_import
                     if o.domain in {"", *(n.domain for n in ordered)}))
    for field in (graph.node, graph.initializer, graph.value_info, model.opset_import,
                  model.metadata_props):
        del field[:]
    graph.node.extend(ordered)
    graph.initializer.extend(constants)
    model.opset_import.extend(onnx.helper.make_opsetid(*opset) for opset in opsets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--activations", choices=["symmetric", "asymmetric"], default="symmetric")
    parser.add_argument("--format", choices=FORMATS, default="qdq")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=4, help="calibration inputs")
    parser.add_argument("--dim", action="append", default=[], help="extent of a named axis: name=n")
    a = parser.parse_args()
    model = quantize(onnx.load(a.model), a.activations, a.format, a.seed, a.samples,
                     parse_dims(a.dim))
    probe.run(model, probe.seeded_inputs(model, parse_dims(a.dim), a.seed))  # it must load and run
    save(model, a.output)


if __name__ == "__main__":
    main()
