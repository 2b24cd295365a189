// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tuning table: which entry a kernel gets, what the compiler and the timeline make of it, and
// tables that are refused.
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Tuning/Cost.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

const std::string kChip =
    R"({"name": "C", "driver_names": [], "bytes_per_second": 1e12, "matrix_flops_per_second": 1e14,
        "other_flops_per_second": 1e13, "processors": 100, "launch_seconds": 1e-6, "source": ""})";

std::string entry(const std::string &op, const std::string &type, const std::string &chip,
                  const std::string &sizes, const std::string &schedule, const std::string &share,
                  const std::string &kind = "roofline") {
  return R"({"op": ")" + op + R"(", "type": ")" + type + R"(", "chip": ")" + chip +
         R"(", "sizes": )" + sizes + R"(, "schedule": )" + schedule + R"(, "roofline_share": )" +
         share + R"(, "provenance": {"kind": ")" + kind + R"(", "date": "", "by": ""}})";
}

std::string tableText(const std::string &entries, const std::string &chip = "C") {
  return R"({"schema_version": 1, "estimated_chip": ")" + chip + R"(", "chips": [)" + kChip +
         R"(], "entries": [)" + entries + "]}";
}

TuningTable table(const std::string &entries) {
  Expected<TuningTable> parsed = TuningTable::parse(tableText(entries));
  EXPECT_TRUE(parsed) << parsed.error();
  return std::move(*parsed);
}

std::string schedule(int64_t rows, int64_t columns, int64_t depth) {
  return R"({"rows": )" + std::to_string(rows) + R"(, "columns": )" + std::to_string(columns) +
         R"(, "depth": )" + std::to_string(depth) + "}";
}

const char *kProduct = R"(
func.func @main(%a: tensor<300x200xf16>, %b: tensor<200x130xf16>) -> tensor<300x130xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300x130xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<300x130xf32>) -> tensor<300x130xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<300x200xf16>, tensor<200x130xf16>)
      outs(%f : tensor<300x130xf32>) -> tensor<300x130xf32>
  return %0 : tensor<300x130xf32>
})";

} // namespace

TEST(Tuning, TheTableOfTheProgramHasTheSchedulesAndTheChipOfBefore) {
  const TuningTable &own = TuningTable::builtIn();
  using Schedule = std::map<std::string, int64_t>;
  EXPECT_EQ(own.scheduleFor({"product", "f16", {{"rows", 7}, {"staged", 0}}}, {}),
            (Schedule{{"rows", 64}, {"columns", 64}, {"depth", 32}}));
  EXPECT_EQ(own.scheduleFor({"attention", "bf16", {{"depth_and_values", 192}, {"staged", 0}}}, {}),
            (Schedule{{"rows", 64}, {"keys", 32}}));
  EXPECT_EQ(own.scheduleFor({"attention", "bf16", {{"depth_and_values", 193}, {"staged", 0}}}, {}),
            (Schedule{{"rows", 64}, {"keys", 16}}));
  // Of what warpgroups multiply it says nothing: the fallback is chosen by size.
  EXPECT_EQ(own.scheduleFor({"product", "f16", {{"rows", 7}, {"staged", 1}}}, {{"rows", 1}}),
            (Schedule{{"rows", 1}}));
  EXPECT_EQ(own.estimatedChip().name, "H200 SXM");
  for (const char *op : {"map", "rows", "top_k", "product", "attention", "gather", "copy"}) {
    const GpuLaunch launch{op, 132, 4.8e6, 0, 0, true, {op, "f32", {{"bytes", 4800000}}}};
    EXPECT_DOUBLE_EQ(estimate(launch).seconds, 6e-6) << op; // a launch, and 1 us of memory
    EXPECT_FALSE(estimate(launch).isMeasured) << op;
  }
}

