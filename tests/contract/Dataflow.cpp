// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Dataflow.h"

#include "arch/isa/Print.h"
#include "tests/contract/GridRun.h"

#include <algorithm>

namespace millrace::test {
namespace {

using Number = Dataflow::Number;

Number mix(Number h, Number value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdull;
  return h ^ h >> 32;
}

Number mixAll(std::initializer_list<Number> list) {
  Number h = 0x2545f4914f6cdd1dull;
  for (Number n : list)
    h = mix(h, n);
  return h ? h : 1; // 0 means: not yet known
}

uint64_t cycleOf(const Instruction &i, uint32_t e) {
  return i.cycle + uint64_t(e / i.n0) * i.c1 + uint64_t(e % i.n0) * i.c0;
}

uint32_t addressOf(const Instruction &i, uint32_t e) {
  return uint32_t(int64_t(i.address) + int64_t(e / i.n0) * i.s1 + int64_t(e % i.n0) * i.s0);
}

bool isModelled(Opcode opcode) {
  switch (opcode) {
  case Opcode::Nop:
  case Opcode::Read:
  case Opcode::Write:
  case Opcode::Install:
  case Opcode::Clear:
  case Opcode::Activate:
  case Opcode::Accumulate:
  case Opcode::Alu:
  case Opcode::Latch:
  case Opcode::Send:
  case Opcode::Receive:
    return true;
  default:
    return false;
  }
}

} // namespace

Dataflow::Dataflow(const Image &image, const Machine &machine) : image(image), machine(machine) {
  for (const Step &step : image.steps)
    if (step.kind == Step::Kind::Host)
      error = "has host steps";
  numbers.resize(image.instructions.size());
  weights.resize(image.instructions.size());
  stepOf.resize(image.instructions.size());
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    index(pe);
  readInputs();
}

void Dataflow::index(unsigned pe) {
  const auto &list = image.instructions[pe];
  numbers[pe].resize(list.size());
  weights[pe].resize(list.size());
  stepOf[pe].resize(list.size());
  for (uint32_t s = 0; s < image.steps.size(); ++s)
    if (image.steps[s].kind == Step::Kind::Grid)
      for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k)
        stepOf[pe][k] = s;
  for (uint32_t k = 0; k < list.size(); ++k) {
    const Instruction &i = list[k];
    if (!isModelled(i.opcode))
      error = "has a " + std::string(info(i.opcode).mnemonic) + ", which is not modelled";
    numbers[pe][k].resize(i.elements());
    const Unit unit = machine.unit(i.queue);
    for (uint32_t e = 0; e < i.elements(); ++e) {
      const Use use{stepOf[pe][k], cycleOf(i, e), k, e};
      if (i.opcode == Opcode::Write) {
        auto &last = lastWrite[rowKey(pe, unit.hemisphere, unit.index, addressOf(i, e))];
        if (!(use < last.first))
          last = {use, pe};
      }
    }
  }
}

/// A row of an input is the set of the elements that lie in it, whichever copy of it this is.
void Dataflow::readInputs() {
  for (size_t n = 0; n < image.bindings.size(); ++n) {
    const Binding &b = image.bindings[n];
    if (b.role != Binding::Role::Input)
      continue;
    for (const Placement &p : b.placements)
      forEachElement(b, p, [&](int64_t element, uint32_t row, size_t lane) {
        for (size_t k = 0; k < p.slices.size(); ++k) {
          const unsigned byte = p.firstByte + unsigned(k);
          inputRows[rowKey(p.pe, p.hemisphere, p.slices[k], row)] +=
              element < 0 ? mixAll({1, lane, p.fill >> 8 * byte & 0xff})
                          : mixAll({2, n, lane, uint64_t(element), byte});
        }
      });
  }
}

Number Dataflow::unknown() { return mixAll({3, uint64_t(uintptr_t(this)), ++lastUnknown}); }

bool Dataflow::reached(unsigned pe, uint32_t k) const {
  return std::any_of(numbers[pe][k].begin(), numbers[pe][k].end(), [](Number n) { return n; });
}

bool Dataflow::producerOf(unsigned pe, uint32_t k, ProducerOf of, unsigned byte, uint32_t e,
                          Made &made) const {
  const Instruction &i = image.instructions[pe][k];
  const bool columns = of == ProducerOf::Weights;
  const uint32_t i0 = columns ? e : e % i.n0, i1 = columns ? 0 : e / i.n0;
  for (uint32_t n = i.producers; n < i.producers + i.producerCount; ++n) {
    const Producer &p = image.producers[pe][n];
    if (p.of != of || (p.byte != byte && p.byte != kAllBytes) || i0 - p.from0 >= p.count0 ||
        (!columns && i1 - p.from1 >= p.count1))
      continue;
    const int64_t element = int64_t(p.first) + int64_t(i0 - p.from0) * p.step0 +
                            (columns ? 0 : int64_t(i1 - p.from1) * p.step1);
    made = {p.pe, p.instruction, uint32_t(element), p.block};
    return true;
  }
  return false;
}

