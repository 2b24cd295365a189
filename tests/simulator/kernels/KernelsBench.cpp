// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rates of the plane kernels and of the VXM's row operations; scripts/bench/kernels runs it. Not a
// test: nothing depends on a time.

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Convert.h"
#include "arch/isa/semantics/RowKernels.h"
#include "simulator/kernels/Gemm.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace millrace;
using semantics::CpuLevel;

namespace {

double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// Least seconds of one call over some samples: disturbance by others only ever adds.
double fastest(const std::function<void()> &call) {
  call();
  double best = 1e9;
  for (int sample = 0; sample < 5; ++sample) {
    double start = seconds(), now;
    int calls = 0;
    do {
      call();
      ++calls;
      now = seconds();
    } while (now - start < 0.03);
    best = std::min(best, (now - start) / calls);
  }
  return best;
}

const char *nameOfLevel(CpuLevel level) {
  const char *names[] = {"portable", "avx2", "avx512", "avx512vnni"};
  return names[int(level)];
}

struct Case {
  const char *name;
  ElementType format;
  unsigned lanes; ///< that multiply
  int exponents;  ///< values are normal times 2^[0, exponents)
  bool cancelling;
};

class Plane {
public:
  Plane(const Case &c, size_t rows)
      : format(c.format), depth(c.lanes), low(320, 320), high(320, 320) {
    std::mt19937 random(1);
    activationLow.resize(rows * 320);
    activationHigh.resize(rows * 320);
    fill(c, random, rows, activationLow, activationHigh, false);
    std::vector<uint8_t> weightLow(320 * 320), weightHigh(320 * 320);
    fill(c, random, 320, weightLow, weightHigh, c.cancelling);
    low.installColumns(0, 320, weightLow.data(), 320);
    high.installColumns(0, 320, weightHigh.data(), 320);
    for (size_t i = 0; i < rows; ++i) {
      lowRows.push_back(activationLow.data() + i * 320);
      highRows.push_back(activationHigh.data() + i * 320);
    }
    out.resize(rows * 320);
  }
  void multiply(CpuLevel level, size_t first, size_t count, ProofCounters *counters = nullptr) {
    gemm(low, &high, format, lowRows.data() + first, highRows.data() + first, count,
         {0, depth, 0, 320}, out.data() + first * 320, level, counters);
  }
  /// Makes the next product pack its weights again.
  void install() {
    std::vector<uint8_t> column(320, 1);
    for (unsigned n = 0; n < 320; n += 16)
      low.installColumns(n, 1, column.data(), 0);
  }

private:
  void fill(const Case &c, std::mt19937 &random, size_t count, std::vector<uint8_t> &lowBytes,
            std::vector<uint8_t> &highBytes, bool opposite) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count * 320; ++i) {
      float value = std::ldexp(normal(random), int(random() % c.exponents));
      uint16_t bits = uint16_t(random());
      if (c.format == ElementType::Fp16)
        bits = semantics::fp32ToFp16(value);
      else if (c.format == ElementType::Bf16)
        bits = semantics::fp32ToBf16(value);
      else if (c.format == ElementType::E4M3)
        bits = semantics::fp32ToE4m3Saturating(value);
      else if (c.format == ElementType::E5M2)
        bits = semantics::fp32ToE5m2(value);
      if (c.cancelling && i % 2) { // pairs of lanes; the weights' have opposite signs
        lowBytes[i] = lowBytes[i - 1];
        highBytes[i] = uint8_t(highBytes[i - 1] ^ (opposite && random() % 20 ? 0x80 : 0));
        continue;
      }
      lowBytes[i] = uint8_t(bits);
      highBytes[i] = uint8_t(bits >> 8);
    }
  }

  ElementType format;
  unsigned depth;
  PlaneWeights low, high;
  std::vector<uint8_t> activationLow, activationHigh;
  std::vector<ByteRow> lowRows, highRows;
  std::vector<uint32_t> out;
};

