// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A partition in use: what each worker of a PE does, which rows a share touches, which rows travel.
#pragma once

#include "compiler/Codegen/Grid/Partition.h"

namespace millrace::grid {

/// How many share a kernel on one PE: the workers of its format, or the two sides of the VXM.
size_t teamOf(const Context &c, const Kernel &kernel);

/// Units of a kernel's work that can be dealt apart: strips, or with a running reduction whole lane
/// tiles of an instance.
int64_t unitsOf(const Work &work, const Share &share);
int64_t unitsOf(const Work &work);

/// Which half of a split K a worker of this hemisphere takes: by turns, as the first may be longer,
/// unless the partition turns them.
inline unsigned halfOf(const Partition &partition, size_t kernel, Hemisphere hemisphere) {
  return (unsigned(hemisphere) + unsigned(kernel) + partition.turned[kernel]) % 2;
}

/// The share of one member of a PE's team, in pieces of at most `most` strips; a running reduction
/// stays in one piece. With split K, two members have the same.
std::vector<Share> sharesOf(const Context &c, const Work &work, const Partition &partition,
                            size_t kernel, unsigned pe, size_t member, int64_t most);

/// Told of rows of a lane tile of a tensor: f(tensor, tile, rows).
using RowVisitor = std::function<void(unsigned, unsigned, const SteppedRows &)>;

/// Visits the rows that a share reads (weights and tables that are constants aside) or writes,
/// some perhaps several times.
void forEachRead(const Context &c, const Kernel &kernel, const Work &work, const Share &share,
                 const RowVisitor &f);
/// Rows of constants alone that stream into the MXM.
void forEachStreamedConstant(const Context &c, const Kernel &kernel, const Work &work,
                             const Share &share, const RowVisitor &f);
void forEachWritten(const Context &c, const Kernel &kernel, const Work &work, const Share &share,
                    const RowVisitor &f);

/// Rows of one lane tile that travel together: from one PE to several.
struct Transfer {
  unsigned tile = 0;
  int64_t row = 0, rows = 0;
  unsigned from = 0;
  std::vector<unsigned> to;
};
/// What has to travel once `kernel` has written its part of a tensor.
std::vector<Transfer> transfersOf(const Partition &partition, const Context &c, size_t kernel,
                                  unsigned tensor, const Work &work);

} // namespace millrace::grid
