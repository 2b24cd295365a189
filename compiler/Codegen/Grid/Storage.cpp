// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Storage.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <set>

namespace millrace::grid {

using forms::TensorRole;

namespace {

bool holdsAny(const RowRuns &runs) {
  return std::any_of(runs.begin(), runs.end(),
                     [](const std::vector<RowRun> &list) { return !list.empty(); });
}

} // namespace

/// Installs take whole groups of columns. Those that a kernel takes all exist (checkWindows).
bool Storage::installsMoreThan(const Work &work) const {
  const int64_t group = c.machine.mxm.columnsPerInstall;
  return !work.roles.lane || std::any_of(work.tiles.begin(), work.tiles.end(),
                                         [&](const auto &tile) { return tile.count % group != 0; });
}

/// Whoever writes the last columns writes those behind them, too; rows that come from elsewhere, or
/// are fewer, have zeros behind them.
ColumnPadding Storage::paddingOf(unsigned tensor) const {
  return c.pes == 1 && !c.ofHost[tensor] &&
                 c.layouts[tensor].rows >= repeatDistance(c.machine.mxm.columnsPerInstall)
             ? ColumnPadding::Repeats
             : ColumnPadding::Zeros;
}

void Storage::planCopies(const std::vector<size_t> &order, CopiesFor what) {
  needs.clear();
  for (const Copies &copies : copiesOf(c.graph, c.machine, what, c.used.planes, c.pes))
    needs.push_back({copies});
  lives.resize(needs.size());
  swept.assign(needs.size(), 0);
  isOperand.assign(needs.size(), false);
  for (const Kernel &kernel : c.graph.kernels) {
    for (const forms::Term &t : kernel.terms)
      ++swept[t.a.tensor];
    for (const Access &o : kernel.operands)
      isOperand[o.tensor] = true;
  }
  for (size_t at = 0; at < order.size(); ++at)
    forms::forEachTensor(c.graph, c.graph.order[order[at]], [&](unsigned t) {
      lives[t] = {std::min(lives[t].from, at), at};
    });
  for (unsigned t = 0; t < needs.size(); ++t)
    if (lives[t].from != SIZE_MAX) {
      if (c.tensor(t).role == TensorRole::Output)
        lives[t].to = order.size();
      if (c.tensor(t).role == TensorRole::Input)
        lives[t].from = 0;
    }
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    for (const forms::Term &t : c.graph.kernels[k].terms)
      if (needs[t.w.tensor].columns && installsMoreThan(works[k]))
        needs[t.w.tensor].padding = paddingOf(t.w.tensor);
}

uint64_t Storage::mostValueRows() const {
  const unsigned width = c.machine.mxm.columnsPerInstall;
  size_t end = 0;
  for (const Life &life : lives)
    end = std::max(end, life.to);
  std::vector<uint64_t> live(end + 2, 0); // what begins less what ended, then its sum
  uint64_t constant = 0;
  for (unsigned t = 0; t < needs.size(); ++t) {
    if (lives[t].from == SIZE_MAX)
      continue;
    const uint64_t vectors = byteWidth(c.tensor(t).type) * c.layouts[t].tiles.size();
    const auto [less, more] = std::minmax(needs[t].rows[0], needs[t].rows[1]);
    uint64_t rows = more * vectors;
    if (less == 0) // others have theirs in the other hemisphere
      rows = (rows + 1) / kHemispheres;
    if (c.tensor(t).role == TensorRole::Constant) {
      constant += isOfOneKernel(t) ? rows * streamedRows(t) / kHemispheres
                                   : rows * uint64_t(c.layouts[t].rows);
      continue;
    }
    rows *= uint64_t(c.layouts[t].rows);
    if (needs[t].columns && !needs[t].isPadded())
      rows += columnGroups(t) * width * vectors;
    live[lives[t].from] += rows;
    live[lives[t].to + 1] -= rows;
  }
  for (const std::vector<unsigned> &turns : paddedPlaces())
    constant += columnGroups(turns.front()) * width * byteWidth(c.tensor(turns.front()).type) *
                c.layouts[turns.front()].tiles.size();
  uint64_t most = 0, sum = 0;
  for (uint64_t change : live)
    most = std::max(most, sum += change);
  return (constant + most) / c.pes + tableRows();
}

/// Rows of tables that a hemisphere holds at most, if lane tiles are dealt evenly.
uint64_t Storage::tableRows() const {
  std::set<unsigned> tables;
  for (const Kernel &kernel : c.graph.kernels)
    for (const Access &o : kernel.operands)
      if (o.lookup)
        tables.insert(o.tensor);
  uint64_t rows = 0;
  for (unsigned t : tables)
    rows += uint64_t(c.layouts[t].rows) * byteWidth(c.tensor(t).type) *
            ((c.layouts[t].tiles.size() + 1) / kHemispheres);
  return rows;
}

/// Tensors with column copies, by the beginning of their lives.
std::vector<unsigned> Storage::columnsByLife() const {
  std::vector<unsigned> tensors;
  for (unsigned t = 0; t < needs.size(); ++t)
    if (needs[t].columns)
      tensors.push_back(t);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](unsigned x, unsigned y) { return lives[x].from < lives[y].from; });
  return tensors;
}

