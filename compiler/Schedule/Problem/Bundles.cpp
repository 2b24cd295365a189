// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which bursts belong together: those between which values flow.
#include "compiler/Schedule/Problem/Extractor.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace millrace::schedule {

bool isKept(const Instruction &consumer, const Producer &from) {
  switch (from.of) {
  case ProducerOf::Memory:
  case ProducerOf::Weights:
  case ProducerOf::Sum:
    return true;
  case ProducerOf::Link:
  case ProducerOf::Product:
    return false;
  default:
    const Operand *operands[] = {&consumer.a, &consumer.b, &consumer.c};
    return operands[unsigned(from.of)]->kind == OperandKind::Latch;
  }
}

void Extractor::refuse(unsigned pe, uint32_t k, const std::string &what) {
  if (wrong.empty())
    wrong = "instruction " + std::to_string(k) + " of pe " + std::to_string(pe) + " (" +
            std::string(info(at(pe, k).opcode).mnemonic) + " on " +
            machine.queueName(at(pe, k).queue) + ") " + what;
}

/// Whatever the instruction takes has an annotation, without which nobody knows what it waits for.
void Extractor::checkAnnotations(unsigned pe, uint32_t k) {
  const Instruction &i = at(pe, k);
  uint64_t said[kProducerOfs] = {};
  const Operand *operands[] = {&i.a, &i.b, &i.c};
  for (const Producer &p : image.producersOf(pe, i)) {
    const unsigned width = p.of <= ProducerOf::C && p.byte == kAllBytes &&
                                   operands[unsigned(p.of)]->kind == OperandKind::Stream
                               ? operandWidth(i, *operands[unsigned(p.of)])
                               : 1;
    const bool ofGroups = p.of == ProducerOf::Weights;
    if (p.from0 + p.count0 > (ofGroups ? i.g1 - i.g0 : i.n0) ||
        p.from1 + p.count1 > (ofGroups ? 1 : i.n1))
      refuse(pe, k, "has an annotation of elements that it does not have");
    said[unsigned(p.of)] += uint64_t(p.count0) * p.count1 * width;
  }
  const uint64_t elements = i.elements();
  const auto need = [&](ProducerOf of, uint64_t count, const char *what) {
    if (said[unsigned(of)] != count)
      refuse(pe, k, std::string("has no annotation of ") + what);
  };
  for (unsigned o = 0; o < 3; ++o)
    if (operands[o]->kind == OperandKind::Stream)
      need(ProducerOf(o), elements * operandWidth(i, *operands[o]), "what it samples");
    else if (operands[o]->kind == OperandKind::Alu || operands[o]->kind == OperandKind::Latch)
      need(ProducerOf(o), elements, "its operand");
  if (i.opcode == Opcode::Read)
    need(ProducerOf::Memory, elements, "what its rows hold");
  if (i.opcode == Opcode::Activate)
    need(ProducerOf::Weights, uint64_t(i.g1 - i.g0) * byteWidth(i.format), "its weights");
  if (i.opcode == Opcode::Accumulate) {
    need(ProducerOf::Product, elements, "its products");
    need(ProducerOf::Sum, i.function & AccumulateMode::Add ? elements : 0, "its partial sums");
  }
  if (i.opcode == Opcode::Receive)
    need(ProducerOf::Link, elements, "what it receives");
}

/// Elements of all bursts, each of which is looked at.
constexpr uint64_t kMostElements = uint64_t(1) << 27;

void Extractor::checkInstructions() {
  uint64_t elements = 0;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      if ((elements += at(pe, k).elements()) > kMostElements)
        return refuse(pe, k,
                      "and those before it have more than " + std::to_string(kMostElements) +
                          " elements, which is too many for a schedule problem");
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      switch (i.opcode) {
      case Opcode::Nop:
      case Opcode::Repeat:
      case Opcode::Config:
        refuse(pe, k,
               "acts on what its queue does before or after it, and would not move with it; "
               "a schedule problem holds none");
        break;
      case Opcode::Permute:
      case Opcode::Distribute:
      case Opcode::Select:
        refuse(pe, k, "works by what a config left in its unit; a schedule problem holds none");
        break;
      case Opcode::Scatter:
        refuse(pe, k, "writes rows that are data; a schedule problem holds none");
        break;
      default:
        break;
      }
      if (machine.unit(i.queue).kind == UnitKind::Mem && i.tensor >= image.tensors.size())
        refuse(pe, k, "names no tensor");
      checkAnnotations(pe, k);
      for (const Producer &p : image.producersOf(pe, i))
        if (p.instruction != kInitialContents && !isKept(i, p) &&
            places[p.pe][p.instruction].step != places[pe][k].step)
          refuse(pe, k, "takes what flowed in another step");
    }
}

