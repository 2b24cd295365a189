// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products with what is elementwise around them as one kernel: against the reference, on a
// CPU and on the emulator under every order of threads, and as PTX.
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace millrace;
using namespace millrace::gpu;

namespace {

/// What stands around a product of A (m x k, fp32) and weights (k x n or n x k).
enum class Form {
  Plain,        ///< nothing
  BiasRelu,     ///< a bias per column, then a maximum with 0
  GeluResidual, ///< a product that two operations read, and a residual
  Heads,        ///< columns are heads of four, and each head's rows lie together
  Columns,      ///< int8 weights with a scale and a zero point per column
  Int4,         ///< two codes a byte, a scale for each 32 of a column
  MxFp4         ///< e2m1, two codes a byte, a power of two for each 32 of a column
};

struct Product {
  Form form;
  int64_t m, n, k;
};

const std::vector<Product> kProducts = {
    {Form::Plain, 64, 64, 32},        {Form::Plain, 17, 23, 31},
    {Form::Plain, 1, 40, 33},         {Form::Plain, 40, 1, 33},
    {Form::Plain, 70, 130, 1},        {Form::BiasRelu, 32, 8, 16},
    {Form::BiasRelu, 65, 66, 67},     {Form::BiasRelu, 1, 300, 40},
    {Form::BiasRelu, 3, 3, 3},        {Form::BiasRelu, 128, 24, 48},
    {Form::GeluResidual, 33, 65, 16}, {Form::GeluResidual, 5, 7, 9},
    {Form::GeluResidual, 1, 64, 80},  {Form::GeluResidual, 90, 65, 100},
    {Form::Heads, 16, 16, 16},        {Form::Heads, 35, 36, 20},
    {Form::Heads, 1, 72, 50},         {Form::Columns, 31, 33, 35},
    {Form::Columns, 64, 64, 64},      {Form::Columns, 2, 100, 48},
    {Form::Int4, 33, 40, 64},         {Form::Int4, 1, 130, 96},
    {Form::Int4, 70, 9, 32},          {Form::MxFp4, 20, 40, 64},
    {Form::MxFp4, 1, 96, 128},        {Form::MxFp4, 65, 65, 32},
};

/// Of the four forms that are about weights, each on at least 20 shapes together with the above.
std::vector<Product> dequantised() {
  std::vector<Product> all;
  for (Form form : {Form::Int4, Form::MxFp4})
    for (int64_t m : {1, 2, 15, 16, 33})
      for (auto [n, k] : {std::pair<int64_t, int64_t>{3, 32}, {24, 32}, {31, 64}, {66, 96}})
        all.push_back({form, m, n, k});
  return all;
}

constexpr const char *kHead = R"(
#m = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#c = affine_map<(d0, d1) -> (d1)>
#r = affine_map<(d0, d1) -> (d0)>
#n3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#n3h = affine_map<(d0, d1, d2) -> (d0, d1)>
#p = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#q = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#wt = affine_map<(d0, d1, d2) -> (d1, d2)>
#s = affine_map<(d0, d1, d2) -> (d0, d1)>
)";

