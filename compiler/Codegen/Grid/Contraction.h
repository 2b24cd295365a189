// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions on the MXM: which weight tiles and passes a share of a kernel needs, and the pieces
// that run them.
#pragma once

#include "compiler/Codegen/Grid/Epilogue.h"
#include "compiler/Codegen/Grid/Work.h"
#include "compiler/Forms/Evaluate.h"

namespace millrace::grid {

/// What one worker (a plane, or the planes of a 16-bit format) keeps from job to job.
struct WorkerState {
  Worker worker;
  std::vector<std::string> resident; ///< weight tile key per buffer
  unsigned lastBuffer = 0;
  unsigned nextAccumulator = 0;
};

/// Counts for the report.
struct ContractionCounts {
  int64_t vectors = 0;  ///< activation vectors through the MXM, per worker summed
  int64_t installs = 0; ///< weight tiles installed
  int64_t emitted = 0;  ///< vectors that left the MXM
};

/// Runs one share of a contraction on a worker: every pass, its installs, and the epilogue with the
/// last pass.
Status contract(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                const Share &share, WorkerState &state, ContractionCounts &counts,
                uint32_t provenance);

/// The passes of a kernel in the order in which every share adds their sums: the rounding points of
/// its accumulator.
Expected<std::vector<forms::Pass>> passesOf(Context &c, const Kernel &kernel, size_t kernelIndex,
                                            const Work &work);
/// Stores the constant weight tiles that the share needs in its worker's hemisphere.
Status storeWeightsOf(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                      const Share &share, const Worker &worker);
/// Calls f(key, rows) for each constant weight tile that the share needs; tiles of equal keys are
/// one.
Status forEachWeightTile(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                         const Share &share, const Worker &worker,
                         const std::function<void(const std::string &, unsigned)> &f);
/// Strips of a kernel that one sweep may take: half the accumulator's rows, so that the next sweep
/// can begin while this one's results leave.
int64_t longestShare(const Machine &machine, const Work &work);

/// Type of the kernel's MXM operands.
ElementType contractedType(const Context &c, const Kernel &kernel);
/// Workers of one PE for a format: hemisphere by hemisphere.
std::vector<Worker> workersOf(const Machine &machine, unsigned pe, ElementType type);

} // namespace millrace::grid
