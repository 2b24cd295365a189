// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random images that are legal for a machine (verifyImage), though no sensible programs.
#pragma once

#include "arch/isa/Fields.h"
#include "arch/operations/AluOp.h"
#include "arch/program/Image.h"
#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace millrace::test {

inline Machine machineNamed(const std::string &name) {
  auto machine = loadMachine(name);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error());
  return *machine;
}

class RandomImage {
public:
  RandomImage(const Machine &machine, uint64_t seed) : m(machine), random(seed) {}

  /// About `size` instructions on every PE, in `steps` grid steps with a host step between them.
  Image make(unsigned size = 60, unsigned steps = 2) {
    image = Image();
    image.machineName = m.name;
    image.machineHash = m.hash();
    image.machineYaml = "name: " + m.name + "\n";
    image.instructions.resize(m.pes());
    image.producers.resize(m.pes());
    for (unsigned k = 0; k < 5; ++k)
      image.strings.push_back(text());
    for (unsigned k = 0; k < 3; ++k) {
      auto &map = image.laneMaps.emplace_back(m.lanes());
      for (uint16_t &lane : map)
        lane = below(4) ? uint16_t(below(m.lanes())) : 0xffff;
    }
    auto &permutation = image.laneMaps.emplace_back(m.lanes()); // the last one
    std::iota(permutation.begin(), permutation.end(), uint16_t(0));
    for (size_t lane = permutation.size(); lane > 1; --lane)
      std::swap(permutation[lane - 1], permutation[size_t(below(lane))]);
    memory();
    bindings();
    for (unsigned s = 0; s < steps; ++s) {
      if (s)
        hostStep();
      gridStep(size / steps);
    }
    for (unsigned pe = 0; pe < m.pes(); ++pe)
      annotate(pe);
    image.hostModule = "module { func.func @step() { return } }\n";
    image.notes = {{"kernels", "[1, 2]"}, {"a \"quoted\" key", "{\"x\": null}"}};
    return image;
  }
  uint64_t below(uint64_t limit) { return random() % limit; }

  /// One legal instruction of any opcode.
  Instruction instruction() {
    Instruction i;
    i.opcode = opcodes()[below(opcodes().size())].opcode;
    const OpcodeInfo &opcode = info(i.opcode);
    std::vector<uint16_t> queues;
    for (unsigned q = 0; q < m.queues(); ++q)
      if (fits(opcode, m.unit(q)))
        queues.push_back(uint16_t(q));
    if (queues.empty())
      return instruction();
    i.cycle = below(100000);
    i.queue = queues[below(queues.size())];
    unit = m.unit(i.queue);
    fill(i);
    return i;
  }

private:
  bool fits(const OpcodeInfo &opcode, Unit u) const {
    const bool isSwitch = u.kind >= UnitKind::Transposer && u.kind <= UnitKind::Rotator;
    return opcode.anyUnit ? opcode.opcode != Opcode::Config || isSwitch : opcode.unit == u.kind;
  }
  Hemisphere side() {
    const bool anywhere =
        unit.kind == UnitKind::Alu || unit.kind == UnitKind::Send || unit.kind == UnitKind::Receive;
    return anywhere ? Hemisphere(below(2)) : unit.hemisphere;
  }
  StreamId group(unsigned width, Hemisphere h, Direction d) {
    return m.stream(h, d, unsigned(below(m.streams / width)) * width);
  }
  StreamId group(unsigned width) { return group(width, side(), Direction(below(2))); }
  std::string text() {
    std::string s;
    for (unsigned k = unsigned(below(12)); k-- > 0;)
      s += "abc/\"\\ .:0\n\xc3\xa9"[below(13)];
    return s;
  }