/// The bundle of each instruction, numbered as they come.
std::vector<std::vector<uint32_t>> Extractor::join() const {
  std::vector<uint32_t> base{0}; // number of a PE's first instruction among all
  for (const auto &list : image.instructions)
    base.push_back(base.back() + uint32_t(list.size()));
  std::vector<uint32_t> parent(base.back());
  std::iota(parent.begin(), parent.end(), 0u);
  const auto root = [&](uint32_t x) {
    while (parent[x] != x)
      x = parent[x] = parent[parent[x]];
    return x;
  };
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      for (const Producer &p : image.producersOf(pe, at(pe, k)))
        if (p.instruction != kInitialContents && !isKept(at(pe, k), p))
          parent[root(base[pe] + k)] = root(base[p.pe] + p.instruction);
  std::vector<std::vector<uint32_t>> result;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    result.emplace_back();
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      result[pe].push_back(root(base[pe] + k));
  }
  return result;
}

void Extractor::makeBundles() {
  for (const auto &list : image.instructions)
    places.emplace_back(list.size());
  for (uint32_t s = 0; s < image.steps.size(); ++s) {
    if (image.steps[s].kind != Step::Kind::Grid)
      continue;
    const auto number = uint32_t(problem.steps.size());
    problem.steps.push_back({s, timing.countFrom(0), 0});
    for (unsigned pe = 0; pe < image.steps[s].pes.size(); ++pe)
      for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k)
        places[pe][k].step = number;
  }
  checkInstructions();
  if (!wrong.empty())
    return;
  const std::vector<std::vector<uint32_t>> roots = join();
  struct First {
    uint32_t step = 0;
    Cycle start = INT64_MAX;
    uint32_t pe = 0, instruction = 0;
    auto key() const { return std::tuple(step, start, pe, instruction); }
  };
  std::map<uint32_t, First> firsts;
  for (unsigned pe = 0; pe < roots.size(); ++pe)
    for (uint32_t k = 0; k < roots[pe].size(); ++k) {
      const First its{places[pe][k].step, Cycle(at(pe, k).cycle), pe, k};
      const auto [found, isNew] = firsts.emplace(roots[pe][k], its);
      if (!isNew && its.key() < found->second.key())
        found->second = its;
    }
  std::vector<std::pair<uint32_t, First>> sorted(firsts.begin(), firsts.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto &x, const auto &y) { return x.second.key() < y.second.key(); });
  std::map<uint32_t, uint32_t> numberOf;
  for (const auto &[root, first] : sorted) {
    numberOf[root] = uint32_t(problem.bundles.size());
    Bundle &b = problem.bundles.emplace_back();
    b.step = first.step;
    b.start = first.start;
    const uint32_t name = at(first.pe, first.instruction).provenance;
    b.name = name < image.strings.size() ? image.strings[name] : "";
  }
  for (unsigned pe = 0; pe < roots.size(); ++pe)
    for (uint32_t k = 0; k < roots[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      const uint32_t number = numberOf[roots[pe][k]];
      Bundle &b = problem.bundles[number];
      const Cycle offset = Cycle(i.cycle) - b.start;
      places[pe][k].bundle = number;
      places[pe][k].at = offset;
      b.members.push_back({pe, k, offset});
      if (i.opcode == Opcode::Write)
        b.lastWrite =
            std::max(b.lastWrite.value_or(0), offset + timing.writeSlot() + lastElementCycle(i));
    }
}

} // namespace millrace::schedule