std::string text(const Product &p) {
  const auto t = [](std::initializer_list<int64_t> sizes, const char *type) {
    std::string text = "tensor<";
    for (int64_t size : sizes)
      text += std::to_string(size) + "x";
    return text + type + ">";
  };
  const auto map = [](const std::string &maps, unsigned rank, const std::string &ins,
                      const std::string &types, const std::string &out, const std::string &type,
                      const std::string &body) {
    std::string loops;
    for (unsigned i = 0; i < rank; ++i)
      loops += i ? ", \"parallel\"" : "\"parallel\"";
    return " = linalg.generic {indexing_maps = [" + maps + "], iterator_types = [" + loops +
           "]} ins(" + ins + " : " + types + ") outs(" + out + " : " + type + ") {\n" + body +
           "\n} -> " + type + "\n";
  };
  const auto &[form, m, n, k] = p;
  const bool isTurned = form == Form::Int4 || form == Form::MxFp4;
  const std::string a = t({m, k}, "f32"),
                    w = t(isTurned ? std::initializer_list<int64_t>{n, k}
                                   : std::initializer_list<int64_t>{k, n},
                          "f32"),
                    c = t({m, n}, "f32"), row = t({n}, "f32");
  std::string arguments = "%a: " + a, body, result = "%y", resultType = c;
  body = "%zero = arith.constant 0.0 : f32\n%ce = tensor.empty() : " + c +
         "\n%we = tensor.empty() : " + w + "\n";
  if (form == Form::Columns) {
    arguments += ", %q: " + t({k, n}, "i8") + ", %s: " + row + ", %z: " + t({n}, "i8");
    body += "%w" + map("#m, #c, #c, #m", 2, "%q, %s, %z",
                       t({k, n}, "i8") + ", " + row + ", " + t({n}, "i8"), "%we", w,
                       "^bb0(%0: i8, %1: f32, %2: i8, %o: f32):\n%3 = arith.extsi %0 : i8 to i32\n"
                       "%4 = arith.extsi %2 : i8 to i32\n%5 = arith.subi %3, %4 : i32\n"
                       "%6 = arith.sitofp %5 : i32 to f32\n%7 = arith.mulf %6, %1 : f32\n"
                       "linalg.yield %7 : f32");
  } else if (isTurned) {
    // Codes n x k / 2 bytes, to n x k / 2 x 2, to n x k; scaled as n x k / 32 x 32.
    const std::string packed = t({n, k / 2}, "i8"), pairs = t({n, k / 2, 2}, "f32"),
                      blocks = t({n, k / 32, 32}, "f32"),
                      scales = t({n, k / 32}, form == Form::Int4 ? "f32" : "i8");
    arguments += ", %q: " + packed + ", %s: " + scales;
    const std::string decode =
        form == Form::Int4 ? "%6 = arith.subi %5, %c8 : i32\n%7 = arith.sitofp %6 : i32 to f32\n"
                           : "%6 = arith.andi %5, %c7 : i32\n%8 = arith.shli %6, %c22 : i32\n"
                             "%9 = arith.andi %5, %c8 : i32\n%10 = arith.shli %9, %c28 : i32\n"
                             "%11 = arith.ori %8, %10 : i32\n%12 = arith.bitcast %11 : i32 to f32\n"
                             "%7 = arith.mulf %12, %big : f32\n";
    const std::string scale =
        form == Form::Int4 ? "%3 = arith.mulf %0, %1 : f32\n"
                           : "%4 = arith.extui %1 : i8 to i32\n%5 = arith.shli %4, %c23 : i32\n"
                             "%6 = arith.bitcast %5 : i32 to f32\n%3 = arith.mulf %0, %6 : f32\n";
    for (int number : {7, 8, 15, 22, 23, 28, 4})
      body += "%c" + std::to_string(number) + " = arith.constant " + std::to_string(number) +
              " : i32\n";
    body += "%big = arith.constant 0x7E800000 : f32\n"; // 2^126
    body += "%pe = tensor.empty() : " + pairs + "\n%u" +
            map("#n3h, #n3", 3, "%q", packed, "%pe", pairs,
                "^bb0(%0: i8, %o: f32):\n%i = linalg.index 2 : index\n"
                "%1 = arith.index_cast %i : index to i32\n%2 = arith.muli %1, %c4 : i32\n"
                "%3 = arith.extui %0 : i8 to i32\n%4 = arith.shrui %3, %2 : i32\n"
                "%5 = arith.andi %4, %c15 : i32\n" +
                    decode + "linalg.yield %7 : f32") +
            "%uf = tensor.collapse_shape %u [[0], [1, 2]] : " + pairs + " into " + w +
            "\n%ub = tensor.expand_shape %uf [[0], [1, 2]] output_shape [" + std::to_string(n) +
            ", " + std::to_string(k / 32) + ", 32] : " + w + " into " + blocks +
            "\n%be = tensor.empty() : " + blocks + "\n%v" +
            map("#n3, #s, #n3", 3, "%ub, %s", blocks + ", " + scales, "%be", blocks,
                std::string("^bb0(%0: f32, %1: ") + (form == Form::Int4 ? "f32" : "i8") +
                    ", %o: f32):\n" + scale + "linalg.yield %3 : f32") +
            "%w = tensor.collapse_shape %v [[0], [1, 2]] : " + blocks + " into " + w + "\n";
  } else {
    arguments += ", %w: " + w;
  }
  body += "%f = linalg.fill ins(%zero : f32) outs(%ce : " + c + ") -> " + c +
          "\n%x = linalg.generic {indexing_maps = [#a, " + (isTurned ? "#wt" : "#w") +
          ", affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = [\"parallel\", \"parallel\", "
          "\"reduction\"]} ins(%a, %w : " +
          a + ", " + w + ") outs(%f : " + c +
          ") {\n^bb0(%0: f32, %1: f32, %2: f32):\n%3 = arith.mulf %0, %1 : f32\n"
          "%4 = arith.addf %2, %3 : f32\nlinalg.yield %4 : f32\n} -> " +
          c + "\n";
  if (form == Form::BiasRelu) {
    arguments += ", %b: " + row;
    body += "%y" + map("#m, #c, #m", 2, "%x, %b", c + ", " + row, "%ce", c,
                       "^bb0(%0: f32, %1: f32, %o: f32):\n%2 = arith.addf %0, %1 : f32\n"
                       "%3 = arith.maximumf %2, %zero : f32\nlinalg.yield %3 : f32");
  } else if (form == Form::GeluResidual) {
    arguments += ", %r: " + c;
    body += "%half = arith.constant 0.5 : f32\n%one = arith.constant 1.0 : f32\n%g" +
            map("#m, #m", 2, "%x", c, "%ce", c,
                "^bb0(%0: f32, %o: f32):\n%2 = math.tanh %0 : f32\n%3 = arith.addf %2, %one : f32\n"
                "linalg.yield %3 : f32") +
            "%y" +
            map("#m, #m, #m, #m", 2, "%x, %g, %r", c + ", " + c + ", " + c, "%ce", c,
                "^bb0(%0: f32, %1: f32, %2: f32, %o: f32):\n%3 = arith.mulf %0, %half : f32\n"
                "%4 = arith.mulf %3, %1 : f32\n%5 = arith.addf %4, %2 : f32\n"
                "linalg.yield %5 : f32");
  } else if (form == Form::Heads) {
    const std::string cut = t({m, n / 4, 4}, "f32");
    resultType = t({n / 4, m, 4}, "f32");
    body += "%xc = tensor.expand_shape %x [[0], [1, 2]] output_shape [" + std::to_string(m) + ", " +
            std::to_string(n / 4) + ", 4] : " + c + " into " + cut +
            "\n%ye = tensor.empty() : " + resultType + "\n%y = linalg.transpose ins(%xc : " + cut +
            ") outs(%ye : " + resultType + ") permutation = [1, 0, 2]\n";
  } else {
    result = "%x";
  }
  return kHead + std::string("func.func @main(") + arguments + ") -> " + resultType + " {\n" +
         body + "return " + result + " : " + resultType + "\n}";
}

