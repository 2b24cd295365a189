// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of the tensor level as generated kernels: the values of the reference under every order
// of threads, PTX that ptxas takes, and faults in a kernel that the emulator must notice.
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

/// A function of the tensor level, and the shapes of what it takes.
struct Case {
  const char *name, *text;
  std::vector<std::vector<int64_t>> shapes; ///< of fp32 inputs
};

const std::string kMaps = R"(
#m = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>
#w = affine_map<(d0, d1) -> (d0 * 2 + d1)>
#k = affine_map<(d0, d1) -> (d1)>
)";

const std::vector<Case> kCases = {
    {"elementwise, turned",
     R"(
func.func @main(%x: tensor<13x37xf32>, %y: tensor<37x13xf32>) -> tensor<13x37xf32> {
  %e = tensor.empty() : tensor<13x37xf32>
  %0 = linalg.generic {indexing_maps = [#m, #t, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<13x37xf32>, tensor<37x13xf32>) outs(%e : tensor<13x37xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.subf %a, %b : f32
    %c = arith.cmpf ogt, %s, %b : f32
    %v = arith.select %c, %s, %a : f32
    linalg.yield %v : f32
  } -> tensor<13x37xf32>
  return %0 : tensor<13x37xf32>
})",
     {{13, 37}, {37, 13}}},
    {"a sum of rows",
     R"(
func.func @main(%x: tensor<300x7xf32>) -> tensor<300xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<300xf32>) -> tensor<300xf32>
  %0 = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<300x7xf32>) outs(%f : tensor<300xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<300xf32>
  return %0 : tensor<300xf32>
})",
     {{300, 7}}},
    {"a convolution of stride two",
     R"(
func.func @main(%x: tensor<41xf32>, %w: tensor<3xf32>) -> tensor<20xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<20xf32>) -> tensor<20xf32>
  %0 = linalg.generic {indexing_maps = [#w, #k, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<41xf32>, tensor<3xf32>) outs(%f : tensor<20xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<20xf32>
  return %0 : tensor<20xf32>
})",
     {{41}, {3}}},
    {"one number of a product",
     R"(
func.func @main(%x: tensor<1x65xf32>, %y: tensor<65x1xf32>) -> tensor<1x1xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x1xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x1xf32>) -> tensor<1x1xf32>
  %0 = linalg.matmul ins(%x, %y : tensor<1x65xf32>, tensor<65x1xf32>)
      outs(%f : tensor<1x1xf32>) -> tensor<1x1xf32>
  return %0 : tensor<1x1xf32>
})",
     {{1, 65}, {65, 1}}},
    {"padding and a concatenation",
     R"(
func.func @main(%x: tensor<5x9xf32>) -> tensor<14x13xf32> {
  %z = arith.constant 1.5 : f32
  %0 = tensor.pad %x low[1, 3] high[1, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<5x9xf32> to tensor<7x13xf32>
  %1 = tensor.concat dim(0) %0, %0 : (tensor<7x13xf32>, tensor<7x13xf32>) -> tensor<14x13xf32>
  return %1 : tensor<14x13xf32>
})",
     {{5, 9}}},
    {"whole accesses of 16 bytes",
     R"(
func.func @main(%x: tensor<512xf32>) -> tensor<512xf32> {
  %e = tensor.empty() : tensor<512xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<512xf32>) outs(%e : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.mulf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<512xf32>
  return %0 : tensor<512xf32>
})",
     {{512}}},
};

HostTensor draw(const std::vector<int64_t> &shape, unsigned seed) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, shape);
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> numbers(-2, 2);
  auto *data = reinterpret_cast<float *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    data[i] = numbers(random);
  return tensor;
}

/// Lowers a kernel of the tile level for threads.
bool lowerToThreads(mlir::ModuleOp module) {
  mlir::PassManager passes(module.getContext());
  passes.addPass(tile::createLowerToHopperPass());
  return succeeded(passes.run(module));
}

