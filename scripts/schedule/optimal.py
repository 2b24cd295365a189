#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""optimal.py PROBLEM.json SCHEDULE.json [SECONDS]: solves a small schedule problem with OR-Tools CP-SAT (pip install ortools).

Prints `optimal CYCLES` or, when the seconds (60) are over, `at most CYCLES, at least CYCLES`. Everything that the problem
leaves free is free here: also who follows whom on what values live in (docs/spec/schedule-problem.md).
"""
import json
import sys
from collections import defaultdict

from ortools.sat.python import cp_model


def solve(problem, seconds):
    """The starts, whether they are optimal, cycles of the schedule, cycles that none undercuts."""
    bundles = problem["bundles"]
    given = [b["start_cycle"] for b in bundles]
    horizon = max((given[i] + (b["last_write_cycles"] or 0) for i, b in enumerate(bundles)), default=0)
    model = cp_model.CpModel()
    starts = [model.new_int_var(0, horizon, f"bundle{i}") for i in range(len(bundles))]
    for start, cycle in zip(starts, given):
        model.add_hint(start, cycle)
    for before, after, distance, _ in problem["precedence"]:
        model.add(starts[after] - starts[before] >= distance)
    places = defaultdict(list)  # (step, resource): intervals with the parts that they take
    for start, bundle in zip(starts, bundles):
        for resource, at, length, count, every, low, high in bundle["holds"]:
            for k in range(count):
                interval = model.new_fixed_size_interval_var(start + at + k * every, length, "")
                places[bundle["step"], resource].append((interval, low, high))
    reach = 10 * horizon + 10**6
    for span in problem["spans"]:
        # A span begins with the first of its begins and ends with the last of its ends.
        ends = []
        for moments, none, extreme in ((span["begins"], -reach, model.add_min_equality),
                                       (span["ends"], reach, model.add_max_equality)):
            ends.append(model.new_int_var(-reach, reach, "") if moments else none)
            if moments:
                extreme(ends[-1], [starts[b] + at for b, at in moments])
        interval = model.new_interval_var(ends[0], model.new_int_var(0, 2 * reach, ""), ends[1], "")
        places[span["step"], span["resource"]].append((interval, span["low_part"], span["high_part"]))
    for held in places.values():
        # Between two neighbouring borders of parts all of a resource's parts are alike.
        for part in sorted({low for _, low, _ in held}):
            model.add_no_overlap([interval for interval, low, high in held if low <= part <= high])
    lengths = []
    for k, step in enumerate(problem["steps"]):
        writes = [starts[i] + b["last_write_cycles"] for i, b in enumerate(bundles)
                  if b["step"] == k and b["last_write_cycles"] is not None]
        lengths.append(model.new_int_var(0, horizon + step["fixed_cycles"], ""))
        model.add_max_equality(lengths[-1], [step["fixed_cycles"]] + [w + step["fixed_cycles"] for w in writes])
    model.minimize(sum(lengths))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        sys.exit(f"no schedule: {solver.status_name(status)}")
    return ([solver.value(s) for s in starts], status == cp_model.OPTIMAL, round(solver.objective_value),
            round(solver.best_objective_bound))


def main(problem_file, schedule_file, seconds=60):
    problem = json.load(open(problem_file, encoding="utf-8"))
    starts, optimal, cycles, bound = solve(problem, float(seconds))
    print(f"optimal {cycles}" if optimal else f"at most {cycles}, at least {bound}")
    json.dump({"format": "millrace-schedule", "version": 1, "problem": problem["problem"],
               "starts_cycle": list(enumerate(starts))}, open(schedule_file, "w", encoding="utf-8"))


if __name__ == "__main__":
    main(*sys.argv[1:])