/// Multiples of 1 / 16 up to 2, which 16 bits hold: what is rounded to them stays as it is.
HostTensor draw(const std::vector<int64_t> &shape, unsigned seed) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, shape);
  std::minstd_rand random(seed * 77 + 1);
  auto *numbers = reinterpret_cast<float *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    numbers[i] = float(int(random() % 65) - 32) / 16;
  return tensor;
}
HostTensor drawBytes(const std::vector<int64_t> &shape, unsigned from, unsigned to, unsigned seed) {
  HostTensor tensor = HostTensor::zeros(HostType::Int8, shape);
  std::minstd_rand random(seed * 77 + 1);
  for (int64_t i = 0; i < tensor.elementCount(); ++i) {
    const auto byte = uint8_t(from + random() % (to - from + 1));
    std::memcpy(reinterpret_cast<char *>(tensor.data.data()) + i, &byte, 1);
  }
  return tensor;
}

std::vector<HostTensor> inputs(const Product &p) {
  const auto &[form, m, n, k] = p;
  std::vector<HostTensor> all = {draw({m, k}, 1)};
  switch (form) {
  case Form::Columns:
    all.push_back(drawBytes({k, n}, 0, 255, 2));
    all.push_back(draw({n}, 3));
    for (int64_t i = 0; i < n; ++i) // so that code x scale has eleven bits
      reinterpret_cast<float *>(all.back().data.data())[i] = std::ldexp(1.0f, -int(i % 5));
    all.push_back(drawBytes({n}, 0, 255, 4));
    break;
  case Form::Int4:
    all.push_back(drawBytes({n, k / 2}, 0, 255, 2));
    all.push_back(draw({n, k / 32}, 3));
    break;
  case Form::MxFp4:
    all.push_back(drawBytes({n, k / 2}, 0, 255, 2));
    all.push_back(drawBytes({n, k / 32}, 122, 130, 3));
    break;
  default:
    all.push_back(draw({k, n}, 2));
  }
  if (form == Form::BiasRelu)
    all.push_back(draw({n}, 5));
  if (form == Form::GeluResidual)
    all.push_back(draw({m, n}, 5));
  return all;
}

double relativeError(const HostTensor &got, const HostTensor &wanted) {
  const auto *x = reinterpret_cast<const float *>(got.data.data());
  const auto *y = reinterpret_cast<const float *>(wanted.data.data());
  double error = 0, size = 0;
  for (int64_t i = 0; i < wanted.elementCount(); ++i) {
    error += std::pow(double(x[i]) - y[i], 2);
    size += double(y[i]) * y[i];
  }
  return std::sqrt(error / std::max(size, 1e-30));
}

