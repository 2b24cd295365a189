// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Losses.h"

#include "arch/isa/semantics/Losses.h"
#include "compiler/Tools/Notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace millrace::driver {

/// How the host narrows elements for the grid: what is finite stays so.
static std::optional<semantics::RangeEnd> rangeEndOf(ElementType type) {
  return type == ElementType::Fp16   ? semantics::rangeEndOf(AluOp::CvtF32F16Fin)
         : type == ElementType::Bf16 ? semantics::rangeEndOf(AluOp::CvtF32Bf16Fin)
                                     : std::nullopt;
}

static Loss lossOf(const semantics::RangeEnd &end, uint64_t count) {
  Loss loss;
  loss.format = end.format;
  loss.becomes = end.becomes;
  loss.largest = double(end.largest);
  loss.count = count;
  return loss;
}

using Time = std::tuple<size_t, uint64_t, uint32_t>; ///< step, cycle, and who if they are equal

/// When a kernel dispatches its first instruction.
static Time firstOf(const Image &image, uint32_t provenance) {
  for (size_t s = 0; s < image.steps.size(); ++s) {
    std::optional<uint64_t> cycle;
    for (size_t pe = 0; pe < image.steps[s].pes.size(); ++pe)
      for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k)
        if (const Instruction &i = image.instructions[pe][k]; i.provenance == provenance)
          cycle = std::min(cycle.value_or(i.cycle), i.cycle);
    if (cycle)
      return {s, *cycle, provenance};
  }
  return {image.steps.size(), 0, provenance};
}

std::vector<Loss> lossesOf(const Image &image, const sim::SimulationResult &result,
                           const std::map<std::string, HostTensor> &inputs) {
  std::vector<Loss> losses;
  std::set<std::string> seen; // an input may have several bindings
  for (const Binding &binding : image.bindings) {
    const auto input = inputs.find(binding.name);
    const auto end = rangeEndOf(binding.gridType);
    if (binding.role != Binding::Role::Input || binding.placements.empty() || !end ||
        input == inputs.end() || input->second.type != HostType::Float32 ||
        !seen.insert(binding.name).second)
      continue;
    const size_t count = semantics::countBeyond(*end, input->second.as<uint32_t>(),
                                                size_t(input->second.elementCount()));
    if (count)
      losses.push_back(lossOf(*end, count)), losses.back().input = binding.name;
  }
  std::map<std::pair<Time, AluOp>, Loss> byTime; // of kernels
  for (const auto &[key, lanes] : result.total.lost) {
    Loss loss = lossOf(*semantics::rangeEndOf(AluOp(key.second)), lanes);
    loss.nodes = key.first < image.strings.size() ? image.strings[key.first] : "";
    byTime.emplace(std::pair(firstOf(image, key.first), AluOp(key.second)), std::move(loss));
  }
  for (auto &[time, loss] : byTime)
    losses.push_back(std::move(loss));
  return losses;
}

std::string warningOf(const std::vector<Loss> &losses, const Image &image) {
  const Loss &first = losses.front();
  const std::string where = first.input.empty() ? "kernel '" + first.nodes + "' stored "
                                                : "input '" + first.input + "' has ";
  std::string text =
      fmt::format("{}{} finite values beyond the range of {} (+-{:.6g}), which are {} now", where,
                  first.count, first.format, first.largest, first.becomes);
  if (losses.size() > 1)
    text += fmt::format("; so did {} more (lost_values of --json)", losses.size() - 1);
  const nlohmann::json precision = jsonNote(image, "precision");
  if (precision == "fp16" && first.format == "fp16")
    text += "; --precision bf16 has the range of fp32, --keep-fp32 VALUE gives it to one value "
            "(--check=reference names the first)";
  else
    text += "; --check=reference shows what it does to the outputs";
  return text;
}

} // namespace millrace::driver
