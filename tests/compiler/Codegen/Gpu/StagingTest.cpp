// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products and attention by Hopper's warpgroups: against the reference, on the emulator under every
// order of events, and as PTX.
#include "compiler/Dialect/Tile/Transforms/Staging.h"

#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace millrace;
using namespace millrace::gpu;

namespace {

/// `text` with each `$name` replaced by its number.
std::string with(std::string text, const std::vector<std::pair<std::string, int64_t>> &numbers) {
  for (const auto &[name, number] : numbers)
    for (size_t at; (at = text.find("$" + name)) != text.npos;)
      text.replace(at, name.size() + 1, std::to_string(number));
  return text;
}

/// A batch of products of f16, with weights K x N or N x K, A as M x K or K x M, and a residual
/// behind it.
struct Product {
  int64_t batch, m, n, k;
  bool isTurnedA = false, isTurnedB = false;
};

std::string text(const Product &p) {
  const std::string a = p.isTurnedA ? "tensor<$Bx$Kx$Mxf16>" : "tensor<$Bx$Mx$Kxf16>",
                    w = p.isTurnedB ? "tensor<$Bx$Nx$Kxf16>" : "tensor<$Bx$Kx$Nxf16>";
  return with("func.func @main(%a: " + a + ", %w: " + w +
                  ", %r: tensor<$Bx$Mx$Nxf32>) -> tensor<$Bx$Mx$Nxf32> {\n"
                  "%z = arith.constant 0.0 : f32\n%h = arith.constant 0.5 : f32\n"
                  "%e = tensor.empty() : tensor<$Bx$Mx$Nxf32>\n"
                  "%f = linalg.fill ins(%z : f32) outs(%e : tensor<$Bx$Mx$Nxf32>) -> "
                  "tensor<$Bx$Mx$Nxf32>\n"
                  "%x = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, " +
                  std::string(p.isTurnedA ? "k, m" : "m, k") +
                  ")>, affine_map<(b, m, n, k) -> (b, " + (p.isTurnedB ? "n, k" : "k, n") +
                  ")>, affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = [\"parallel\", "
                  "\"parallel\", \"parallel\", \"reduction\"]} ins(%a, %w : " +
                  a + ", " + w +
                  ") outs(%f : tensor<$Bx$Mx$Nxf32>) {\n^bb0(%0: f16, %1: f16, %2: f32):\n"
                  "%3 = arith.extf %0 : f16 to f32\n%4 = arith.extf %1 : f16 to f32\n"
                  "%5 = arith.mulf %3, %4 : f32\n%6 = arith.addf %2, %5 : f32\n"
                  "linalg.yield %6 : f32\n} -> tensor<$Bx$Mx$Nxf32>\n"
                  "%y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, "
                  "affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], "
                  "iterator_types = [\"parallel\", \"parallel\", \"parallel\"]} ins(%x, %r : "
                  "tensor<$Bx$Mx$Nxf32>, tensor<$Bx$Mx$Nxf32>) outs(%e : tensor<$Bx$Mx$Nxf32>) {\n"
                  "^bb0(%0: f32, %1: f32, %2: f32):\n%3 = arith.mulf %0, %h : f32\n"
                  "%4 = arith.addf %3, %1 : f32\nlinalg.yield %4 : f32\n} -> "
                  "tensor<$Bx$Mx$Nxf32>\nreturn %y : tensor<$Bx$Mx$Nxf32>\n}",
              {{"B", p.batch}, {"M", p.m}, {"N", p.n}, {"K", p.k}});
}

/// Each with two steps of 64 at least: a loop of one pass is none.
const std::vector<Product> kProducts = {{1, 64, 64, 72},
                                        {1, 128, 256, 128},
                                        {1, 129, 72, 104},
                                        {2, 65, 136, 200},
                                        {3, 64, 8, 136},
                                        {1, 200, 264, 80},
                                        {1, 136, 64, 72, true},
                                        {2, 64, 80, 264, true},
                                        {1, 192, 40, 128, false, true},
                                        {2, 72, 248, 88, false, true},
                                        {1, 136, 96, 136, true, true},
                                        {1, 8, 200, 96, false, true}};

/// Attention of f16, scaled, over all keys.
struct Attention {
  int64_t heads, queries, keys, depth;
};

std::string text(const Attention &p) {
  const std::string score = "^bb0(%0: f16, %1: f16, %2: f32):\n%3 = arith.extf %0 : f16 to f32\n"
                            "%4 = arith.extf %1 : f16 to f32\n%5 = arith.mulf %3, %4 : f32\n"
                            "%6 = arith.addf %2, %5 : f32\nlinalg.yield %6 : f32\n}";
  return with(
      "#q = affine_map<(h, i, j, d) -> (h, i, d)>\n#k = affine_map<(h, i, j, d) -> (h, j, d)>\n"
      "#s = affine_map<(h, i, j, d) -> (h, i, j)>\n#t = affine_map<(h, i, d, j) -> (h, i, j)>\n"
      "#v = affine_map<(h, i, d, j) -> (h, j, d)>\n#o = affine_map<(h, i, d, j) -> (h, i, d)>\n"
      "#m = affine_map<(h, i, j) -> (h, i, j)>\n#r = affine_map<(h, i, j) -> (h, i)>\n"
      "func.func @main(%q: tensor<$Hx$Qx$Dxf16>, %k: tensor<$Hx$Kx$Dxf16>, "
      "%v: tensor<$Hx$Kx$Dxf16>) -> tensor<$Hx$Qx$Dxf32> {\n"
      "%z = arith.constant 0.0 : f32\n%low = arith.constant 0xFF800000 : f32\n"
      "%c = arith.constant 0.125 : f32\n%se = tensor.empty() : tensor<$Hx$Qx$Kxf32>\n"
      "%re = tensor.empty() : tensor<$Hx$Qxf32>\n%oe = tensor.empty() : tensor<$Hx$Qx$Dxf32>\n"
      "%sz = linalg.fill ins(%z : f32) outs(%se : tensor<$Hx$Qx$Kxf32>) -> tensor<$Hx$Qx$Kxf32>\n"
      "%rz = linalg.fill ins(%z : f32) outs(%re : tensor<$Hx$Qxf32>) -> tensor<$Hx$Qxf32>\n"
      "%rl = linalg.fill ins(%low : f32) outs(%re : tensor<$Hx$Qxf32>) -> tensor<$Hx$Qxf32>\n"
      "%oz = linalg.fill ins(%z : f32) outs(%oe : tensor<$Hx$Qx$Dxf32>) -> tensor<$Hx$Qx$Dxf32>\n"
      "%s = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = [\"parallel\", "
      "\"parallel\", \"parallel\", \"reduction\"]} ins(%q, %k : tensor<$Hx$Qx$Dxf16>, "
      "tensor<$Hx$Kx$Dxf16>) outs(%sz : tensor<$Hx$Qx$Kxf32>) {\n" +
          score +
          " -> tensor<$Hx$Qx$Kxf32>\n"
          "%n = linalg.generic {indexing_maps = [#m, #m], iterator_types = [\"parallel\", "
          "\"parallel\", \"parallel\"]} ins(%s : tensor<$Hx$Qx$Kxf32>) outs(%se : "
          "tensor<$Hx$Qx$Kxf32>) {\n^bb0(%0: f32, %1: f32):\n%2 = arith.mulf %0, %c : f32\n"
          "linalg.yield %2 : f32\n} -> tensor<$Hx$Qx$Kxf32>\n"
          "%x = linalg.generic {indexing_maps = [#m, #r], iterator_types = [\"parallel\", "
          "\"parallel\", \"reduction\"]} ins(%n : tensor<$Hx$Qx$Kxf32>) outs(%rl : "
          "tensor<$Hx$Qxf32>) {\n^bb0(%0: f32, %1: f32):\n%2 = arith.maximumf %1, %0 : f32\n"
          "linalg.yield %2 : f32\n} -> tensor<$Hx$Qxf32>\n"
          "%p = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = [\"parallel\", "
          "\"parallel\", \"parallel\"]} ins(%n, %x : tensor<$Hx$Qx$Kxf32>, tensor<$Hx$Qxf32>) "
          "outs(%se : tensor<$Hx$Qx$Kxf32>) {\n^bb0(%0: f32, %1: f32, %2: f32):\n"
          "%3 = arith.subf %0, %1 : f32\n%4 = math.exp %3 : f32\nlinalg.yield %4 : f32\n} -> "
          "tensor<$Hx$Qx$Kxf32>\n"
          "%t = linalg.generic {indexing_maps = [#m, #r], iterator_types = [\"parallel\", "
          "\"parallel\", \"reduction\"]} ins(%p : tensor<$Hx$Qx$Kxf32>) outs(%rz : "
          "tensor<$Hx$Qxf32>) {\n^bb0(%0: f32, %1: f32):\n%2 = arith.addf %1, %0 : f32\n"
          "linalg.yield %2 : f32\n} -> tensor<$Hx$Qxf32>\n"
          "%w = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = [\"parallel\", "
          "\"parallel\", \"parallel\"]} ins(%p, %t : tensor<$Hx$Qx$Kxf32>, tensor<$Hx$Qxf32>) "
          "outs(%se : tensor<$Hx$Qx$Kxf32>) {\n^bb0(%0: f32, %1: f32, %2: f32):\n"
          "%3 = arith.divf %0, %1 : f32\nlinalg.yield %3 : f32\n} -> tensor<$Hx$Qx$Kxf32>\n"
          "%o = linalg.generic {indexing_maps = [#t, #v, #o], iterator_types = [\"parallel\", "
          "\"parallel\", \"parallel\", \"reduction\"]} ins(%w, %v : tensor<$Hx$Qx$Kxf32>, "
          "tensor<$Hx$Kx$Dxf16>) outs(%oz : tensor<$Hx$Qx$Dxf32>) {\n"
          "^bb0(%0: f32, %1: f16, %2: f32):\n%4 = arith.extf %1 : f16 to f32\n"
          "%5 = arith.mulf %0, %4 : f32\n%6 = arith.addf %2, %5 : f32\n"
          "linalg.yield %6 : f32\n} -> tensor<$Hx$Qx$Dxf32>\n"
          "return %o : tensor<$Hx$Qx$Dxf32>\n}",
      {{"H", p.heads}, {"Q", p.queries}, {"K", p.keys}, {"D", p.depth}});
}

/// A table that gives staged kernels of the op this schedule.
TuningTable table(const std::string &op, const std::string &schedule) {
  Expected<TuningTable> parsed = TuningTable::parse(
      R"({"schema_version": 1, "estimated_chip": "C", "chips": [{"name": "C", "driver_names": [],
        "bytes_per_second": 1e12, "matrix_flops_per_second": 1e12, "other_flops_per_second": 1e12,
        "processors": 100, "launch_seconds": 1e-6, "source": ""}], "entries": [{"op": ")" +
      op + R"(", "type": "any", "chip": "any", "sizes": {"staged": [1, 1]}, "schedule": )" +
      schedule + R"(, "roofline_share": 1, "provenance": {"kind": "roofline"}}]})");
  EXPECT_TRUE(parsed) << parsed.error();
  return *parsed;
}
std::string ofProduct(int64_t rows, int64_t columns, int64_t depth) {
  return with(R"({"rows": $r, "columns": $c, "depth": $d})",
              {{"r", rows}, {"c", columns}, {"d", depth}});
}
std::string ofAttention(int64_t rows, int64_t keys) {
  return with(R"({"rows": $r, "keys": $k})", {{"r", rows}, {"k", keys}});
}

