# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds ONNX graphs with seeded weights; saves them so that equal models are equal bytes."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
IR_VERSION = 8


class Graph:
    """A graph under construction. Tensor names are the values that its methods return.

    Every weight draws from its own generator, seeded by (seed, number of weights before it), so a
    change behind a weight never changes it.
    """

    def __init__(self, name: str, seed: int = 0):
        self.name, self.seed, self.drawn, self.count = name, seed, 0, {}
        self.nodes, self.inputs, self.outputs, self.initializers = [], [], [], []
        self.domains = {"": OPSET}

    def input(self, name: str, shape, dtype=np.float32) -> str:
        """Adds a graph input; an extent is an int or the name of an axis."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, shape, dtype=np.float32) -> None:
        """Declares tensor `name` a graph output."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, value: np.ndarray, name: str | None = None) -> str:
        """Adds an initializer with the given values."""
        name = name or self.fresh("const")
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def rng(self) -> np.random.Generator:
        self.drawn += 1
        return np.random.default_rng([self.seed, self.drawn])

    def normal(self, shape, deviation: float, mean: float = 0.0) -> str:
        """Adds a float32 weight with normal values."""
        value = self.rng().normal(mean, deviation, shape).astype(np.float32)
        return self.constant(value, self.fresh("weight"))

    def uniform(self, shape, low: float, high: float) -> str:
        """Adds a float32 weight with uniform values in [low, high)."""
        value = self.rng().uniform(low, high, shape).astype(np.float32)
        return self.constant(value, self.fresh("weight"))

    def add(self, op: str, *operands: str, outputs: int = 1, name: str = "", domain: str = "",
            **attributes):
        """Adds a node; returns its output name (the node's own), or a list of `outputs` names."""
        if domain:
            self.domains[domain] = 1
        name = name or self.fresh(op.lower())
        results = [name if i == 0 else f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(operands), results, name=name, domain=domain,
                                           **attributes))
        return results[0] if outputs == 1 else results

    def fresh(self, stem: str) -> str:
        number = self.count.get(stem, 0)
        self.count[stem] = number + 1
        return f"{stem}_{number}"

    def model(self) -> onnx.ModelProto:
        """The finished model, checked. Raises onnx.checker.ValidationError."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs,
                                  self.initializers)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION,
                                  producer_name="millrace-recipes")
        onnx.checker.check_model(model)
        return model


def attribute(node: onnx.NodeProto, name: str, default):
    """Value of an attribute of `node`, or `default`."""
    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def parse_dims(texts: list[str]) -> dict[str, int]:
    """{"name": n} from ["name=n", ...]. Raises ValueError naming a text of another form."""
    dims = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdigit():
            raise ValueError(f"'{text}' is not name=n with n a non-negative integer")
        dims[name] = int(number)
    return dims


def save(model: onnx.ModelProto, path: str | Path) -> None:
    """Writes `model`: equal models give equal bytes. Makes the folder if it does not exist."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