Number Dataflow::contents(uint32_t index, uint32_t row) const {
  const Block &block = image.blocks[index];
  if (auto input = inputRows.find(rowKey(block.pe, block.hemisphere, block.slice, block.row + row));
      input != inputRows.end())
    return input->second | 1;
  const uint8_t *bytes = image.data.data() + block.offset + size_t(row) * block.bytes;
  size_t count = block.bytes;
  while (count && !bytes[count - 1]) // the rest of a row is zero
    --count;
  Number h = 4;
  for (size_t b = 0; b < count; ++b)
    h = mix(h, bytes[b]);
  return mixAll({4, h});
}

Number Dataflow::element(unsigned pe, uint32_t k, uint32_t e) {
  if (pe >= numbers.size() || k >= numbers[pe].size() || e >= numbers[pe][k].size())
    return unknown();
  if (!numbers[pe][k][e]) {
    const Number n = compute(pe, k, e);
    numbers[pe][k][e] = n ? n : 1;
  }
  return numbers[pe][k][e];
}

Number Dataflow::compute(unsigned pe, uint32_t k, uint32_t e) {
  const Instruction &i = image.instructions[pe][k];
  Made made;
  switch (i.opcode) {
  case Opcode::Read:
    if (!producerOf(pe, k, ProducerOf::Memory, 0, e, made))
      return unknown();
    return made.instruction == kInitialContents ? contents(made.block, made.element)
                                                : element(made.pe, made.instruction, made.element);
  case Opcode::Receive:
    return producerOf(pe, k, ProducerOf::Link, 0, e, made)
               ? element(made.pe, made.instruction, made.element)
               : unknown();
  case Opcode::Write:
  case Opcode::Send:
    return streamByte(pe, k, e, i.a.index, ProducerOf::A, 0);
  case Opcode::Latch:
    return operand(pe, k, e, i.a, ProducerOf::A);
  case Opcode::Clear:
    return 5;
  case Opcode::Install: {
    Number h = 6;
    for (unsigned c = 0; c < machine.mxm.columnsPerInstall; ++c)
      h = mix(h, streamByte(pe, k, e, StreamId(i.a.index + c), ProducerOf::A, c));
    return h;
  }
  case Opcode::Activate:
    return product(pe, k, e);
  case Opcode::Accumulate:
    return accumulate(pe, k, e);
  case Opcode::Alu:
    return alu(pe, k, e);
  default:
    return unknown();
  }
}

Number Dataflow::streamByte(unsigned pe, uint32_t k, uint32_t e, StreamId stream, ProducerOf of,
                            unsigned byte) {
  Made made;
  if (!producerOf(pe, k, of, byte, e, made) || made.pe >= image.instructions.size() ||
      made.instruction >= image.instructions[made.pe].size())
    return unknown();
  const Instruction &from = image.instructions[made.pe][made.instruction];
  const Number whole = element(made.pe, made.instruction, made.element);
  if (from.opcode != Opcode::Alu && from.opcode != Opcode::Accumulate)
    return whole;
  const unsigned width = from.opcode == Opcode::Alu ? from.outWidth : 4;
  for (StreamId out : from.out)
    if (out != kNoStream && stream >= out && unsigned(stream - out) < width)
      return mixAll({7, whole, uint64_t(stream - out)});
  return unknown();
}

Number Dataflow::operand(unsigned pe, uint32_t k, uint32_t e, const Operand &o, ProducerOf of) {
  Made made;
  switch (o.kind) {
  case OperandKind::None:
    return 8;
  case OperandKind::Stream: {
    Number h = 9;
    for (unsigned b = 0; b < o.width; ++b)
      h = mix(h, streamByte(pe, k, e, StreamId(o.index + b), of, b));
    return h;
  }
  case OperandKind::Alu:
  case OperandKind::Latch:
    return producerOf(pe, k, of, 0, e, made) ? element(made.pe, made.instruction, made.element)
                                             : unknown();
  case OperandKind::Immediate:
    return mixAll({10, image.instructions[pe][k].immediate});
  }
  return unknown();
}

