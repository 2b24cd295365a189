// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/ExplainLayouts.h"

#include "compiler/Codegen/Memory/Copies.h"
#include "compiler/Tools/Execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace::driver {

using layouts::Alternative;
using layouts::Explanation;
using layouts::KernelChange;
using layouts::LayoutText;
using layouts::TensorExplanation;
using nlohmann::json;

namespace {

/// To the next whole number, without the sign.
std::string rounded(double number) { return grouped(uint64_t(std::llround(std::abs(number)))); }

/// +1,234 or -1,234: a difference; +0.5 where that is little.
std::string difference(double number) {
  return std::abs(number) < 9.95 ? fmt::format("{:+.1f}", number)
                                 : (number < 0 ? "-" : "+") + rounded(number);
}

/// In MiB, or in KiB if that is little.
std::string inBytes(double bytes) {
  return bytes < 0.1 * (1 << 20) ? fmt::format("{:.1f} KiB", bytes / 1024)
                                 : fmt::format("{:.2f} MiB", bytes / (1 << 20));
}

std::string counted(size_t count, const std::string &what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// The first few of many: "a, b and 7 more".
std::string few(const std::vector<std::string> &names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i ? ", " : "") + names[i];
  return names.size() > most ? text + fmt::format(" and {} more", names.size() - most) : text;
}

std::string shapeText(const std::vector<int64_t> &shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "plain: 30 rows of 12 lanes", "2 x 3 a row in 144 lanes: dim 2 dim 3; 25 rows"
std::string layoutText(const LayoutText &layout) {
  const std::string rows = grouped(uint64_t(layout.rows)) + (layout.rows == 1 ? " row" : " rows");
  return layout.isPlain ? fmt::format("plain: {} of {} lanes", rows, layout.lanes)
                        : layout.layout + "; " + rows;
}

/// What an alternative costs, and what changes with it.
std::string costText(const Alternative &a) {
  std::string text = a.extraCycles == 0 ? "as good" : difference(a.extraCycles) + " cycles";
  if (!a.isExact)
    text += a.extraCycles == 0 ? " or better" : " at most";
  if (a.extraWeightBytes)
    text += fmt::format(", {}{} of weights", a.extraWeightBytes < 0 ? "-" : "+",
                        inBytes(std::abs(double(a.extraWeightBytes))));
  if (!a.fits)
    text += ", which leaves too little memory";
  if (!a.others.empty())
    text += "; with it change " + few(a.others, 3);
  return text;
}

/// "relu_0 +10 (MXM vectors 156 to 144, parts 1 to 2)"
std::string changeText(const KernelChange &k) {
  std::string parts;
  const auto add = [&](const char *what, int64_t now, int64_t then) {
    if (now != then)
      parts += fmt::format("{}{} {} to {}", parts.empty() ? "" : ", ", what, grouped(uint64_t(now)),
                           grouped(uint64_t(then)));
  };
  add("MXM vectors", k.cost.sweeps, k.otherCost.sweeps);
  add("cycles of waits for accumulators", k.cost.waits, k.otherCost.waits);
  add("VXM operations", k.cost.operations, k.otherCost.operations);
  add("parts", k.cost.kernels, k.otherCost.kernels);
  return k.kernel + " " + difference(k.otherCycles - k.cycles) +
         (parts.empty() ? "" : " (" + parts + ")");
}

void addRow(std::string &text, const std::string &name, const std::string &value) {
  text += fmt::format("    {:<11}{}\n", name, value);
}

void addKernels(std::string &text, const std::string &name, const Alternative &a) {
  constexpr size_t kMostLines = 3;
  double rest = a.otherCycles;
  for (size_t i = 0; i < a.kernels.size(); ++i)
    if (i < kMostLines)
      addRow(text, i ? "" : name, changeText(a.kernels[i]));
    else
      rest += a.kernels[i].otherCycles - a.kernels[i].cycles;
  if (std::abs(rest) >= 0.05)
    addRow(text, "", "all others " + difference(rest));
}

void addTensor(std::string &text, const TensorExplanation &e) {
  text += "\n  " + few(e.tensors, 3) + " " + shapeText(e.shape) + "\n";
  addRow(text, "layout", layoutText(e.chosen));
  addRow(text, "cost",
         fmt::format("{} cycles in the kernels that read or write it", rounded(e.cycles)));
  if (!e.runnerUp) {
    addRow(text, "runner-up",
           e.blockers.empty() ? "none was found that suits all kernels"
                              : "none: no other layout suits " + few(e.blockers, 3));
  } else {
    addRow(text, "runner-up", layoutText(e.runnerUp->layout));
    addRow(text, "", costText(*e.runnerUp));
    addKernels(text, "decided by", *e.runnerUp);
  }
  if (e.ifPlain)
    addRow(text, "if plain", costText(*e.ifPlain));
  if (!e.replica)
    return;
  addRow(
      text, "replicas",
      fmt::format("{:.2f} rows hold each element{}", e.replica->elements,
                  e.replica->forcedBy.empty() ? "" : "; forced by " + few(e.replica->forcedBy, 3)));
  if (e.replica->once) {
    addRow(text, "without", layoutText(e.replica->once->layout));
    addRow(text, "", costText(*e.replica->once));
    addKernels(text, "", *e.replica->once);
  }
}

/// Tensors without a choice, by the reason.
void addPlain(std::string &text, const Explanation &explanation) {
  if (explanation.plain.empty())
    return;
  text += "\n  " + counted(explanation.plain.size(), "tensor") + " without a choice\n";
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const layouts::PlainTensor &tensor : explanation.plain) {
    auto reason = std::find_if(reasons.begin(), reasons.end(),
                               [&](const auto &r) { return r.first == tensor.why; });
    if (reason == reasons.end())
      reason = reasons.insert(reasons.end(), {tensor.why, {}});
    reason->second.push_back(tensor.name);
  }
  for (const auto &[why, names] : reasons)
    text += fmt::format("    {}: {}\n", why, few(names, 4));
}

/// Copies that readers force.
void addCopies(std::string &text, const std::vector<ForcedCopies> &copies) {
  constexpr size_t kMostLines = 20;
  if (copies.empty())
    return;
  text += "\n  " + counted(copies.size(), "tensor") +
          " with more copies in memory than one of the rows in each hemisphere\n";
  for (size_t i = 0; i < std::min(copies.size(), kMostLines); ++i) {
    const ForcedCopies &c = copies[i];
    text += "    " + c.tensor + ":";
    if (c.columns)
      text += " columns, as " + c.columnsReader + " installs it";
    if (std::max(c.rowsWest, c.rowsEast) > 1)
      text += fmt::format("{} rows {} times west and {} times east, for {}", c.columns ? ";" : "",
                          c.rowsWest, c.rowsEast, c.rowsReader);
    text += fmt::format("; {} a copy\n", inBytes(double(c.copyBytes)));
  }
  if (copies.size() > kMostLines)
    text += fmt::format("    and {} more; --json lists all\n", copies.size() - kMostLines);
}

json jsonOf(const LayoutText &layout) {
  return {{"text", layout.layout}, {"rows", layout.rows}, {"lanes", layout.lanes}};
}

json jsonOf(const std::optional<Alternative> &a) {
  if (!a)
    return {};
  json kernels = json::array();
  for (const KernelChange &k : a->kernels)
    kernels.push_back({{"name", k.kernel},
                       {"nodes", k.nodes},
                       {"cycles", k.cycles},
                       {"other_cycles", k.otherCycles},
                       {"mxm_vectors", k.cost.sweeps},
                       {"other_mxm_vectors", k.otherCost.sweeps},
                       {"accumulator_wait_cycles", k.cost.waits},
                       {"other_accumulator_wait_cycles", k.otherCost.waits},
                       {"vxm_operations", k.cost.operations},
                       {"other_vxm_operations", k.otherCost.operations},
                       {"parts", k.cost.kernels},
                       {"other_parts", k.otherCost.kernels}});
  return {{"layout", jsonOf(a->layout)},
          {"extra_cycles", a->extraCycles},
          {"extra_weight_bytes", a->extraWeightBytes},
          {"fits", a->fits},
          {"exact", a->isExact},
          {"other_tensors", a->others},
          {"kernels", std::move(kernels)},
          {"extra_cycles_of_other_kernels", a->otherCycles}};
}

json jsonOf(const TensorExplanation &e) {
  json replica;
  if (e.replica)
    replica = {{"rows_per_element", e.replica->elements},
               {"forced_by", e.replica->forcedBy},
               {"without", jsonOf(e.replica->once)}};
  return {{"names", e.tensors},           {"shape", e.shape},
          {"layout", jsonOf(e.chosen)},   {"candidates", e.candidates},
          {"kernel_cycles", e.cycles},    {"runner_up", jsonOf(e.runnerUp)},
          {"no_other_suits", e.blockers}, {"if_plain", jsonOf(e.ifPlain)},
          {"replica", std::move(replica)}};
}

} // namespace