  void fill(Instruction &i) {
    const FieldSet f = info(i.opcode).fields;
    if (f.has(Field::Count))
      i.n0 = uint16_t(1 + below(900));
    if (f.has(Field::Interval))
      i.c0 = uint32_t(1 + below(50));
    if (f.has(Field::Map))
      i.address = uint32_t(m.unit(i.queue).kind == UnitKind::Permutor
                               ? image.laneMaps.size() - 1
                               : below(image.laneMaps.size()));
    if (f.has(Field::Loops)) {
      i.n0 = uint16_t(1 + below(3)), i.n1 = uint16_t(1 + below(3));
      i.c0 = uint32_t(1 + below(4)), i.c1 = uint32_t((i.n0 - 1) * i.c0 + 1 + below(20));
    }
    if (f.has(Field::Format))
      format(i);
    if (f.has(Field::Address))
      address(i, f.has(Field::Strides));
    if (f.has(Field::Buffer))
      i.buffer = uint8_t(below(m.mxm.buffers));
    if (f.has(Field::Tensor))
      i.tensor = uint32_t(below(image.tensors.size()));
    if (f.has(Field::Mode))
      i.function = uint8_t(below(4));
    streams(i, f);
    if (f.has(Field::Lanes)) {
      const unsigned most =
          i.opcode == Opcode::Activate ? m.mxm.format(i.format)->lanesPerPass : m.lanes();
      const auto count = 1 + below(std::min(most, m.lanes()));
      i.k0 = uint16_t(below(m.lanes() - count + 1));
      i.k1 = uint16_t(i.k0 + count);
    }
    if (f.has(Field::Groups)) {
      i.g1 = uint16_t(1 + below(m.mxm.columns / m.mxm.columnsPerInstall));
      i.g0 = uint16_t(below(i.g1));
    }
    if (f.has(Field::Immediate))
      i.immediate = uint32_t(random());
    if (f.has(Field::Function))
      alu(i);
  }
  void format(Instruction &i) {
    std::vector<ElementType> able;
    for (const MxmFormatSpec &format : m.mxm.formats)
      if (byteWidth(format.type) == 1 || (unit.index % 2 == 0 && unit.index + 1 < m.mxm.planes))
        able.push_back(format.type);
    i.format = able[below(able.size())];
  }
  void address(Instruction &i, bool strides) {
    uint64_t limit = m.rowsPerSlice();
    if (i.opcode == Opcode::Install)
      limit = m.mxm.columns / m.mxm.columnsPerInstall;
    if (i.opcode == Opcode::Accumulate)
      limit = m.mxm.accumulatorRows;
    i.address = uint32_t(below(limit));
    if (strides && limit > 16 && i.address >= 8 && i.address + 8 < limit)
      i.s0 = int32_t(below(5)) - 2, i.s1 = int32_t(below(5)) - 2;
  }
  void streams(Instruction &i, FieldSet f) {
    unsigned in = 1, out = 1;
    if (i.opcode == Opcode::Install)
      in = m.mxm.columnsPerInstall;
    if (i.opcode == Opcode::Transpose)
      in = out = 16;
    if (i.opcode == Opcode::Activate)
      in = byteWidth(i.format);
    if (f.has(Field::StreamA))
      i.a = {OperandKind::Stream, 1, group(in)};
    if (f.has(Field::StreamB))
      i.b = {OperandKind::Stream, 1, group(in)};
    if (i.opcode == Opcode::Latch)
      i.a = {OperandKind::Stream, 4, group(4)};
    if (i.opcode == Opcode::Accumulate) {
      if (i.function & AccumulateMode::Emit)
        i.out[0] = group(4, unit.hemisphere, Direction::Inward);
    } else if (f.has(Field::OutStream)) {
      i.out[0] = group(out);
    }
  }
  Operand operand() {
    const auto width = uint8_t(1u << below(3));
    switch (below(4)) {
    case 0:
      return {OperandKind::Stream, width, group(width)};
    case 1:
      return {OperandKind::Alu, 0, uint16_t(below(m.vxm.alus))};
    case 2:
      return {OperandKind::Latch, 0, 0};
    default:
      return {OperandKind::Immediate, 0, 0};
    }
  }
  void alu(Instruction &i) {
    i.function = uint8_t(below(aluOpCount));
    unsigned operands = aluOpInfo(AluOp(i.function)).operands;
    if (operands == 2 && !below(3)) {
      i.flags = AluFlag::Running;
      operands = 1;
    }
    Operand *all[] = {&i.a, &i.b, &i.c};
    for (unsigned k = 0; k < operands; ++k)
      *all[k] = operand();
    i.outWidth = uint8_t(1u << below(3));
    for (unsigned h = 0; h < kHemispheres; ++h)
      if (below(2))
        i.out[h] = group(i.outWidth, Hemisphere(h), Direction::Outward);
  }

