// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What works row by row is one kernel: softmax and normalisations against double precision within a
// bound that is stated from the type and the row's length, and random functions against the
// reference, with what must not be fused in them.
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"
#include "tests/compiler/Codegen/Gpu/RowFunctions.h"

#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

using namespace millrace;
using namespace millrace::gpu;

namespace {

/// Relative L2 error of rows of n numbers in fp32: half a unit in the last place is 2^-24; the
/// error of a sum of n terms grows with the square root of n where roundings are independent, and
/// what else happens to an element is at most eight roundings.
double bound(int64_t n) { return std::ldexp(8 + 2 * std::sqrt(double(n)), -24); }

HostTensor draw(const std::vector<int64_t> &shape, unsigned seed) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, shape);
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> numbers(-2, 2);
  auto *data = reinterpret_cast<float *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    data[i] = numbers(random);
  return tensor;
}

const float *floats(const HostTensor &tensor) {
  return reinterpret_cast<const float *>(tensor.data.data());
}

double relativeError(const HostTensor &result, const std::vector<double> &expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(floats(result)[i] - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / (size + 1e-300));
}

struct Shape {
  int64_t rows, columns, behind = 1;
};

/// Short rows, rows of one warp and of many, rows longer than a tile; whole accesses and not.
const std::vector<Shape> kShapes = {
    {1, 2},
    {3, 5},
    {40, 7},
    {33, 31},
    {300, 32},
    {2, 33},
    {5, 64},
    {3, 100},
    {1, 127},
    {4, 128},
    {2, 129},
    {3, 255},
    {2, 257},
    {1, 511},
    {2, 768},
    {1, 1000},
    {1, 1023},
    {2, 1024},
    {1, 1025},
    {1, 1531},
    {2, 2048},
    {1, 4099},
    {1, 8192},
    {3, 1, 5},
    // The registers of more and more threads, and more than a multiprocessor has.
    {1, 8196},
    {1, 16388},
    {1, 32768},
    {1, 32772},
};
/// Rows whose elements lie apart.
const std::vector<Shape> kApart = {{2, 3, 5}, {1, 40, 33}, {2, 70, 64}, {3, 100, 7}, {1, 600, 2}};

/// Runs the function on both devices, under every adversary, and hands the results to `check`.
void onEveryDevice(const std::string &function, const std::vector<HostTensor> &tensors,
                   const std::function<void(const std::vector<HostTensor> &, Device)> &check,
                   size_t launches) {
  Parsed parsed(kMaps + function);
  ASSERT_TRUE(parsed.module);
  const std::vector<HostView> inputs(tensors.begin(), tensors.end());
  for (Device device : {Device::Cpu, Device::Emulated}) {
    Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", device);
    ASSERT_TRUE(kernels) << kernels.error();
    EXPECT_TRUE(kernels->summary().left.empty());
    EXPECT_EQ(kernels->summary().launches.size(), launches);
    for (const Adversary &adversary : Adversary::all()) {
      Expected<std::vector<HostTensor>> results = kernels->run(inputs, adversary);
      ASSERT_TRUE(results) << results.error();
      check(*results, device);
      if (device == Device::Cpu)
        break; // it has no order of threads
    }
  }
}

} // namespace

TEST(Rows, SoftmaxIsOneKernelWithinTheBound) {
  std::vector<Shape> shapes = kShapes;
  shapes.insert(shapes.end(), kApart.begin(), kApart.end());
  for (const auto &[rows, columns, behind] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " x " +
                 std::to_string(behind));
    const HostTensor x = draw({rows, columns, behind}, 1);
    std::vector<double> expected(size_t(rows * columns * behind));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t b = 0; b < behind; ++b) {
        const auto at = [&](int64_t c) { return size_t((r * columns + c) * behind + b); };
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c)
          sum += std::exp(double(floats(x)[at(c)]));
        for (int64_t c = 0; c < columns; ++c)
          expected[at(c)] = std::exp(double(floats(x)[at(c)])) / sum;
      }
    // A row of one element is none.
    onEveryDevice(
        text(kSoftmax, rows, columns, behind), {x},
        [&](const std::vector<HostTensor> &results, Device) {
          EXPECT_LE(relativeError(results[0], expected), bound(columns));
        },
        columns > 1 ? 1 : 6);
  }
}