/// y[i] = x[i] + 1 for 100 elements in programs of 64 lanes, with one part of the text replaced.
std::string runShifted(const std::string &from, const std::string &to, const Adversary &adversary) {
  std::string text = R"(
tile.kernel @k(%x: memref<100xf32>, %y: memref<100xf32>) attributes {lanes = 64 : i32, programs = 2 : i32} {
  %program = tile.program_id
  %lanes = arith.constant 64 : index
  %first = arith.muli %program, %lanes : index
  %base = tile.broadcast %first : vector<64xindex>
  %lane = tile.iota : vector<64xindex>
  %i = arith.addi %base, %lane : vector<64xindex>
  %end = arith.constant dense<100> : vector<64xindex>
  %in = arith.cmpi ult, %i, %end : vector<64xindex>
  %zero = arith.constant 0.0 : f32
  %v = tile.load %x[%i] where %in else %zero : (memref<100xf32>, vector<64xindex>, vector<64xi1>, f32) -> vector<64xf32>
  %one = arith.constant dense<1.0> : vector<64xf32>
  %w = arith.addf %v, %one : vector<64xf32>
  tile.store %w, %y[%i] where %in : vector<64xf32>, memref<100xf32>, vector<64xindex>, vector<64xi1>
  tile.return
})";
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
  }
  Parsed parsed(text);
  if (!parsed.module || !lowerToThreads(*parsed.module))
    return "not valid";
  Expected<EmulatedKernel> kernel = EmulatedKernel::create(*parsed.module, "k");
  if (!kernel)
    return kernel.error();
  // What lies behind a tensor belongs to no other.
  struct alignas(16) {
    std::array<float, 100> x;
    std::array<float, 60> gap;
    std::array<float, 100> y;
  } memory;
  std::array<float, 100> &x = memory.x, &y = memory.y;
  for (size_t i = 0; i < 100; ++i)
    x[i] = float(i);
  y.fill(NAN);
  Status done = kernel->run(
      {2, 1}, {GlobalMemory{x.data(), sizeof memory.x}, GlobalMemory{y.data(), sizeof memory.y}},
      adversary);
  if (!done)
    return done.error();
  for (size_t i = 0; i < 100; ++i)
    if (y[i] != float(i) + 1)
      return "element " + std::to_string(i) + " is wrong";
  return "";
}

} // namespace

TEST(Kernels, HaveTheValuesOfTheReferenceUnderEveryOrderOfThreads) {
  for (const Case &c : kCases) {
    Parsed parsed(kMaps + c.text);
    ASSERT_TRUE(parsed.module) << c.name;
    std::vector<HostTensor> tensors;
    for (const std::vector<int64_t> &shape : c.shapes)
      tensors.push_back(draw(shape, unsigned(tensors.size())));
    const std::vector<HostView> inputs(tensors.begin(), tensors.end());
    Expected<std::vector<HostTensor>> expected = runReference(*parsed.module, tensors);
    ASSERT_TRUE(expected) << c.name << ": " << expected.error();
    for (Device device : {Device::Cpu, Device::Emulated}) {
      Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", device);
      ASSERT_TRUE(kernels) << c.name << ": " << kernels.error();
      EXPECT_TRUE(kernels->summary().left.empty()) << c.name;
      EXPECT_FALSE(kernels->summary().launches.empty()) << c.name;
      for (const Adversary &adversary : Adversary::all()) {
        Expected<std::vector<HostTensor>> results = kernels->run(inputs, adversary);
        ASSERT_TRUE(results) << c.name << ": " << results.error();
        EXPECT_EQ(results->front().data, expected->front().data) << c.name;
      }
    }
  }
}

TEST(Kernels, AnExponentialIsWithinItsBoundAndEndsAsItShould) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                               0.0f,      -0.0f,      1e-45f,
                               -1e-45f,   88.72283f,  88.7229f,
                               1e30f,     -87.3365f,  -87.4f,
                               -103.0f,   -1e30f,     1.0f};
  for (int i = -8700; i <= 8860; i += 3)
    values.push_back(float(i) / 99.9f);
  const auto count = int64_t(values.size());
  HostTensor x = HostTensor::zeros(HostType::Float32, {count});
  std::copy(values.begin(), values.end(), reinterpret_cast<float *>(x.data.data()));
  const std::string type = "tensor<" + std::to_string(count) + "xf32>";
  Parsed parsed("func.func @main(%x: " + type + ") -> " + type +
                " {\n%e = tensor.empty() : " + type + "\n%0 = linalg.exp ins(%x : " + type +
                ") outs(%e : " + type + ") -> " + type + "\nreturn %0 : " + type + "\n}");
  ASSERT_TRUE(parsed.module);
  Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", Device::Emulated);
  ASSERT_TRUE(kernels) << kernels.error();
  Expected<std::vector<HostTensor>> results = kernels->run({HostView(x)});
  ASSERT_TRUE(results) << results.error();
  const auto *got = reinterpret_cast<const float *>(results->front().data.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = std::exp(double(values[i]));
    SCOPED_TRACE("exp " + std::to_string(values[i]) + " is " + std::to_string(got[i]));
    if (std::isnan(wanted))
      EXPECT_TRUE(std::isnan(got[i]));
    else if (wanted < double(std::numeric_limits<float>::min()))
      EXPECT_EQ(got[i], 0);
    else if (wanted > double(std::numeric_limits<float>::max()))
      EXPECT_EQ(got[i], kInfinity);
    else // of three roundings; a GPU's instruction adds 2^-22
      EXPECT_LE(std::abs(double(got[i]) - wanted), std::ldexp(wanted, -22));
  }
}