std::vector<ForcedCopies> forcedCopies(const forms::KernelGraph &graph, const Machine &machine) {
  const std::vector<grid::Copies> all = grid::copiesOf(graph, machine);
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  std::vector<ForcedCopies> forced;
  for (unsigned t = 0; t < all.size(); ++t) {
    const grid::Copies &copies = all[t];
    const forms::Tensor &tensor = graph.tensors[t];
    if (tensor.role == forms::TensorRole::Constant ||
        (!copies.columns && std::max(copies.rows[0], copies.rows[1]) < 2))
      continue;
    int64_t rows = (tensor.shape[tensor.laneDim] + vector - 1) / vector;
    for (unsigned d = 0; d < tensor.shape.size(); ++d)
      rows *= d == tensor.laneDim ? 1 : tensor.shape[d];
    const auto nameOf = [&](const std::optional<unsigned> &kernel) {
      return kernel ? graph.kernels[*kernel].name : "";
    };
    forced.push_back({tensor.name, copies.rows[0], copies.rows[1], copies.columns,
                      nameOf(copies.rowsFor), nameOf(copies.columnsFor),
                      rows * machine.lanes() * byteWidth(tensor.type)});
  }
  return forced;
}

std::string textOf(const LayoutReport &report, const std::string &title) {
  const Explanation &e = report.choice;
  std::string text = "layouts of " + title + "\n";
  const auto row = [&](const std::string &name, const std::string &value) {
    text += fmt::format("  {:<13}{}\n", name, value);
  };
  row("work", rounded(e.cycles) + " cycles by the cost model, " + rounded(e.plainCycles) +
                  " if all were plain");
  if (e.leastCycles < e.cycles - 0.5 && e.cyclesPerWeightByte == 0)
    row("", rounded(e.leastCycles) + " in the layouts of least cost");
  row("weights",
      inBytes(double(e.weightBytes)) + " of at most " + inBytes(double(e.mostWeightBytes)));
  if (e.cyclesPerWeightByte > 0)
    row("", fmt::format("too many in the layouts of fewest cycles: a KiB is taken to cost {:.2f} "
                        "cycles",
                        e.cyclesPerWeightByte * 1024));
  for (const TensorExplanation &tensor : e.tensors)
    addTensor(text, tensor);
  addPlain(text, e);
  addCopies(text, report.copies);
  return text;
}