  void memory() {
    for (unsigned k = 0; k < 6; ++k) {
      Region r;
      r.name = uint32_t(below(image.strings.size()));
      r.pe = uint16_t(below(m.pes())), r.hemisphere = Hemisphere(below(2));
      r.slice = uint16_t(below(m.memory.slices));
      r.rows = uint32_t(1 + below(8)), r.row = uint32_t(below(m.rowsPerSlice() - r.rows));
      r.step1 = uint16_t(below(3)), r.from = below(50), r.to = r.from + below(1000);
      image.tensors.push_back(r);
      if (below(4) == 0)
        continue;
      Block b;
      b.pe = r.pe, b.hemisphere = r.hemisphere, b.slice = r.slice, b.row = r.row, b.rows = r.rows;
      b.tensor = k, b.bytes = uint16_t(below(m.lanes() + 1)), b.offset = image.data.size();
      std::vector<uint8_t> bytes(size_t(b.rows) * b.bytes);
      for (uint8_t &byte : bytes)
        byte = uint8_t(random());
      image.data.append(bytes.begin(), bytes.end());
      image.blocks.push_back(b);
    }
  }
  void bindings() {
    for (auto role : {Binding::Role::Input, Binding::Role::Output, Binding::Role::HostInput}) {
      Binding b;
      b.role = role, b.name = text(), b.hostType = "float", b.shape = {3, 1 + int64_t(below(9))};
      b.gridType = ElementType(below(kElementTypes));
      if (b.gridType == ElementType::Int8)
        b.scale = double(1 + below(1000)) / 7, b.zero = int64_t(below(256)) - 128;
      Placement p;
      p.pe = uint16_t(below(m.pes())), p.hemisphere = Hemisphere(below(2));
      for (unsigned k = 0; k < byteWidth(b.gridType); ++k)
        p.slices.push_back(uint16_t(below(m.memory.slices)));
      p.row = uint32_t(below(100)), p.start = {0, -int64_t(below(3))}, p.fill = uint32_t(random());
      p.loops = {{3, int32_t(1 + below(4)), 0, 0, 1}, {uint32_t(b.shape[1]), 0, 1, 1, 1}};
      if (below(2))
        p.loops.push_back({2, 0, 12, kNoDim, 0});
      b.placements = {p, p};
      image.bindings.push_back(b);
    }
    Binding b; // indices of a table in two parts
    b.name = text(), b.hostType = "int64", b.shape = {4}, b.gridType = ElementType::Int32;
    b.extent = 2 + int64_t(below(1000));
    Placement p;
    p.bytesInLanes = true, p.slices = {uint16_t(below(m.memory.slices))}, p.start = {0};
    p.loops = {{4, 1, 0, 0, 1},
               {uint32_t(m.superlanes), 0, int32_t(m.lanesPerSuperlane), kNoDim, 0}};
    p.rows = uint32_t(1 + below(uint64_t(b.extent) - 1));
    Placement rest = p;
    rest.first = p.rows, rest.rows = uint32_t(b.extent) - p.rows;
    b.placements = {p, rest};
    image.bindings.push_back(b);
  }
  void gridStep(unsigned size) {
    Step s;
    s.predictedCycles = below(1u << 20);
    for (Records<Instruction> &records : image.instructions) {
      std::vector<Instruction> &list = records.edit();
      const auto begin = uint32_t(list.size());
      for (unsigned k = 0; k < size; ++k)
        list.push_back(instruction());
      std::stable_sort(list.begin() + begin, list.end(), [](const auto &a, const auto &b) {
        return std::pair(a.cycle, a.queue) < std::pair(b.cycle, b.queue);
      });
      s.pes.push_back({begin, uint32_t(list.size())});
    }
    image.steps.push_back(s);
  }
  void hostStep() {
    Step s;
    s.kind = Step::Kind::Host;
    s.device = StepDevice(below(kStepDevices));
    s.function = "step";
    s.inputs = {2}, s.outputs = {0, 1};
    image.steps.push_back(s);
  }
  void annotate(unsigned pe) {
    for (Instruction &i : image.instructions[pe].edit()) {
      i.provenance = uint32_t(below(image.strings.size()));
      i.producerCount = uint16_t(below(3));
      i.producers = i.producerCount ? uint32_t(image.producers[pe].size()) : 0;
      for (unsigned k = 0; k < i.producerCount; ++k) {
        Producer p;
        p.of = ProducerOf(below(kProducerOfs)), p.byte = below(2) ? kAllBytes : uint8_t(below(4));
        p.pe = uint16_t(below(m.pes()));
        p.instruction = uint32_t(below(image.instructions[p.pe].size()));
        if (!image.blocks.empty() && !below(4)) {
          p.instruction = kInitialContents;
          p.block = uint32_t(below(image.blocks.size()));
        }
        p.first = uint32_t(below(5)), p.from0 = uint16_t(below(3)), p.from1 = uint16_t(below(3));
        p.count0 = uint16_t(1 + below(3)), p.count1 = uint16_t(1 + below(3));
        p.step0 = int32_t(below(5)) - 2, p.step1 = int32_t(below(5)) - 2;
        image.producers[pe].edit().push_back(p);
      }
    }
  }

  const Machine &m;
  std::mt19937_64 random;
  Image image;
  Unit unit{};
};

} // namespace millrace::test
