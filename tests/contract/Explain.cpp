// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Explain.h"

#include "arch/isa/Print.h"
#include "arch/isa/semantics/Alu.h"
#include "arch/operations/AluOp.h"
#include "tests/contract/Dataflow.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace millrace::test {
namespace {

using Proof = Explanation::Proof;

struct Place {
  std::string text;
  unsigned pe = 0;
  uint32_t index = 0;
};

/// Instructions of `image` that `other` does not have; annotations aside.
std::vector<Place> only(const Image &image, const Image &other, const Machine &machine) {
  std::vector<Place> list;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    std::vector<std::string> theirs;
    for (const Instruction &i : other.instructions[pe])
      theirs.push_back(print(machine, i));
    std::sort(theirs.begin(), theirs.end());
    std::vector<Place> ours;
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      ours.push_back({print(machine, image.instructions[pe][k]), pe, k});
    std::stable_sort(ours.begin(), ours.end(),
                     [](const Place &x, const Place &y) { return x.text < y.text; });
    size_t t = 0;
    for (const Place &p : ours) { // as multisets: each of theirs stands for one of ours
      while (t < theirs.size() && theirs[t] < p.text)
        ++t;
      if (t < theirs.size() && theirs[t] == p.text)
        ++t;
      else
        list.push_back(p);
    }
  }
  return list;
}

bool anyReached(const Dataflow &flow, const std::vector<Place> &places) {
  return std::any_of(places.begin(), places.end(),
                     [&](const Place &p) { return flow.reached(p.pe, p.index); });
}

/// What is the same although these instructions became those.
std::string sameValues(const Instruction &before, const Instruction &after) {
  if (before.opcode == Opcode::Latch || after.opcode == Opcode::Latch)
    return "the latch holds these values already";
  if (before.opcode != after.opcode)
    return "what it made is made elsewhere too";
  if (before.queue != after.queue)
    return "another unit of its kind, free then, does the same";
  if (before.opcode == Opcode::Accumulate && before.cycle == after.cycle)
    return "another accumulator row, free then, holds the same sum";
  if (before.outWidth != after.outWidth)
    return "nobody samples the streams that its width gained or lost";
  if (before.opcode == Opcode::Read && before.cycle == after.cycle)
    return "the other row holds the same contents";
  if (before.cycle != after.cycle)
    return "the same values in another cycle, sampled by the same";
  return "the same values";
}

/// Whether an access that names region `index` is at a row and cycle that `wrong` refuses.
bool isTouched(const Image &image, const Machine &machine, size_t index,
               const std::function<bool(uint32_t row, uint64_t cycle)> &wrong) {
  for (const Instruction &i : image.instructions[image.tensors[index].pe]) {
    if ((i.opcode != Opcode::Read && i.opcode != Opcode::Write) || i.tensor != index)
      continue;
    const uint64_t slot = i.opcode == Opcode::Write ? machine.latency.memWrite : 0;
    for (uint32_t e = 0; e < i.elements(); ++e) {
      const int64_t row = int64_t(i.address) + int64_t(e / i.n0) * i.s1 + int64_t(e % i.n0) * i.s0;
      if (wrong(uint32_t(row),
                i.cycle + slot + uint64_t(e / i.n0) * i.c1 + uint64_t(e % i.n0) * i.c0))
        return true;
    }
  }
  return false;
}

Explanation explainTables(const Image &right, const Machine &machine, const Image &wrong) {
  for (size_t r = 0; r < right.tensors.size(); ++r) {
    const Region &a = right.tensors[r], &b = wrong.tensors[r];
    if (std::memcmp(&a, &b, sizeof a) == 0)
      continue;
    const bool touched = isTouched(right, machine, r, [&](uint32_t row, uint64_t cycle) {
      const bool inA = row - a.row < a.rows, inB = row - b.row < b.rows;
      return a.row != b.row || a.rows != b.rows
                 ? inA != inB
                 : inA && (cycle < b.from || cycle > b.to) && a.step0 == a.step1;
    });
    if (touched)
      return {Proof::None, "an access lies where the region changed"};
    return {Proof::Table, "no instruction touches the rows or the cycles that the region lost or "
                          "gained"};
  }
  for (uint32_t k = 0; k < right.blocks.size(); ++k) {
    if (std::memcmp(&right.blocks[k], &wrong.blocks[k], sizeof(Block)) == 0)
      continue;
    for (const auto &producers : right.producers)
      for (const Producer &p : producers)
        if (p.instruction == kInitialContents && p.block == k)
          return {Proof::None, "an instruction names the block"};
    return {Proof::Table, "no instruction names the block"};
  }
  return {Proof::Graph, "the outputs are computed from the same constants by the same graph"};
}

