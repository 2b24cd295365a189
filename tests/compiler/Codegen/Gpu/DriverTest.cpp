// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which calls of the CUDA driver kernels cause, and what becomes of each that fails. The driver is
// DriverStub.cpp, which runs no kernel: nothing here says that a GPU would compute the right
// values.
#include "compiler/Codegen/Gpu/Driver/CudaDevice.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "tests/compiler/Codegen/Gpu/GemmOnDevice.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <map>

using namespace millrace;
using namespace millrace::gpu;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr const char *kStub = MILLRACE_DRIVER_STUB;

/// The stub's functions for tests.
template <class F> F *ofStub(const char *name) {
  void *library = dlopen(kStub, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << kStub;
  return reinterpret_cast<F *>(dlsym(library, name));
}

class Driver : public testing::Test {
protected:
  void SetUp() override {
    for (const char *name : {"CALLS", "FAIL", "DEVICES", "CAPABILITY", "LAUNCH"})
      unsetenv((std::string("MILLRACE_STUB_") + name).c_str());
    calls = testing::TempDir() + "driver_calls.txt";
    forget();
    setenv("MILLRACE_STUB_CALLS", calls.c_str(), 1);
  }
  void forget() {
    std::ofstream(calls, std::ios::trunc);
    ofStub<void()>("millraceStubForget")();
  }
  static void set(const char *name, const std::string &value) {
    std::string variable = "MILLRACE_STUB_";
    variable += name;
    setenv(variable.c_str(), value.c_str(), 1);
  }
  std::vector<std::string> said() const {
    std::vector<std::string> lines;
    std::ifstream file(calls);
    for (std::string line; std::getline(file, line);)
      if (!line.starts_with("cuCtxSetCurrent")) // once more before each other call
        lines.push_back(line);
    return lines;
  }
  static size_t held() { return ofStub<size_t()>("millraceStubHeld")(); }

  std::string calls; ///< the stub's file
};

/// Two kernels: a program is 13 rows of 5 whose sums are taken from each element.
const char *kFunction = R"(
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<13x5xf32>) -> tensor<13x5xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<13xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<13xf32>) -> tensor<13xf32>
  %s = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<13x5xf32>) outs(%f : tensor<13xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<13xf32>
  %g = tensor.empty() : tensor<13x5xf32>
  %y = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<13x5xf32>, tensor<13xf32>) outs(%g : tensor<13x5xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.subf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<13x5xf32>
  return %y : tensor<13x5xf32>
})";

struct Outcome {
  std::string error; ///< empty: none
  std::vector<HostTensor> results;
  KernelSummary summary;
  std::vector<LaunchTime> times;
};

/// Opens the stub, compiles the function and runs it, until something fails.
Outcome runOnStub(const std::string &text, const std::vector<HostTensor> &inputs,
                  unsigned timedRuns = 0) {
  Outcome outcome;
  Expected<CudaDevice> device = CudaDevice::open(kStub);
  if (!device)
    return {device.error(), {}, {}, {}};
  Parsed parsed(text);
  auto kernels = HostKernels::create(
      *parsed.module, "main",
      KernelOptions{.device = Device::Cuda, .cuda = *device, .timedRuns = timedRuns});
  if (!kernels)
    return {kernels.error(), {}, {}, {}};
  outcome.summary = kernels->summary();
  auto results = kernels->run(std::vector<HostView>(inputs.begin(), inputs.end()));
  if (!results)
    outcome.error = results.error();
  else
    outcome.results = std::move(*results);
  outcome.times = kernels->times();
  return outcome;
}

HostTensor numbers(const std::vector<int64_t> &shape) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, shape);
  auto *data = reinterpret_cast<float *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    data[i] = float(i) / 3;
  return tensor;
}

} // namespace

