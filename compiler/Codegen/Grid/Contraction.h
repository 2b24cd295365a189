// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions on the MXM: which weight tiles and passes a share of a kernel needs, and the pieces
// that run them.
#pragma once

#include "compiler/Codegen/Grid/Epilogue.h"
#include "compiler/Codegen/Grid/Work.h"
#include "compiler/Forms/Evaluate.h"

#include <optional>
#include <span>

namespace millrace::grid {

/// What one weight buffer of one plane holds: a byte plane of a weight tile, and who installed it.
struct ResidentTile {
  std::string key;      ///< of the tile; empty: nothing
  unsigned part = 0;    ///< which of the tile's planes
  uint32_t install = 0; ///< number of the Install in its PE's program
  unsigned first = 0;   ///< column group that its first element fills
};

/// What one plane keeps from job to job, whichever formats the jobs have: a plane of a 16-bit pair
/// serves int8 by itself, too.
struct PlaneState {
  std::vector<ResidentTile> resident; ///< per buffer
  unsigned lastBuffer = 0;
  unsigned nextAccumulator = 0;
};

/// The planes of all PEs during a grid step.
class MxmState {
public:
  explicit MxmState(const Machine &machine) : machine(machine) { beginStep(); }
  /// Weights do not persist from step to step.
  void beginStep();
  PlaneState &plane(unsigned pe, Hemisphere h, unsigned plane) {
    return planes[(size_t(pe) * kHemispheres + size_t(h)) * machine.mxm.planes + plane];
  }
  /// The buffer that holds the whole tile on all planes of the worker, if there is one.
  std::optional<unsigned> bufferOf(const Worker &worker, unsigned planes, const std::string &key);

private:
  const Machine &machine;
  std::vector<PlaneState> planes;
};

/// Counts for the report.
struct ContractionCounts {
  int64_t vectors = 0;  ///< activation vectors through the MXM, per worker summed
  int64_t installs = 0; ///< weight tiles installed
  int64_t emitted = 0;  ///< vectors that left the MXM
};

/// How many shares of a worker take turns, tile by tile: an accumulator row takes a sum every
/// `accumulate_interval` cycles, so that shares of few rows would wait for themselves.
/// Their sums take half of the accumulators at most, if they are several.
size_t sharesAtOnce(const Machine &machine, const Kernel &kernel, const Work &work,
                    const std::vector<Share> &shares);
/// Runs shares of a contraction in turn: every pass, its installs, and the epilogue with the last
/// pass. By one worker; or with split K by two, one in either hemisphere: the first takes the
/// passes of half 0, the second those of half 1, their last passes go side by side, and the VXM
/// adds the two sums.
Status contract(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                std::span<const Share> shares, std::span<const Worker> workers, MxmState &mxm,
                ContractionCounts &counts, uint32_t provenance);

/// Can the kernel's sums be cut in two halves of passes? Its weights are constants, of two tiles at
/// least, all columns multiply the same lanes, and the VXM has room to add.
Expected<bool> canSplitK(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work);
/// The passes of a kernel in the order in which every share adds their sums: the rounding points of
/// its accumulator.
Expected<std::vector<forms::Pass>> passesOf(Context &c, const Kernel &kernel, size_t kernelIndex,
                                            const Work &work, bool splitK);
/// Stores the constant weight tiles that the share needs in its worker's hemisphere: all of them,
/// or those of one half of a split K.
Status storeWeightsOf(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                      const Share &share, const Worker &worker, std::optional<unsigned> half);
/// Calls f(key, rows) for each of these; tiles of equal keys are one.
Status forEachWeightTile(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                         const Share &share, const Worker &worker, std::optional<unsigned> half,
                         const std::function<void(const std::string &, unsigned)> &f);
/// Strips of a kernel that one sweep may take: a part of the accumulator's rows (Context::bands),
/// so that the next sweep can begin while this one's results leave.
int64_t longestShare(const Context &c, const Work &work);

/// Type of the kernel's MXM operands.
ElementType contractedType(const Context &c, const Kernel &kernel);
/// Workers of one PE for a format: hemisphere by hemisphere.
std::vector<Worker> workersOf(const Context &c, unsigned pe, ElementType type);

} // namespace millrace::grid
