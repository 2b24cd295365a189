// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Partition.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Sharding.h"
#include "compiler/Codegen/Grid/Shares.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace millrace::grid {

bool RowSet::any() const {
  return std::any_of(tiles.begin(), tiles.end(),
                     [](const std::vector<bool> &rows) { return !rows.empty(); });
}

bool RowSet::has(unsigned tile, int64_t row) const {
  return !tiles.empty() && !tiles[tile].empty() && tiles[tile][size_t(row)];
}

void RowSet::mark(const TensorLayout &layout, unsigned tile, const SteppedRows &rows) {
  if (tiles.empty())
    tiles.assign(layout.tiles.size(), {});
  std::vector<bool> &its = tiles[tile];
  if (its.empty())
    its.assign(size_t(layout.rows), false);
  if (rows.step == 1) // word by word
    std::fill_n(its.begin() + rows.first, rows.count, true);
  else
    rows.forEach([&](int64_t row) { its[size_t(row)] = true; });
}

namespace {

/// Rows of weights beyond `room` in the hemisphere that has the least of it left; less than none
/// where all have some.
int64_t excessOf(const Partition &p, const std::vector<uint64_t> &room) {
  int64_t most = INT64_MIN;
  for (size_t i = 0; i < room.size(); ++i)
    most = std::max(most, int64_t(p.weightRows[i]) - int64_t(room[i]));
  return most;
}

/// Rows that each hemisphere of a PE reads for a kernel.
void findReads(const PartitionProblem &problem, Partition &p, size_t k, unsigned pe) {
  const Context &c = problem.c;
  const Kernel &kernel = c.graph.kernels[k];
  const Work &work = problem.works[k];
  if (p.shares[k][pe].empty())
    return;
  // Several reads of one tensor in one piece take its copies in turn, those of the other hemisphere
  // where its own has fewer.
  std::map<unsigned, unsigned> reads;
  for (const Access &o : kernel.operands)
    ++reads[o.tensor];
  const std::vector<Worker> team =
      kernel.terms.empty() ? std::vector<Worker>() : workersOf(c, pe, contractedType(c, kernel));
  for (size_t member = 0; member < teamOf(c, kernel); ++member) {
    const size_t h = team.empty() ? member : size_t(team[member].hemisphere);
    for (const Share &share : sharesOf(c, work, p, k, pe, member, work.strips))
      forEachRead(c, kernel, work, share, [&](unsigned t, unsigned tile, const SteppedRows &rows) {
        const bool isInTurn = reads.contains(t) && reads[t] > 1 &&
                              (problem.copies.empty() || problem.copies[t].rows[h] < reads[t]);
        for (size_t side = 0; side < kHemispheres; ++side)
          if (side == h || isInTurn)
            p.tensors[t].read[pe][side].mark(c.layouts[t], tile, rows);
      });
  }
}

Status findRows(const PartitionProblem &problem, Partition &p) {
  const Context &c = problem.c;
  std::optional<Error> outside;
  p.tensors.resize(c.graph.tensors.size());
  for (TensorRows &rows : p.tensors) {
    rows.owned.resize(c.machine.pes());
    rows.needed.resize(c.machine.pes());
    rows.read.resize(c.machine.pes());
  }
  for (size_t k = 0; k < problem.works.size(); ++k)
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
      for (const Share &share : p.shares[k][pe]) {
        const Kernel &kernel = c.graph.kernels[k];
        auto note = [&](std::vector<RowSet> TensorRows::*sets) {
          return [&, sets](unsigned t, unsigned tile, const SteppedRows &rows) {
            if (rows.isWithin(c.layouts[t].rows))
              (p.tensors[t].*sets)[pe].mark(c.layouts[t], tile, rows);
            else
              outside =
                  Error{"kernel '" + kernel.name + "' touches rows " + std::to_string(rows.first) +
                        " to " + std::to_string(rows.last()) + " of '" + c.tensor(t).name +
                        "', which has " + std::to_string(c.layouts[t].rows) +
                        "; please report it with the model and the machine"};
          };
        };
        forEachRead(c, kernel, problem.works[k], share, note(&TensorRows::needed));
        forEachWritten(c, kernel, problem.works[k], share, note(&TensorRows::owned));
      }
  if (!outside)
    for (size_t k = 0; k < problem.works.size(); ++k)
      for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
        findReads(problem, p, k, pe);
  return outside ? Status(*outside) : Status(Success{});
}

} // namespace

