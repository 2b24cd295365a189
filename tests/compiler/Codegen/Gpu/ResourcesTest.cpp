// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What generated kernels take of a chip: a table beside this file that a change of a kernel, a
// lowering or a schedule changes, so that it is seen.
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/RowFunctions.h"

#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"
#include "compiler/Codegen/Gpu/Gemm/GemmSchedule.h"
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "compiler/Reference/Reference.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

using namespace millrace;
using namespace millrace::gpu;

namespace {

/// The version of ptxas that the registers of the table are of.
constexpr const char *kPtxasRelease = "release 13.0";
/// From the root of the sources, where tests run.
constexpr const char *kTable = "tests/compiler/Codegen/Gpu/resources.txt";

struct Kernel {
  std::string name;
  std::string text;                                 ///< of functions on tensors
  std::function<Status(mlir::ModuleOp)> build = {}; ///< else this adds it
  std::vector<const char *> chips = {"sm_80", "sm_90a", "sm_100"};
};

std::string product(int64_t m, int64_t n, int64_t k) {
  const auto tensor = [](int64_t x, int64_t y, const char *type) {
    return "tensor<" + std::to_string(x) + "x" + std::to_string(y) + "x" + type + ">";
  };
  return "func.func @main(%a: " + tensor(m, k, "f16") + ", %b: " + tensor(k, n, "f16") +
         ", %c: " + tensor(m, n, "f32") + ") -> " + tensor(m, n, "f32") +
         " {\n%0 = linalg.matmul ins(%a, %b : " + tensor(m, k, "f16") + ", " + tensor(k, n, "f16") +
         ") outs(%c : " + tensor(m, n, "f32") + ") -> " + tensor(m, n, "f32") +
         "\nreturn %0 : " + tensor(m, n, "f32") + "\n}";
}

Kernel attention(const std::string &name, const AttentionProblem &problem) {
  return {"attention, " + name, "module {}", [problem](mlir::ModuleOp module) {
            return buildAttention(module, "k", problem, AttentionSchedule::choose(problem));
          }};
}

std::vector<Kernel> kernels() {
  constexpr auto kF16 = AttentionProblem::Type::Float16, kBf16 = AttentionProblem::Type::BFloat16;
  return {
      {"softmax, 300 rows of 17", text(kSoftmax, 300, 17)},
      {"softmax, 3 rows of 1000", text(kSoftmax, 3, 1000)},
      {"softmax, 2 rows of 5000", text(kSoftmax, 2, 5000)},
      {"softmax, 128 columns of 100", text(kSoftmax, 2, 100, 64)},
      {"layer normalisation, 8 x 768", text(kLayerNorm, 8, 768)},
      {"layer normalisation, 3 x 4097", text(kLayerNorm, 3, 4097)},
      {"RMS normalisation to int8, 8 x 1024", text(kRmsNorm, 8, 1024)},
      {"product, 128 x 128 x 64", product(128, 128, 64)},
      {"product, 129 x 65 x 67", product(129, 65, 67)},
      attention("prefill, depth 64", {kF16, 1, 64, 8, 2048, 2048, 64, 64, true}),
      attention("prefill, depth 64, window, softcap, sinks",
                {kBf16, 1, 64, 8, 2048, 2048, 64, 64, true, 128, 0.125, 20, true}),
      attention("prefill, depth 128", {kF16, 1, 32, 8, 2048, 2048, 128, 128, true}),
      attention("decoding, depth 128", {kF16, 1, 32, 8, 1, 4096, 128, 128, true}),
      attention("decoding, depth 192 and 128", {kBf16, 1, 128, 128, 1, 4096, 192, 128, true}),
      {"build-gemm, 128 x 128 x 64, 4 stages",
       "module {}",
       [](mlir::ModuleOp module) {
         return buildGemm(module, "k", {}, GemmSchedule::make(128, 128, 64, 4, 2));
       },
       {"sm_90a"}},
  };
}

size_t count(const std::string &text, const std::string &what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

/// Lines of the table for a kernel: an error begins with "!".
std::string describe(const Kernel &kernel, const char *chip, const std::string &ptxas) {
  mlir::MLIRContext context;
  loadKernelDialects(context);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      kernel.build ? kernel.text : kMaps + kernel.text, &context);
  if (!module)
    return "! " + kernel.name + " does not parse";
  mlir::PassManager passes(&context);
  if (kernel.build) {
    if (Status done = kernel.build(*module); !done)
      return "! " + done.error();
  } else if (failed(mlir::parsePassPipeline("tensor-to-tile", passes))) {
    return "! no tensor-to-tile";
  }
  passes.addPass(tile::createLowerToHopperPass());
  if (failed(passes.run(*module)))
    return "! " + kernel.name + " is not lowered";
  std::map<std::string, std::pair<unsigned, unsigned>> shapes; // threads, shared memory
  for (auto op : module->getOps<hopper::KernelOp>())
    shapes[op.getSymName().str()] = {op.getThreads(), op.getSharedMemory()};
  Expected<std::string> ptx = emitPtx(*module, chip);
  if (!ptx)
    return "! " + ptx.error();
  Expected<PtxasReport> report = runPtxas(ptxas, *ptx, chip);
  if (!report)
    return "! " + report.error();
  std::ostringstream lines;
  for (const KernelResources &resources : report->kernels) {
    const size_t begin = ptx->find(".entry " + resources.kernel + "("),
                 end = std::min(ptx->find(".entry ", begin + 1), ptx->size());
    const std::string own = ptx->substr(begin, end - begin);
    const auto [threads, shared] = shapes.at(resources.kernel);
    lines << kernel.name << " | " << resources.kernel << " | " << chip << " | " << threads << " | "
          << resources.registers << " | " << resources.spillBytes << " | " << shared << " | "
          << count(own, "mma.sync.") + count(own, "wgmma.mma_async") << " | " << count(own, "shfl.")
          << " | " << count(own, "bar.sync") + count(own, "barrier.sync") << "\n";
  }
  return lines.str();
}

bool isRelease(const std::string &ptxas) {
  std::string said;
  if (FILE *pipe = popen(("'" + ptxas + "' --version").c_str(), "r")) {
    char buffer[256];
    while (fgets(buffer, sizeof buffer, pipe))
      said += buffer;
    pclose(pipe);
  }
  return said.find(kPtxasRelease) != said.npos;
}

} // namespace

TEST(Resources, OfKernelsAreThoseOfTheTable) {
  const std::optional<std::string> ptxas = findPtxas();
  if (!ptxas || !isRelease(*ptxas))
    GTEST_SKIP() << "ptxas of " << kPtxasRelease << " is not installed";
  registerKernelPasses();
  std::ostringstream lines;
  lines << "kernel | name | chip | threads | registers | bytes spilled | bytes of shared memory | "
           "products | shuffles | barriers (ptxas "
        << kPtxasRelease << ")\n";
  for (const Kernel &kernel : kernels())
    for (const char *chip : kernel.chips) {
      const std::string described = describe(kernel, chip, *ptxas);
      ASSERT_FALSE(described.starts_with("!")) << described;
      lines << described;
    }
  const std::string table = lines.str();
  std::ifstream file(kTable);
  std::ostringstream committed;
  committed << file.rdbuf();
  if (committed.str() == table)
    return;
  const std::string path = testing::TempDir() + "resources.txt";
  std::ofstream(path) << table;
  FAIL() << "the table in " << kTable << " is another; if the change is meant, take " << path
         << ":\n"
         << table;
}