const Case cases[] = {
    {"int8", ElementType::Int8, 320, 1, false},
    {"fp16 normal", ElementType::Fp16, 160, 1, false},
    {"fp16 wide exponents", ElementType::Fp16, 160, 12, false},
    {"fp16 cancelling", ElementType::Fp16, 160, 8, true},
    {"bf16 normal", ElementType::Bf16, 160, 1, false},
    {"bf16 exponents over 2^60", ElementType::Bf16, 160, 60, false},
    {"bf16 cancelling", ElementType::Bf16, 160, 20, true},
    {"e4m3 normal", ElementType::E4M3, 320, 1, false},
    {"e5m2 normal", ElementType::E5M2, 320, 1, false},
};

void benchProducts() {
  std::printf("product of M rows, K lanes and 320 columns, GMAC/s (best of 5)\n");
  std::printf("%-26s %-11s %7s %7s %7s %9s %10s %10s %10s\n", "data", "cpu level", "M=1", "M=49",
              "M=784", "2 threads", "pack M=1", "ambiguous", "recomputed");
  for (const Case &c : cases) {
    Plane plane(c, 784);
    for (CpuLevel level :
         {CpuLevel::Portable, CpuLevel::Avx2, CpuLevel::Avx512, CpuLevel::Avx512Vnni}) {
      bool same =
          c.format == ElementType::Int8 ? level == CpuLevel::Avx512 : level == CpuLevel::Avx512Vnni;
      if (level > semantics::cpuLevel() || same)
        continue;
      std::printf("%-26s %-11s", c.name, nameOfLevel(level));
      double macs = c.lanes * 320.0;
      for (size_t rows : {1, 49, 784})
        std::printf(" %7.1f",
                    rows * macs * 1e-9 / fastest([&] { plane.multiply(level, 0, rows); }));
      constexpr int repeats = 20; // so that starting a thread does not count
      auto half = [&](size_t first) {
        for (int i = 0; i < repeats; ++i)
          plane.multiply(level, first, 392);
      };
      double both = fastest([&] {
                      std::thread other(half, 392);
                      half(0);
                      other.join();
                    }) /
                    repeats;
      std::printf(" %9.1f", 784 * macs * 1e-9 / both);
      ProofCounters counters;
      plane.multiply(level, 0, 784, &counters);
      double packing = fastest([&] {
        plane.install();
        plane.multiply(level, 0, 1);
      });
      std::printf(" %7.1f us", packing * 1e6);
      if (counters.outputs)
        std::printf(" %9.4f%% %9.4f%%", 100.0 * counters.ambiguous / counters.outputs,
                    100.0 * counters.recomputed / counters.outputs);
      std::printf("\n");
      std::fflush(stdout);
      if (level == semantics::cpuLevel())
        break;
    }
  }
}

void benchAlu() {
  std::printf("\none operation on 320 lanes, ns (best of 5)\n%-18s", "operation");
  const CpuLevel levels[] = {CpuLevel::Portable, CpuLevel::Avx2, CpuLevel::Avx512};
  for (CpuLevel level : levels)
    if (level <= semantics::cpuLevel())
      std::printf(" %9s", nameOfLevel(level));
  std::printf("\n");
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 2);
  std::vector<uint32_t> a(320), b(320), c(320), out(320);
  for (size_t i = 0; i < 320; ++i) {
    a[i] = std::bit_cast<uint32_t>(normal(random));
    b[i] = std::bit_cast<uint32_t>(normal(random));
    c[i] = uint32_t(random());
  }
  for (AluOp op :
       {AluOp::AddF32, AluOp::MaxF32, AluOp::SelectF32, AluOp::DivF32, AluOp::RsqrtF32,
        AluOp::ExpF32, AluOp::LogF32, AluOp::TanhF32, AluOp::ErfF32, AluOp::SinF32, AluOp::PowF32,
        AluOp::CvtI32F32, AluOp::CvtF32I8, AluOp::CvtF16F32, AluOp::CvtF32F16}) {
    std::printf("%-18s", std::string(aluOpInfo(op).mnemonic).c_str());
    for (CpuLevel level : levels)
      if (level <= semantics::cpuLevel())
        std::printf(" %9.1f", 1e9 * fastest([&] {
                                semantics::rowKernels(level).alu[size_t(op)](
                                    a.data(), b.data(), c.data(), out.data(), 320);
                              }));
    std::printf("\n");
  }
}

} // namespace

int main() {
  benchProducts();
  benchAlu();
}
