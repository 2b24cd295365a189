// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The strength of the verifier and the emulator: kernels that warpgroups multiply, each with one
// fault, have to be noticed.
#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "compiler/Dialect/Tile/Transforms/Staging.h"
#include "tests/compiler/Codegen/Gpu/Mutations.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"

#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

using namespace mlir;
using namespace millrace;
using namespace millrace::gpu;
using namespace millrace::gpu::mutants;

namespace {

/// Memory of a kernel's arguments: random, but for the last one, which it writes.
struct Memory {
  explicit Memory(tile::KernelOp kernel) {
    std::minstd_rand random(3);
    for (Type type : kernel.getArgumentTypes()) {
      const auto memory = cast<MemRefType>(type);
      const bool isHalf = memory.getElementType().isF16();
      // Aligned as TMA wants it; f16 from 1 to 2.
      all.emplace_back(size_t(memory.getNumElements()) * (isHalf ? 2 : 4) / 16 + 1);
      auto *halves = reinterpret_cast<uint16_t *>(all.back().data());
      for (int64_t i = 0; isHalf && i < memory.getNumElements(); ++i)
        halves[i] = uint16_t(0x3C00 + random() % 0x400);
    }
  }
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  std::vector<std::vector<Unit>> all;
};

/// What one run writes, or what the emulator reports.
std::string run(EmulatedKernel &code, const std::vector<tile::LaunchMap> &maps, unsigned programs,
                Memory &memory, const Adversary &adversary) {
  std::memset(static_cast<void *>(memory.all.back().data()), 0xFF, memory.all.back().size() * 16);
  std::vector<Argument> arguments;
  for (auto &own : memory.all)
    arguments.push_back(GlobalMemory{own.data(), own.size() * 16});
  std::vector<TensorMap> made;
  made.reserve(maps.size());
  for (const tile::LaunchMap &map : maps)
    arguments.emplace_back(&made.emplace_back(mapOf(map, memory.all[map.argument].data())));
  const Status done = code.run({programs, 1}, arguments, adversary);
  return done ? "" : done.error();
}

Kills huntAttention(const AttentionProblem &problem, const AttentionSchedule &schedule) {
  Parsed parsed("module {}");
  const Status built = buildAttention(*parsed.module, "k", problem, schedule);
  EXPECT_TRUE(built) << built.error();
  auto program = *parsed.module->getOps<tile::KernelOp>().begin();
  // So few that the ring goes around, and what is given back matters.
  program->setAttr(tile::kStagesAttribute, Builder(&parsed.context).getI32IntegerAttr(2));
  Memory memory(program);
  PassManager passes(&parsed.context);
  passes.addPass(tile::createLowerToHopperPass(/*hasWarpgroups=*/true));
  EXPECT_TRUE(succeeded(passes.run(*parsed.module)));
  auto kernel = *parsed.module->getOps<hopper::KernelOp>().begin();
  const auto found = tile::launchMapsOf(kernel);
  const std::vector<tile::LaunchMap> maps(found.begin(), found.end());
  const auto programs =
      unsigned(kernel->getAttrOfType<IntegerAttr>(tile::kProgramsAttribute).getInt());
  std::string wanted;
  const auto findFault = [&](ModuleOp module) -> std::string {
    Expected<EmulatedKernel> code = EmulatedKernel::create(module, "k");
    if (!code) {
      ADD_FAILURE() << code.error();
      return "";
    }
    for (const Adversary &adversary : Adversary::all()) {
      if (const std::string report = run(*code, maps, programs, memory, adversary); !report.empty())
        return report;
      const std::string got(reinterpret_cast<const char *>(memory.all.back().data()),
                            memory.all.back().size() * 16);
      if (wanted.empty())
        wanted = got; // of the kernel without a fault, which other tests hold to its values
      if (got != wanted)
        return "C[] is another";
    }
    return "";
  };
  EXPECT_EQ(findFault(*parsed.module), "");
  return hunt(*parsed.module, findFault);
}

} // namespace

/// Scores that are multiplied ahead, kept rows, values whose rows are neighbours, two warpgroups.
/// No faults are: other turns, which are for speed alone; no wait for a fresh barrier, or for
/// values whose stage was given back with that of scores which were waited for; scores and values
/// in one group, and no second wait behind a wait for all. One is a fault that no order of the
/// emulator shows: that loads of scores wait at the next barrier.
TEST(StagingMutants, OfAttentionAreNoticed) {
  const AttentionProblem problem = {AttentionProblem::Type::Float16, 1, 1, 1, 128, 72, 32, 32};
  const Kills kills = huntAttention(problem, {128, 16});
  std::vector<std::string> survivors;
  for (const std::string &own : kills.survivors)
    if (!own.starts_with("hopper.named_barrier"))
      survivors.push_back(own.substr(0, own.find(" (")));
  EXPECT_GT(kills.all(), 100u);
  EXPECT_THAT(survivors, testing::UnorderedElementsAre(
                             "hopper.mbarrier_wait erased", "hopper.mbarrier_wait next barrier",
                             "hopper.mbarrier_wait next barrier", "hopper.mbarrier_wait erased",
                             "hopper.wgmma_commit erased", "hopper.wgmma_wait one group more"));
}
