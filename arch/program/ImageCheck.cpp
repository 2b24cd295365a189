// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/ImageCheck.h"

#include "arch/isa/AluOp.h"

#include <cmath>
#include <algorithm>
#include <cstdlib>

namespace millrace {
namespace {

/// Collects the first thing that is wrong; `where` is only put into words then.
class Findings {
public:
  bool none() const { return text.empty(); }
  /// `value` must be below `limit`.
  template <class Where> void below(Where where, const char *what, uint64_t value, uint64_t limit) {
    if (none() && value >= limit)
      text = where() + ": " + what + " is " + std::to_string(value) + "; " +
             (limit ? "the limit is " + std::to_string(limit - 1) : "there are none");
  }
  template <class Where> void holds(Where where, bool holds, const char *wrong) {
    if (none() && !holds)
      text = where() + ": " + wrong;
  }
  Status status() const { return none() ? Status(Success{}) : Status(Error{text}); }

private:
  std::string text;
};

std::string numbered(const char *table, size_t index) {
  return std::string(table) + " " + std::to_string(index);
}

class ImageCheck {
public:
  explicit ImageCheck(const Image &image) : image(image) {}

  Status run() {
    pes = image.instructions.size();
    found.holds([] { return std::string("producers"); }, image.producers.size() == pes,
                "there are not as many producer tables as PEs");
    for (size_t pe = 0; pe < pes && found.none(); ++pe) {
      instructions(pe);
      producers(pe);
    }
    if (found.none()) {
      steps();
      memory();
    }
    for (size_t k = 0; k < image.bindings.size() && found.none(); ++k)
      if (Status s = checkBinding(image.bindings[k], pes); !s)
        return Error{numbered("bindings: binding", k) + ": " + s.error()};
    return found.status();
  }

private:
  size_t nameLimit() const { return std::max<size_t>(1, image.strings.size()); }

  void instructions(size_t pe) {
    const size_t producers = image.producers[pe].size();
    for (size_t k = 0; k < image.instructions[pe].size() && found.none(); ++k) {
      const Instruction &i = image.instructions[pe][k];
      const auto at = [&] {
        return "instructions of pe " + std::to_string(pe) + ": instruction " + std::to_string(k);
      };
      found.below(at, "its opcode", unsigned(i.opcode), opcodes().size());
      if (!found.none())
        return;
      const FieldSet fields = info(i.opcode).fields;
      found.below(at, "its format", unsigned(i.format), kElementTypes);
      for (const Operand *o : {&i.a, &i.b, &i.c})
        found.below(at, "the kind of an operand", unsigned(o->kind),
                    unsigned(OperandKind::Immediate) + 1);
      if (fields.has(Field::Function))
        found.below(at, "its ALU operation", i.function, aluOpCount);
      if (fields.has(Field::Mode))
        found.below(at, "its accumulate mode", i.function, 4);
      if (fields.has(Field::Map))
        found.below(at, "its lane map", i.address, image.laneMaps.size());
      if (fields.has(Field::Tensor) && i.tensor != kNoTensor)
        found.below(at, "its tensor", i.tensor, image.tensors.size());
      found.below(at, "its provenance", i.provenance, nameLimit());
      if (i.producerCount)
        found.below(at, "the end of its producers", uint64_t(i.producers) + i.producerCount,
                    producers + 1);
    }
  }

  void producers(size_t pe) {
    for (size_t k = 0; k < image.producers[pe].size() && found.none(); ++k) {
      const Producer &p = image.producers[pe][k];
      const auto at = [&] {
        return "producers of pe " + std::to_string(pe) + ": producer " + std::to_string(k);
      };
      found.below(at, "its operand", unsigned(p.of), unsigned(ProducerOf::Product) + 1);
      found.below(at, "its pe", p.pe, pes);
      if (!found.none())
        return;
      if (p.instruction != kInitialContents)
        found.below(at, "its instruction", p.instruction, image.instructions[p.pe].size());
      else
        found.below(at, "its block", p.block, image.blocks.size());
    }
  }

  void steps() {
    for (size_t s = 0; s < image.steps.size(); ++s) {
      const Step &step = image.steps[s];
      const auto at = [&] { return numbered("steps: step", s); };
      found.below(at, "its kind", unsigned(step.kind), unsigned(Step::Kind::Host) + 1);
      for (const auto *list : {&step.inputs, &step.outputs})
        for (uint32_t binding : *list)
          found.below(at, "a binding", binding, image.bindings.size());
      if (step.kind != Step::Kind::Grid)
        continue;
      found.holds(at, step.pes.size() == pes, "it does not name a range for each PE");
      for (size_t pe = 0; pe < pes && found.none(); ++pe) {
        found.below(at, "the end of a range", step.pes[pe].end, image.instructions[pe].size() + 1);
        found.below(at, "the begin of a range", step.pes[pe].begin, step.pes[pe].end + 1ull);
      }
    }
  }