TEST(Kernels, PtxasTakesThemWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  for (const Case &c : kCases)
    for (const char *chip : {"sm_80", "sm_90a", "sm_100"}) {
      Parsed parsed(kMaps + c.text);
      registerKernelPasses();
      mlir::PassManager passes(&parsed.context);
      ASSERT_TRUE(succeeded(mlir::parsePassPipeline("tensor-to-tile", passes)));
      passes.addPass(tile::createLowerToHopperPass());
      ASSERT_TRUE(succeeded(passes.run(*parsed.module))) << c.name;
      Expected<std::string> ptx = emitPtx(*parsed.module, chip);
      ASSERT_TRUE(ptx) << c.name << ": " << ptx.error();
      if (std::string(c.name).starts_with("whole accesses")) {
        EXPECT_THAT(*ptx, testing::AnyOf(HasSubstr(".v4."), HasSubstr(".v2.b64"))) << chip;
      }
      SCOPED_TRACE(c.name);
      expectAssembles(ptxas, *ptx, chip);
    }
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}

TEST(Kernels, AWrongIndexOrMaskIsNoticed) {
  const std::pair<const char *, const char *> faults[] = {
      {" where %in : vector<64xf32>", " : vector<64xf32>"}, // stores without a mask
      {"dense<100>", "dense<101>"},
      {"dense<100>", "dense<99>"},
      {"cmpi ult", "cmpi ule"},
      {"constant 64 : index", "constant 63 : index"},
      {"constant 64 : index", "constant 65 : index"},
      {"%y[%i] where", "%y[%lane] where"},
      {"%x[%i] where", "%x[%base] where"},
      {"%x[%i] where %in else %zero : (memref<100xf32>, vector<64xindex>, vector<64xi1>, f32)",
       "%x[%i] : (memref<100xf32>, vector<64xindex>)"},
      {"arith.addi %base", "arith.subi %base"},
  };
  for (const Adversary &adversary : Adversary::all()) {
    EXPECT_EQ(runShifted("", "", adversary), "");
    for (const auto &[from, to] : faults) {
      std::string text = to;
      // A store without a mask has one operand fewer.
      if (text == " : vector<64xf32>")
        EXPECT_THAT(runShifted(" where %in : vector<64xf32>, memref<100xf32>, vector<64xindex>, "
                               "vector<64xi1>",
                               " : vector<64xf32>, memref<100xf32>, vector<64xindex>", adversary),
                    HasSubstr("outside of every argument"));
      else
        EXPECT_NE(runShifted(from, to, adversary), "") << from << " as " << to;
    }
  }
}

TEST(Kernels, OfDoublePrecisionNameWhatAGpuLacks) {
  Parsed parsed(kMaps + R"(
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = linalg.exp ins(%x : tensor<4xf64>) outs(%x : tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
})");
  EXPECT_TRUE(HostKernels::create(*parsed.module, "main", Device::Cpu));
  Expected<HostKernels> kernels = HostKernels::create(*parsed.module, "main", Device::Emulated);
  ASSERT_FALSE(kernels);
  EXPECT_THAT(kernels.error(), HasSubstr("math.exp of 'f64' has no instructions on a GPU"));
}

namespace {

/// Texts in which words gave way to others; how many of them are lowered. None may end the process.
unsigned countLowered(const std::string &text, const std::vector<std::string> &pieces,
                      unsigned rounds) {
  std::minstd_rand random(7);
  Parsed parsed(text);
  EXPECT_TRUE(parsed.module);
  parsed.context.getDiagEngine().registerHandler(
      [](mlir::Diagnostic &) { return mlir::success(); });
  unsigned valid = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    std::string changed = text;
    for (unsigned n = 0; n <= random() % 2; ++n) {
      // A word gives way to another.
      size_t begin = random() % changed.size();
      begin = changed.find_first_of("%0123456789abcdefghijklmnopqrstuvwxyz", begin);
      if (begin == changed.npos)
        continue;
      const size_t end = changed.find_first_of(" ,:()[]<>\n", begin);
      changed.replace(begin, end - begin, pieces[random() % pieces.size()]);
    }
    auto module = mlir::parseSourceString<mlir::ModuleOp>(changed, &parsed.context);
    if (!module)
      continue;
    mlir::OwningOpRef<mlir::ModuleOp> loops = module->clone();
    mlir::PassManager passes(&parsed.context);
    passes.addPass(tile::createLowerToLoopsPass());
    EXPECT_TRUE(succeeded(passes.run(*loops))) << changed;
    if (!lowerToThreads(*module))
      continue;
    ++valid;
    (void)emitPtx(*module, "sm_80"); // an error at most
  }
  return valid;
}

} // namespace

