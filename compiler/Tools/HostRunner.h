// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host steps on the CPU: the image's MLIR text through the Reference, or as generated GPU kernels.
// MLIR is not touched before a step needs it.
#pragma once

#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/HostSteps.h"

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace millrace::driver {

struct GpuUse;
struct HostFunction;

/// Where kernels run, of host steps whose device nobody chose and of those of the GPU; none: the
/// host computes them itself, without kernels. Steps of the CPU never have any.
struct KernelDevices {
  std::optional<gpu::Device> host, gpu;
  std::optional<gpu::CudaDevice> cuda = {}; ///< of gpu::Device::Cuda
};

/// Devices by what --gpu says: cpu, emulate, cuda, auto, off or nothing. Opens a GPU's driver for
/// cuda and auto: `use` gets what became of it, and a warning is printed if auto finds none.
std::variant<KernelDevices, Failure> devicesNamed(const std::string &name,
                                                  std::optional<GpuUse> &use);

/// The type that tensor cores multiply in a program of this precision: "f16" or "bf16".
std::string multipliedType(const std::string &precision);

/// The host functions of an image, each compiled when it is first called.
class HostFunctions {
public:
  explicit HostFunctions(KernelDevices devices = {});
  ~HostFunctions();
  /// Compiles the functions of an image's host steps beside whatever the caller does next. What is
  /// wrong with one is said when it is called.
  void compileAhead(const Image &image);
  /// `image`: the same in every call.
  Expected<std::vector<HostTensor>> call(const Image &image, const Step &step,
                                         const std::vector<HostView> &arguments);
  /// What became of a function that was called.
  HostStepDevice deviceOf(const Step &step) const;

  const KernelDevices devices;

private:
  struct Compiler;
  static Expected<HostFunction> compile(Compiler &compiler, const Step &step);
  static Expected<HostFunction *> find(Compiler &compiler, const std::string &module,
                                       const Step &step);
  std::unique_ptr<Compiler> makeCompiler(const Image &image) const;
  std::unique_ptr<Compiler> compiler;
  std::future<void> ahead; ///< has the compiler until it is done
};

class HostRunner : public HostSteps {
public:
  /// `inputs`: the program's inputs, by name. Outputs that a host step makes land in `outputs`.
  HostRunner(const std::map<std::string, HostTensor> &inputs,
             std::map<std::string, HostTensor> &outputs, std::shared_ptr<HostFunctions> functions);
  ~HostRunner() override;
  Status run(const Image &image, const Step &step, RowAccess &memory) override;
  double seconds() const override { return elapsed; }
  std::vector<HostStepDevice> devices() const override { return report; }

private:
  const std::map<std::string, HostTensor> &inputs;
  std::map<std::string, HostTensor> &outputs;
  std::shared_ptr<HostFunctions> functions;
  std::map<uint32_t, HostTensor> handedOn; ///< by binding: what steps made and the grid never reads
  double elapsed = 0;
  std::vector<HostStepDevice> report;
};

/// For those who need no more than the interface; the second compiles ahead.
MakeHostSteps makeHostRunner(KernelDevices devices = {});
MakeHostSteps beginHostRunner(const Image &image);

} // namespace millrace::driver
