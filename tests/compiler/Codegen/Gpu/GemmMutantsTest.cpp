// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The strength of the verifier and the emulator: kernels of a matrix product, each with one fault,
// have to be noticed.
#include "tests/compiler/Codegen/Gpu/GemmCase.h"
#include "tests/compiler/Codegen/Gpu/Mutations.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace millrace;
using namespace millrace::gpu;
using namespace millrace::gpu::mutants;

namespace {

/// What some choice of the adversary finds wrong with a kernel, or nothing.
std::string findFault(ModuleOp module, const GemmSchedule &schedule, GemmCase &product) {
  Expected<EmulatedKernel> kernel = EmulatedKernel::create(module, "gemm");
  if (!kernel) {
    ADD_FAILURE() << kernel.error();
    return "";
  }
  for (const Adversary &adversary : Adversary::all())
    if (std::string wrong = product.run(*kernel, schedule, adversary); !wrong.empty())
      return wrong;
  return "";
}

/// Runs all mutants of one kernel, which is right itself.
Kills huntGemm(const GemmSchedule &schedule, GemmCase product) {
  MLIRContext context;
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  if (Status built = buildGemm(*module, "gemm", product.problem, schedule); !built) {
    ADD_FAILURE() << built.error();
    return {};
  }
  EXPECT_EQ(findFault(*module, schedule, product), "");
  return hunt(*module, [&](ModuleOp mutant) { return findFault(mutant, schedule, product); });
}

} // namespace

TEST(GemmMutants, OfTwoConsumersAreNoticed) {
  const Kills kills = huntGemm(GemmSchedule::make(128, 64, 64, 2, 2),
                               GemmCase(130, 72, 317, {GemmProblem::Type::BFloat16, true}));
  EXPECT_GT(kills.all(), 100u);
  EXPECT_EQ(kills.survivors, std::vector<std::string>());
}

TEST(GemmMutants, OfClustersAreNoticed) {
  const Kills kills = huntGemm(GemmSchedule::make(64, 64, 64, 2, 1, 2),
                               GemmCase(200, 72, 317, {GemmProblem::Type::Float16, false}));
  EXPECT_GT(kills.all(), 100u);
  EXPECT_EQ(kills.survivors, std::vector<std::string>());
}