/// Random cuts of a valid text are refused or valid, and never end the process.
TEST(Kernels, TextsWithRandomChangesAreRefusedOrLowered) {
  const std::string text = R"(
tile.kernel @k(%x: memref<8x16xf32>, %y: memref<8x16xf32>) attributes {lanes = 32 : i32, programs = 8 : i32} {
  %row = tile.program_id
  %column = tile.iota : vector<32xindex>
  %end = arith.constant dense<16> : vector<32xindex>
  %in = arith.cmpi ult, %column, %end : vector<32xindex>
  %low = arith.constant 0.0 : f32
  %v = tile.load %x[%row, %column] where %in else %low : (memref<8x16xf32>, index, vector<32xindex>, vector<32xi1>, f32) -> vector<32xf32>
  %s = tile.reduce addf %v : vector<32xf32>
  %t = tile.broadcast %s : vector<32xf32>
  tile.store %t, %y[%row, %column] where %in : vector<32xf32>, memref<8x16xf32>, index, vector<32xindex>, vector<32xi1>
  tile.return
})";
  EXPECT_GT(countLowered(text,
                         {"0", "-1", "16", "4096", "index", "f32", "i1", "f64", "addi", "%in", "%v",
                          "vector", "%row", "memref<8x16xf32>"},
                         3000),
            10u);
}

TEST(Kernels, TextsOfRowsWithRandomChangesAreRefusedOrLowered) {
  const std::string text = R"(
tile.kernel @k(%q: memref<30x20xf16>, %k: memref<20x24xf16>, %y: memref<30x22xf32>) attributes {lanes = 32 : i32, programs = 2 : i32} {
  %0 = arith.constant 0 : index
  %8 = arith.constant 8 : index
  %p = tile.program_id
  %lane = tile.iota : vector<32xindex>
  %end = arith.constant dense<30> : vector<32xindex>
  %in = arith.cmpi ult, %lane, %end : vector<32xindex>
  %zero = arith.constant dense<0.0> : vector<32x8xf32>
  %sum = scf.for %i = %0 to %8 step %8 iter_args(%a = %zero) -> (vector<32x8xf32>) {
    %rows = tile.load_rows %q[%lane, %i] along 1 where %in : (memref<30x20xf16>, vector<32xindex>, index, vector<32xi1>) -> vector<32x16xf16>
    %table = tile.load_table %k[%p, %i] along [0, 1] : (memref<20x24xf16>, index, index) -> vector<8x16xf16>
    %d = tile.dot %rows, %table, %a : vector<32x16xf16>, vector<8x16xf16>, vector<32x8xf32>
    scf.yield %d : vector<32x8xf32>
  }
  %most = tile.reduce_rows maximumf %sum : vector<32x8xf32> -> vector<32xf32>
  %m = tile.spread %most : vector<32xf32> -> vector<32x8xf32>
  %c = tile.columns : vector<32x8xi32>
  %f = arith.sitofp %c : vector<32x8xi32> to vector<32x8xf32>
  %e = math.exp %m : vector<32x8xf32>
  %g = arith.addf %f, %e : vector<32x8xf32>
  tile.store_rows %g, %y[%lane, %0] along 1 where %in : vector<32x8xf32>, memref<30x22xf32>, vector<32xindex>, index, vector<32xi1>
  tile.return
})";
  EXPECT_GT(countLowered(text,
                         {"0",
                          "-1",
                          "1",
                          "16",
                          "32",
                          "index",
                          "f32",
                          "i1",
                          "f64",
                          "f16",
                          "bf16",
                          "i32",
                          "i8",
                          "addi",
                          "addf",
                          "mulf",
                          "%in",
                          "%lane",
                          "%0",
                          "%p",
                          "%rows",
                          "%table",
                          "%sum",
                          "%c",
                          "vector<32xindex>",
                          "vector<32x8xf32>",
                          "vector<32x16xf16>",
                          "vector<8x16xf16>",
                          "memref<30x20xf16>"},
                         20000),
            100u);
}
