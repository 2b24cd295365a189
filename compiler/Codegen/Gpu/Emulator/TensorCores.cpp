// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mma.sync and wgmma: descriptors, fragments, groups, and who owns an accumulator's registers.
// Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#include "compiler/Codegen/Gpu/Emulator/Machine.h"

#include "llvm/ADT/bit.h"

#include <cmath>
#include <cstring>

namespace millrace::gpu {

namespace {

constexpr unsigned kRows = 64, kDepth = 16, kThreads = 128;

double fromBf16(uint16_t bits) { return llvm::bit_cast<float>(uint32_t(bits) << 16); }

double fromF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                     : std::ldexp(fraction, -24);
  return bits >> 15 ? -size : size;
}

double fromBits(uint16_t bits, bool isBf16) { return isBf16 ? fromBf16(bits) : fromF16(bits); }

/// A field of 14 bits of a descriptor, which counts 16 bytes.
uint32_t field(uint64_t descriptor, unsigned from) {
  return static_cast<uint32_t>(descriptor >> from & 0x3FFF) << 4;
}

/// Row of register i (A's two halves: of word i) in its warp, by lane.
unsigned rowOf(unsigned thread, unsigned register_) {
  return thread / 32 * 16 + thread % 32 / 4 + (register_ & 1) * 8;
}

} // namespace

//===-- Products of a warp
//-------------------------------------------------------------------------===//

void Machine::mma(const std::array<uint32_t, 10> &words, bool isBf16) {
  const unsigned warp = thread().number / 32, lane = thread().number % 32;
  bool isLast = false;
  Collective *step = join(cta().warps[warp], thread().warpStep, Collective::Kind::Mma, 32, isLast);
  if (!step)
    return;
  step->words[lane] = words;
  if (!isLast)
    return waitUntil([step] { return step->isDone; }, "mma of its warp");
  double a[16][kDepth], b[kDepth][8];
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned column = l % 4 * 2 + half;
      const auto number = [&](unsigned word) {
        return fromBits(static_cast<uint16_t>(step->words[l][word] >> 16 * half), isBf16);
      };
      for (unsigned j = 0; j < 4; ++j)
        a[l / 4 + j % 2 * 8][column + j / 2 * 8] = number(j);
      for (unsigned j = 0; j < 2; ++j)
        b[column + j * 8][l / 4] = number(4 + j);
    }
  const size_t first = size_t(thread().cta) * shape.threads + warp * 32;
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      double sum = 0;
      for (unsigned k = 0; k < kDepth; ++k)
        sum += a[row][k] * b[k][column];
      threads[first + l].sums[i] =
          static_cast<float>(llvm::bit_cast<float>(step->words[l][6 + i]) + sum);
    }
  step->isDone = true;
}

//===-- Accumulators
//--------------------------------------------------------------------------------===//

int64_t Machine::zeroAccumulator(unsigned columns) {
  thread().accumulators.push_back({columns, false, std::vector<float>(columns / 2, 0.0f), nullptr});
  return static_cast<int64_t>(thread().accumulators.size()) - 1;
}

int64_t Machine::handOver(int64_t number) {
  // A copy: a value that is not in flight may have other uses.
  Accumulator copy = thread().accumulators[static_cast<size_t>(number)];
  copy.isInFlight = true;
  thread().accumulators.push_back(std::move(copy));
  return static_cast<int64_t>(thread().accumulators.size()) - 1;
}

int64_t Machine::takeBack(int64_t number) {
  Accumulator &accumulator = thread().accumulators[static_cast<size_t>(number)];
  const Warpgroup &group = cta().warpgroups[warpgroup()];
  const Product *last = accumulator.last;
  if (last && (last->group < 0 || last->group >= group.complete))
    report(last->group < 0
               ? "wgmma_wait returns an accumulator of a wgmma that no wgmma_commit follows"
               : "wgmma_wait returns an accumulator of group " + std::to_string(last->group) +
                     ", and it waits for the first " + std::to_string(group.complete) + " groups");
  accumulator.isInFlight = false;
  return number;
}

void Machine::writeAccumulator(int64_t number, float value, unsigned index) {
  thread().accumulators[static_cast<size_t>(number)].values[index] = value;
}

float Machine::readAccumulator(int64_t number, unsigned index) {
  const Accumulator &accumulator = thread().accumulators[static_cast<size_t>(number)];
  if (accumulator.isInFlight)
    report("accumulator_read of an accumulator in flight");
  return accumulator.values[index];
}

//===-- Steps of a warpgroup
//------------------------------------------------------------------------===//

int64_t Machine::multiply(int64_t number, const Product &wanted, const uint32_t *registersA) {
  Warpgroup &group = cta().warpgroups[warpgroup()];
  bool isLast = false;
  Collective *step =
      join(group.collectives, thread().warpgroupStep, Collective::Kind::Wgmma, kThreads, isLast);
  if (!step)
    return number;
  if (!step->product) {
    group.products.push_back(wanted);
    step->product = &group.products.back();
    if (registersA)
      step->product->registersA.resize(size_t(kThreads) * 4);
  }
  Product &product = *step->product;
  const unsigned own = thread().number % kThreads;
  Accumulator &accumulator = thread().accumulators[static_cast<size_t>(number)];
  product.columns = accumulator.columns;
  product.accumulators[own] = number;
  accumulator.last = &product;
  if (registersA)
    std::memcpy(&product.registersA[size_t(own) * 4], registersA, 16);
  if (product.a != wanted.a || product.b != wanted.b ||
      product.hasRegisterA != wanted.hasRegisterA ||
      product.isTransposedA != wanted.isTransposedA ||
      product.isTransposedB != wanted.isTransposedB)
    report("the threads of a warpgroup give wgmma different descriptors");
  if (isLast)
    finishWarpgroupStep(cta(), group, *step);
  return number;
}