/// Random multiples of 1 / 8 up to 2, which f16 holds.
std::vector<HostTensor> inputsOf(mlir::ModuleOp module) {
  std::vector<HostTensor> all;
  std::minstd_rand random(7);
  auto function = *module.getOps<mlir::FunctionOpInterface>().begin();
  for (mlir::Type type : function.getArgumentTypes()) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(type);
    const bool isHalf = tensor.getElementType().isF16();
    all.push_back(
        HostTensor::zeros(isHalf ? HostType::Float16 : HostType::Float32, tensor.getShape().vec()));
    for (int64_t i = 0; i < tensor.getNumElements(); ++i) {
      llvm::APFloat number(float(int(random() % 33) - 16) / 8);
      bool isInexact = false;
      if (isHalf)
        number.convert(llvm::APFloat::IEEEhalf(), llvm::APFloat::rmNearestTiesToEven, &isInexact);
      const uint64_t bits = number.bitcastToAPInt().getZExtValue();
      std::memcpy(all.back().data.data() + i * (isHalf ? 2 : 4), &bits, isHalf ? 2 : 4);
    }
  }
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
  return std::sqrt(error / size);
}

/// Kernels of the tile level by the table.
bool makeTile(Parsed &parsed, const TuningTable &own) {
  mlir::PassManager passes(&parsed.context);
  addTensorToTile(passes, "f16", nullptr, own);
  return succeeded(passes.run(*parsed.module));
}

