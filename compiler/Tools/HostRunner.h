// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host steps on the CPU: the image's MLIR text through the Reference. MLIR is not touched before a
// step needs it.
#pragma once

#include "compiler/Tools/HostSteps.h"

#include <map>
#include <memory>
#include <string>

namespace millrace::driver {

/// The host functions of an image, each compiled when it is first called.
class HostFunctions {
public:
  HostFunctions();
  ~HostFunctions();
  /// `module`: the image's MLIR text, the same in every call.
  Expected<std::vector<HostTensor>> call(const std::string &module, const std::string &function,
                                         const std::vector<HostTensor> &arguments);

private:
  struct Compiler;
  std::unique_ptr<Compiler> compiler;
};

class HostRunner : public HostSteps {
public:
  /// `inputs`: the program's inputs, by name. Outputs that a host step makes land in `outputs`.
  HostRunner(const std::map<std::string, HostTensor> &inputs,
             std::map<std::string, HostTensor> &outputs);
  ~HostRunner() override;
  Status run(const Image &image, const Step &step, RowAccess &memory) override;
  double seconds() const override { return elapsed; }

private:
  const std::map<std::string, HostTensor> &inputs;
  std::map<std::string, HostTensor> &outputs;
  HostFunctions functions;
  double elapsed = 0;
};

/// For those who need no more than the interface.
std::unique_ptr<HostSteps> makeHostRunner(const std::map<std::string, HostTensor> &inputs,
                                          std::map<std::string, HostTensor> &outputs);

} // namespace millrace::driver
