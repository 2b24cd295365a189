# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do 16 PEs of the mesh earn their place?"""
import numpy as np

import randomize
from oracle import cut_softmax, run_millrace, save_model

ONE_PE = [f"--set={key}" for key in ("fabric.topology=single", "fabric.rows=1", "fabric.columns=1",
                                     "memory.rows_per_bank=8192")]


def test_squeezenet_needs_at_most_a_quarter_of_the_cycles_of_one_pe(millrace, tmp_path):
    model = save_model(cut_softmax(randomize.randomize(randomize.load("light:squeezenet"))), tmp_path)
    sixteen = run_millrace(millrace, model, "mesh-4x4", "fp16", {}, tmp_path / "16", ["--cycles-only"])
    one = run_millrace(millrace, model, "mesh-4x4", "fp16", {}, tmp_path / "1", ["--cycles-only", *ONE_PE])
    assert 4 * sixteen.report["measured_cycles"] <= one.report["measured_cycles"]
    shares = np.array(sixteen.report["macs_executed_by_pe"])
    assert (shares >= 0.03 * shares.sum()).sum() >= 12