TEST(Rows, LayerNormalisationWithItsResidualIsOneKernelWithinTheBound) {
  for (const auto &[rows, columns, behind] : kShapes) {
    if (columns == 1)
      continue;
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const std::vector<HostTensor> in = {draw({rows, columns}, 1), draw({rows, columns}, 2),
                                        draw({columns}, 3), draw({columns}, 4)};
    std::vector<double> sums(size_t(rows * columns)), expected(sums.size());
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const auto i = size_t(r * columns + c);
        sums[i] = double(floats(in[0])[i] + floats(in[1])[i]);
        mean += sums[i] / double(columns);
      }
      for (int64_t c = 0; c < columns; ++c)
        variance += std::pow(sums[size_t(r * columns + c)] - mean, 2) / double(columns);
      for (int64_t c = 0; c < columns; ++c)
        expected[size_t(r * columns + c)] =
            (sums[size_t(r * columns + c)] - mean) / std::sqrt(variance + 1e-5) * floats(in[2])[c] +
            floats(in[3])[c];
    }
    onEveryDevice(
        text(kLayerNorm, rows, columns), in,
        [&](const std::vector<HostTensor> &results, Device) {
          EXPECT_LE(relativeError(results[0], expected), bound(columns));
          EXPECT_EQ(relativeError(results[1], sums), 0); // each sum is rounded once
        },
        1);
  }
}

TEST(Rows, RmsNormalisationAndQuantisationAreOneKernel) {
  for (const auto &[rows, columns, behind] : kShapes) {
    if (columns == 1)
      continue;
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const std::vector<HostTensor> in = {draw({rows, columns}, 1), draw({columns}, 3)};
    std::vector<double> expected(size_t(rows * columns));
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t c = 0; c < columns; ++c)
        squares += std::pow(floats(in[0])[r * columns + c], 2) / double(columns);
      for (int64_t c = 0; c < columns; ++c)
        expected[size_t(r * columns + c)] =
            floats(in[0])[r * columns + c] / std::sqrt(squares + 1e-5) * floats(in[1])[c] * 16;
    }
    onEveryDevice(
        text(kRmsNorm, rows, columns), in,
        [&](const std::vector<HostTensor> &results, Device) {
          const auto *q = reinterpret_cast<const int8_t *>(results[0].data.data());
          for (size_t i = 0; i < expected.size(); ++i) // within half a step and the bound
            ASSERT_LE(std::abs(q[i] - std::clamp(expected[i], -128.0, 127.0)),
                      0.5 + 128 * bound(columns));
        },
        1);
  }
}