/// Lanes that one range has and the other has not, if every weight there is zero.
Explanation explainLanes(const Dataflow &before, const Place &place, const Instruction &x,
                         const Instruction &y) {
  for (unsigned lane = std::min(x.k0, y.k0); lane < std::max(x.k1, y.k1); ++lane) {
    const bool inX = lane >= x.k0 && lane < x.k1, inY = lane >= y.k0 && lane < y.k1;
    if (inX != inY && !before.weightsAreZero(place.pe, place.index, lane))
      return {};
  }
  return {Proof::Zeros, "every weight of the lanes that the range lost or gained is zero"};
}

/// Does greater damage in the same place show? Then the place is read and the damage too small.
Explanation amplify(const Mutant &mutant, const std::vector<Image> &greater, const Judge &judge) {
  for (const Image &image : greater)
    if (judge.judge(image).killed())
      return {Proof::Rounding, mutant.kind == "image.constant"
                                   ? "the byte is read, its other bits show; this one is below the "
                                     "rounding of the results"
                                   : "the immediate is read, other bits of it show; this one is "
                                     "below the rounding of the results"};
  return {};
}

/// An operation whose result counts only where it is zero: zero in its place gives the same.
Explanation explainZeros(const Image &right, const Place &place, const Judge &judge) {
  Image image = right;
  Instruction &i = image.instructions[place.pe].edit()[place.index];
  i.function = uint8_t(AluOp::Pass);
  i.a = {OperandKind::Immediate, 0, 0};
  i.b = i.c = Operand();
  i.immediate = 0, i.flags = 0;
  if (judge.givesTheSame(image))
    return {Proof::Measured, "whatever of its result counts is zero before and after: zero in its "
                             "place gives the same outputs"};
  return {};
}

/// Whether an ALU takes what the instruction leaves, all 32 bits of it.
bool isChained(const Image &image, const Place &place) {
  for (const Instruction &i : image.instructions[place.pe])
    for (uint32_t n = i.producers; n < i.producers + i.producerCount; ++n) {
      const Producer &p = image.producers[place.pe][n];
      const Operand *operands[] = {&i.a, &i.b, &i.c};
      if (p.pe == place.pe && p.instruction == place.index && p.of <= ProducerOf::C &&
          operands[unsigned(p.of)]->kind == OperandKind::Alu)
        return true;
    }
  return false;
}

/// Whether two operations on operand a alone agree: on each value if it has one or two bytes, else
/// on patterns of every exponent. Of a result that only leaves on streams their bytes count.
Explanation explainFunction(const Image &right, const Place &place, const Instruction &y) {
  const Instruction &x = right.instructions[place.pe][place.index];
  if (x.function == y.function || !(x.a == y.a) || !(x.b == y.b) || !(x.c == y.c) ||
      x.immediate != y.immediate || x.b.kind == OperandKind::Stream ||
      x.b.kind == OperandKind::Alu || x.b.kind == OperandKind::Latch ||
      x.c.kind != OperandKind::None)
    return {};
  const bool narrow = x.a.kind == OperandKind::Stream && x.a.width < 4;
  const uint64_t end = narrow ? 1ull << 8 * x.a.width : 1ull << 32;
  const uint32_t step = narrow ? 1 : 1021; // a prime: 4.2 million patterns
  const uint32_t taken =
      x.outWidth && x.outWidth < 4 && !isChained(right, place) ? (1u << 8 * x.outWidth) - 1 : ~0u;
  constexpr size_t kLanes = 4096;
  std::vector<uint32_t> a(kLanes), b(kLanes, x.immediate), u(kLanes), v(kLanes);
  for (uint64_t first = 0; first < end; first += uint64_t(step) * kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      a[k] = uint32_t((first + k * step) % end);
      if ((a[k] & 0x7fffffff) > 0x7f800000)
        a[k] = 0; // NaN
    }
    semantics::applyAlu(AluOp(x.function), a.data(), b.data(), nullptr, u.data(), kLanes);
    semantics::applyAlu(AluOp(y.function), a.data(), b.data(), nullptr, v.data(), kLanes);
    for (size_t k = 0; k < kLanes; ++k)
      if ((u[k] ^ v[k]) & taken)
        return {};
  }
  return {Explanation::Proof::Measured,
          narrow ? "both operations give the same bytes for every value of the operand"
                 : "both operations give the same on 4.2 million patterns of every exponent, NaN "
                   "aside"};
}

