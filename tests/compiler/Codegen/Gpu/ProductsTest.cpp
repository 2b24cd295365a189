// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of 16-bit tensors on tensor cores: against double precision, on a CPU and on the
// emulator under every order of threads, and as PTX.
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace millrace;
using namespace millrace::gpu;

namespace {

/// Relative L2 error of sums of k products in fp32: the products are exact, each of the sums is
/// rounded to 2^-24 of itself at most, and independent roundings grow with the square root of k.
double bound(int64_t k) { return std::ldexp(2 + 2 * std::sqrt(double(k)), -24); }

struct Product {
  int64_t batch, m, n, k;
  bool isTurned = false; ///< B is n x k
  bool isBf16 = false;
};

/// Odd sizes, sizes of one, several tiles in each direction; fewer rows than columns.
const std::vector<Product> kProducts = {
    {1, 64, 64, 32},
    {1, 32, 8, 16},
    {1, 1, 40, 33},
    {1, 40, 1, 33},
    {1, 17, 23, 31},
    {1, 65, 66, 67},
    {2, 33, 65, 16},
    {3, 5, 7, 9},
    {1, 128, 24, 48},
    {1, 70, 130, 1},
    {1, 100, 50, 100, true},
    {1, 64, 64, 64, true},
    {2, 31, 33, 35, true},
    {1, 15, 70, 64, true},
    {1, 3, 3, 3, true},
    {1, 48, 72, 80, true, true},
    {1, 64, 64, 32, false, true},
    {2, 20, 9, 77, false, true},
    {1, 129, 10, 18, true, true},
    {4, 16, 16, 16, true},
    {1, 90, 65, 200},
    {1, 2, 300, 40, true, true},
};

std::string textOf(const Product &p) {
  const std::string batch = std::to_string(p.batch), m = std::to_string(p.m),
                    n = std::to_string(p.n), k = std::to_string(p.k),
                    type = p.isBf16 ? "bf16" : "f16",
                    a = "tensor<" + batch + "x" + m + "x" + k + "x",
                    b = "tensor<" + batch + "x" + (p.isTurned ? n + "x" + k : k + "x" + n) + "x",
                    c = "tensor<" + batch + "x" + m + "x" + n + "xf32>";
  const auto widen = [&](const std::string &name, const std::string &shape) {
    return name +
           "w = linalg.generic {indexing_maps = [#i, #i], iterator_types = [\"parallel\", "
           "\"parallel\", \"parallel\"]} ins(" +
           name + " : " + shape + type + ">) outs(" + name + "e : " + shape +
           "f32>) {\n^bb0(%0: " + type + ", %1: f32):\n%2 = arith.extf %0 : " + type +
           " to f32\nlinalg.yield %2 : f32\n} -> " + shape + "f32>\n";
  };
  return "#i = affine_map<(d0, d1, d2) -> (d0, d1, d2)>\nfunc.func @main(%a: " + a + type +
         ">, %b: " + b + type + ">) -> " + c +
         " {\n%z = arith.constant 0.0 : f32\n%ae = tensor.empty() : " + a +
         "f32>\n%be = tensor.empty() : " + b + "f32>\n%ce = tensor.empty() : " + c + "\n" +
         widen("%a", a) + widen("%b", b) + "%f = linalg.fill ins(%z : f32) outs(%ce : " + c +
         ") -> " + c +
         "\n%c = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, "
         "affine_map<(d0, d1, d2, d3) -> (d0, " +
         (p.isTurned ? "d2, d3" : "d3, d2") +
         ")>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = [\"parallel\", "
         "\"parallel\", \"parallel\", \"reduction\"]} ins(%aw, %bw : " +
         a + "f32>, " + b + "f32>) outs(%f : " + c +
         ") {\n^bb0(%0: f32, %1: f32, %2: f32):\n%3 = arith.mulf %0, %1 : f32\n"
         "%4 = arith.addf %2, %3 : f32\nlinalg.yield %4 : f32\n} -> " +
         c + "\nreturn %c : " + c + "\n}";
}

/// Random numbers of the type, and what they are.
HostTensor draw(const std::vector<int64_t> &shape, bool isBf16, unsigned seed,
                std::vector<double> &values) {
  HostTensor tensor = HostTensor::zeros(isBf16 ? HostType::BFloat16 : HostType::Float16, shape);
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> numbers(-2, 2);
  auto *bits = reinterpret_cast<uint16_t *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i) {
    llvm::APFloat number(numbers(random));
    bool isInexact = false;
    number.convert(isBf16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                   llvm::APFloat::rmNearestTiesToEven, &isInexact);
    bits[i] = uint16_t(number.bitcastToAPInt().getZExtValue());
    number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &isInexact);
    values.push_back(number.convertToDouble());
  }
  return tensor;
}

} // namespace

TEST(Products, OfSixteenBitsAreOneKernelForTensorCoresWithinTheBound) {
  for (const Product &p : kProducts) {
    SCOPED_TRACE(textOf(p));
    std::vector<double> a, b, expected;
    const std::vector<HostTensor> tensors = {
        draw({p.batch, p.m, p.k}, p.isBf16, 1, a),
        draw({p.batch, p.isTurned ? p.n : p.k, p.isTurned ? p.k : p.n}, p.isBf16, 2, b)};
    for (int64_t i = 0; i < p.batch; ++i)
      for (int64_t m = 0; m < p.m; ++m)
        for (int64_t n = 0; n < p.n; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < p.k; ++k)
            sum += a[size_t((i * p.m + m) * p.k + k)] *
                   b[size_t(p.isTurned ? (i * p.n + n) * p.k + k : (i * p.k + k) * p.n + n)];
          expected.push_back(sum);
        }
    Parsed parsed(textOf(p));
    ASSERT_TRUE(parsed.module);
    const std::vector<HostView> inputs(tensors.begin(), tensors.end());
    for (Device device : {Device::Cpu, Device::Emulated}) {
      Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", device);
      ASSERT_TRUE(kernels) << kernels.error();
      EXPECT_THAT(kernels->summary().launches, testing::Contains("product_1"));
      EXPECT_TRUE(kernels->summary().left.empty());
      for (const Adversary &adversary : Adversary::all()) {
        Expected<std::vector<HostTensor>> results = kernels->run(inputs, adversary);
        ASSERT_TRUE(results) << results.error();
        const auto *got = reinterpret_cast<const float *>((*results)[0].data.data());
        double error = 0, size = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          error += std::pow(got[i] - expected[i], 2);
          size += expected[i] * expected[i];
        }
        ASSERT_LE(std::sqrt(error / size), bound(p.k));
        if (device == Device::Cpu)
          break; // it has no order of threads
      }
    }
  }
}

TEST(Products, PtxasTakesThemWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  // Each product on Hopper, and on one of the others.
  for (const Product &p : kProducts)
    for (const char *chip : {"sm_90a", (&p - kProducts.data()) % 2 ? "sm_80" : "sm_100"}) {
      SCOPED_TRACE(textOf(p) + chip);
      Parsed parsed(textOf(p));
      registerKernelPasses();
      mlir::PassManager passes(&parsed.context);
      ASSERT_TRUE(succeeded(mlir::parsePassPipeline("tensor-to-tile", passes)));
      passes.addPass(tile::createLowerToHopperPass());
      ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
      Expected<std::string> ptx = emitPtx(*parsed.module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      EXPECT_THAT(*ptx, testing::HasSubstr("mma.sync.aligned.m16n8k16"));
      expectAssembles(ptxas, *ptx, chip);
    }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}