TEST(Tuning, WhatIsMeasuredAndThenWhatIsNarrowerComesFirst) {
  const std::string all = "{}", few = R"({"rows": [1, 16]})", fewer = R"({"rows": [1, 8]})",
                    both = R"({"rows": [1, 16], "depth": [1, 99]})";
  const TuningTable t = table(entry("any", "any", "any", all, "null", "0.9") + "," +
                              entry("product", "any", "any", all, "null", "0.8") + "," +
                              entry("product", "f16", "any", all, "null", "0.7") + "," +
                              entry("product", "any", "any", few, "null", "0.6") + "," +
                              entry("product", "any", "any", fewer, "null", "0.5") + "," +
                              entry("product", "any", "any", both, "null", "0.4") + "," +
                              entry("product", "any", "C", all, "null", "0.3") + "," +
                              entry("rows", "any", "any", all, "null", "0.2", "measured"));
  const auto share = [&](const KernelKind &kind, const char *chip) {
    return t.find(kind, chip, false)->rooflineShare;
  };
  EXPECT_EQ(share({"map", "f32", {}}, "C"), 0.9);
  EXPECT_EQ(share({"product", "bf16", {}}, "D"), 0.8);
  EXPECT_EQ(share({"product", "f16", {{"rows", 3}}}, "D"), 0.7); // the type before the bucket
  EXPECT_EQ(share({"product", "bf16", {{"rows", 9}}}, "D"), 0.6);
  EXPECT_EQ(share({"product", "bf16", {{"rows", 8}}}, "D"), 0.5);
  EXPECT_EQ(share({"product", "bf16", {{"rows", 8}, {"depth", 99}}}, "D"), 0.4);
  EXPECT_EQ(share({"product", "bf16", {{"rows", 8}, {"depth", 100}}}, "D"), 0.5);
  EXPECT_EQ(share({"product", "f16", {{"rows", 8}}}, "C"), 0.3);
  EXPECT_EQ(share({"rows", "f32", {}}, "C"), 0.2);
  EXPECT_EQ(t.find({"product", "f16", {}}, "C", /*hasSchedule=*/true), nullptr);
}

TEST(Tuning, EstimatesAreTheRooflineOverTheShareThatWasMeasured) {
  const TuningTable t =
      table(entry("map", "any", "C", R"({"bytes": [1000, 2000000]})", "null", "0.25", "measured"));
  GpuLaunch launch{"map_1", 100, 1e6, 0, 0, true, {"map", "f32", {{"bytes", 1000000}}}};
  EXPECT_DOUBLE_EQ(rooflineSeconds(launch, t.estimatedChip()), 2e-6);
  EXPECT_DOUBLE_EQ(estimate(launch, t).seconds, 8e-6);
  EXPECT_TRUE(estimate(launch, t).isMeasured);
  launch.kind.sizes["bytes"] = 2000001; // in no bucket
  EXPECT_DOUBLE_EQ(estimate(launch, t).seconds, 2e-6);
  EXPECT_FALSE(estimate(launch, t).isMeasured);
}

TEST(Tuning, TheCompilerCutsAProductAsTheTableSays) {
  Parsed parsed(kProduct);
  const auto programs = [&](const TuningTable &t) {
    Expected<KernelPlan> plan = planKernels(*parsed.module, "main", "f16", t);
    EXPECT_TRUE(plan) << plan.error();
    EXPECT_EQ(plan->launches.front().kind.op, "product");
    EXPECT_EQ(plan->launches.front().kind.type, "f16");
    EXPECT_EQ(plan->launches.front().kind.sizes.at("depth"), 200);
    return plan->launches.front().programs;
  };
  EXPECT_EQ(programs(TuningTable::builtIn()), 5 * 3);
  const std::string bucket = R"({"rows": [256, 511], "columns": [128, 255], "depth": [128, 255]})",
                    other = R"({"rows": [256, 511], "columns": [128, 255], "depth": [201, 255]})";
  EXPECT_EQ(programs(table(entry("product", "f16", "C", bucket, schedule(32, 16, 64), "1"))),
            10 * 9);
  // What is of another type, chip or bucket, or of another op, leaves it as it is.
  for (const std::string &own :
       {entry("product", "bf16", "C", bucket, schedule(32, 16, 64), "1"),
        entry("product", "f16", "D", bucket, schedule(32, 16, 64), "1"),
        entry("product", "f16", "C", other, schedule(32, 16, 64), "1"),
        entry("attention", "f16", "C", "{}", R"({"rows": 32, "keys": 16})", "1")})
    EXPECT_EQ(programs(table(own)), 5 * 3) << own;
}

