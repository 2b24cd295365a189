#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""list_scheduling.py PROBLEM.json SCHEDULE.json: solves a schedule problem (docs/spec/schedule-problem.md) in 60 lines.

Bundles whose predecessors are placed, in the order of the starts that the problem comes with, each at the first start at
which it meets nobody. Who follows whom on what values live in stays.
"""
import heapq
import json
import sys
from collections import defaultdict


def main(problem_file, schedule_file):
    problem = json.load(open(problem_file, encoding="utf-8"))
    bundles, spans = problem["bundles"], problem["spans"]
    given = [b["start_cycle"] for b in bundles]
    node = len(bundles)  # the first node of a span: when the last bundle that needs its value is done with it
    edges = [(before, after, distance) for before, after, distance, _ in problem["precedence"]]
    edges += [(b, node + k, at) for k, s in enumerate(spans) for b, at in s["ends"]]
    last = {}  # the span on each part of what values live in, so far
    for k in sorted(range(len(spans)), key=lambda k: min((given[b] + at for b, at in spans[k]["begins"]), default=-1)):
        s = spans[k]
        places = [(s["step"], s["resource"], part) for part in range(s["low_part"], s["high_part"] + 1)]
        for before in {last[p] for p in places if p in last}:
            ends = dict(spans[before]["ends"])
            for b, at in s["begins"]:  # who both ends and begins does not wait for itself
                edges += [(e, b, ends[e] - at) for e in ends if e != b] if b in ends else [(node + before, b, -at)]
        last.update(dict.fromkeys(places, k))
    behind, waits = defaultdict(list), [0] * (node + len(spans))
    for before, after, distance in edges:
        behind[before].append((after, distance))
        waits[after] += 1

    starts = [0] * node + [-10**9] * len(spans)
    ready = [(given[b] if b < node else -1, b) for b in range(len(waits)) if not waits[b]]
    heapq.heapify(ready)
    board = defaultdict(list)  # (step, resource, cycle // 128): who holds parts when
    while ready:
        b = heapq.heappop(ready)[1]
        if b < node:
            place(bundles[b], b, starts, board)
        for after, distance in behind[b]:
            starts[after] = max(starts[after], starts[b] + distance)
            waits[after] -= 1
            if not waits[after]:
                heapq.heappush(ready, (given[after] if after < node else -1, after))
    if any(waits):  # bundles that wait for each other by distances below 0: where to begin, this solver does not know
        starts = given
    json.dump({"format": "millrace-schedule", "version": 1, "problem": problem["problem"],
               "starts_cycle": list(enumerate(starts[:node]))}, open(schedule_file, "w", encoding="utf-8"))


def place(bundle, b, starts, board):
    holds = [(resource, at + k * every, length, low, high)
             for resource, at, length, count, every, low, high in bundle["holds"] for k in range(count)]
    clean = k = 0
    while clean < len(holds):  # round and round, until all of them are free at one start
        resource, at, length, low, high = holds[k % len(holds)]
        first, end, free = starts[b] + at, starts[b] + at + length, starts[b] + at
        for i in range(first // 128, (end - 1) // 128 + 1):
            for f, e, l, h in board[bundle["step"], resource, i]:
                free = max(free, e) if f < end and first < e and l <= high and low <= h else free
        starts[b] += free - first
        clean, k = (clean + 1 if free == first else 0), k + 1
    for resource, at, length, low, high in holds:
        first, end = starts[b] + at, starts[b] + at + length
        for i in range(first // 128, (end - 1) // 128 + 1):
            board[bundle["step"], resource, i].append((first, end, low, high))


main(*sys.argv[1:3])