/// Of two sums of k products in fp32 in different orders, and of a few operations behind them.
double bound(int64_t k) { return std::ldexp(2 * (2 + 2 * std::sqrt(double(k))) + 16, -24); }

std::vector<HostTensor> reference(const Product &p, const std::vector<HostView> &in) {
  Parsed parsed(text(p));
  Expected<Reference> function = Reference::create(*parsed.module, "main");
  EXPECT_TRUE(function) << function.error();
  Expected<std::vector<HostTensor>> results = function->run(in);
  EXPECT_TRUE(results) << results.error();
  return *results;
}

void check(const Product &p) {
  SCOPED_TRACE(text(p));
  const std::vector<HostTensor> tensors = inputs(p);
  const std::vector<HostView> in(tensors.begin(), tensors.end());
  const std::vector<HostTensor> wanted = reference(p, in);
  for (Device device : {Device::Cpu, Device::Emulated}) {
    Parsed parsed(text(p));
    ASSERT_TRUE(parsed.module);
    Expected<HostKernels> kernels =
        HostKernels::create(*parsed.module, "main", KernelOptions{device, "f16"});
    ASSERT_TRUE(kernels) << kernels.error();
    EXPECT_THAT(kernels->summary().launches, testing::ElementsAre("product_1"));
    EXPECT_THAT(kernels->summary().notes, testing::IsEmpty());
    for (const Adversary &adversary : Adversary::all()) {
      Expected<std::vector<HostTensor>> results = kernels->run(in, adversary);
      ASSERT_TRUE(results) << results.error();
      ASSERT_LE(relativeError((*results)[0], wanted[0]), bound(p.k));
      if (device == Device::Cpu)
        break; // it has no order of threads
    }
  }
}

} // namespace

TEST(FusedProducts, AreOneKernelWithinTheBound) {
  for (const Product &p : kProducts)
    check(p);
}

TEST(FusedProducts, OfWeightsInBlocksOfFourBitsAreOneKernelWithinTheBound) {
  for (const Product &p : dequantised())
    check(p);
}

TEST(FusedProducts, RoundOperandsOfFp32AndNothingElse) {
  const Product p = {Form::Plain, 40, 30, 50};
  std::vector<HostTensor> tensors = inputs(p);
  for (HostTensor &tensor : tensors)
    for (int64_t i = 0; i < tensor.elementCount(); ++i)
      reinterpret_cast<float *>(tensor.data.data())[i] *= 1.0f + std::ldexp(1.0f, -13);
  const std::vector<HostView> in(tensors.begin(), tensors.end());
  const std::vector<HostTensor> wanted = reference(p, in);
  for (const char *type : {"f16", "bf16"}) {
    Parsed parsed(text(p));
    Expected<HostKernels> kernels =
        HostKernels::create(*parsed.module, "main", KernelOptions{Device::Emulated, type});
    ASSERT_TRUE(kernels) << kernels.error();
    Expected<std::vector<HostTensor>> results = kernels->run(in);
    ASSERT_TRUE(results) << results.error();
    const double error = relativeError((*results)[0], wanted[0]);
    // 1 + 2^-13 rounds to 1: each product loses 2^-12 of itself.
    EXPECT_NEAR(error, std::ldexp(1, -12), std::ldexp(1, -15)) << type;
  }
}

TEST(FusedProducts, WhatIsNoneIsLeftAndSaysWhy) {
  Parsed parsed("func.func @main(%a: tensor<8x16xi8>, %b: tensor<16x8xi8>, %c: tensor<8x8xi32>) -> "
                "tensor<8x8xi32> {\n%0 = linalg.matmul ins(%a, %b : tensor<8x16xi8>, "
                "tensor<16x8xi8>) outs(%c : tensor<8x8xi32>) -> tensor<8x8xi32>\n"
                "return %0 : tensor<8x8xi32>\n}");
  ASSERT_TRUE(parsed.module);
  Expected<HostKernels> kernels =
      HostKernels::create(*parsed.module, "main", KernelOptions{Device::Cpu, "f16"});
  ASSERT_TRUE(kernels) << kernels.error();
  EXPECT_THAT(kernels->summary().notes,
              testing::ElementsAre(testing::HasSubstr(
                  "is multiplied without tensor cores: it multiplies i8 by i8 with sums of i32")));
}

TEST(FusedProducts, PtxasTakesThemWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  for (const Product &p : kProducts)
    for (const char *chip : {"sm_90a", (&p - kProducts.data()) % 2 ? "sm_80" : "sm_100"}) {
      SCOPED_TRACE(text(p) + chip);
      Parsed parsed(text(p));
      mlir::PassManager passes(&parsed.context);
      addTensorToTile(passes, "f16");
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