/// Can a padded column copy of `next` take the places of one of `tensor`?
bool Storage::precedes(unsigned tensor, unsigned next) const {
  const TensorLayout &x = c.layouts[tensor], &y = c.layouts[next];
  return lives[tensor].to < lives[next].from && x.rows == y.rows &&
         x.tiles.size() == y.tiles.size() &&
         byteWidth(c.tensor(tensor).type) == byteWidth(c.tensor(next).type);
}

/// Column groups of a column copy of the tensor, at most.
uint64_t Storage::columnGroups(unsigned tensor) const {
  return uint64_t(c.layouts[tensor].rows / c.machine.mxm.columnsPerInstall + 2);
}

uint64_t Storage::columnRows() const {
  uint64_t rows = 0;
  for (unsigned t : columnsByLife())
    rows += columnGroups(t) * byteWidth(c.tensor(t).type) * c.layouts[t].tiles.size();
  return rows;
}

/// Padded column copies stay to the end; tensors that take one place after the other stand
/// together.
std::vector<std::vector<unsigned>> Storage::paddedPlaces() const {
  std::vector<std::vector<unsigned>> places;
  for (unsigned t : columnsByLife()) {
    if (!needs[t].isPadded())
      continue;
    const auto before =
        std::find_if(places.begin(), places.end(),
                     [&](const std::vector<unsigned> &p) { return precedes(p.back(), t); });
    if (before != places.end())
      before->push_back(t);
    else
      places.push_back({t});
  }
  return places;
}

/// Rows of a constant that stream into the MXM for the one kernel that takes it.
uint64_t Storage::streamedRows(unsigned tensor) const {
  uint64_t rows = 1;
  for (const Kernel &kernel : c.graph.kernels)
    for (const forms::Term &t : kernel.terms)
      for (unsigned l = 0; t.a.tensor == tensor && l < kernel.loops.size(); ++l)
        if (rowCoefficient(c.layouts[tensor], t.a, l))
          rows *= uint64_t(kernel.loops[l].extent);
  return std::min(rows, uint64_t(c.layouts[tensor].rows));
}

/// Splits the slices of a hemisphere: whole install sets for weights, the rest for activations.
void Storage::splitSlices() {
  const unsigned set = c.machine.mxm.columnsPerInstall;
  const std::vector<uint64_t> weights = partition.weightRows;
  uint64_t rows = 64 + *std::max_element(weights.begin(), weights.end()) + columnRows();
  auto addColumns = [&](unsigned t) {
    rows += columnGroups(t) * byteWidth(c.tensor(t).type) * c.layouts[t].tiles.size();
  };
  for (const std::vector<unsigned> &turns : paddedPlaces())
    addColumns(turns.front());
  for (unsigned t : columnsByLife())
    if (!needs[t].isPadded())
      addColumns(t);
  rows += tableRows() / set;
  rows += rows / 16;
  const unsigned slices = c.slices();
  const uint64_t sets = std::max<uint64_t>(2, rows / c.rowsPerSlice() + 1);
  if (sets * set <= slices - slices / 6)
    c.weightSlices = c.endOfSlices(unsigned(sets) * set);
  else // no longer whole sets: any slices
    c.weightSlices = c.endOfSlices(unsigned(
        std::min<uint64_t>(slices, std::max<uint64_t>(set, rows * set / c.rowsPerSlice() + 1))));
}