namespace {

/// A random function on square matrices, their rows and their columns, in the form of linalg.
std::string randomFunction(unsigned seed, int64_t size) {
  std::minstd_rand random(seed * 7919 + 13);
  const std::string n = std::to_string(size), matrix = "tensor<" + n + "x" + n + "xf32>",
                    row = "tensor<" + n + "xf32>";
  std::vector<std::string> matrices = {"%x", "%y"}, rows;
  std::string body;
  unsigned next = 0;
  const auto pick = [&](const std::vector<std::string> &from) {
    return from[random() % from.size()];
  };
  for (unsigned step = 0; step < 6 + random() % 6; ++step) {
    const std::string name = "%v" + std::to_string(next++);
    switch (random() % (rows.empty() ? 3 : 6)) {
    case 0:   // elementwise, one operand perhaps turned
    case 1: { // elementwise
      const bool turned = random() % 5 == 0;
      body += name + " = linalg.generic {indexing_maps = [#m, " + (turned ? "#t" : "#m") +
              ", #m], iterator_types = [\"parallel\", \"parallel\"]} ins(" + pick(matrices) + ", " +
              pick(matrices) + " : " + matrix + ", " + matrix + ") outs(%e : " + matrix +
              ") {\n^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.mulf %a, %half : f32\n%1 = "
              "arith.subf %0, %b : f32\nlinalg.yield %1 : f32\n} -> " +
              matrix + "\n";
      matrices.push_back(name);
      break;
    }
    case 2: { // a sum or a maximum
      const bool isSum = random() % 2;
      body += name + "f = linalg.fill ins(%zero : f32) outs(%er : " + row + ") -> " + row + "\n" +
              name +
              " = linalg.generic {indexing_maps = [#m, #r], iterator_types = [\"parallel\", "
              "\"reduction\"]} ins(" +
              pick(matrices) + " : " + matrix + ") outs(" + name + "f : " + row +
              ") {\n^bb0(%a: f32, %o: f32):\n%0 = arith.mulf %a, %small : f32\n%1 = " +
              (isSum ? "arith.addf" : "arith.maximumf") +
              " %o, %0 : f32\nlinalg.yield %1 : f32\n} -> " + row + "\n";
      rows.push_back(name);
      break;
    }
    case 3: // a number per row with each element of it
    case 4:
      body +=
          name + " = linalg.generic {indexing_maps = [#m, " + (random() % 4 ? "#r" : "#c") +
          ", #m], iterator_types = [\"parallel\", \"parallel\"]} ins(" + pick(matrices) + ", " +
          pick(rows) + " : " + matrix + ", " + row + ") outs(%e : " + matrix +
          ") {\n^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.addf %a, %b : f32\nlinalg.yield %0 : "
          "f32\n} -> " +
          matrix + "\n";
      matrices.push_back(name);
      break;
    default:
      body +=
          name +
          " = linalg.generic {indexing_maps = [#v, #v, #v], iterator_types = [\"parallel\"]} ins(" +
          pick(rows) + ", " + pick(rows) + " : " + row + ", " + row + ") outs(%er : " + row +
          ") {\n^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.mulf %a, %half : f32\n%1 = arith.addf "
          "%0, %b : f32\nlinalg.yield %1 : f32\n} -> " +
          row + "\n";
      rows.push_back(name);
    }
  }
  const std::string extra = rows.empty() ? "%er0" : rows.back();
  return "func.func @main(%x: " + matrix + ", %y: " + matrix + ", %er0: " + row + ") -> (" +
         matrix + ", " + matrix + ", " + row +
         ") {\n%zero = arith.constant 0.0 : f32\n%half = arith.constant "
         "0.5 : f32\n%small = arith.constant 0.03125 : f32\n%e = tensor.empty() : " +
         matrix + "\n%er = tensor.empty() : " + row + "\n" + body + "return " + matrices.back() +
         ", " + pick(matrices) + ", " + extra + " : " + matrix + ", " + matrix + ", " + row + "\n}";
}

} // namespace

TEST(Rows, RandomFunctionsHaveTheValuesOfTheReference) {
  size_t fused = 0;
  for (unsigned seed = 0; seed < 48; ++seed) {
    // The last ones of several parts, of which the last is not whole.
    const int64_t size = seed >= 40 ? (seed % 2 ? 130 : 260) : std::array{20, 40, 64}[seed % 3];
    const std::string function = randomFunction(seed, size);
    SCOPED_TRACE(function);
    Parsed parsed(kMaps + function);
    ASSERT_TRUE(parsed.module);
    const std::vector<HostTensor> tensors = {
        draw({size, size}, seed), draw({size, size}, seed + 100), draw({size}, seed + 200)};
    const std::vector<HostView> inputs(tensors.begin(), tensors.end());
    Expected<std::vector<HostTensor>> expected = runReference(*parsed.module, tensors);
    ASSERT_TRUE(expected) << expected.error();
    for (Device device : {Device::Cpu, Device::Emulated}) {
      if (device == Device::Emulated && (seed % 4 || size > 130))
        continue;
      Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", device);
      ASSERT_TRUE(kernels) << kernels.error();
      for (const std::string &launch : kernels->summary().launches)
        fused += launch.starts_with("rows_");
      Expected<std::vector<HostTensor>> results =
          kernels->run(inputs, {Landing::Late, Landing::Late, Landing::Late, 2});
      ASSERT_TRUE(results) << results.error();
      for (size_t i = 0; i < results->size(); ++i) {
        const float *to = floats((*expected)[i]);
        const std::vector<double> values(to, to + (*expected)[i].elementCount());
        ASSERT_LE(relativeError((*results)[i], values), bound(size));
      }
    }
  }
  EXPECT_GT(fused, 40u);
}

