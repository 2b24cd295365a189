// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds small images by hand, one line per instruction, and runs them.
#pragma once

#include "arch/operations/AluOp.h"
#include "arch/spec/MachineFile.h"
#include "simulator/system/Simulate.h"
#include "tests/simulator/system/Same.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace millrace::sim::test {

inline Machine machineNamed(const std::string &name) {
  auto machine = loadMachine(name);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error());
  return *machine;
}

using Row = std::vector<uint8_t>;
constexpr Hemisphere W = Hemisphere::West, E = Hemisphere::East;
constexpr Direction Out = Direction::Outward, In = Direction::Inward;

/// Two loops of a burst, with strides of cycle and address.
struct Loops {
  uint16_t n0 = 1, n1 = 1;
  uint32_t c0 = 1, c1 = 1;
  int32_t s0 = 0, s1 = 0;
};
inline Loops times(unsigned n, int32_t step = 1) { return {uint16_t(n), 1, 1, 1, step, 0}; }

inline SimulationOptions handWritten() {
  SimulationOptions options;
  options.annotations = Annotations::WherePresent;
  return options;
}

class Program {
public:
  explicit Program(Machine m) : machine(std::move(m)) {
    image.instructions.resize(machine.pes());
    image.producers.resize(machine.pes());
  }
  Machine machine;
  Image image;
  unsigned pe = 0;

  StreamId stream(Hemisphere h, Direction d, unsigned index) const {
    return machine.stream(h, d, index);
  }
  Operand on(Hemisphere h, Direction d, unsigned index, unsigned width = 1) const {
    return {OperandKind::Stream, uint8_t(width), stream(h, d, index)};
  }
  static Operand alu(unsigned index) { return {OperandKind::Alu, 0, uint16_t(index)}; }
  static Operand latch() { return {OperandKind::Latch, 0, 0}; }
  static Operand immediate() { return {OperandKind::Immediate, 0, 0}; }