Expected<Partition> solve(const PartitionProblem &problem, const std::string &name) {
  const Machine &m = problem.c.machine;
  const uint64_t all = problem.c.rowsOfHemisphere() / m.mxm.columnsPerInstall;
  const std::vector<uint64_t> room =
      problem.mostWeightRows.empty()
          ? std::vector<uint64_t>(size_t(m.pes()) * kHemispheres, all - all / 8)
          : problem.mostWeightRows;
  Expected<WeightRows> weights = WeightRows::of(problem.c, problem.works);
  if (!weights)
    return weights.takeError();
  std::optional<Partition> best;
  // Rather fewer PEs for some kernels, or another solver, than half of the hemispheres idle.
  for (bool spares : {false, true})
    for (const PartitionSolver &solver : partitionSolvers())
      for (bool shards : {false, true}) {
        if (name != "auto" && name != solver.name)
          continue;
        if ((best && problem.pes() == 1 &&
             best->solver != solver.name) || // all solvers deal one PE alike
            (shards &&
             (spares || !solver.shards || problem.pes() < problem.order.size() || m.pes() == 1)) ||
            (best && excessOf(*best, room) <= 0))
          continue;
        Partition p;
        p.solver = solver.name;
        p.shares = solver.solve(problem);
        p.hemispheres.assign(problem.works.size(), std::vector<std::vector<Hemisphere>>(m.pes()));
        p.splitK.assign(problem.works.size(), false);
        p.turned.assign(problem.works.size(), false);
        weights->splitIdle(p);
        if (shards)
          shard(*weights, p, problem.order, room);
        if (spares)
          weights->spare(p, room);
        p.weightRows = weights->stored(p);
        if (!best || excessOf(p, room) < excessOf(*best, room))
          best = p;
      }
  if (!best) {
    std::string known = "auto";
    for (const PartitionSolver &solver : partitionSolvers())
      known += ", " + solver.name;
    return Error{"no partition solver is called '" + name + "'; there are " + known};
  }
  if (Status rows = findRows(problem, *best); !rows)
    return rows.takeError();
  return *best;
}

Status verify(const PartitionProblem &problem, const Partition &partition) {
  const Context &c = problem.c;
  for (size_t k = 0; k < problem.works.size(); ++k) {
    const Work &w = problem.works[k];
    std::vector<unsigned> times(size_t(w.units()), 0);
    for (const auto &shares : partition.shares[k])
      for (const Share &share : shares)
        for (int64_t s = share.strip; s < share.strip + share.strips; ++s)
          ++times[(share.instance * w.tiles.size() + share.tile) * size_t(w.strips) + size_t(s)];
    for (size_t unit = 0; unit < times.size(); ++unit)
      if (times[unit] != 1)
        return Error{"partition '" + partition.solver + "': unit " + std::to_string(unit) +
                     " of kernel '" + c.graph.kernels[k].name + "' is dealt " +
                     std::to_string(times[unit]) + " times"};
  }
  std::vector<bool> made(c.graph.tensors.size(), false);
  for (const Kernel &kernel : c.graph.kernels)
    for (const forms::Result &r : kernel.results)
      made[r.access.tensor] = true;
  for (unsigned t = 0; t < partition.tensors.size(); ++t) {
    const TensorRows &rows = partition.tensors[t];
    for (unsigned pe = 0; pe < rows.needed.size() && made[t]; ++pe)
      for (unsigned tile = 0; tile < rows.needed[pe].tiles.size(); ++tile)
        for (int64_t row = 0; row < int64_t(rows.needed[pe].tiles[tile].size()); ++row)
          if (rows.needed[pe].has(tile, row) &&
              std::none_of(rows.owned.begin(), rows.owned.end(),
                           [&](const RowSet &owned) { return owned.has(tile, row); }))
            return Error{"partition '" + partition.solver + "': PE " + std::to_string(pe) +
                         " reads row " + std::to_string(row) + " of '" + c.tensor(t).name +
                         "', which no PE writes"};
  }
  return Success{};
}

} // namespace millrace::grid