/// Of kernels by warpgroups, which the module holds then at the hopper level.
Expected<std::string> ptxOf(Parsed &parsed, const TuningTable &own) {
  mlir::PassManager passes(&parsed.context);
  passes.addPass(tile::createLowerToHopperPass(/*hasWarpgroups=*/true));
  if (!makeTile(parsed, own) || failed(passes.run(*parsed.module)))
    return Error{"is not lowered"};
  return emitPtx(*parsed.module, "sm_90a");
}

/// By warpgroups on the emulator, under every order of events.
void check(const std::string &source, const TuningTable &own, double most) {
  SCOPED_TRACE(source);
  Parsed tile(source), parsed(source), again(source);
  ASSERT_TRUE(parsed.module && makeTile(tile, own));
  auto kernel = *tile.module->getOps<tile::KernelOp>().begin();
  ASSERT_TRUE(tile::planStaging(kernel));
  const std::vector<HostTensor> tensors = inputsOf(*parsed.module);
  const std::vector<HostView> in(tensors.begin(), tensors.end());
  Expected<Reference> function = Reference::create(*again.module, "main");
  ASSERT_TRUE(function) << function.error();
  Expected<std::vector<HostTensor>> wanted = function->run(in);
  KernelOptions options{Device::Emulated, "f16"};
  options.tuning = &own;
  Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", options);
  ASSERT_TRUE(kernels) << kernels.error();
  ASSERT_EQ(kernels->summary().launches.size(), 1u);
  for (const Adversary &adversary : Adversary::all()) {
    Expected<std::vector<HostTensor>> results = kernels->run(in, adversary);
    ASSERT_TRUE(results) << results.error();
    ASSERT_LE(relativeError((*results)[0], (*wanted)[0]), most);
  }
}

} // namespace