/// Tables on every PE that computes a part of a kernel that looks into them.
Status Storage::storeTables() {
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    for (unsigned pe = 0; pe < c.machine.pes() && forms::looksUp(c.graph.kernels[k]); ++pe)
      if (!partition.shares[k][pe].empty())
        if (Status s = c.addLookups(c.graph.kernels[k], pe); !s)
          return s;
  return Success{};
}

Status Storage::storeWeights() {
  for (size_t k = 0; k < c.graph.kernels.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    if (kernel.terms.empty())
      continue;
    const int64_t most = longestShare(c, works[k]);
    const auto halfOf = [&](size_t kernel, const Worker &worker) {
      return partition.splitK[kernel]
                 ? std::optional(grid::halfOf(partition, kernel, worker.hemisphere))
                 : std::nullopt;
    };
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
      const std::vector<Worker> team = workersOf(c, pe, contractedType(c, kernel));
      std::vector<std::vector<Share>> shares;
      size_t longest = 0;
      for (size_t member = 0; member < team.size(); ++member) {
        shares.push_back(sharesOf(c, works[k], partition, k, pe, member, most));
        longest = std::max(longest, shares.back().size());
      }
      for (size_t j = 0; j < longest; ++j) // as they will be installed
        for (size_t member = 0; member < team.size(); ++member)
          if (j < shares[member].size())
            if (Status s = storeWeightsOf(c, kernel, k, works[k], shares[member][j], team[member],
                                          halfOf(k, team[member]));
                !s)
              return s;
    }
  }
  return Success{};
}

bool Storage::isOn(unsigned tensor, unsigned pe) const {
  const TensorRows &rows = partition.tensors[tensor];
  return rows.owned[pe].any() || rows.needed[pe].any();
}

/// Column copies are padded with zero rows, which are loaded with the program: into rows that
/// nothing uses before, and that only copies of the same shape use later.
Status Storage::storeColumns() {
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    std::vector<unsigned> last; ///< who is last in its places
    for (unsigned t : columnsByLife()) {
      if (!needs[t].isPadded() || !isOn(t, pe))
        continue;
      const auto at = std::find_if(last.begin(), last.end(), [&](unsigned before) {
        return precedes(before, t) && !c.wouldMeet(t, before, pe);
      });
      if (at == last.end()) {
        if (Status s = addColumns(t, pe); !s)
          return s;
        last.push_back(t);
        continue;
      }
      c.inheritColumnCopies(t, *at, pe);
      *at = t;
    }
  }
  return Success{};
}

Status Storage::addColumns(unsigned tensor, unsigned pe) {
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    if (!c.columnCopy(tensor, pe, h))
      if (Status s = c.addColumnCopy(tensor, pe, h, needs[tensor].padding); !s)
        return s;
  return Success{};
}

/// Twice what the kernels' per-lane constants need if every PE computes all, evenly spread.
/// At most a thirty-second of the memory, or a sixteenth once rows were missing (`pressure`).
void Storage::reserveConstantRows(unsigned pressure) {
  uint64_t rows = 0;
  for (size_t k = 0; k < c.graph.kernels.size(); ++k) {
    std::set<unsigned> constants;
    for (const Access &o : c.graph.kernels[k].operands)
      if (c.tensor(o.tensor).role == TensorRole::Constant && !o.lookup)
        constants.insert(o.tensor);
    for (unsigned t : constants)
      rows += works[k].tiles.size() * works[k].instances.size() * byteWidth(c.tensor(t).type);
  }
  c.reserveConstantRows(
      unsigned(std::min<uint64_t>(8 + 2 * rows / c.slices(), // a row of memory is much
                                  c.rowsPerSlice() / (pressure ? 16 : 32))));
}