/// Those that `scripts/bench/gpu --tune` tries, by its list.
TEST(Tuning, PtxasTakesEveryCandidateWithoutSpills) {
  const std::optional<std::string> ptxas = findPtxas();
  for (const auto &[rows, columns, depth] : {std::tuple(64, 64, 32),
                                             {64, 32, 32},
                                             {32, 64, 32},
                                             {32, 32, 32},
                                             {32, 16, 64},
                                             {32, 8, 64}}) {
    SCOPED_TRACE(schedule(rows, columns, depth));
    Parsed parsed(kProduct);
    const TuningTable t =
        table(entry("product", "any", "any", "{}", schedule(rows, columns, depth), "1"));
    mlir::PassManager passes(&parsed.context);
    addTensorToTile(passes, "f16", nullptr, t);
    passes.addPass(tile::createLowerToHopperPass());
    ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
    for (const char *chip : {"sm_80", "sm_90a"}) {
      Expected<std::string> ptx = emitPtx(*parsed.module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      expectAssembles(ptxas, *ptx, chip);
    }
  }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}

TEST(Tuning, TablesThatAreWrongAreRefusedWithTheEntryAndTheReason) {
  const std::string good = entry("map", "any", "any", "{}", "null", "1");
  const auto product = [](const std::string &text) {
    return entry("product", "any", "any", "{}", text, "1");
  };
  const std::pair<std::string, const char *> wrong[] = {
      {"[", "the table"},
      {R"({"schema_version": 2})", "schema_version is not 1"},
      {tableText(good, "D"), "estimated_chip 'D' is none of its chips"},
      {tableText(good + "," + entry("map", "any", "any", "{}", "null", "0")),
       "entry 1: its roofline_share is 0.000000; it is more than 0 and at most 1"},
      {tableText(entry("map", "any", "any", "{}", "null", "1.5")), "entry 0: its roofline_share"},
      {tableText(entry("map", "any", "any", R"({"bytes": [2, 1]})", "null", "1")),
       "entry 0: its 'bytes' is from 2 to 1"},
      {tableText(entry("map", "any", "any", R"({"bytes": [2]})", "null", "1")), "entry 0: "},
      {tableText(product(R"({"rows": 64, "columns": 64})")), "its schedule has no 'depth'"},
      {tableText(product(schedule(48, 64, 32))),
       "its schedule's 'rows' is 48; use a multiple of 32 up to 256"},
      {tableText(product(schedule(64, 4, 32))),
       "its schedule's 'columns' is 4; use a multiple of 8 up to 256"},
      {tableText(product(schedule(64, 64, 0))), "its schedule's 'depth' is 0"},
      {tableText(
           entry("attention", "any", "any", "{}", R"({"rows": 64, "keys": 16, "depth": 16})", "1")),
       "kernels 'attention' have no 'depth' in their schedule"},
      {tableText(entry("map", "any", "any", "{}", R"({"rows": 64})", "1")),
       "kernels 'map' have no 'rows' in their schedule"},
      {tableText(R"({"op": "map"})"), "entry 0: "},
  };
  for (const auto &[text, why] : wrong) {
    const Expected<TuningTable> parsed = TuningTable::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error(), HasSubstr(why)) << text;
  }
}

TEST(Tuning, TheKindOfAKernelIsWhatItsNameBeginsWith) {
  EXPECT_EQ(opOf("product_3"), "product");
  EXPECT_EQ(opOf("top_k_12"), "top_k");
  for (const char *name : {"attention", "map_", "_1", "12", ""})
    EXPECT_EQ(opOf(name), name);
}