TEST_F(Driver, ThatIsMissingIsAnErrorThatSaysWhatWasLookedForAndTheRemedy) {
  const Expected<CudaDevice> missing = CudaDevice::open("libno-such-driver.so.1");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error(), HasSubstr("no CUDA driver: looked for the library "
                                         "'libno-such-driver.so.1'"));
  EXPECT_THAT(missing.error(), HasSubstr("install NVIDIA's driver, or name its library in "
                                         "MILLRACE_CUDA_DRIVER"));
  const Expected<CudaDevice> other = CudaDevice::open("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error(), HasSubstr("'libm.so.6' has no function 'cuInit'"));
}

TEST_F(Driver, WithoutAGpuOrWithAnOldOneIsAnError) {
  set("DEVICES", "0");
  Expected<CudaDevice> none = CudaDevice::open(kStub);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error(), HasSubstr("has 0 GPUs, and number 0 was asked for"));
  unsetenv("MILLRACE_STUB_DEVICES");
  set("CAPABILITY", "75");
  Expected<CudaDevice> old = CudaDevice::open(kStub);
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error(), HasSubstr("compute capability 7.5, and kernels need 8.0"));
}

TEST_F(Driver, PtxIsOfTheChipThatTheGpuTakes) {
  const std::map<const char *, const char *> chips = {
      {"80", "sm_80"},  {"86", "sm_86"},   {"87", "sm_86"},   {"89", "sm_89"},
      {"90", "sm_90a"}, {"100", "sm_100"}, {"103", "sm_100"}, {"120", "sm_100"}};
  for (const auto &[capability, chip] : chips) {
    set("CAPABILITY", capability);
    forget();
    const Outcome outcome = runOnStub(kFunction, {numbers({13, 5})});
    ASSERT_EQ(outcome.error, "") << capability;
    EXPECT_THAT(said(), testing::Contains("cuModuleLoadDataEx(target " + std::string(chip) + ")"))
        << capability;
  }
}

TEST_F(Driver, IsCalledInThisOrderWithTheseArguments) {
  const Outcome outcome = runOnStub(kFunction, {numbers({13, 5})});
  ASSERT_EQ(outcome.error, "");
  ASSERT_THAT(outcome.summary.launches, ElementsAre("rows_1"));
  const std::string bytes = std::to_string(13 * 5 * 4);
  std::vector<std::string> calls = said();
  // How many bytes are allocated depends on where the host's memory lies.
  for (std::string &call : calls)
    if (call.starts_with("cuMemAlloc_v2("))
      call = std::stoul(call.substr(14)) >= 13 * 5 * 4 ? "allocates enough" : call;
  EXPECT_THAT(calls,
              ElementsAre("cuInit(0)", "cuDriverGetVersion()", "cuDeviceGetCount()",
                          "cuDeviceGet(0)", "cuDeviceGetName()", "cuDeviceGetAttribute(75)",
                          "cuDeviceGetAttribute(76)", "cuDeviceGetAttribute(16)",
                          "cuDeviceGetAttribute(97)", "cuDeviceGetAttribute(38)",
                          "cuDevicePrimaryCtxRetain()", "cuModuleLoadDataEx(target sm_90a)",
                          "cuModuleGetFunction(rows_1)", "allocates enough", "allocates enough",
                          "cuMemcpyHtoD_v2(" + bytes + ")", "cuMemcpyHtoD_v2(" + bytes + ")",
                          "cuLaunchKernel(rows_1, grid 1 1 1, block 32 1 1, shared 0, arguments 2)",
                          "cuCtxSynchronize()", "cuMemcpyDtoH_v2(" + bytes + ")", "cuMemFree_v2()",
                          "cuMemFree_v2()", "cuModuleUnload()", "cuDevicePrimaryCtxRelease_v2()"));
}

