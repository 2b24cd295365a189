// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products on the emulator, element by element within the bound of their rounding.
#include "tests/compiler/Codegen/Gpu/GemmCase.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::gpu;

namespace {

constexpr auto kBf16 = GemmProblem::Type::BFloat16;
constexpr auto kF16 = GemmProblem::Type::Float16;

struct Shape {
  int32_t m, n, k;
};

/// Compiles once, runs every shape under every choice of the adversary.
void expectRight(const GemmProblem &problem, const GemmSchedule &schedule,
                 const std::vector<Shape> &shapes) {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  Status built = buildGemm(*module, "gemm", problem, schedule);
  ASSERT_TRUE(built) << built.error();
  Expected<EmulatedKernel> kernel = EmulatedKernel::create(*module, "gemm");
  ASSERT_TRUE(kernel) << kernel.error();
  for (const Shape &shape : shapes) {
    GemmCase product(shape.m, shape.n, shape.k, problem);
    for (const Adversary &adversary : Adversary::all())
      EXPECT_EQ(product.run(*kernel, schedule, adversary), "")
          << shape.m << " x " << shape.n << " x " << shape.k << ", loads " << int(adversary.loads)
          << ", products " << int(adversary.products) << ", stores " << int(adversary.stores)
          << ", seed " << adversary.seed;
  }
}

} // namespace

TEST(Gemm, SmallTilesHaveTheValuesOfEveryShape) {
  expectRight({kBf16, false}, GemmSchedule::make(64, 64, 64, 2, 1),
              {{1, 1, 1},
               {1, 8, 8},
               {7, 5, 3},
               {63, 65, 66},
               {64, 64, 64},
               {65, 64, 64},
               {64, 64, 65},
               {17, 130, 200},
               {100, 33, 257}});
}

TEST(Gemm, TwoConsumersWithBiasHaveTheValuesOfOddShapes) {
  expectRight({kF16, true}, GemmSchedule::make(128, 128, 64, 4, 2),
              {{1, 1, 1}, {128, 128, 64}, {129, 77, 72}, {31, 200, 129}, {130, 131, 400}});
}

TEST(Gemm, TheLargestTileHasTheValues) {
  expectRight({kBf16, true}, GemmSchedule::make(128, 256, 64, 3, 2),
              {{128, 256, 256}, {77, 300, 500}});
}

TEST(Gemm, StagesOfTwoPanelsHaveTheValues) {
  expectRight({kBf16, true}, GemmSchedule::make(128, 64, 128, 2, 2),
              {{128, 64, 128}, {99, 63, 129}, {40, 24, 520}});
}

TEST(Gemm, ConsumersOfTwoBlocksHaveTheValues) {
  expectRight({kF16, false}, GemmSchedule::make(256, 64, 64, 3, 2),
              {{256, 64, 64}, {255, 65, 192}, {1, 9, 300}});
}

TEST(Gemm, ThreeConsumersHaveTheValues) {
  expectRight({kBf16, false}, GemmSchedule::make(192, 128, 64, 3, 3),
              {{192, 128, 128}, {10, 140, 200}});
}

TEST(Gemm, ClustersThatShareTilesOfBHaveTheValues) {
  expectRight({kBf16, true}, GemmSchedule::make(64, 64, 64, 3, 1, 2),
              {{128, 64, 64}, {200, 100, 450}, {1, 1, 1}});
}
