// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How control leaves the grid. The simulator knows neither tensors nor functions of the host: it
// lends the rows of the machine's memory to whoever does (the driver, with HostData), between two
// grid steps.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

#include <cstdint>
#include <span>

namespace millrace {

/// Rows of the memory of all PEs, while the grid rests. A row has as many bytes as the machine has
/// lanes.
class RowAccess {
public:
  virtual ~RowAccess() = default;
  /// Bytes of a row.
  virtual unsigned lanes() const = 0;
  /// Copies a row out; a row that was never written is zero. Coordinates outside the machine are a
  /// caller's error (assert).
  virtual void read(unsigned pe, Hemisphere hemisphere, unsigned slice, uint32_t row,
                    std::span<uint8_t> bytes) = 0;
  /// The row, to be changed in place; bytes not touched keep their value. Valid until the next
  /// call. A row inside a Block counts as that block's initial contents from now on, for
  /// annotations.
  virtual std::span<uint8_t> write(unsigned pe, Hemisphere hemisphere, unsigned slice,
                                   uint32_t row) = 0;
};

/// Performs the image's host steps.
class HostStepRunner {
public:
  virtual ~HostStepRunner() = default;
  /// Reads the step's inputs from memory, calls its function, writes its outputs to memory.
  virtual Status run(const Image &image, const Step &step, RowAccess &memory) = 0;
};

} // namespace millrace