  void memory() {
    for (size_t k = 0; k < image.blocks.size() && found.none(); ++k) {
      const Block &b = image.blocks[k];
      const auto at = [&] { return numbered("blocks: block", k); };
      found.below(at, "its pe", b.pe, pes);
      found.below(at, "its hemisphere", unsigned(b.hemisphere), kHemispheres);
      found.below(at, "its tensor", b.tensor, image.tensors.size());
      if (!b.bytes)
        continue;
      found.below(at, "its offset", b.offset, image.data.size() + 1);
      found.below(at, "the end of its data", b.offset + uint64_t(b.rows) * b.bytes,
                  image.data.size() + 1);
    }
    for (size_t k = 0; k < image.tensors.size() && found.none(); ++k) {
      const Region &r = image.tensors[k];
      const auto at = [&] { return numbered("regions: region", k); };
      found.below(at, "its name", r.name, nameLimit());
      found.below(at, "its pe", r.pe, pes);
      found.below(at, "its hemisphere", unsigned(r.hemisphere), kHemispheres);
      found.holds(at, r.step0 <= r.step1, "its last step lies before its first");
    }
  }

  const Image &image;
  size_t pes = 0;
  Findings found;
};

/// More elements than this in one placement are taken for damage: no machine holds them. With them
/// and the reach of loops bounded, no sum or product of a walk over the elements overflows 64 bits.
constexpr uint64_t kMostElements = uint64_t(1) << 32;
constexpr int64_t kMostReach = int64_t(1) << 28;

/// How far all loops together move a row, lane or index.
struct Reach {
  int64_t sum = 0;
  void add(uint32_t count, int32_t step) {
    sum = std::min(sum + std::abs(int64_t(count - 1) * step), kMostReach + 1);
  }
};

void checkPlacement(const Binding &b, const Placement &p, size_t k, uint64_t pes, Findings &found) {
  const auto at = [&] { return "'" + b.name + "': " + numbered("placement", k); };
  found.below(at, "its pe", p.pe, pes);
  found.below(at, "its hemisphere", unsigned(p.hemisphere), kHemispheres);
  found.holds(at, p.start.size() == b.shape.size(), "it does not start each dimension");
  found.holds(at, !p.slices.empty(), "it names no slice");
  const unsigned width = byteWidth(b.gridType);
  if (p.bytesInLanes)
    found.holds(at, p.slices.size() == 1 && !p.firstByte,
                "bytes in lanes lie in one slice, from byte 0 on");
  else
    found.below(at, "the end of its bytes", p.firstByte + p.slices.size(), width + 1);
  uint64_t elements = 1;
  Reach row, lane;
  std::vector<Reach> index(b.shape.size());
  for (const BindingLoop &l : p.loops) {
    found.holds(at, l.count > 0, "a loop runs no time");
    if (l.dim != kNoDim)
      found.below(at, "the dimension of a loop", l.dim, b.shape.size());
    if (!found.none())
      return;
    row.add(l.count, l.rowStep);
    lane.add(l.count, l.laneStep);
    if (l.dim != kNoDim)
      index[l.dim].add(l.count, l.step);
    elements = std::min(elements * l.count, kMostElements + 1);
  }
  found.below(at, "its number of elements", elements, kMostElements + 1);
  found.holds(at, row.sum <= kMostReach && lane.sum <= kMostReach,
              "its loops move its rows or lanes beyond any memory");
  for (size_t d = 0; d < index.size() && found.none(); ++d)
    found.holds(at,
                index[d].sum <= kMostReach && p.start[d] <= kMostReach && p.start[d] >= -kMostReach,
                "its loops move an index beyond any tensor");
}

} // namespace

Status checkBinding(const Binding &binding, uint64_t pes) {
  Findings found;
  const auto at = [&] { return "'" + binding.name + "'"; };
  found.below(at, "its role", unsigned(binding.role), unsigned(Binding::Role::HostOutput) + 1);
  found.below(at, "its grid type", unsigned(binding.gridType), kElementTypes);
  if (binding.scale != 0)
    found.holds(at, binding.scale > 0 && std::isfinite(binding.scale) &&
                        binding.gridType == ElementType::Int8 && binding.zero >= -128 && binding.zero <= 127,
                "its scale is for int8 only and positive, its zero point an int8");
  uint64_t elements = 1;
  for (int64_t extent : binding.shape) {
    found.holds(at, extent >= 0, "an extent of its shape is negative");
    const uint64_t e = uint64_t(std::max<int64_t>(extent, 1)); // 0 would hide the others
    elements = e > kMostElements ? kMostElements + 1 : std::min(elements * e, kMostElements + 1);
  }
  found.below(at, "its number of elements", elements, kMostElements + 1);
  for (size_t k = 0; k < binding.placements.size() && found.none(); ++k)
    checkPlacement(binding, binding.placements[k], k, pes, found);
  return found.status();
}

Status checkImage(const Image &image) { return ImageCheck(image).run(); }

} // namespace millrace