json jsonOf(const LayoutReport &report) {
  const Explanation &e = report.choice;
  json tensors = json::array(), plain = json::array(), copies = json::array();
  for (const ForcedCopies &c : report.copies)
    copies.push_back({{"name", c.tensor},
                      {"rows_west", c.rowsWest},
                      {"rows_east", c.rowsEast},
                      {"rows_forced_by", c.rowsReader.empty() ? json() : json(c.rowsReader)},
                      {"columns", c.columns},
                      {"columns_forced_by", c.columns ? json(c.columnsReader) : json()},
                      {"copy_bytes", c.copyBytes}});
  for (const TensorExplanation &tensor : e.tensors)
    tensors.push_back(jsonOf(tensor));
  for (const layouts::PlainTensor &tensor : e.plain)
    plain.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"why", tensor.why}});
  return {{"cycles", e.cycles},
          {"all_plain_cycles", e.plainCycles},
          {"least_cycles", e.leastCycles},
          {"weight_bytes", e.weightBytes},
          {"most_weight_bytes", e.mostWeightBytes},
          {"cycles_per_weight_byte", e.cyclesPerWeightByte},
          {"tensors", std::move(tensors)},
          {"without_choice", std::move(plain)},
          {"copies", std::move(copies)}};
}

} // namespace millrace::driver