Explanation explainNumbers(const Image &right, const Mutant &mutant,
                           const std::vector<Place> &after, const Judge &judge) {
  std::vector<Image> greater;
  if (mutant.kind == "image.constant") {
    size_t at = 0;
    while (at < right.data.size() && right.data[at] == mutant.image.data[at])
      ++at;
    for (unsigned bits : {0x80u, 0x7fu, 0x20u, 0xffu, 0x01u, 0x3cu, 0xbcu}) {
      Image image = right;
      image.data.edit()[at] ^= uint8_t(bits);
      greater.push_back(std::move(image));
    }
    if (Explanation e = amplify(mutant, greater, judge); e.proof != Proof::None)
      return e;
    return {Proof::Measured,
            "no bit of the byte shows in any output: its lane is padding, or meets "
            "zeros"};
  }
  if (after.size() == 1) {
    for (uint32_t bits : {0x3f800000u, 0xbf800000u, 0x47000000u, 0xc7000000u, 0x00000000u}) {
      Image image = mutant.image;
      image.instructions[after[0].pe].edit()[after[0].index].immediate = bits;
      greater.push_back(std::move(image));
    }
    return amplify(mutant, greater, judge);
  }
  return {};
}

} // namespace

const char *nameOf(Proof proof) {
  constexpr const char *names[] = {"same graph", "table",    "zeros",      "further input",
                                   "rounding",   "measured", "unexplained"};
  return names[unsigned(proof)];
}

Explanation explain(const Image &right, const Machine &machine, const Mutant &mutant,
                    const Judge &judge) {
  Dataflow before(right, machine), after(mutant.image, machine);
  const std::vector<Place> old = only(right, mutant.image, machine),
                           now = only(mutant.image, right, machine);
  const bool same = before.error.empty() && before.outputs() == after.outputs();
  if (same && now.empty() && old.empty())
    return explainTables(right, machine, mutant.image);
  if (same && !anyReached(before, old) && !anyReached(after, now))
    return {Proof::Graph, "nothing that it makes reaches an output"};
  if (same && !old.empty() && !now.empty())
    return {Proof::Graph, sameValues(right.instructions[old[0].pe][old[0].index],
                                     mutant.image.instructions[now[0].pe][now[0].index])};
  if (same)
    return {Proof::Graph,
            now.empty() ? "what it makes is made without it" : "it makes again what is there"};
  if (old.size() == 1 && now.size() == 1) {
    const Instruction &x = right.instructions[old[0].pe][old[0].index];
    const Instruction &y = mutant.image.instructions[now[0].pe][now[0].index];
    if (x.opcode == Opcode::Activate && (x.k0 != y.k0 || x.k1 != y.k1))
      if (Explanation e = explainLanes(before, old[0], x, y); e.proof != Proof::None)
        return e;
  }
  if (judge.showsOnMoreInputs(mutant.image, 24))
    return {Proof::Input, "one of 24 further inputs shows it"};
  if (mutant.kind == "image.constant" || mutant.kind.ends_with(".immediate"))
    return explainNumbers(right, mutant, now, judge);
  if (old.size() == 1 && now.size() == 1) {
    const Instruction &x = right.instructions[old[0].pe][old[0].index];
    const Instruction &y = mutant.image.instructions[now[0].pe][now[0].index];
    if (x.opcode == Opcode::Activate && (x.k0 != y.k0 || x.k1 != y.k1))
      return {Proof::Measured, "the lanes that the range lost or gained add nothing on 27 inputs"};
    if (x.opcode == Opcode::Accumulate && y.opcode == Opcode::Nop &&
        (x.function & AccumulateMode::Add))
      return {Proof::Measured, "the product that it added is zero on 27 inputs"};
    if (x.opcode == Opcode::Alu && y.opcode == Opcode::Alu)
      if (Explanation e = explainFunction(right, old[0], y); e.proof != Proof::None)
        return e;
    if (x.opcode == Opcode::Alu)
      if (Explanation e = explainZeros(right, old[0], judge); e.proof != Proof::None)
        return e;
  }
  return {Proof::None, before.error.empty() ? "the outputs' graph is another, their values are not"
                                            : "no graph: the image " + before.error};
}

} // namespace millrace::test
