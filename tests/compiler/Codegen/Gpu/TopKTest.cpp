// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel that chooses the first elements of rows: its choices under every order of threads
// against a stable sort, its PTX, and faults that must be noticed.
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Selection/TopKKernel.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

enum class Element { F32, I32, U32, I8, U8, I64 };

struct Choice {
  Element element;
  int64_t rows, columns, k;
  bool isLargest = true, lastWins = false;
};

const std::vector<Choice> kChoices = {
    {Element::F32, 1, 1, 1},
    {Element::F32, 3, 2, 2},
    {Element::F32, 2, 31, 3},
    {Element::F32, 5, 32, 4, false},
    {Element::F32, 2, 33, 7},
    {Element::F32, 3, 64, 64},
    {Element::F32, 2, 100, 1, true, true},
    {Element::F32, 1, 255, 5, false, true},
    {Element::F32, 2, 1000, 8},
    {Element::F32, 3, 1023, 2},
    {Element::F32, 2, 1024, 6, false},
    {Element::F32, 1, 1025, 3, true, true},
    {Element::F32, 2, 2049, 4},
    {Element::F32, 1, 5003, 2, false},
    {Element::I32, 2, 40, 3},
    {Element::I32, 3, 1030, 2, false},
    {Element::I32, 1, 77, 9, true, true},
    {Element::U32, 2, 65, 3},
    {Element::U32, 1, 1100, 4, false},
    {Element::I8, 2, 130, 6},
    {Element::I8, 1, 2000, 3, false, true},
    {Element::U8, 2, 129, 5},
    {Element::U8, 1, 31, 2, false},
    {Element::I64, 2, 66, 3},
    {Element::I64, 1, 1026, 2, false},
};

unsigned bitsOf(Element element) {
  return element == Element::I64 ? 64 : element == Element::I8 || element == Element::U8 ? 8 : 32;
}

TopKProblem problemOf(const Choice &choice, mlir::Builder &b) {
  TopKProblem problem;
  problem.rows = choice.rows;
  problem.columns = choice.columns;
  problem.k = choice.k;
  problem.isLargest = choice.isLargest;
  problem.lastWins = choice.lastWins;
  problem.isUnsigned = choice.element == Element::U32 || choice.element == Element::U8;
  problem.element = choice.element == Element::F32 ? mlir::Type(b.getF32Type())
                                                   : b.getIntegerType(bitsOf(choice.element));
  problem.place = b.getI64Type();
  problem.hasValues = problem.hasPlaces = true;
  return problem;
}

/// The kernel @k at the hopper level; null, with a failure, if it is not built.
mlir::OwningOpRef<mlir::ModuleOp> build(const Choice &choice, mlir::MLIRContext &context) {
  mlir::OpBuilder builder(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(module->getBody());
  Expected<tile::KernelOp> built = buildTopK(problemOf(choice, builder), builder, "k");
  EXPECT_TRUE(built) << built.error();
  mlir::PassManager passes(&context);
  passes.addPass(tile::createLowerToHopperPass());
  EXPECT_TRUE(succeeded(passes.run(*module)));
  return module;
}

/// Few different numbers, so that many are equal; the least and the greatest are among them.
template <class T> std::vector<T> draw(const Choice &choice) {
  std::vector<T> all(size_t(choice.rows * choice.columns));
  std::minstd_rand random(unsigned(choice.columns * 31 + choice.k));
  for (T &x : all)
    x = T(int(random() % 23) - (std::is_unsigned_v<T> ? 0 : 11));
  all[all.size() / 2] = std::numeric_limits<T>::max();
  all[all.size() / 3] = std::numeric_limits<T>::lowest();
  if constexpr (std::is_floating_point_v<T>) {
    all[all.size() / 4] = -std::numeric_limits<T>::infinity();
    all[all.size() / 5] = T(-0.0);
  }
  return all;
}

/// Empty if all is right under the adversary, else what is not.
template <class T>
std::string wrongIn(const Choice &c, const std::vector<T> &rows, EmulatedKernel &kernel,
                    const Adversary &adversary) {
  std::vector<T> values(size_t(c.rows * c.k), T(77));
  std::vector<int64_t> places(size_t(c.rows * c.k), -1);
  std::vector<T> own = rows;
  Status done = kernel.run({unsigned(c.rows), 1},
                           {GlobalMemory{own.data(), own.size() * sizeof(T)},
                            GlobalMemory{values.data(), values.size() * sizeof(T)},
                            GlobalMemory{places.data(), places.size() * sizeof(int64_t)}},
                           adversary);
  if (!done)
    return done.error();
  for (int64_t r = 0; r < c.rows; ++r) {
    const T *row = rows.data() + r * c.columns;
    std::vector<int64_t> order(size_t(c.columns));
    std::iota(order.begin(), order.end(), 0);
    if (c.lastWins)
      std::reverse(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return c.isLargest ? row[i] > row[j] : row[i] < row[j];
    });
    for (int64_t n = 0; n < c.k; ++n)
      if (places[size_t(r * c.k + n)] != order[size_t(n)] ||
          values[size_t(r * c.k + n)] != row[order[size_t(n)]])
        return std::to_string(c.columns) + " columns, row " + std::to_string(r) + ": choice " +
               std::to_string(n) + " is wrong";
  }
  return "";
}