Number Dataflow::alu(unsigned pe, uint32_t k, uint32_t e) {
  const Instruction &i = image.instructions[pe][k];
  const Number a = operand(pe, k, e, i.a, ProducerOf::A);
  if (i.flags & AluFlag::Running)
    return e < i.n0 ? mixAll({11, i.function, a})
                    : mixAll({12, i.function, element(pe, k, e - i.n0), a});
  return mixAll({13, i.function, a, operand(pe, k, e, i.b, ProducerOf::B),
                 operand(pe, k, e, i.c, ProducerOf::C)});
}

Number Dataflow::product(unsigned pe, uint32_t k, uint32_t e) {
  const Instruction &i = image.instructions[pe][k];
  const unsigned bytes = byteWidth(i.format);
  if (!weights[pe][k]) {
    Number h = 14;
    for (unsigned g = i.g0; g < i.g1; ++g)
      for (unsigned b = 0; b < bytes; ++b) {
        Made made;
        h = mix(h, producerOf(pe, k, ProducerOf::Weights, b, g - i.g0, made)
                       ? element(made.pe, made.instruction, made.element)
                       : unknown());
      }
    weights[pe][k] = mixAll({h, unsigned(i.format), i.k0, i.k1, i.g0, i.g1});
  }
  Number h = weights[pe][k];
  for (unsigned b = 0; b < bytes; ++b)
    h = mix(h, streamByte(pe, k, e, StreamId(i.a.index + b), ProducerOf::A, b));
  return h;
}

Number Dataflow::accumulate(unsigned pe, uint32_t k, uint32_t e) {
  const Instruction &i = image.instructions[pe][k];
  Made made;
  const Number made1 = producerOf(pe, k, ProducerOf::Product, 0, e, made)
                           ? element(made.pe, made.instruction, made.element)
                           : unknown();
  if (!(i.function & AccumulateMode::Add))
    return mixAll({15, made1});
  return mixAll({16,
                 producerOf(pe, k, ProducerOf::Sum, 0, e, made)
                     ? element(made.pe, made.instruction, made.element)
                     : unknown(),
                 made1});
}

Number Dataflow::rowAtEnd(unsigned pe, Hemisphere hemisphere, unsigned slice, uint32_t row) {
  if (auto last = lastWrite.find(rowKey(pe, hemisphere, slice, row)); last != lastWrite.end())
    return element(pe, last->second.first.instruction, last->second.first.element);
  for (uint32_t b = 0; b < image.blocks.size(); ++b) {
    const Block &block = image.blocks[b];
    if (block.pe == pe && block.hemisphere == hemisphere && block.slice == slice &&
        row - block.row < block.rows)
      return contents(b, row - block.row);
  }
  return 17;
}

std::vector<Number> Dataflow::outputs() {
  std::vector<Number> list;
  for (const Binding &b : image.bindings) {
    if (b.role != Binding::Role::Output)
      continue;
    for (const Placement &p : b.placements) {
      std::vector<uint32_t> rows;
      forEachElement(b, p, [&](int64_t, uint32_t row, size_t) {
        if (rows.empty() || rows.back() != row)
          rows.push_back(row);
      });
      for (uint16_t slice : p.slices)
        for (uint32_t row : rows)
          list.push_back(rowAtEnd(p.pe, p.hemisphere, slice, row));
    }
  }
  return list;
}

bool Dataflow::weightsAreZero(unsigned pe, uint32_t k, unsigned lane) const {
  const Instruction &i = image.instructions[pe][k];
  for (unsigned g = 0; g < unsigned(i.g1 - i.g0); ++g)
    for (unsigned b = 0; b < byteWidth(i.format); ++b) {
      Made install, read, row;
      if (!producerOf(pe, k, ProducerOf::Weights, b, g, install))
        return false;
      if (image.instructions[install.pe][install.instruction].opcode == Opcode::Clear)
        continue;
      for (unsigned c = 0; c < machine.mxm.columnsPerInstall; ++c) {
        if (!producerOf(install.pe, install.instruction, ProducerOf::A, c, install.element, read) ||
            image.instructions[read.pe][read.instruction].opcode != Opcode::Read ||
            !producerOf(read.pe, read.instruction, ProducerOf::Memory, 0, read.element, row) ||
            row.instruction != kInitialContents)
          return false;
        const Block &block = image.blocks[row.block];
        const uint64_t key =
            rowKey(block.pe, block.hemisphere, block.slice, block.row + row.element);
        if (inputRows.count(key) ||
            (lane < block.bytes &&
             image.data[block.offset + size_t(row.element) * block.bytes + lane]))
          return false;
      }
    }
  return true;
}

} // namespace millrace::test