TEST_F(Driver, EveryCallThatFailsIsAnErrorThatNamesItAndLeavesNothingBehind) {
  ASSERT_EQ(runOnStub(kFunction, {numbers({13, 5})}, 2).error, "");
  std::map<std::string, int> counts;
  std::ifstream file(calls);
  for (std::string line; std::getline(file, line);)
    ++counts[line.substr(0, line.find('('))];
  EXPECT_EQ(counts.at("cuEventRecord"), 4);
  unsigned tried = 0;
  for (const auto &[function, count] : counts) {
    const bool givesBack = function == "cuMemFree_v2" || function == "cuModuleUnload" ||
                           function == "cuEventDestroy_v2" ||
                           function == "cuDevicePrimaryCtxRelease_v2";
    if (givesBack)
      continue;
    for (int n = 1; n <= count; ++n) {
      set("FAIL", function + "=" + std::to_string(n));
      forget();
      const Outcome outcome = runOnStub(kFunction, {numbers({13, 5})}, 2);
      // The last choices of the context are those before memory is given back.
      if (function == "cuCtxSetCurrent" && outcome.error.empty())
        continue;
      EXPECT_THAT(outcome.error, HasSubstr("the CUDA driver's " + function + " failed"))
          << function << " " << n;
      EXPECT_THAT(outcome.error, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
      EXPECT_TRUE(outcome.results.empty());
      EXPECT_EQ(held(), 0U) << function << " " << n;
      ++tried;
    }
  }
  EXPECT_GT(tried, 35U);
}

TEST_F(Driver, ThatRefusesPtxGivesItsLog) {
  set("FAIL", "cuModuleLoadDataEx=1");
  EXPECT_THAT(runOnStub(kFunction, {numbers({13, 5})}).error,
              HasSubstr("compiling kernel 'rows_1': CUDA_ERROR_OUT_OF_MEMORY (out of memory); its "
                        "log: ptxas of the stub: line 1 is refused"));
}

/// A launch that inverts all that it is given: what comes back is what the kernel writes to.
TEST_F(Driver, CopiesBackWhatAKernelWritesToAndNothingElse) {
  set("LAUNCH", "invert");
  const HostTensor x = numbers({13, 5}), before = x;
  const Outcome outcome = runOnStub(kFunction, {x});
  ASSERT_EQ(outcome.error, "");
  EXPECT_EQ(x.data, before.data);
  ASSERT_EQ(outcome.results.size(), 1U);
  // The results' memory was zero before.
  for (const std::byte byte : outcome.results.front().data)
    ASSERT_EQ(byte, std::byte(0xff));
}

TEST_F(Driver, TimesEachLaunchWithAColdCache) {
  const Outcome outcome = runOnStub(kFunction, {numbers({13, 5})}, 3);
  ASSERT_EQ(outcome.error, "");
  ASSERT_EQ(outcome.times.size(), 1U);
  EXPECT_EQ(outcome.times.front().kernel, "rows_1");
  EXPECT_THAT(outcome.times.front().seconds, ElementsAre(0.25e-3, 0.25e-3, 0.25e-3));
  const std::vector<std::string> lines = said();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "cuMemsetD8_v2(104857600)"), 3);
  EXPECT_TRUE(runOnStub(kFunction, {numbers({13, 5})}).times.empty());
}

TEST_F(Driver, KernelsOnACpuOrOnTheEmulatorNeverCallIt) {
  Parsed parsed(kFunction);
  const HostTensor x = numbers({13, 5});
  for (Device device : {Device::Cpu, Device::Emulated}) {
    auto kernels = HostKernels::create(*parsed.module, "main", device);
    ASSERT_TRUE(kernels);
    ASSERT_TRUE(kernels->run({x}));
  }
  EXPECT_TRUE(said().empty());
  auto none = HostKernels::create(*parsed.module, "main", Device::Cuda);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error(), HasSubstr("no GPU was opened"));
}

