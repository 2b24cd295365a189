// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of tables at indices that are data: what is found, the values on a CPU and on the emulator
// under every order of threads, and how memory is read.
#include "compiler/Codegen/Gpu/Gather/FindGather.h"
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

const std::string kMaps = R"(
#r = affine_map<(d0, d1) -> (d0)>
#c = affine_map<(d0, d1) -> (d1)>
#m = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
)";

/// y[i, j] = x[index, j] + z[i, j], where the body makes the index of %0, an element of `map`.
std::string text(int64_t words, int64_t width, int64_t taken, const std::string &index,
                 const std::string &map = "#r", const std::string &out = "#m") {
  const std::string table =
                        "tensor<" + std::to_string(words) + "x" + std::to_string(width) + "xf32>",
                    sizes = std::to_string(taken) + "x" + std::to_string(width),
                    result = "tensor<" +
                             (out == "#m" ? sizes
                                          : std::to_string(width) + "x" + std::to_string(taken)) +
                             "xf32>",
                    indices = map == "#m"   ? "tensor<" + sizes + "xi64>"
                              : map == "#r" ? "tensor<" + std::to_string(taken) + "xi64>"
                                            : "tensor<" + std::to_string(width) + "xi64>",
                    rows = "tensor<" + sizes + "xf32>";
  return kMaps + "func.func @main(%x: " + table + ", %i: " + indices + ", %z: " + rows + ") -> " +
         result + " {\n%e = tensor.empty() : " + result +
         "\n%y = linalg.generic {indexing_maps = [" + map + ", #m, " + out +
         "], iterator_types = [\"parallel\", \"parallel\"]} ins(%i, %z : " + indices + ", " + rows +
         ") outs(%e : " + result + ") {\n^bb0(%0: i64, %1: f32, %o: f32):\n" +
         "%d0 = linalg.index 0 : index\n%d1 = linalg.index 1 : index\n" + index +
         "\n%v = tensor.extract %x[%p, %d1] : " + table +
         "\n%s = arith.addf %v, %1 : f32\nlinalg.yield %s : f32\n} -> " + result +
         "\nreturn %y : " + result + "\n}";
}

const char *const kPlain = "%p = arith.index_cast %0 : i64 to index";

std::optional<unsigned> rowLoopOf(const std::string &text) {
  Parsed parsed(text);
  EXPECT_TRUE(parsed.module) << text;
  std::optional<unsigned> row;
  parsed.module->walk([&](mlir::linalg::GenericOp op) { row = findRowLoop(op); });
  return row;
}

template <class T>
HostTensor tensor(HostType type, std::vector<int64_t> shape, unsigned seed, int64_t from,
                  int64_t to) {
  HostTensor all = HostTensor::zeros(type, std::move(shape));
  std::minstd_rand random(seed + 1);
  for (int64_t i = 0; i < all.elementCount(); ++i)
    all.as<T>()[i] = T(from + int64_t(random() % unsigned(to - from)));
  return all;
}

/// Words, width of a row, rows taken: rows of less than a warp, of parts of warps, of several
/// programs; one row; one word.
const std::vector<std::array<int64_t, 3>> kShapes = {
    {5, 1, 3},    {7, 2, 1},    {3, 31, 4},    {9, 32, 5},   {2, 33, 7},
    {50, 63, 3},  {1, 64, 9},   {30, 65, 2},   {11, 100, 6}, {4, 127, 3},
    {6, 128, 4},  {13, 129, 5}, {100, 200, 1}, {3, 255, 8},  {8, 256, 2},
    {21, 257, 3}, {5, 384, 4},  {17, 500, 2},  {2, 768, 3},  {9, 1000, 2},
    {3, 1023, 2}, {4, 1024, 3}, {5, 1025, 2},  {2, 2048, 2}, {3, 3001, 2}};

} // namespace