TEST(Staging, ProductsHaveTheValuesOfTheReferenceUnderEveryOrder) {
  for (const Product &p : kProducts)
    for (const std::string &schedule : {ofProduct(64, 64, 64), ofProduct(128, 256, 64)}) {
      const double sums = (8 + 2 * std::sqrt(double(p.k))) * std::ldexp(1, -24);
      check(text(p), table("product", schedule), sums);
    }
}

TEST(Staging, AttentionHasTheValuesOfTheReferenceUnderEveryOrder) {
  for (const Attention &p :
       {Attention{1, 64, 80, 64}, Attention{2, 130, 100, 64}, Attention{1, 128, 200, 128},
        Attention{3, 70, 90, 40}, Attention{1, 1, 300, 64}, Attention{2, 129, 70, 16}})
    for (const std::string &schedule : {ofAttention(64, 32), ofAttention(128, 64)})
      check(text(p), table("attention", schedule), std::ldexp(1, -10));
}

/// What has no rows at multiples of 16 bytes: of weights nothing is staged, of rows the weights
/// alone.
TEST(Staging, TakesWhatTmaCanLoad) {
  const TuningTable own = table("product", ofProduct(64, 64, 64));
  for (const auto &[p, operands] : {std::pair(Product{1, 64, 64, 128}, 2),
                                    {Product{1, 64, 63, 128}, 0},
                                    {Product{1, 64, 64, 100, false, true}, 0},
                                    {Product{1, 64, 64, 100}, 1},
                                    {Product{1, 65, 64, 128, true}, 1}}) {
    SCOPED_TRACE(text(p));
    Parsed parsed(text(p));
    ASSERT_TRUE(makeTile(parsed, own));
    const auto plan = tile::planStaging(*parsed.module->getOps<tile::KernelOp>().begin());
    EXPECT_EQ(plan ? plan->operands.size() : 0, size_t(operands));
  }
}

