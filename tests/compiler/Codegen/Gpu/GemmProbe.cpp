// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For scripts/bench/gpu: a matrix product of build-gemm on a GPU or on the emulator.
//
//   GemmProbe cuda|emulate M N K TILE_M TILE_N STAGES CONSUMERS CLUSTER SEED REPEAT CHECK
//
// bf16, with a bias. CHECK 1: every element is held to the product in double precision. Prints
// JSON: `error` (null: none), `seconds` of each repetition.
#include "tests/compiler/Codegen/Gpu/GemmOnDevice.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>

using namespace millrace;
using namespace millrace::gpu;

namespace {

std::string run(const std::string &device, const std::vector<int> &n,
                std::vector<double> &seconds) {
  const GemmProblem problem = {GemmProblem::Type::BFloat16, true};
  const GemmSchedule schedule = GemmSchedule::make(unsigned(n[3]), unsigned(n[4]), 64,
                                                   unsigned(n[5]), unsigned(n[6]), unsigned(n[7]));
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  if (Status built = buildGemm(*module, "gemm", problem, schedule); !built)
    return built.error();
  GemmCase product(n[0], n[1], n[2], problem, unsigned(n[8]));
  if (device == "emulate") {
    Expected<EmulatedKernel> kernel = EmulatedKernel::create(*module, "gemm");
    if (!kernel)
      return kernel.error();
    for (const Adversary &adversary : Adversary::all())
      if (const std::string wrong = product.run(*kernel, schedule, adversary); !wrong.empty())
        return wrong;
    return "";
  }
  const char *named = std::getenv(driver::kLibraryVariable);
  Expected<CudaDevice> opened = CudaDevice::open(named && *named ? named : driver::kLibrary);
  if (!opened)
    return opened.error();
  Expected<CudaKernel> kernel = loadGemm(*opened, *module);
  if (!kernel)
    return kernel.error();
  auto times = runOnDevice(*opened, *kernel, schedule, product, unsigned(n[9]));
  if (!times)
    return times.error();
  seconds = *times;
  return n[10] ? product.check() : "";
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 13) {
    std::fputs("usage: GemmProbe cuda|emulate M N K TILE_M TILE_N STAGES CONSUMERS CLUSTER SEED "
               "REPEAT CHECK\n",
               stderr);
    return 2;
  }
  std::vector<int> numbers;
  for (int i = 2; i < argc; ++i)
    numbers.push_back(std::atoi(argv[i]));
  std::vector<double> seconds;
  const std::string error = run(argv[1], numbers, seconds);
  const nlohmann::json out = {{"error", error.empty() ? nlohmann::json() : nlohmann::json(error)},
                              {"seconds", seconds}};
  std::printf("%s\n", out.dump().c_str());
  return 0;
}
