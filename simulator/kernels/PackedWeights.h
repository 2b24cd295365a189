// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights in the order that a kernel reads them. Never changes once made, so threads share it.

#ifndef MILLRACE_SIMULATOR_KERNELS_PACKEDWEIGHTS_H
#define MILLRACE_SIMULATOR_KERNELS_PACKEDWEIGHTS_H

#include "arch/spec/Types.h"
#include "simulator/kernels/AlignedBuffer.h"
#include "simulator/kernels/FloatKernel.h"
#include "simulator/kernels/Int8Kernel.h"
#include "simulator/kernels/PlaneWeights.h"

namespace millrace {

class PackedWeights {
public:
  /// `high` is null for formats of one byte. `spare` is memory to use if it suffices.
  PackedWeights(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
                const ProductRange &range, semantics::CpuLevel level, AlignedBuffer spare = {});
  /// The memory of weights that nobody needs any more.
  AlignedBuffer release() && { return std::move(memory); }

  /// For int8.
  const Int8Kernel &int8() const { return *int8Table; }
  const void *int8Weights() const { return memory.data(); }

  /// For the float formats.
  const FloatKernel &floats() const { return *floatTable; }
  const FloatWeights &floatWeights() const { return weights; }

private:
  void packFloats(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
                  const ProductRange &range, AlignedBuffer spare);

  AlignedBuffer memory;
  const Int8Kernel *int8Table = nullptr;
  const FloatKernel *floatTable = nullptr;
  FloatWeights weights = {};
};

/// fp32 values of `count` lanes of a float format; `high` is read for 16-bit formats only.
/// `lanes` is room for `count` words.
void widenLanes(const FloatKernel &kernel, ElementType format, const uint8_t *low,
                const uint8_t *high, size_t count, uint32_t *lanes, float *values);

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_PACKEDWEIGHTS_H