/// Tensors of a launch that share memory stay so on the GPU.
TEST_F(Driver, OverlappingTensorsAreOneMemoryThere) {
  Parsed parsed(R"(
tile.kernel @k(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) attributes {lanes = 64 : i32, programs = 3 : i32} {
  %i = tile.iota : vector<64xindex>
  %v = tile.load %x[%i] : (memref<64xf32>, vector<64xindex>) -> vector<64xf32>
  %w = tile.load %z[%i] : (memref<64xf32>, vector<64xindex>) -> vector<64xf32>
  %s = arith.addf %v, %w : vector<64xf32>
  tile.store %s, %y[%i] : vector<64xf32>, memref<64xf32>, vector<64xindex>
  tile.return
})");
  ASSERT_TRUE(parsed.module);
  mlir::PassManager passes(&parsed.context);
  passes.addPass(tile::createLowerToHopperPass());
  ASSERT_TRUE(succeeded(passes.run(*parsed.module)));
  Expected<CudaDevice> device = CudaDevice::open(kStub);
  ASSERT_TRUE(device) << device.error();
  std::unique_ptr<KernelLauncher> launcher = makeCudaLauncher(*device);
  launcher->takeKernels(*parsed.module);
  ASSERT_TRUE(launcher->compileKernels());
  // x and y overlap by half, z lies apart.
  std::vector<std::byte> shared(3 * 128, std::byte(0)), apart(256, std::byte(0));
  set("LAUNCH", "invert");
  forget();
  launcher->begin({});
  void *arguments[] = {shared.data(), shared.data() + 128, apart.data()};
  launcher->launch({"k", {256, 256, 256}}, arguments);
  ASSERT_EQ(launcher->error(), "");
  for (size_t i = 0; i < shared.size(); ++i) // from x on, and again from y on
    ASSERT_EQ(shared[i], std::byte(i < 128 ? 0xff : 0)) << i;
  EXPECT_EQ(apart, std::vector<std::byte>(256, std::byte(0)));
  const std::vector<std::string> lines = said();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "cuMemcpyHtoD_v2(384)"), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "cuMemcpyHtoD_v2(256)"), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "cuMemcpyDtoH_v2(384)"), 1);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string &l) { return l.starts_with("cuMemcpyDtoH"); }),
            1);
}

/// Tensor maps as planLaunch and TMA have them; the product itself is not computed.
TEST_F(Driver, AProductOfTmaIsLaunchedWithTensorMapsOfItsOperands) {
  const GemmProblem problem = {GemmProblem::Type::BFloat16, true};
  const GemmSchedule schedule = GemmSchedule::make(128, 128, 64, 3, 2, 2);
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  ASSERT_TRUE(buildGemm(*module, "gemm", problem, schedule));
  Expected<CudaDevice> device = CudaDevice::open(kStub);
  ASSERT_TRUE(device) << device.error();
  Expected<CudaKernel> kernel = loadGemm(*device, *module);
  ASSERT_TRUE(kernel) << kernel.error();
  GemmCase product(300, 77, 72, problem);
  forget();
  auto times = runOnDevice(*device, *kernel, schedule, product, 2);
  ASSERT_TRUE(times) << times.error();
  EXPECT_THAT(*times, ElementsAre(0.25e-3, 0.25e-3));
  EXPECT_THAT(product.check(), testing::ContainsRegex("C.0, 0. is -?nan")); // nothing ran
  const std::vector<std::string> lines = said();
  const auto count = [&](const std::string &line) {
    return std::count(lines.begin(), lines.end(), line);
  };
  const std::string map = "cuTensorMapEncodeTiled(type 1, sizes ";
  EXPECT_EQ(count(map + "72 300, strides 272, box 64 128, swizzle 3, promotion 2)"), 1);
  EXPECT_EQ(count(map + "72 77, strides 272, box 64 64, swizzle 3, promotion 2)"), 1);
  EXPECT_EQ(count(map + "77 300, strides 288, box 64 64, swizzle 3, promotion 2)"), 1);
  // Three tiles along M are two clusters of two.
  EXPECT_EQ(count("cuLaunchKernel(gemm, grid 4 1 1, block 384 1 1, shared " +
                  std::to_string(planGemm(schedule)->total) + ", arguments 6)"),
            3);
  set("FAIL", "cuTensorMapEncodeTiled=2");
  forget();
  times = runOnDevice(*device, *kernel, schedule, product, 0);
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error(), HasSubstr("the CUDA driver's cuTensorMapEncodeTiled failed describing "
                                       "a matrix of 77 x 72 elements, 272 bytes a row, in boxes "
                                       "of 64 x 64: CUDA_ERROR_OUT_OF_MEMORY"));
}