TEST(Rows, AreDividedByANumberAsElementsAre) {
  constexpr int64_t kColumns = 256;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  // Each row is divided by its maximum: a zero, numbers of every size, and what is none.
  const std::vector<float> divisors = {0.0f,  1e-45f, 3e-39f,      1.2e-38f,  1e-20f,     0x1p-64f,
                                       0.3f,  3.0f,   16777213.0f, 1e20f,     0x1p127f,   3.4e38f,
                                       -0.7f, -3e30f, -1e-41f,     kInfinity, -kInfinity, kNaN};
  const auto rows = int64_t(divisors.size());
  HostTensor x = HostTensor::zeros(HostType::Float32, {rows, kColumns});
  auto *data = reinterpret_cast<float *>(x.data.data());
  std::minstd_rand random(5);
  std::uniform_real_distribution<float> exponents(-149, 128), parts(1, 2);
  for (int64_t i = 0; i < rows * kColumns; ++i) {
    const float most = divisors[size_t(i / kColumns)];
    const std::array special = {most, 0.0f, -0.0f, -kInfinity, -1.0f, most / 3, 1e-45f};
    const int64_t column = i % kColumns;
    float value = column < 7
                      ? special[size_t(column)]
                      : std::ldexp((random() % 2 ? 1 : -1) * parts(random), int(exponents(random)));
    // No element is greater than the divisor, nor a zero of another sign.
    if (most == 0 && value == 0)
      value = most;
    data[i] = column && value > most ? (value == 0 || most <= 0 ? most : -value) : value;
  }
  const std::string m = "tensor<" + std::to_string(rows) + "x256xf32>",
                    r = "tensor<" + std::to_string(rows) + "xf32>";
  onEveryDevice(
      "func.func @main(%x: " + m + ") -> " + m +
          " {\n%low = arith.constant 0xFF800000 : f32\n%er = tensor.empty() : " + r +
          "\n%e = tensor.empty() : " + m + "\n%f = linalg.fill ins(%low : f32) outs(%er : " + r +
          ") -> " + r +
          "\n%most = linalg.generic {indexing_maps = [#m, #r], iterator_types = [\"parallel\", "
          "\"reduction\"]} ins(%x : " +
          m + ") outs(%f : " + r +
          ") {\n^bb0(%a: f32, %o: f32):\n%0 = arith.maximumf %o, %a : f32\nlinalg.yield %0 : "
          "f32\n} -> " +
          r +
          "\n%y = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = [\"parallel\", "
          "\"parallel\"]} ins(%x, %most : " +
          m + ", " + r + ") outs(%e : " + m +
          ") {\n^bb0(%a: f32, %b: f32, %o: f32):\n%0 = arith.divf %a, %b : f32\nlinalg.yield %0 : "
          "f32\n} -> " +
          m + "\nreturn %y : " + m + "\n}",
      {x},
      [&](const std::vector<HostTensor> &results, Device) {
        int64_t others = 0;
        for (int64_t i = 0; i < rows * kColumns; ++i) {
          const float by = divisors[size_t(i / kColumns)], got = floats(results[0])[i];
          const float wanted = data[i] / by;
          if (std::isnan(wanted)) {
            EXPECT_TRUE(std::isnan(got)) << data[i] << " / " << by << " is " << got;
            continue;
          }
          others += got != wanted && std::abs(data[i]) >= 0x1p-102f;
          EXPECT_TRUE(got == wanted || got == std::nextafter(wanted, got))
              << data[i] << " / " << by << " is " << got << ", not " << wanted;
        }
        EXPECT_LE(others, 1); // of some 4,000; what is less leaves a rest that is rounded
      },
      1);
}

TEST(Rows, PtxasTakesThemWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  // Each shape on Hopper, and on one of the others.
  std::vector<std::pair<std::string, const char *>> all;
  const auto add = [&](const std::string &function) {
    all.emplace_back(function, "sm_90a");
    all.emplace_back(function, all.size() % 4 == 1 ? "sm_80" : "sm_100");
  };
  for (const auto &[rows, columns, behind] : kShapes) {
    if (columns == 1)
      continue;
    add(text(kSoftmax, rows, columns));
    add(text(kLayerNorm, rows, columns));
    add(text(kRmsNorm, rows, columns));
  }
  for (const auto &[rows, columns, behind] : kApart)
    add(text(kSoftmax, rows, columns, behind));
  for (const auto &[function, chip] : all) {
    SCOPED_TRACE(function + chip);
    Parsed parsed(kMaps + function);
    registerKernelPasses();
    mlir::PassManager passes(&parsed.context);
    ASSERT_TRUE(succeeded(mlir::parsePassPipeline("tensor-to-tile", passes)));
    passes.addPass(tile::createLowerToHopperPass());
    ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
    Expected<std::string> ptx = emitPtx(*parsed.module, chip);
    ASSERT_TRUE(ptx) << ptx.error();
    expectAssembles(ptxas, *ptx, chip);
  }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}