void Machine::wgmmaStep(Collective::Kind kind, unsigned groups) {
  Warpgroup &group = cta().warpgroups[warpgroup()];
  bool isLast = false;
  Collective *step = join(group.collectives, thread().warpgroupStep, kind, kThreads, isLast);
  if (!step)
    return;
  step->groups = groups;
  if (isLast)
    finishWarpgroupStep(cta(), group, *step);
  else if (kind == Collective::Kind::Wait)
    waitUntil([step] { return step->isDone; }, "wgmma_wait of its warpgroup");
}

void Machine::finishWarpgroupStep(Cta &cta, Warpgroup &group, Collective &step) {
  const auto index = static_cast<unsigned>(&group - cta.warpgroups.data());
  if (step.kind == Collective::Kind::Wgmma && adversary.products == Landing::Early)
    execute(cta, index, *step.product);
  if (step.kind == Collective::Kind::Commit) {
    for (Product &product : group.products)
      if (product.group < 0)
        product.group = group.committed;
    ++group.committed;
  }
  if (step.kind == Collective::Kind::Wait) {
    group.complete = std::max(group.complete, group.committed - static_cast<int>(step.groups));
    for (Product &product : group.products)
      if (product.group >= 0 && product.group < group.complete && !product.isDone)
        execute(cta, index, product);
  }
  step.isDone = true;
}

//===-- The product
//---------------------------------------------------------------------------------===//

/// Eight elements at an address before swizzling.
bool Machine::readChunk(const Cta &from, uint32_t address, std::array<uint16_t, 8> &bits) {
  const uint32_t at = swizzle128(address);
  if (uint64_t(at) + 16 > shape.sharedBytes) {
    report("wgmma reads at " + std::to_string(at) + " of " + std::to_string(shape.sharedBytes) +
           " bytes of shared memory");
    return false;
  }
  if (!checkVisible(from, at, "wgmma"))
    return false;
  std::memcpy(bits.data(), from.shared.data() + at, sizeof bits);
  return true;
}

bool Machine::readOperand(const Cta &from, uint64_t descriptor, unsigned rows, bool isTransposed,
                          bool isBf16, std::vector<double> &values) {
  const uint32_t start = field(descriptor, 0), stride = field(descriptor, 32),
                 leading = field(descriptor, 16);
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7)) {
    report("wgmma has a descriptor of another swizzle than 128 bytes, or with a base offset");
    return false;
  }
  values.resize(size_t(rows) * kDepth);
  std::array<uint16_t, 8> bits;
  if (isTransposed) {
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned r = 0; r < rows; r += 8) {
        if (!readChunk(from, start + r / 64 * leading + k / 8 * stride + k % 8 * 128 + r % 64 * 2,
                       bits))
          return false;
        for (unsigned i = 0; i < 8; ++i)
          values[size_t(r + i) * kDepth + k] = fromBits(bits[i], isBf16);
      }
    return true;
  }
  for (unsigned r = 0; r < rows; ++r)
    for (unsigned half = 0; half < 2; ++half) {
      if (!readChunk(from, start + r / 8 * stride + r % 8 * 128 + half * 16, bits))
        return false;
      for (unsigned k = 0; k < 8; ++k)
        values[size_t(r) * kDepth + half * 8 + k] = fromBits(bits[k], isBf16);
    }
  return true;
}

void Machine::execute(Cta &cta, unsigned group, Product &product) {
  product.isDone = true;
  std::vector<double> a(size_t(kRows) * kDepth), b;
  if (product.hasRegisterA) {
    for (unsigned t = 0; t < kThreads; ++t)
      for (unsigned word = 0; word < 4; ++word)
        for (unsigned half = 0; half < 2; ++half) {
          const unsigned column = t % 4 * 2 + half + word / 2 * 8;
          a[rowOf(t, word) * kDepth + column] = fromBits(
              static_cast<uint16_t>(product.registersA[t * 4 + word] >> 16 * half), product.isBf16);
        }
  } else if (!readOperand(cta, product.a, kRows, product.isTransposedA, product.isBf16, a)) {
    return;
  }
  const unsigned columns = product.columns;
  if (!readOperand(cta, product.b, columns, product.isTransposedB, product.isBf16, b))
    return;
  // By columns of B, so that the inner loop runs along memory.
  std::vector<double> turned(size_t(kDepth) * columns), sums(size_t(kRows) * columns, 0.0);
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < kDepth; ++k)
      turned[size_t(k) * columns + n] = b[size_t(n) * kDepth + k];
  for (unsigned m = 0; m < kRows; ++m)
    for (unsigned k = 0; k < kDepth; ++k) {
      const double factor = a[size_t(m) * kDepth + k];
      const double *row = &turned[size_t(k) * columns];
      double *sum = &sums[size_t(m) * columns];
      for (unsigned n = 0; n < columns; ++n)
        sum[n] += factor * row[n];
    }
  const size_t first = size_t(&cta - ctas.data()) * shape.threads + size_t(group) * kThreads;
  for (unsigned t = 0; t < kThreads; ++t) {
    Accumulator &accumulator =
        threads[first + t].accumulators[static_cast<size_t>(product.accumulators[t])];
    for (unsigned i = 0; i < columns / 2; ++i) {
      const unsigned column = i / 4 * 8 + t % 4 * 2 + i % 2;
      accumulator.values[i] = static_cast<float>(accumulator.values[i] +
                                                 sums[size_t(rowOf(t, i / 2)) * columns + column]);
    }
  }
}

} // namespace millrace::gpu
