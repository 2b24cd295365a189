// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a kernel does once its tensors have layouts: which loops split with the rows and slots of
// its results, and which rows and lanes of its operands each row of results then takes. The cost of
// a choice and the kernel that materialize() writes both come from here.
#pragma once

#include "compiler/Layouts/Layout.h"

#include "arch/spec/Machine.h"

#include <functional>
#include <map>
#include <string>
#include <unordered_map>

namespace millrace::layouts {

/// The layout of a tensor, by number.
using LayoutOf = std::function<const Layout &(unsigned tensor)>;

/// A parallel loop that runs over rows. Its value is that of an index of the result's dimension:
/// rows * rowStep + slots * slotStep - start. Rows that differ in what they need of the operands
/// repeat after `period`, or lie one run after the other: a kernel for each phase, which is named
/// by its first row.
struct RowLoop {
  unsigned loop = 0;
  int dim = -1; ///< of the first result, where that splits it
  DimLayout split;
  int64_t period = 1;
  std::vector<int64_t> runs{0}; ///< with a period of 1: where each begins
};

/// Where a term finds each index of a dimension of its operand, for one phase.
using DimPlaces = std::vector<std::pair<int64_t, Place>>; // by index
const Place &placeIn(const DimPlaces &places, int64_t index);

/// A row of one dimension of a term's operand, and where each of its slots that the term takes
/// begins: lanes behind slot 0.
struct DimRow {
  int64_t row = 0;
  std::vector<int64_t> starts;
};
/// Nothing where DimPlaces are none.
using DimRows = std::optional<std::vector<DimRow>>;

/// Rows of single dimensions that were asked for before, by all that they depend on. `shape`: a
/// number for all terms of one shape, which step through their operands alike.
struct KnownRows {
  std::unordered_map<std::string, DimRows> *all = nullptr;
  int64_t shape = 0;
};

/// One row of a term's operand, as far from the result's row as `rows` says, and the lanes of it
/// that one sweep takes.
struct TermRow {
  size_t term = 0;
  std::vector<int64_t> rows; ///< per dimension of the tensor, for row 0 of the phase; 0 for lanes
  int64_t from = 0, to = 0;  ///< lanes
  int64_t cells = 0;         ///< sweeps: parts of vectors that an activation takes at a time
};

class KernelLayout {
public:
  /// Nothing if the kernel cannot work in these layouts.
  static std::optional<KernelLayout> of(const KernelGraph &graph, const Kernel &kernel,
                                        const Machine &machine, const LayoutOf &layouts);

  const std::vector<RowLoop> &rowLoops() const { return rowLoops_; }
  /// The loops along the result's lanes, by lane of its lane dimension: their values.
  std::vector<std::vector<int64_t>> channels() const;
  int64_t channelCount() const { return channelCount_; }
  const std::vector<unsigned> &laneLoops() const { return laneLoops_; }

  /// Phases of all row loops, row major; each with a kernel of its own.
  std::vector<std::vector<int64_t>> phases() const;
  /// Rows of a row loop in a phase.
  int64_t rowsIn(size_t rowLoop, int64_t phase) const;
  /// What the terms take for the row of each phase's kernel; nothing if an element that some row
  /// needs has no place that all rows can step to.
  std::optional<std::vector<TermRow>> termRows(const std::vector<int64_t> &phase) const;
  /// The same for one term: of the others it depends on their row loops alone.
  std::optional<std::vector<TermRow>> termRows(size_t term, const std::vector<int64_t> &phase,
                                               const KnownRows &known = {}) const;
  /// The place of each index that a term meets in a dimension of its operand: of several, one of
  /// the row that the others lie in. Nothing as above.
  std::optional<DimPlaces> placesOf(const Term &term, unsigned dim,
                                    const std::vector<int64_t> &phase) const;
  /// Index of a dimension of an access at row 0 of the phase: row loops give their rows' part and
  /// the part of `slots` (of the result), other loops their value in `point`.
  int64_t indexAt(const AffineIndex &index, const std::vector<int64_t> &phase,
                  const std::vector<int64_t> &slots, const std::vector<int64_t> &point) const;
  /// Rows of the access's tensor in a dimension from one row of the phase's kernel to the next, per
  /// row loop.
  int64_t rowStep(const Access &access, unsigned dim, size_t rowLoop) const;

private:
  KernelLayout(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
               const LayoutOf &layouts)
      : graph(graph), kernel(kernel), machine(machine), layouts(layouts) {}

  const KernelGraph &graph;
  const Kernel &kernel;
  const Machine &machine;
  LayoutOf layouts;
  std::vector<RowLoop> rowLoops_;
  std::vector<unsigned> laneLoops_;
  int64_t channelCount_ = 1;

  bool splitLoops();
  bool takesLanes();
  bool fits(const Term &term);
  bool meetsResult(const Access &access);
  bool hasRowsOfResult(const Access &access) const;
  bool widenPeriods(const Access &access);
  bool cutRuns();
  int64_t runEnd(const Term &term, unsigned dim, size_t rowLoop, int64_t first) const;
  bool staysInside(const Access &operand) const;
  std::optional<size_t> rowLoopOf(const AffineIndex &index) const;
  DimRows findRows(const Term &term, unsigned dim, const std::vector<int64_t> &phase) const;
  std::string rowsKey(const Term &term, unsigned dim, const std::vector<int64_t> &phase,
                      int64_t shape) const;
  bool staysInside(const Access &access, unsigned dim, const std::vector<int64_t> &phase,
                   int64_t index, int64_t row) const;
};

/// Of a kernel: in whole vectors, and where tiles of few lanes lie beside each other.
struct WeightBytes {
  int64_t whole = 0, shared = 0;

  void operator+=(const WeightBytes &other) {
    whole += other.whole;
    shared += other.shared;
  }
  bool operator==(const WeightBytes &) const = default;
};

/// What a kernel keeps busy.
struct Cost {
  int64_t sweeps = 0;     ///< vectors through the MXM
  int64_t waits = 0;      ///< until an accumulator's row takes the next product, where rows are few
  int64_t operations = 0; ///< of the VXM: vectors times ALUs
  WeightBytes weights;
  int64_t kernels = 1;
  /// Cycles that the busiest unit needs at least, with a little for what the others do.
  double cycles(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) const;
};
/// What a term adds to that, over all phases.
struct TermCost {
  int64_t sweeps = 0, waits = 0;
  WeightBytes weights;
};
/// Nothing where termRows() gives none.
std::optional<TermCost> termCostOf(const KernelGraph &graph, const Kernel &kernel,
                                   const Machine &machine, const KernelLayout &layout,
                                   const LayoutOf &layouts, size_t term,
                                   const KnownRows &known = {});
/// `termCost`: the above for a term, or what is known of it. Nothing where that gives none.
std::optional<Cost> costOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
                           const KernelLayout &layout, const LayoutOf &layouts,
                           const std::function<std::optional<TermCost>(size_t term)> &termCost);

} // namespace millrace::layouts
