#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""justify.py PROBLEM.json SCHEDULE.json [ROUNDS]: solves a schedule problem (docs/spec/schedule-problem.md) in plain Python.

From the starts that the problem comes with: every bundle as late as it fits without the end moving, all together back to
cycle 0, every bundle as early as it fits; 3 rounds of it. Who follows whom on what values live in stays.
"""
import json
import sys
from collections import defaultdict


class Solver:
    def __init__(self, problem):
        self.bundles, self.spans = problem["bundles"], problem["spans"]
        self.starts = [b["start_cycle"] for b in self.bundles]
        self.holds = [[(b["step"], r, at + k * every, length, low, high) for r, at, length, n, every, low, high in b["holds"]
                       for k in range(n)] for b in self.bundles]
        self.board = defaultdict(list)  # (step, resource, cycle // 128): who has parts when
        for b, start in enumerate(self.starts):
            self.put(b, start)
        self.before, self.behind = defaultdict(list), defaultdict(list)  # by bundle: (bundle, distance)
        for a, b, distance, _ in problem["precedence"]:
            self.connect(a, b, distance)
        last = {}  # by part: its span so far
        for k in sorted(range(len(self.spans)), key=lambda k: min((self.starts[b] + at for b, at in self.spans[k]["begins"]),
                                                                  default=-1)):
            s = self.spans[k]
            parts = [(s["step"], s["resource"], part) for part in range(s["low_part"], s["high_part"] + 1)]
            for span in {last[p] for p in parts if p in last}:
                for a, end in self.spans[span]["ends"]:
                    for b, begin in s["begins"]:
                        self.connect(a, b, end - begin)
            last.update(dict.fromkeys(parts, k))

    def connect(self, a, b, distance):
        if a != b:
            self.behind[a].append((b, distance))
            self.before[b].append((a, distance))

    def entries(self, b, start):
        for step, resource, at, length, low, high in self.holds[b]:
            first, end = start + at, start + at + length
            for i in range(first // 128, (end - 1) // 128 + 1):
                yield self.board[step, resource, i], (first, end, low, high, b)

    def put(self, b, start):
        for bin_, entry in self.entries(b, start):
            bin_.append(entry)

    def fit(self, b, start, back):
        """The next start from this one on, forward or back, at which the bundle meets nobody."""
        shift = 1
        while shift:
            shift = 0
            for bin_, (first, end, low, high, _) in self.entries(b, start):
                for f, e, l, h, _ in bin_:
                    if f < end and first < e and l <= high and low <= h:
                        shift = max(shift, end - f if back else e - first)
            start += -shift if back else shift
        return start

    def sweep(self, back):
        last = defaultdict(int)  # by step: the last write slot
        for b, start in zip(self.bundles, self.starts):
            last[b["step"]] = max(last[b["step"]], start + (b["last_write_cycles"] or 0))
        for b in sorted(range(len(self.starts)), key=lambda b: self.starts[b], reverse=back):
            for bin_, entry in self.entries(b, self.starts[b]):
                bin_.remove(entry)
            bound = [last[self.bundles[b]["step"]] - (self.bundles[b]["last_write_cycles"] or 0)] if back else [0]
            bound += [self.starts[c] - d for c, d in self.behind[b]] if back else [self.starts[a] + d for a, d in self.before[b]]
            self.starts[b] = self.fit(b, (min if back else max)(bound), back)
            self.put(b, self.starts[b])


def main(problem_file, schedule_file, rounds=3):
    with open(problem_file, encoding="utf-8") as file:
        problem = json.load(file)
    for _ in range(int(rounds)):
        solver = Solver(problem)
        solver.sweep(back=True)
        first = {step: min(s for s, b in zip(solver.starts, problem["bundles"]) if b["step"] == step)
                 for step in {b["step"] for b in problem["bundles"]}}
        for b, start in zip(problem["bundles"], solver.starts):
            b["start_cycle"] = start - first[b["step"]]
        solver = Solver(problem)
        solver.sweep(back=False)
        for b, start in zip(problem["bundles"], solver.starts):
            b["start_cycle"] = start
    with open(schedule_file, "w", encoding="utf-8") as file:
        json.dump({"format": "millrace-schedule", "version": 1, "problem": problem["problem"],
                   "starts_cycle": list(enumerate(solver.starts))}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
