// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which copies of every tensor a PE keeps, and which rows they get. What is loaded with the program
// (weights, column copies, constants) gets its rows before anything that is made at run time.
#pragma once

#include "compiler/Codegen/Grid/Shares.h"

namespace millrace::grid {

class Storage {
public:
  Storage(Context &c, const std::vector<Work> &works, const Partition &partition)
      : c(c), works(works), partition(partition) {}

  /// Decides the copies, splits every hemisphere's slices between weights and activations, and
  /// stores all weights. Errors say how much memory is missing.
  Status plan();
  /// Rows for the constants that flow through a kernel, and for its results.
  Status allocateFor(size_t kernel);
  /// Rows of a tensor on every PE that reads it, filled by the host in the present step.
  Status allocateFromHost(unsigned tensor);

private:
  /// Copies that a tensor needs on a PE.
  struct CopyNeed {
    unsigned rows[kHemispheres] = {0, 0};
    bool columns = false;
    bool padded = false; ///< by columns of zeros, which installs take behind those of a kernel
  };

  Context &c;
  const std::vector<Work> &works;
  const Partition &partition;
  std::vector<CopyNeed> needs; ///< per tensor

  void planCopies();
  bool installsMoreThan(const Work &work) const;
  uint64_t tableRows() const;
  void splitSlices();
  Status storeWeights();
  Status storeTables();
  Status storeColumns();
  Status addColumns(unsigned tensor, unsigned pe);
  void reserveConstantRows();
  Status allocate(unsigned tensor, unsigned pe, const RowRuns &runs);
  bool isOfOneKernel(unsigned tensor) const;
  Status storeStreamed();
  Status storeStreamed(unsigned tensor, size_t kernel);
  Status allocateConstants(size_t kernel);
  Status allocateResults(size_t kernel);
  RowRuns runsOf(unsigned tensor, unsigned pe, size_t kernel) const;
  bool isOn(unsigned tensor, unsigned pe) const;
};

} // namespace millrace::grid