Status Storage::plan(unsigned pressure, bool mixed) {
  const bool weightsLast = pressure > 1;
  if (mixed)
    c.weightSlices = c.machine.memory.slices;
  else
    splitSlices();
  if (Status s = storeTables(); !s) // before weights: large ones need whole slices
    return s;
  const auto allocateAllConstants = [&]() -> Status {
    for (size_t k = 0; k < c.graph.kernels.size(); ++k)
      if (Status s = allocateConstants(k); !s)
        return s;
    return Success{};
  };
  if (weightsLast) {
    if (Status s = storeColumns(); !s)
      return s;
    if (Status s = allocateAllConstants(); !s)
      return s;
  } else {
    reserveConstantRows(pressure);
  }
  if (Status s = storeWeights(); !s)
    return s;
  if (Status s = storeStreamed(); !s)
    return s;
  if (!weightsLast)
    if (Status s = storeColumns(); !s)
      return s;
  if (!weightsLast && (pressure || c.sharesRows)) // values leave no rows that were never used
    if (Status s = allocateAllConstants(); !s)
      return s;
  if (weightsLast)
    reserveConstantRows(pressure);
  return Success{};
}

Status Storage::allocate(unsigned tensor, unsigned pe, const RowRuns &runs) {
  if (needs[tensor].columns && !needs[tensor].isPadded())
    if (Status s = addColumns(tensor, pe); !s)
      return s;
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    if (c.rowCopy(tensor, pe, h))
      return Success{};
  const bool isPart = isDealt(tensor);
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East}) {
    const RowRuns held = !isPart              ? runs
                         : isGathered(tensor) ? gathered(heldOf(runs, tensor, pe, h), h)
                                              : heldOf(runs, tensor, pe, h);
    const unsigned copies = !isPart || holdsAny(held) ? needs[tensor].rows[size_t(h)] : 0;
    for (unsigned n = 0; n < copies; ++n)
      if (Status s = c.addRowCopy(tensor, pe, h, held, isPart, copies - n); !s)
        return s;
  }
  return Success{};
}

/// Rows of a tensor that a PE holds, cut where the shares of the workers that write it meet.
RowRuns Storage::runsOf(unsigned tensor, unsigned pe) const {
  const TensorLayout &layout = c.layouts[tensor];
  std::vector<std::vector<int>> owner(layout.tiles.size(),
                                      std::vector<int>(size_t(layout.rows), -1));
  for (const RowSet *set :
       {&partition.tensors[tensor].needed[pe], &partition.tensors[tensor].owned[pe]})
    for (unsigned tile = 0; tile < set->tiles.size(); ++tile)
      for (size_t row = 0; row < set->tiles[tile].size(); ++row)
        if (set->tiles[tile][row])
          owner[tile][row] = 0;
  for (unsigned k : uses.writers[tensor])
    for (size_t member = 0; member < teamOf(c, c.graph.kernels[k]); ++member)
      for (const Share &share : sharesOf(c, works[k], partition, k, pe, member, works[k].strips))
        forEachWritten(c, c.graph.kernels[k], works[k], share,
                       [&](unsigned t, unsigned tile, const SteppedRows &rows) {
                         if (t == tensor)
                           rows.forEach(
                               [&](int64_t row) { owner[tile][size_t(row)] = int(member); });
                       });
  // Owners that alternate every few rows would tear the tensor apart: then all rows stay together.
  constexpr size_t kMostRuns = 64, kFew = 16;
  for (auto &rows : owner) {
    size_t runs = 1;
    for (size_t row = 1; row < rows.size(); ++row)
      runs += rows[row] >= 0 && rows[row - 1] >= 0 && rows[row] != rows[row - 1];
    if (runs > 9 && runs > std::min(kMostRuns, rows.size() / kFew))
      for (int &o : rows)
        o = std::min(o, 0);
  }
  RowRuns runs(layout.tiles.size());
  for (unsigned tile = 0; tile < layout.tiles.size(); ++tile)
    for (int64_t row = 0; row < layout.rows; ++row) {
      const int o = owner[tile][size_t(row)];
      if (o < 0)
        continue;
      auto &list = runs[tile];
      if (!list.empty() && list.back().first + list.back().rows == row &&
          int(list.back().owner) == o)
        ++list.back().rows;
      else
        list.push_back({row, 1, unsigned(o)});
    }
  return runs;
}

