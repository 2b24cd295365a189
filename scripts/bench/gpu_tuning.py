# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/bench/gpu --tune makes of times: entries of the tuning table (docs/spec/gpu-tuning.schema.json)."""
import json

# Schedules that are tried; tests hold each to its values and to no spills (TuningTest.cpp, test_gpu_tuning.py).
CANDIDATES = {
    "product": [{"rows": r, "columns": c, "depth": d} for r, c, d in
                [(64, 64, 32), (64, 32, 32), (32, 64, 32), (32, 32, 32), (32, 16, 64), (32, 8, 64)]],
    "attention": [{"rows": r, "keys": k} for r, k in [(64, 32), (64, 16), (32, 32), (32, 16)]],
}


def bucket(size, base=2):
    """From the greatest power of the base that is not above the size to below the next."""
    low = 1
    while low * base <= size:
        low *= base
    return [low, low * base - 1]


def chip_name(table, gpu_name):
    """The table's name of a GPU that its driver names; None: it has no such chip, by whose roofline to measure."""
    return next((chip["name"] for chip in table["chips"] if gpu_name in chip["driver_names"]), None)


def for_chip(table, chip):
    """The table for estimates of this chip."""
    return dict(table, estimated_chip=chip)


def with_schedule(table, op, schedule):
    """The text of a table that gives every kernel of the op this schedule."""
    entry = {"op": op, "type": "any", "chip": table["estimated_chip"], "sizes": {}, "schedule": schedule, "roofline_share": 1,
             "provenance": {"kind": "measured", "date": "", "by": "scripts/bench/gpu --tune, while it tries schedules"}}
    others = [own for own in table["entries"] if own["op"] != op]
    return json.dumps(dict(table, entries=others + [entry]))


def entry_of(launch, chip, schedule, provenance):
    """An entry for kernels like that of a launch that was timed (a row of `launches` of `millrace kernels --json`)."""
    kind, seconds = launch["kind"], launch["median_seconds"]
    if launch["kind"]["op"] in CANDIDATES:
        sizes = {name: [size, size] if name == "staged" else bucket(size)
                 for name, size in kind.items() if name not in ("op", "type", "bytes")}
    else:
        sizes = {"bytes": bucket(kind["bytes"], 4)}
    return {"op": kind["op"], "type": kind["type"], "chip": chip, "sizes": sizes, "schedule": schedule,
            "roofline_share": min(1.0, launch["roofline_seconds"] / seconds),
            "provenance": dict(provenance, kind="measured", median_seconds=seconds)}


def merge(table, entries):
    """The table with new entries, in place of measured ones of the same kernels."""
    def key(entry):
        return json.dumps([entry[name] for name in ("op", "type", "chip", "sizes")], sort_keys=True)
    new = {key(entry) for entry in entries}
    kept = [entry for entry in table["entries"] if entry["provenance"]["kind"] != "measured" or key(entry) not in new]
    return dict(table, entries=kept + entries)
