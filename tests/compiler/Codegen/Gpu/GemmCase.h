// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random operands of a matrix product, its kernel on the emulator, and the product in double
// precision with a bound of what rounding may change.
#pragma once

#include "compiler/Codegen/Gpu/Gemm/GemmLaunch.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

namespace millrace::gpu {

inline uint16_t round16(double value, GemmProblem::Type type) {
  llvm::APFloat number(value);
  bool isInexact = false;
  number.convert(type == GemmProblem::Type::BFloat16 ? llvm::APFloat::BFloat()
                                                     : llvm::APFloat::IEEEhalf(),
                 llvm::APFloat::rmNearestTiesToEven, &isInexact);
  return static_cast<uint16_t>(number.bitcastToAPInt().getZExtValue());
}

inline double widen16(uint16_t bits, GemmProblem::Type type) {
  const llvm::APFloat number(type == GemmProblem::Type::BFloat16 ? llvm::APFloat::BFloat()
                                                                 : llvm::APFloat::IEEEhalf(),
                             llvm::APInt(16, bits));
  return number.convertToDouble();
}

/// A matrix of 16-bit elements whose rows begin at multiples of 16 bytes.
struct Matrix {
  int32_t rows, columns;
  int64_t stride; ///< elements
  /// Between rows; 128 bytes, so that rows which begin lines of a GPU's cache still do.
  static constexpr int64_t kNobodys = 64;
  std::vector<uint16_t> storage;

  Matrix(int32_t rows, int32_t columns)
      : rows(rows), columns(columns), stride((columns + 7) / 8 * 8 + kNobodys),
        storage(size_t(rows * stride) + 8, 0xFFFF) {} // NaN wherever nobody writes
  uint16_t *data() {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    return storage.data() + (16 - address % 16) % 16 / 2;
  }
  uint16_t &at(int32_t row, int32_t column) { return data()[row * stride + column]; }
  std::byte *bytes() { return reinterpret_cast<std::byte *>(data()); }
};

struct GemmCase {
  GemmProblem problem;
  Matrix a, b, c;
  std::vector<float> bias;

  GemmCase(int32_t m, int32_t n, int32_t k, GemmProblem problem, unsigned seed = 1)
      : problem(problem), a(m, k), b(n, k), c(m, n) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (Matrix *matrix : {&a, &b})
      for (int32_t row = 0; row < matrix->rows; ++row)
        for (int32_t column = 0; column < k; ++column)
          matrix->at(row, column) = round16(uniform(random), problem.type);
    for (int32_t column = 0; problem.hasBias && column < n; ++column)
      bias.push_back(static_cast<float>(uniform(random)));
  }

  Expected<GemmLaunch> launch(const GemmSchedule &schedule) {
    return planLaunch(schedule,
                      {c.rows, c.columns, a.columns, a.bytes(), b.bytes(), c.bytes(), a.stride * 2,
                       b.stride * 2, c.stride * 2, problem.hasBias ? bias.data() : nullptr});
  }

  /// Runs the kernel and checks every element: what is wrong, or nothing.
  std::string run(EmulatedKernel &kernel, const GemmSchedule &schedule,
                  const Adversary &adversary) {
    std::fill(c.storage.begin(), c.storage.end(), uint16_t(0xFFFF));
    Expected<GemmLaunch> made = launch(schedule);
    if (!made)
      return made.error();
    if (Status done = kernel.run(made->grid, made->arguments(), adversary); !done)
      return done.error();
    return check();
  }

  /// Every element lies within the bound: half a unit of C's type in the last place, and one
  /// rounding of fp32 for each 16 products that are added, for the bias and for the first.
  std::string check() {
    if (sums.empty())
      computeSums();
    const bool isBf16 = problem.type == GemmProblem::Type::BFloat16;
    const double unit = std::ldexp(1, isBf16 ? -8 : -11), least = isBf16 ? 0 : std::ldexp(1, -25);
    for (int32_t row = 0; row < c.rows; ++row)
      for (int32_t column = 0; column < c.columns; ++column) {
        const auto [sum, size] = sums[size_t(row) * size_t(c.columns) + size_t(column)];
        const double got = widen16(c.at(row, column), problem.type);
        const double rounding = (a.columns / 16 + 3) * std::ldexp(1, -24) * size;
        if (!(std::fabs(got - sum) <= unit * (std::fabs(sum) + rounding) + rounding + least))
          return "C[" + std::to_string(row) + ", " + std::to_string(column) + "] is " +
                 std::to_string(got) + " and not " + std::to_string(sum);
      }
    // What lies between the rows belongs to others, but for the last 16 bytes of a row
    // (GemmLaunch.h).
    for (int32_t row = 0; row < c.rows; ++row)
      for (int64_t column = (c.columns + 7) / 8 * 8; column < c.stride; ++column)
        if (c.data()[row * c.stride + column] != 0xFFFF)
          return "the kernel writes beyond the columns of C";
    return "";
  }

private:
  static std::vector<double> widen(Matrix &matrix, GemmProblem::Type type) {
    std::vector<double> values;
    for (int32_t row = 0; row < matrix.rows; ++row)
      for (int32_t column = 0; column < matrix.columns; ++column)
        values.push_back(widen16(matrix.at(row, column), type));
    return values;
  }
  /// The product in double precision, and the sum of absolute values beside it.
  void computeSums() {
    const std::vector<double> x = widen(a, problem.type), y = widen(b, problem.type);
    const auto depth = size_t(a.columns);
    for (size_t row = 0; row < size_t(c.rows); ++row)
      for (size_t column = 0; column < size_t(c.columns); ++column) {
        double sum = problem.hasBias ? bias[column] : 0, size = std::fabs(sum);
        for (size_t k = 0; k < depth; ++k) {
          const double product = x[row * depth + k] * y[column * depth + k];
          sum += product;
          size += std::fabs(product);
        }
        sums.emplace_back(sum, size);
      }
  }
  std::vector<std::pair<double, double>> sums; ///< by element of C
};

} // namespace millrace::gpu