TEST(Gather, IsFoundByTheLoopsThatItsIndicesDependOn) {
  EXPECT_EQ(rowLoopOf(text(9, 40, 5, kPlain)), 1U);
  // However the index is computed of what does not change along the row.
  EXPECT_EQ(
      rowLoopOf(text(9, 40, 5,
                     "%a = arith.index_cast %0 : i64 to index\n%b = arith.addi %a, %d0 : index\n"
                     "%l = arith.constant 9 : index\n%p = arith.remui %b, %l : index")),
      1U);
  EXPECT_EQ(
      rowLoopOf(text(9, 40, 5,
                     "%a = arith.index_cast %0 : i64 to index\n%q = arith.constant 3 : index\n"
                     "%w = tensor.extract %x[%a, %q] : tensor<9x40xf32>\n"
                     "%f = arith.fptosi %w : f32 to i64\n%p = arith.index_cast %f : i64 to index")),
      1U);
  // Of no row: the index is another for each element; or it is no data; or lies along the columns.
  EXPECT_EQ(rowLoopOf(text(9, 40, 5, kPlain, "#m")), std::nullopt);
  EXPECT_EQ(rowLoopOf(text(9, 40, 5, kPlain, "#c")), std::nullopt);
  EXPECT_EQ(
      rowLoopOf(text(9, 40, 5,
                     "%a = arith.index_cast %0 : i64 to index\n%p = arith.addi %a, %d1 : index")),
      std::nullopt);
  EXPECT_EQ(rowLoopOf(text(9, 40, 5, "%p = arith.addi %d0, %d0 : index")), std::nullopt);
  EXPECT_EQ(rowLoopOf(text(9, 40, 5, kPlain, "#r", "#t")), std::nullopt);
}

TEST(Gather, HasTheElementsOfTheTableUnderEveryOrderOfThreads) {
  for (const auto &[words, width, taken] : kShapes) {
    Parsed parsed(text(words, width, taken, kPlain));
    const std::vector<HostTensor> all = {
        tensor<float>(HostType::Float32, {words, width}, 1, -1000, 1000),
        tensor<int64_t>(HostType::Int64, {taken}, 2, -2, words + 2), // beyond both ends, too
        tensor<float>(HostType::Float32, {taken, width}, 3, -9, 9)};
    const std::vector<HostView> inputs(all.begin(), all.end());
    for (Device device : {Device::Cpu, Device::Emulated}) {
      auto kernels = HostKernels::create(*parsed.module, "main", device);
      ASSERT_TRUE(kernels) << kernels.error();
      EXPECT_TRUE(kernels->summary().left.empty());
      EXPECT_EQ(kernels->summary().launches.front(), "gather_1");
      for (const Adversary &adversary : Adversary::all()) {
        auto got = kernels->run(inputs, adversary);
        ASSERT_TRUE(got) << got.error();
        for (int64_t i = 0; i < taken; ++i)
          for (int64_t j = 0; j < width; ++j) {
            const int64_t word =
                std::clamp<int64_t>(all[1].as<int64_t>()[i], 0, words - 1); // the nearest
            ASSERT_EQ(got->front().as<float>()[i * width + j],
                      all[0].as<float>()[word * width + j] + all[2].as<float>()[i * width + j])
                << words << " " << width << " " << taken << ": " << i << " " << j;
          }
      }
    }
  }
}

TEST(Gather, ReadsRowsByWholeAccessesOf16BytesAndPtxasTakesIt) {
  const std::optional<std::string> ptxas = findPtxas();
  for (const auto &[words, width, taken] : kShapes) {
    Parsed parsed(text(words, width, taken, kPlain));
    mlir::PassManager passes(&parsed.context);
    addTensorToTile(passes);
    ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
    int64_t programs = 0, lanes = 0;
    parsed.module->walk([&](tile::KernelOp kernel) {
      if (kernel.getSymName() == "gather_1")
        programs = kernel.getPrograms(), lanes = kernel.getLanes();
    });
    if (width >= 32) {
      EXPECT_EQ(programs, taken * ((width + lanes - 1) / lanes)) << width;
      EXPECT_LE(lanes, 1024);
    }
    mlir::PassManager lower(&parsed.context);
    lower.addPass(tile::createLowerToHopperPass());
    ASSERT_TRUE(succeeded(lower.run(*parsed.module)));
    const bool isChecked = width % 4 == 0 || width > 1000; // the others differ in masks alone
    for (const char *chip : {"sm_80", "sm_90a", "sm_100"}) {
      if (!isChecked)
        continue;
      Expected<std::string> ptx = emitPtx(*parsed.module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      const std::string own = ptx->substr(ptx->find(".entry gather_1("));
      const std::string kernel = own.substr(0, own.find("\n}"));
      if (width % 4 == 0 && width >= 128) {
        EXPECT_THAT(kernel,
                    testing::AnyOf(HasSubstr("ld.global.v4."), HasSubstr("ld.global.v2.b64")))
            << width;
        EXPECT_THAT(kernel,
                    testing::AnyOf(HasSubstr("st.global.v4."), HasSubstr("st.global.v2.b64")))
            << width;
      }
      SCOPED_TRACE(width);
      expectAssembles(ptxas, *ptx, chip);
    }
  }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}
