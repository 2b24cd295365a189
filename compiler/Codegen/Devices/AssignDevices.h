// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which parts of a model leave the grid, and for where.
#pragma once

#include "arch/spec/Expected.h"
#include "arch/spec/StepDevice.h"
#include "compiler/Codegen/Devices/FindWork.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace millrace::devices {

/// A kind of work and its device; none: the grid.
struct Assignment {
  Work work;
  std::optional<StepDevice> device;
  bool isDefault = false; ///< by the policy: of what a model does not have, it sends nothing
};
using DeviceMap = std::vector<Assignment>;

/// What stands for the default policy in a map: attention, embedding and sampling, which read much
/// memory at places that are data or make large intermediate values of few weights, go to the GPU;
/// all else stays on the grid.
inline constexpr const char *kDefaultPolicy = "default";

/// Of `attention=gpu,ffn=grid`, or `default`, whose entries others replace: `default,ffn=gpu`.
/// Errors: no such form, a kind or a device that there is not, a kind named twice; each lists what
/// there is.
Expected<DeviceMap> parseDeviceMap(const std::string &text);

/// Marks the operations of @main that run elsewhere (forms::kDevice). Errors: a kind of which the
/// model has nothing, with what it has. `remarks` gets what looks like attention and stays.
Status assignDevices(mlir::ModuleOp module, const DeviceMap &map,
                     std::vector<std::string> &remarks);

} // namespace millrace::devices