/// What a kernel has of wgmma, TMA and barriers follows from the schedule; LLVM may unroll the loop
/// of loads, but not that of products. A sum that the loop carries is multiplied once before it,
/// and the first product of an attention is, too, with its loads.
TEST(Staging, InstructionsAreTheScheduleS) {
  const auto count = [](const std::string &all, const std::string &what) {
    int64_t found = 0;
    for (size_t at = all.find(what); at != all.npos; at = all.find(what, at + 1))
      ++found;
    return found;
  };
  const auto expect = [&](const std::string &source, const TuningTable &own, int64_t products,
                          int64_t loads, int64_t waits) {
    SCOPED_TRACE(source);
    Parsed parsed(source);
    const Expected<std::string> ptx = ptxOf(parsed, own);
    ASSERT_TRUE(ptx) << ptx.error();
    EXPECT_EQ(count(*ptx, "wgmma.mma_async"), products);
    int64_t hasLoads = 0, hasWaits = 0;
    parsed.module->walk([&](hopper::TmaLoadOp) { ++hasLoads; });
    parsed.module->walk([&](hopper::MbarrierWaitOp) { ++hasWaits; });
    EXPECT_EQ(hasLoads, loads);
    EXPECT_EQ(hasWaits, waits);
  };
  for (const auto &[rows, columns] : {std::pair(64, 64), {128, 128}, {128, 256}})
    for (bool isTurned : {false, true})
      // A box of A, and of B one for each 64 columns, or one where they are rows of memory.
      expect(text(Product{1, 4096, 4096, 4096, false, isTurned}),
             table("product", ofProduct(rows, columns, 64)), 2 * 64 / 16,
             1 + (isTurned ? 1 : columns / 64), 1 + 2);
  for (int64_t depth : {64, 128})
    for (int64_t rows : {64, 128})
      // Scores twice, values once: of K and of V a box for each 64 elements.
      expect(text(Attention{4, 4096, 4096, depth}), table("attention", ofAttention(rows, 128)),
             2 * depth / 16 + 128 / 16, 3 * depth / 64, 3 + 3);
}

TEST(Staging, ChipsWithoutWarpgroupsGetKernelsThatPtxasTakesWithoutSpills) {
  const std::optional<std::string> ptxas = findPtxas();
  const TuningTable own = TuningTable::builtIn().withoutWarpgroups();
  std::vector<std::string> all;
  for (bool isTurned : {false, true})
    all.push_back(text(Product{1, 4096, 4096, 4096, false, isTurned}));
  for (int64_t depth : {64, 128})
    all.push_back(text(Attention{64, 4096, 4096, depth}));
  for (const std::string &source : all)
    for (const char *chip : {"sm_80", "sm_100"}) {
      SCOPED_TRACE(source + chip);
      Parsed parsed(source);
      ASSERT_TRUE(parsed.module && makeTile(parsed, own));
      mlir::PassManager passes(&parsed.context);
      passes.addPass(tile::createLowerToHopperPass());
      ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
      const Expected<std::string> ptx = emitPtx(*parsed.module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      EXPECT_THAT(*ptx, testing::HasSubstr("mma.sync"));
      expectAssembles(ptxas, *ptx, chip);
    }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}

TEST(Staging, PtxasTakesKernelsOfWarpgroupsWithoutSpills) {
  const std::optional<std::string> ptxas = findPtxas();
  std::vector<std::pair<std::string, TuningTable>> all;
  for (const std::string &schedule : {ofProduct(128, 256, 64), ofProduct(128, 128, 64),
                                      ofProduct(64, 256, 64), ofProduct(64, 16, 64)})
    for (bool isTurned : {false, true})
      all.emplace_back(text(Product{1, 512, 512, 512, false, isTurned}),
                       table("product", schedule));
  for (int64_t depth : {64, 128})
    for (const std::string &schedule :
         {ofAttention(64, 128), ofAttention(128, 128), ofAttention(128, 64)})
      all.emplace_back(text(Attention{4, 300, 500, depth}), table("attention", schedule));
  for (const auto &[source, own] : all) {
    SCOPED_TRACE(source);
    Parsed parsed(source);
    const Expected<std::string> ptx = ptxOf(parsed, own);
    ASSERT_TRUE(ptx) << ptx.error();
    EXPECT_THAT(*ptx, testing::HasSubstr("wgmma.mma_async"));
    EXPECT_THAT(*ptx, testing::HasSubstr("cp.async.bulk.tensor"));
    EXPECT_THAT(*ptx, testing::Not(testing::HasSubstr("mma.sync")));
    expectAssembles(ptxas, *ptx, "sm_90a");
  }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}