Status Storage::allocateResults(size_t k) {
  for (const forms::Result &r : c.graph.kernels[k].results)
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
      if (isOn(r.access.tensor, pe))
        if (Status s = allocate(r.access.tensor, pe, runsOf(r.access.tensor, pe)); !s)
          return s;
  return Success{};
}

/// Do rows of the tensor stream for one kernel alone, into the MXM? What is installed of it lies in
/// weight tiles.
bool Storage::isOfOneKernel(unsigned tensor) const {
  return swept[tensor] == 1 && !isOperand[tensor];
}

/// Weights that stream: like those that are installed, before anything else takes fresh rows.
Status Storage::storeStreamed() {
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    for (const forms::Term &t : c.graph.kernels[k].terms)
      if (c.tensor(t.a.tensor).role == TensorRole::Constant && isOfOneKernel(t.a.tensor))
        if (Status s = storeStreamed(t.a.tensor, k); !s)
          return s;
  return Success{};
}

/// Rows of a constant that the workers of a hemisphere send into the MXM for a kernel.
RowRuns Storage::streamedRuns(unsigned tensor, size_t k, unsigned pe, Hemisphere h) const {
  const Kernel &kernel = c.graph.kernels[k];
  const std::vector<Worker> team = workersOf(c, pe, contractedType(c, kernel));
  RowSet read;
  for (size_t member = 0; member < team.size(); ++member)
    for (const Share &share : team[member].hemisphere == h
                                  ? sharesOf(c, works[k], partition, k, pe, member, works[k].strips)
                                  : std::vector<Share>())
      forEachStreamedConstant(c, kernel, works[k], share,
                              [&](unsigned t, unsigned tile, const SteppedRows &rows) {
                                if (t == tensor)
                                  read.mark(c.layouts[t], tile, rows);
                              });
  RowRuns runs(c.layouts[tensor].tiles.size());
  for (unsigned tile = 0; tile < runs.size(); ++tile)
    for (int64_t row = 0; row < c.layouts[tensor].rows; ++row) {
      if (!read.has(tile, row))
        continue;
      if (std::vector<RowRun> &list = runs[tile];
          !list.empty() && list.back().first + list.back().rows == row)
        ++list.back().rows;
      else
        list.push_back({row, 1, 0});
    }
  return runs;
}

/// A constant that streams into the MXM for one kernel: on each hemisphere the rows that its
/// workers read.
Status Storage::storeStreamed(unsigned tensor, size_t k) {
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East}) {
      const RowRuns runs = streamedRuns(tensor, k, pe, h);
      for (unsigned n = 0; holdsAny(runs) && n < needs[tensor].rows[size_t(h)]; ++n)
        if (Status s = c.addRowCopy(tensor, pe, h, runs); !s)
          return s;
    }
  return Success{};
}

/// Constants that flow as activations or operand rows, on every PE the rows that it reads.
Status Storage::allocateConstants(size_t k) {
  const Kernel &kernel = c.graph.kernels[k];
  std::set<unsigned> constants;
  for (const forms::Term &t : kernel.terms)
    if (c.tensor(t.a.tensor).role == TensorRole::Constant)
      constants.insert(t.a.tensor);
  std::erase_if(constants, [&](unsigned t) { return isOfOneKernel(t); }); // storeStreamed
  for (const Access &o : kernel.operands) {
    bool byRow = false;
    if (o.lookup)
      continue;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      byRow |= rowCoefficient(c.layouts[o.tensor], o, l) != 0;
    if (c.tensor(o.tensor).role == TensorRole::Constant && byRow)
      constants.insert(o.tensor);
  }
  for (unsigned t : constants)
    for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
      if (partition.tensors[t].needed[pe].any())
        if (Status s = allocate(t, pe, runsOf(t, pe)); !s)
          return s;
  return Success{};
}

Status Storage::allocateFor(size_t k) {
  if (Status s = allocateConstants(k); !s)
    return s;
  return allocateResults(k);
}

/// Rows of the tensor on every PE that reads it, filled by the host.
Status Storage::allocateFromHost(unsigned tensor) {
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe)
    if (partition.tensors[tensor].needed[pe].any())
      if (Status s = allocate(tensor, pe, runsOf(tensor, pe)); !s)
        return s;
  c.loadFromHost(tensor);
  return Success{};
}

} // namespace millrace::grid
