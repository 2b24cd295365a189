// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Devices/AssignDevices.h"

#include "compiler/Codegen/Gpu/Selection/FindTopK.h"
#include "compiler/Forms/Former/Build.h"

#include "mlir/IR/Builders.h"

#include <algorithm>
#include <array>

namespace millrace::devices {

using namespace mlir;

static std::string listOfWork() {
  std::string list;
  for (const WorkName &work : workNames())
    list += (list.empty() ? "" : ", ") + std::string(work.name);
  return list;
}

Expected<DeviceMap> parseDeviceMap(const std::string &text) {
  DeviceMap map;
  bool hasDefault = false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    if (entry == kDefaultPolicy) {
      hasDefault = true;
      continue;
    }
    const size_t equals = entry.find('=');
    if (equals == std::string::npos)
      return Error{"--device-map '" + entry + "' is not kind=device or default; kinds are " +
                   listOfWork() + ", devices grid, gpu and cpu"};
    const std::string kind = entry.substr(0, equals), device = entry.substr(equals + 1);
    std::optional<Work> work;
    for (unsigned w = 0; w < kWorks; ++w)
      if (kind == workNames()[w].name)
        work = Work(w);
    if (!work)
      return Error{"--device-map has no kind '" + kind + "'; kinds are " + listOfWork()};
    for (const Assignment &other : map)
      if (other.work == *work)
        return Error{"--device-map names " + kind + " twice; keep one"};
    if (device != "grid" && device != nameOf(StepDevice::Gpu) && device != nameOf(StepDevice::Cpu))
      return Error{"--device-map has no device '" + device + "'; devices are grid, gpu and cpu"};
    map.push_back({*work, device == "grid"                    ? std::nullopt
                          : device == nameOf(StepDevice::Gpu) ? std::optional(StepDevice::Gpu)
                                                              : std::optional(StepDevice::Cpu)});
  }
  for (Work work : {Work::Attention, Work::Embedding, Work::Sampling})
    if (hasDefault && std::none_of(map.begin(), map.end(),
                                   [&](const Assignment &own) { return own.work == work; }))
      map.push_back({work, StepDevice::Gpu, /*isDefault=*/true});
  return map;
}

Status assignDevices(ModuleOp module, const DeviceMap &map, std::vector<std::string> &remarks) {
  auto function = module.lookupSymbol<func::FuncOp>("main");
  if (!function || function.isExternal())
    return Error{"the model has no function @main"};
  std::vector<std::string> left;
  for (const Assignment &assignment : map)
    if (assignment.work == Work::Sampling && assignment.device)
      for (gpu::FoundTopK &choice : gpu::findTopK(function))
        for (Operation *number : gpu::computeNumbers(choice))
          for (llvm::StringLiteral attribute : {forms::kDevice, forms::kWork})
            number->setAttr(attribute,
                            StringAttr::get(module.getContext(), attribute == forms::kWork
                                                                     ? "sampling"
                                                                     : nameOf(*assignment.device)));
  const std::vector<FoundWork> found = findWork(function, &left);
  std::array<size_t, kWorks> counts{};
  for (const FoundWork &part : found)
    ++counts[size_t(part.work)];
  Builder builder(module.getContext());
  for (const Assignment &assignment : map) {
    const auto w = size_t(assignment.work);
    const std::string name = workNames()[w].name;
    if (!counts[w] && assignment.isDefault)
      continue;
    if (!counts[w]) {
      std::string have;
      for (unsigned other = 0; other < kWorks; ++other)
        if (counts[other])
          have += (have.empty() ? "" : ", ") + std::string(workNames()[other].name) + " (" +
                  std::to_string(counts[other]) + ")";
      std::string why;
      if (assignment.work == Work::Attention && !left.empty())
        why = " (" + left[0] + ")";
      return Error{"--device-map " + name + ": the model has none" + why + "; it has " +
                   (have.empty() ? "nothing that can be named" : have)};
    }
    if (assignment.work == Work::Attention)
      for (const std::string &line : left)
        remarks.push_back(line + "; it stays on the grid");
    if (!assignment.device)
      continue;
    for (const FoundWork &part : found)
      if (part.work == assignment.work)
        for (Operation *op : part.operations) {
          op->setAttr(forms::kDevice, builder.getStringAttr(nameOf(*assignment.device)));
          op->setAttr(forms::kWork, builder.getStringAttr(name));
        }
  }
  return Success{};
}

} // namespace millrace::devices
