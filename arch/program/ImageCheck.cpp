// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/ImageCheck.h"

#include "arch/operations/AluOp.h"
#include "arch/program/PlacementWalk.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

/// Collects the first thing that is wrong; `where` is only put into words then.
class Findings {
public:
  bool none() const { return text.empty(); }
  /// `value` must be below `limit`.
  template <class Where> void below(Where where, const char *what, uint64_t value, uint64_t limit) {
    if (value >= limit) [[unlikely]]
      add(where, what + (" is " + std::to_string(value) + "; ") +
                     (limit ? "the limit is " + std::to_string(limit - 1) : "there are none"));
  }
  template <class Where> void holds(Where where, bool holds, const char *wrong) {
    if (!holds) [[unlikely]]
      add(where, wrong);
  }
  Status status() const { return none() ? Status(Success{}) : Status(Error{text}); }

private:
  /// Apart, so that comparing costs no more than that.
  template <class Where> [[gnu::noinline]] void add(Where where, const std::string &wrong) {
    if (none())
      text = where() + ": " + wrong;
  }
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
    for (size_t k = 0; k < image.bindings.size() && found.none(); ++k) {
      if (Status s = checkBinding(image.bindings[k], pes); !s)
        return Error{numbered("bindings: binding", k) + ": " + s.error()};
      constant(image.bindings[k], k);
    }
    return found.status();
  }

private:
  void constant(const Binding &b, size_t number) {
    const auto at = [&] { return numbered("bindings: binding", number); };
    if (b.role != Binding::Role::HostConstant) {
      found.holds(at, b.offset == 0, "it has an offset, which is for constants of the host alone");
      return;
    }
    found.holds(at, b.placements.empty() && b.scale == 0 && b.extent == 0,
                "a constant of the host has no places, no scale and no extent");
    const Expected<uint64_t> elements = elementCount(b);
    found.below(at, "its offset", b.offset, image.data.size() + 1);
    if (found.none() && elements)
      found.below(at, "its number of elements", *elements,
                  (image.data.size() - b.offset) / byteWidth(b.gridType) + 1);
  }

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
      found.below(at, "its reserved field", i.reserved, 1);
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
      found.below(at, "its operand", unsigned(p.of), kProducerOfs);
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
      found.below(at, "its device", unsigned(step.device),
                  step.kind == Step::Kind::Grid ? 1 : kStepDevices);
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
      found.below(at, "its reserved field", b.reserved, 1);
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
      found.below(at, "its reserved field", r.reserved, 1);
      found.holds(at, r.step0 <= r.step1, "its last step lies before its first");
    }
  }

  const Image &image;
  size_t pes = 0;
  Findings found;
};

} // namespace

Status checkBinding(const Binding &binding, uint64_t pes) {
  Findings found;
  const auto at = [&] { return "'" + binding.name + "'"; };
  found.below(at, "its role", unsigned(binding.role), unsigned(Binding::Role::HostConstant) + 1);
  found.below(at, "its grid type", unsigned(binding.gridType), kElementTypes);
  if (binding.scale != 0)
    found.holds(at,
                binding.scale > 0 && std::isfinite(binding.scale) &&
                    binding.gridType == ElementType::Int8 && binding.zero >= -128 &&
                    binding.zero <= 127,
                "its scale is for int8 only and positive, its zero point an int8");
  if (binding.extent != 0)
    found.holds(
        at,
        binding.extent > 0 && binding.scale == 0 && binding.gridType == ElementType::Int32 &&
            (binding.role == Binding::Role::Input || binding.role == Binding::Role::HostOutput),
        "its extent is for indices alone: positive, written by the host as int32, unscaled");
  if (!found.none())
    return found.status();
  const auto wrong = [&](const std::string &what) {
    return Error{"'" + binding.name + "': " + what};
  };
  if (Expected<uint64_t> elements = elementCount(binding); !elements)
    return wrong(elements.error());
  for (size_t k = 0; k < binding.placements.size(); ++k) {
    const Placement &p = binding.placements[k];
    const auto place = [&] { return at() + ": " + numbered("placement", k); };
    found.below(place, "its pe", p.pe, pes);
    found.below(place, "its hemisphere", unsigned(p.hemisphere), kHemispheres);
    if (binding.extent) {
      found.holds(place, p.rows > 0, "it names no rows of the table that its indices belong to");
      found.below(place, "the end of its table rows", uint64_t(p.first) + p.rows,
                  uint64_t(binding.extent) + 1);
      found.below(place, "its number of table rows", p.rows, kMostTableRows + 1ull);
    } else {
      found.holds(place, p.first == 0 && p.rows == 0,
                  "it names rows of a table, but its binding has no extent");
    }
    if (!found.none())
      return found.status();
    if (Expected<PlacementExtent> extent = extentOf(binding, p); !extent)
      return wrong(numbered("placement", k) + ": " + extent.error());
  }
  return found.status();
}

Status checkImage(const Image &image) { return ImageCheck(image).run(); }

} // namespace millrace