template <class T> void check(const Choice &c, EmulatedKernel &kernel) {
  const std::vector<T> rows = draw<T>(c);
  for (const Adversary &adversary : Adversary::all())
    EXPECT_EQ(wrongIn<T>(c, rows, kernel, adversary), "");
}

} // namespace

TEST(TopK, ChoosesAsAStableSortDoesUnderEveryOrderOfThreads) {
  for (const Choice &choice : kChoices) {
    mlir::MLIRContext context;
    loadKernelDialects(context);
    auto module = build(choice, context);
    Expected<EmulatedKernel> kernel = EmulatedKernel::create(*module, "k");
    ASSERT_TRUE(kernel) << kernel.error();
    switch (choice.element) {
    case Element::F32:
      check<float>(choice, *kernel);
      break;
    case Element::I32:
      check<int32_t>(choice, *kernel);
      break;
    case Element::U32:
      check<uint32_t>(choice, *kernel);
      break;
    case Element::I8:
      check<int8_t>(choice, *kernel);
      break;
    case Element::U8:
      check<uint8_t>(choice, *kernel);
      break;
    case Element::I64:
      check<int64_t>(choice, *kernel);
      break;
    }
  }
}

TEST(TopK, PtxasTakesThemWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  for (const Choice &choice : kChoices) {
    mlir::MLIRContext context;
    loadKernelDialects(context);
    auto module = build(choice, context);
    for (const char *chip : {"sm_80", "sm_90a", "sm_100"}) {
      Expected<std::string> ptx = emitPtx(*module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      SCOPED_TRACE(std::to_string(choice.columns) + " " + std::to_string(choice.k) + " " + chip);
      expectAssembles(ptxas, *ptx, chip);
    }
  }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}

/// One fault at a time in what threads of the kernel do together: a barrier less, a shuffle with
/// other lanes, a share read from or left in another warp's slot, another place of equal elements.
TEST(TopK, FaultsInReductionsAreNoticed) {
  const Choice choice = {Element::F32, 32, 1025, 2};
  // The first and the second of a row in each warp and in many lanes, and equal to no other.
  std::vector<float> rows(size_t(choice.rows * choice.columns));
  for (int64_t r = 0; r < choice.rows; ++r) {
    float *row = rows.data() + r * choice.columns;
    std::iota(row, row + choice.columns, 1.0F);
    row[r % 8 * 128 + r * 37 % 128] = 5000;
    row[(r + 3) % 8 * 128 + r * 53 % 128] = 4000;
  }
  mlir::MLIRContext context;
  loadKernelDialects(context);
  auto original = build(choice, context);
  const auto faultsOf = [&](mlir::ModuleOp module) {
    std::vector<std::function<std::string()>> faults; ///< each damages the module, and says how
    module.walk([&](mlir::Operation *op) {
      mlir::OpBuilder b(op);
      if (auto barrier = mlir::dyn_cast<hopper::CtaBarrierOp>(op)) {
        faults.push_back([=] {
          op->erase();
          return "no barrier";
        });
      } else if (auto shuffle = mlir::dyn_cast<hopper::ShuffleXorOp>(op)) {
        faults.push_back([shuffle]() mutable {
          const uint32_t mask = shuffle.getMask();
          shuffle.setMask(mask == 1 ? 2 : mask / 2);
          return "a shuffle by " + std::to_string(shuffle.getMask()) + ", not " +
                 std::to_string(mask);
        });
      } else if (mlir::isa<hopper::SharedLoadOp, hopper::SharedStoreOp>(op)) {
        faults.push_back([=]() mutable {
          b.setInsertionPoint(op);
          const unsigned address = op->getNumOperands() - 1;
          mlir::Value eight =
              mlir::arith::ConstantIntOp::create(b, op->getLoc(), b.getI32Type(), 8);
          op->setOperand(address, mlir::arith::AddIOp::create(b, op->getLoc(),
                                                              op->getOperand(address), eight));
          return op->getName().getStringRef().str() + " of the next slot";
        });
      }
    });
    return faults;
  };
  const size_t count = faultsOf(*original).size();
  // Two reductions a choice over 8 warps: five shuffles, a store, a barrier, eight loads.
  ASSERT_EQ(count, 2U * 2 * (5 + 1 + 1 + 8));
  std::vector<std::string> unnoticed;
  for (size_t i = 0; i < count; ++i) {
    mlir::OwningOpRef<mlir::ModuleOp> module = original->clone();
    const std::string fault = faultsOf(*module)[i]();
    Expected<EmulatedKernel> kernel = EmulatedKernel::create(*module, "k");
    ASSERT_TRUE(kernel) << fault << ": " << kernel.error();
    const std::vector<Adversary> all = Adversary::all();
    if (std::all_of(all.begin(), all.end(), [&](const Adversary &adversary) {
          return wrongIn<float>(choice, rows, *kernel, adversary).empty();
        }))
      unnoticed.push_back(std::to_string(i) + ": " + fault);
  }
  EXPECT_THAT(unnoticed, testing::IsEmpty()) << "of " << count;
}