  /// Rows [row, row + rows) of a slice as one tensor that lives for the whole program.
  uint32_t tensor(Hemisphere h, unsigned slice, uint32_t row, uint32_t rows) {
    Region r;
    r.pe = uint16_t(pe), r.hemisphere = h, r.slice = uint16_t(slice), r.row = row, r.rows = rows;
    r.step1 = 0xffff, r.to = UINT64_MAX;
    image.tensors.push_back(r);
    return uint32_t(image.tensors.size() - 1);
  }
  /// The same, with contents given.
  uint32_t rows(Hemisphere h, unsigned slice, uint32_t row, const std::vector<Row> &contents) {
    uint32_t t = tensor(h, slice, row, uint32_t(contents.size()));
    Block b;
    b.pe = uint16_t(pe), b.hemisphere = h, b.slice = uint16_t(slice), b.row = row,
    b.rows = uint32_t(contents.size());
    b.bytes = uint16_t(contents[0].size()), b.tensor = t, b.offset = image.data.size();
    for (const Row &r : contents)
      image.data.append(r.begin(), r.end());
    image.blocks.push_back(b);
    return t;
  }
  Instruction &add(Cycle cycle, Unit unit, Opcode opcode, Loops l = {}) {
    Instruction i;
    i.cycle = uint64_t(cycle), i.queue = uint16_t(machine.queue(unit)), i.opcode = opcode;
    i.n0 = l.n0, i.n1 = l.n1, i.c0 = l.c0, i.c1 = l.c1;
    if (info(opcode).fields.has(Field::Strides))
      i.s0 = l.s0, i.s1 = l.s1;
    image.instructions[pe].edit().push_back(i);
    return image.instructions[pe].edit().back();
  }
  uint32_t tensorAt(Hemisphere h, unsigned slice, uint32_t row) const {
    for (uint32_t t = 0; t < image.tensors.size(); ++t) {
      const Region &r = image.tensors[t];
      if (r.pe == pe && r.hemisphere == h && r.slice == slice && row >= r.row &&
          row < r.row + r.rows)
        return t;
    }
    return 0xffffffff;
  }
  Instruction &read(Cycle t, Hemisphere h, unsigned slice, uint32_t row, StreamId out,
                    Loops l = {}) {
    Instruction &i = add(t, {UnitKind::Mem, h, slice}, Opcode::Read, l);
    i.address = row, i.out[0] = out, i.tensor = tensorAt(h, slice, row);
    return i;
  }
  Instruction &write(Cycle t, Hemisphere h, unsigned slice, uint32_t row, Operand from,
                     Loops l = {}) {
    Instruction &i = add(t, {UnitKind::Mem, h, slice}, Opcode::Write, l);
    i.address = row, i.a = from, i.tensor = tensorAt(h, slice, row);
    return i;
  }
  /// `out` is an outward stream of either hemisphere, or kNoStream.
  Instruction &compute(Cycle t, unsigned index, AluOp op, Operand a, Operand b, StreamId out,
                       unsigned width = 1, Loops l = {}) {
    Instruction &i = add(t, {UnitKind::Alu, W, index}, Opcode::Alu, l);
    i.function = uint8_t(op), i.a = a, i.b = b;
    if (out != kNoStream)
      i.out[unsigned(machine.hemisphereOf(out))] = out;
    i.outWidth = uint8_t(width);
    return i;
  }
  Instruction &install(Cycle t, Hemisphere h, unsigned plane, unsigned buffer, unsigned group,
                       Operand from, Loops l = {}) {
    Instruction &i = add(t, {UnitKind::MxmInstall, h, plane}, Opcode::Install, l);
    i.buffer = uint8_t(buffer), i.address = group, i.a = from;
    return i;
  }
  Instruction &activate(Cycle t, Hemisphere h, unsigned plane, unsigned buffer, Operand from,
                        ElementType format, unsigned k0, unsigned k1, unsigned g1, Loops l = {}) {
    Instruction &i = add(t, {UnitKind::MxmActivate, h, plane}, Opcode::Activate, l);
    i.buffer = uint8_t(buffer), i.a = from, i.format = format;
    i.k0 = uint16_t(k0), i.k1 = uint16_t(k1), i.g0 = 0, i.g1 = uint16_t(g1);
    return i;
  }
  Instruction &accumulate(Cycle t, Hemisphere h, unsigned plane, uint32_t row, uint8_t mode,
                          ElementType format, StreamId out, Loops l = {}) {
    Instruction &i = add(t, {UnitKind::MxmAccumulate, h, plane}, Opcode::Accumulate, l);
    i.address = row, i.function = mode, i.format = format, i.out[0] = out;
    return i;
  }
  /// States the producer of an operand of the instruction of `unit` at `cycle`: element k of it
  /// comes from element first + k of `producer`, for its first loop of `count` elements.
  void annotate(Unit unit, Cycle cycle, ProducerOf of, uint32_t producer, unsigned count = 1,
                uint8_t byte = kAllBytes, uint32_t first = 0, int32_t step = 1) {
    Instruction &i = image.instructions[pe].edit()[indexOf(pe, unit, cycle)];
    auto &table = image.producers[pe].edit();
    if (i.producerCount == 0)
      i.producers = uint32_t(table.size());
    EXPECT_EQ(i.producers + i.producerCount, table.size()) << "annotate one instruction at a time";
    Producer p;
    p.of = of, p.byte = byte, p.pe = uint16_t(pe), p.instruction = producer, p.first = first;
    p.count0 = uint16_t(count), p.count1 = 1, p.step0 = step;
    table.push_back(p);
    ++i.producerCount;
  }
  /// The index that the instruction of queue `unit` at `cycle` will have.
  uint32_t indexOf(unsigned ofPe, Unit unit, Cycle cycle) {
    sort();
    const auto &list = image.instructions[ofPe];
    for (uint32_t k = 0; k < list.size(); ++k)
      if (list[k].queue == machine.queue(unit) && Cycle(list[k].cycle) == cycle)
        return k;
    ADD_FAILURE() << "no instruction in cycle " << cycle;
    return 0;
  }
  void sort() {
    for (Records<Instruction> &records : image.instructions) {
      std::vector<Instruction> &list = records.edit();
      std::stable_sort(list.begin(), list.end(), [](const Instruction &a, const Instruction &b) {
        return std::pair(a.cycle, a.queue) < std::pair(b.cycle, b.queue);
      });
    }
  }
  /// One grid step of all instructions; the header is taken as right unless `predicted` says
  /// otherwise. The slow simulator must find the same.
  SimulationResult run(SimulationOptions options = handWritten(),
                       std::optional<uint64_t> predicted = {}) {
    sort();
    image.machineHash = machine.hash();
    image.steps.assign(1, Step());
    for (auto &list : image.instructions)
      image.steps[0].pes.push_back({0, uint32_t(list.size())});
    memory.clear();
    options.readOutputs = [&](RowAccess &rows) -> Status {
      for (const Region &r : image.tensors)
        for (uint32_t k = 0; k < r.rows; ++k) {
          Row row(machine.lanes());
          rows.read(r.pe, r.hemisphere, r.slice, r.row + k, row);
          memory[{r.pe, r.hemisphere, r.slice, r.row + k}] = row;
        }
      return Success{};
    };
    if (predicted) {
      image.steps[0].predictedCycles = *predicted;
    } else {
      SimulationOptions dry = options;
      dry.values = false;
      auto first = simulate(image, machine, dry);
      EXPECT_TRUE(first) << (first ? "" : first.error());
      if (first && !first->steps.empty())
        image.steps[0].predictedCycles = first->steps[0].measuredCycles;
    }
    auto result = simulate(image, machine, options);
    EXPECT_TRUE(result) << (result ? "" : result.error());
    if (!options.makeUnit && result && isShort(*result)) {
      EXPECT_EQ(differenceOn(image, machine, options), "");
    }
    return result ? *result : SimulationResult();
  }
  std::map<std::tuple<unsigned, Hemisphere, unsigned, uint32_t>, Row>
      memory; ///< all tensors, after run()
  /// Empty when the program was not run to its end.
  Row row(Hemisphere h, unsigned slice, uint32_t r) {
    Row found = memory[{pe, h, slice, r}];
    EXPECT_FALSE(found.empty()) << "row " << r << " of slice " << slice << " was not read out";
    found.resize(machine.lanes());
    return found;
  }
};

/// "no violation" or what is wrong, for readable failures.
inline std::string verdict(const SimulationResult &r) {
  return r.violation ? r.violation->describe() : "no violation";
}

} // namespace millrace::sim::test
