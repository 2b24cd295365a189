// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which copies of every tensor a PE keeps, and which rows they get. What is loaded with the program
// (weights, column copies, constants) gets its rows before anything that is made at run time.
#pragma once

#include "compiler/Codegen/Grid/Shares.h"
#include "compiler/Codegen/Memory/Copies.h"
#include "compiler/Forms/Uses.h"

#include <array>

namespace millrace::grid {

class Storage {
public:
  Storage(Context &c, const std::vector<Work> &works, const Partition &partition)
      : c(c), works(works), partition(partition), uses(c.graph) {}

  /// Decides which copies a PE that holds a tensor has of it, wherever work is dealt to.
  /// Kernels and calls of the host run in this order (places of graph.order).
  void planCopies(const std::vector<size_t> &order, CopiesFor what);
  std::vector<Copies> plannedCopies() const { return {needs.begin(), needs.end()}; }
  /// Rows of slices that values take in a hemisphere at most, if PEs share them evenly, and tables,
  /// which each PE may hold.
  uint64_t mostValueRows() const;
  /// Rows of as many slices as an install reads at once that all column copies take together, in a
  /// hemisphere.
  uint64_t columnRows() const;
  /// Rows of slices that each hemisphere of each PE holds beside weights, by (PE, hemisphere), at
  /// the time when it holds most: copies of tensors, of the rows that the partition deals there. No
  /// storage needs fewer; constant rows and tables come on top.
  std::vector<uint64_t> leastValueRows() const;
  /// Rows of weights that each hemisphere has room for beside those, and beside so many sixteenths
  /// of it for gaps.
  std::vector<uint64_t> roomBesideValues(unsigned gaps) const;
  /// Rows of weights (of as many slices as an install reads) of what a PE's workers install, by
  /// hemisphere: fewer than the partition counts where a tap lies outside for all of a PE's rows.
  Expected<std::array<uint64_t, kHemispheres>> weightRowsOn(unsigned pe) const;
  /// Does each hemisphere hold the rows of the tensor that are read there, and no others?
  bool isDealt(unsigned tensor) const;
  /// Does each hemisphere hold its rows several times?
  bool hasCopies(unsigned tensor) const {
    return needs[tensor].rows[0] > 1 && needs[tensor].rows[1] > 1;
  }
  /// Shares of a worker, cut where rows of a gathered tensor begin or end that the other hemisphere
  /// holds, too: they are written there while its own workers write none, and come first.
  std::vector<Share> cutForOthers(size_t kernel, unsigned pe, Hemisphere h,
                                  const std::vector<Share> &shares) const;
  /// Refuses a partition of which some hemisphere has more to hold than rows, before it is tried.
  Status checkRoom() const;
  /// Splits every hemisphere's slices between weights and activations, and stores all weights, once
  /// rows for constants are kept. With a `pressure` (GridCompiler.h), or where weights share rows,
  /// all constants are stored, too, so that no kernel comes to store one when no row is unused any
  /// longer; from 2 on they and padded column copies, which need longer runs of rows, come before
  /// weights, and rows for constants last. `mixed`: weights lie in all slices, so that none runs
  /// full before the others. Errors say how much memory is missing.
  Status plan(unsigned pressure, bool mixed);
  /// Rows for the constants that flow through a kernel, and for its results.
  Status allocateFor(size_t kernel);
  /// Rows of a tensor on every PE that reads it, filled by the host in the present step.
  Status allocateFromHost(unsigned tensor);

private:
  /// Copies that a tensor needs on a PE.
  struct CopyNeed : Copies {
    ColumnPadding padding = ColumnPadding::None; ///< installs take columns behind those of a kernel
    bool isPadded() const { return padding == ColumnPadding::Zeros; }
  };

  /// Places of the order at which a tensor is touched first and last.
  struct Life {
    size_t from = SIZE_MAX, to = 0;
  };

  Context &c;
  const std::vector<Work> &works;
  const Partition &partition;
  const forms::Uses uses;
  std::vector<CopyNeed> needs; ///< per tensor
  std::vector<Life> lives;     ///< per tensor; from SIZE_MAX: nobody touches it
  std::vector<unsigned> swept; ///< per tensor: terms that stream it
  std::vector<bool> isOperand; ///< per tensor: of an epilogue
  mutable std::vector<std::optional<bool>> gathers; ///< per tensor, as far as it was asked

  std::vector<unsigned> columnsByLife() const;
  bool precedes(unsigned tensor, unsigned next) const;
  uint64_t columnGroups(unsigned tensor) const;
  std::vector<std::vector<unsigned>> paddedPlaces() const;
  uint64_t streamedRows(unsigned tensor) const;
  bool installsMoreThan(const Work &work) const;
  ColumnPadding paddingOf(unsigned tensor) const;
  uint64_t tableRows() const;
  void splitSlices();
  Status storeWeights();
  Status storeTables();
  Status storeColumns();
  Status addColumns(unsigned tensor, unsigned pe);
  void reserveConstantRows(unsigned pressure);
  Status allocate(unsigned tensor, unsigned pe, const RowRuns &runs);
  bool isOfOneKernel(unsigned tensor) const;
  /// What a PE holds at least of a tensor.
  struct LeastRows {
    unsigned tensor = 0;
    bool isKept = false; ///< all the time, a constant
    std::array<uint64_t, kHemispheres> rows{};
  };
  std::vector<LeastRows> leastRowsOn(unsigned pe) const;
  struct Peak {
    uint64_t rows = 0;
    size_t place = 0; ///< of the order
  };
  Peak peakOf(const std::vector<LeastRows> &least, Hemisphere h) const;
  std::string largestAtPeak(unsigned pe, Hemisphere h) const;
  std::vector<bool> findReadByRow() const;
  Status storeStreamed();
  RowRuns streamedRuns(unsigned tensor, size_t kernel, unsigned pe, Hemisphere h) const;
  Status storeStreamed(unsigned tensor, size_t kernel);
  Status allocateConstants(size_t kernel);
  Status allocateResults(size_t kernel);
  RowRuns runsOf(unsigned tensor, unsigned pe) const;
  /// Does a copy in the hemisphere have the row, which the PE holds?
  bool holds(unsigned tensor, unsigned pe, Hemisphere h, unsigned tile, int64_t row) const;
  RowRuns heldOf(const RowRuns &runs, unsigned tensor, unsigned pe, Hemisphere h) const;
  uint64_t rowsHeld(unsigned tensor, unsigned pe, Hemisphere h) const;
  bool isOn(unsigned tensor, unsigned pe) const;
  /// Do rows that the other hemisphere's workers write lie among those of a hemisphere's own, as
  /// its copies would else take twice as many slices?
  bool isGathered(unsigned tensor) const;
  bool findGathered(unsigned tensor) const;
  static RowRuns gathered(RowRuns held, Hemisphere h);
};

} // namespace millrace::grid
