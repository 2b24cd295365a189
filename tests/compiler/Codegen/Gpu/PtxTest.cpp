// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PTX of matrix products: its instructions by a closed form, and what ptxas makes of it.
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"
#include "compiler/Codegen/Gpu/Ptx/ChipFeatures.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"

#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;
using testing::Not;

namespace {

const std::vector<GemmSchedule> kSchedules = {
    GemmSchedule::make(64, 64, 64, 4, 1),     GemmSchedule::make(64, 256, 64, 4, 1),
    GemmSchedule::make(128, 128, 64, 4, 2),   GemmSchedule::make(128, 192, 64, 3, 2),
    GemmSchedule::make(128, 256, 64, 3, 2),   GemmSchedule::make(128, 64, 128, 3, 2),
    GemmSchedule::make(256, 128, 64, 3, 2),   GemmSchedule::make(192, 128, 64, 3, 3),
    GemmSchedule::make(128, 256, 64, 3, 2, 2)};

Expected<std::string> ptxOf(const GemmProblem &problem, const GemmSchedule &schedule,
                            const char *chip = "sm_90a") {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  if (Status built = buildGemm(*module, "gemm", problem, schedule); !built)
    return built.takeError();
  return emitPtx(*module, chip);
}

size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

} // namespace

TEST(Ptx, InstructionsFollowTheSchedule) {
  for (const GemmSchedule &schedule : kSchedules) {
    Expected<std::string> ptx = ptxOf({GemmProblem::Type::BFloat16, false}, schedule);
    ASSERT_TRUE(ptx) << ptx.error();
    const std::string shape = "m64n" + std::to_string(schedule.tileN) + "k16.f32.bf16.bf16";
    // The first stage stands before the loop: its products are there twice.
    EXPECT_EQ(count(*ptx, "wgmma.mma_async.sync.aligned." + shape),
              2u * schedule.blocks() * schedule.tileK / 16);
    EXPECT_EQ(count(*ptx, "wgmma.commit_group"), 2u);
    EXPECT_EQ(count(*ptx, "wgmma.fence"), 2u);
    EXPECT_EQ(count(*ptx, "stmatrix.sync.aligned.m8n8.x4"),
              schedule.blocks() * schedule.tileN / 16);
    EXPECT_EQ(count(*ptx, "mbarrier.init"), 2u * schedule.stages);
    EXPECT_EQ(count(*ptx, "cp.async.bulk.tensor.2d.global.shared::cta"),
              schedule.blocks() * schedule.tileN / 64);
    EXPECT_EQ(count(*ptx, ".multicast::cluster"), schedule.cluster > 1 ? schedule.panels() : 0);
    EXPECT_THAT(*ptx, HasSubstr(".version 8.0"));
    EXPECT_THAT(*ptx, HasSubstr(".target sm_90a"));
    for (const char *never : {".local", "call", "ld.param.b8", "bar.red"})
      EXPECT_THAT(*ptx, Not(HasSubstr(never)));
  }
}

TEST(Ptx, AChipThatLacksAnOperationIsNamedBeforeLLVMIsAsked) {
  const GemmSchedule schedule = kSchedules.front();
  for (const char *chip : {"sm_80", "sm_90", "sm_100"}) {
    Expected<std::string> ptx = ptxOf({}, schedule, chip);
    ASSERT_FALSE(ptx);
    EXPECT_THAT(ptx.error(), HasSubstr("kernel 'gemm': the operation 'nvvm."));
    EXPECT_THAT(ptx.error(), HasSubstr(std::string("and PTX is made for ") + chip));
  }
  EXPECT_THAT(ptxOf({}, schedule, "sm_1").error(), HasSubstr("chip 'sm_1' is not known"));
}

TEST(Ptx, PtxasTakesEveryScheduleWithoutSpillsStackOrSerialisation) {
  const std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed; set CUDA_HOME, or put it into PATH";
  for (GemmProblem::Type type : {GemmProblem::Type::BFloat16, GemmProblem::Type::Float16})
    for (const GemmSchedule &schedule : kSchedules) {
      Expected<std::string> ptx = ptxOf({type, true}, schedule);
      ASSERT_TRUE(ptx) << ptx.error();
      Expected<PtxasReport> report = runPtxas(*ptxas, *ptx, "sm_90a");
      ASSERT_TRUE(report) << report.error();
      Status passes = checkPtxasReport(*report);
      EXPECT_TRUE(passes) << passes.error();
      ASSERT_EQ(report->kernels.size(), 1u);
      EXPECT_EQ(report->kernels[0].registers, schedule.launchRegisters());
      EXPECT_EQ(report->kernels[0].barriers, 2u);
    }
}

TEST(Ptx, PtxasTakesWgmmaWithAInRegisters) {
  const std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed; set CUDA_HOME, or put it into PATH";
  // The only operation that is inline PTX and that the matrix product does not use.
  const char *text = R"(
hopper.kernel @k(%out: !llvm.ptr<1>, %a: i32) attributes {
    threads = 128 : i32, registers = 168 : i32, shared_memory = 8192 : i32} {
  %0 = arith.constant 0 : i32
  %d = hopper.matrix_descriptor %0 stride 1024
  %z = hopper.accumulator_zero : !hopper.accumulator<64x64xf32>
  %f = hopper.wgmma_fence %z : (!hopper.accumulator<64x64xf32>)
      -> !hopper.accumulator<64x64xf32, in_flight>
  %m = hopper.wgmma_rs %f, [%a, %a, %a, %a], %d bf16 : !hopper.accumulator<64x64xf32, in_flight>
  hopper.wgmma_commit
  %r = hopper.wgmma_wait 0, %m : (!hopper.accumulator<64x64xf32, in_flight>)
      -> !hopper.accumulator<64x64xf32>
  %x = hopper.accumulator_read %r[31] : !hopper.accumulator<64x64xf32>
  llvm.store %x, %out : f32, !llvm.ptr<1>
  hopper.return
})";
  mlir::DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  Expected<std::string> ptx = emitPtx(*module, "sm_90a");
  ASSERT_TRUE(ptx) << ptx.error();
  Expected<PtxasReport> report = runPtxas(*ptxas, *ptx, "sm_90a");
  ASSERT_TRUE(report) << report.error();
  Status passes = checkPtxasReport(*report);
  EXPECT_TRUE(passes) << passes.error();
}

TEST(Ptx, TheGateRefusesWhatPtxasComplainsAbout) {
  EXPECT_THAT(checkPtxasReport({{{"k", 168, 0, 8, 1, 0}}, {}}).error(),
              HasSubstr("kernel 'k' spills 8 bytes"));
  EXPECT_THAT(checkPtxasReport({{{"k", 168, 16, 0, 1, 0}}, {}}).error(),
              HasSubstr("16 bytes of stack"));
  EXPECT_THAT(checkPtxasReport({{{"k", 168, 0, 0, 1, 0}}, {"(C7510) serialized"}}).error(),
              HasSubstr("changed the order of wgmma: (C7510)"));
  EXPECT_THAT(checkPtxasReport({}).error(), HasSubstr("found no kernel"));
}

TEST(Ptx, PtxasRefusesWhatIsNoPtx) {
  const std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed; set CUDA_HOME, or put it into PATH";
  Expected<PtxasReport> report = runPtxas(*ptxas, "no ptx", "sm_90a");
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error(), HasSubstr("ptxas refuses the kernel"));
}
