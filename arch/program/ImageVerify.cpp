// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/ImageCheck.h"

#include "arch/isa/Fields.h"
#include "arch/isa/Print.h"
#include "arch/operations/AluOp.h"
#include "arch/program/HostData.h"
#include "arch/program/PlacementWalk.h"

#include <algorithm>
#include <cstdio>

namespace millrace {
namespace {

/// Empty, or what is wrong.
using Problem = std::string;

std::string range(int64_t first, int64_t last) {
  return "[" + std::to_string(first) + ", " + std::to_string(last) + "]";
}

/// Least and greatest value of start + the sum of k step over loops.
struct Extent {
  int64_t least, greatest;
  void add(uint64_t count, int64_t step) {
    const int64_t reach = int64_t(count - 1) * step;
    (reach < 0 ? least : greatest) += reach;
  }
};

class InstructionVerifier {
public:
  InstructionVerifier(const Instruction &i, const Machine &m, bool schedule)
      : i(i), m(m), schedule(schedule) {}

  Problem run() {
    if (i.queue >= m.queues())
      return "queue " + std::to_string(i.queue) + " does not exist; a PE has " +
             std::to_string(m.queues());
    if (i.cycle >> 48)
      return "its cycle " + std::to_string(i.cycle) + " is beyond 2^48";
    unit = m.unit(i.queue);
    fields = info(i.opcode).fields;
    if (const Slot *stray = strayedSlot(i))
      return std::string(stray->name) + " is " + slotText(m, *stray, i) +
             ", which the instruction does not use";
    for (auto check :
         {&InstructionVerifier::place, &InstructionVerifier::loops, &InstructionVerifier::superlane,
          &InstructionVerifier::streams, &InstructionVerifier::addresses,
          &InstructionVerifier::matrix, &InstructionVerifier::vector})
      if (Problem p = (this->*check)(); !p.empty())
        return p;
    return {};
  }

private:
  Problem place() const {
    const bool isSwitch = unit.kind >= UnitKind::Transposer && unit.kind <= UnitKind::Rotator;
    const OpcodeInfo &opcode = info(i.opcode);
    if (opcode.anyUnit ? i.opcode == Opcode::Config && !isSwitch : opcode.unit != unit.kind)
      return "queue " + m.queueName(i.queue) + " does not dispatch it";
    return {};
  }
  Problem loops() const {
    if (!i.n0 || !i.n1 || !i.c0 || !i.c1)
      return "a loop count or cycle stride is 0";
    if (schedule && fields.has(Field::Loops) && i.n1 > 1 && i.c1 < uint64_t(i.n0 - 1) * i.c0 + 1)
      return "c1 = " + std::to_string(i.c1) + " begins the next round before " +
             std::to_string(i.n0) + " elements " + std::to_string(i.c0) +
             " cycles apart have ended (R2)";
    return {};
  }

  Problem group(StreamId s, unsigned width, const char *what) const {
    if (s >= m.streamCount() || m.indexOf(s) % width || m.indexOf(s) + width > m.streams)
      return std::string(what) + " " + streamName(m, s) + " is not an aligned group of " +
             std::to_string(width) + " streams";
    return {};
  }
  Problem here(StreamId s, const char *what) const {
    const bool anywhere =
        unit.kind == UnitKind::Alu || unit.kind == UnitKind::Send || unit.kind == UnitKind::Receive;
    if (!anywhere && m.hemisphereOf(s) != unit.hemisphere)
      return std::string(what) + " " + streamName(m, s) + " is of the other hemisphere";
    return {};
  }
  /// Lanes that an operation takes out of every superlane must be there (R11, R12).
  Problem superlane() const {
    const bool addressed = i.opcode == Opcode::Gather || i.opcode == Opcode::Scatter;
    const unsigned needed = i.opcode == Opcode::Transpose ? 16 : addressed ? 2 : 1;
    if (m.lanesPerSuperlane >= needed)
      return {};
    return "it works on " + std::to_string(needed) + " lanes of every superlane; " + m.name +
           " has " + std::to_string(m.lanesPerSuperlane);
  }
  unsigned inputWidth() const {
    if (i.opcode == Opcode::Install)
      return m.mxm.columnsPerInstall;
    if (i.opcode == Opcode::Transpose)
      return 16;
    return i.opcode == Opcode::Activate ? byteWidth(i.format) : 1;
  }
  Problem input(const Operand &o) const {
    if (o.kind != OperandKind::Stream)
      return "an operand that must be a stream is " + operandText(m, o);
    if (Problem p = group(o.index, inputWidth(), "its operand"); !p.empty())
      return p;
    return here(o.index, "its operand");
  }
  Problem streams() const {
    if (fields.has(Field::StreamA))
      if (Problem p = input(i.a); !p.empty())
        return p;
    if (fields.has(Field::StreamB))
      if (Problem p = input(i.b); !p.empty())
        return p;
    if (!fields.has(Field::OutStream))
      return {};
    const bool accumulate = i.opcode == Opcode::Accumulate;
    if (accumulate && !(i.function & AccumulateMode::Emit))
      return i.out[0] == kNoStream ? "" : "it names a result stream but does not emit";
    const unsigned width = accumulate ? 4 : i.opcode == Opcode::Transpose ? 16 : 1;
    if (Problem p = group(i.out[0], width, "its result"); !p.empty())
      return p;
    if (accumulate && m.directionOf(i.out[0]) != Direction::Inward)
      return "its result " + streamName(m, i.out[0]) + " must leave inward";
    return here(i.out[0], "its result");
  }

  Problem addresses() const {
    if (!schedule || !fields.has(Field::Address))
      return {};
    Extent extent{i.address, i.address};
    if (fields.has(Field::Strides)) {
      extent.add(i.n0, i.s0);
      extent.add(i.n1, i.s1);
    }
    const auto [limit, what] = [&]() -> std::pair<int64_t, const char *> {
      if (i.opcode == Opcode::Install)
        return {m.mxm.columns / m.mxm.columnsPerInstall, "column groups"};
      if (i.opcode == Opcode::Accumulate)
        return {m.mxm.accumulatorRows, "accumulator rows"};
      return {m.rowsPerSlice(), "rows"};
    }();
    if (extent.least < 0 || extent.greatest >= limit)
      return std::string(what) + " " + range(extent.least, extent.greatest) + " lie outside " +
             range(0, limit - 1);
    return {};
  }

  Problem matrix() const {
    if (fields.has(Field::Buffer) && i.buffer >= m.mxm.buffers)
      return "weight buffer " + std::to_string(i.buffer) + " does not exist; there are " +
             std::to_string(m.mxm.buffers);
    if (i.opcode == Opcode::Rotate && (i.k0 >= i.k1 || i.k1 > m.lanes()))
      return "its lanes [" + std::to_string(i.k0) + ", " + std::to_string(i.k1) +
             ") are none, or too many";
    if (!fields.has(Field::Format))
      return {};
    const MxmFormatSpec *format = m.mxm.format(i.format);
    if (!format || byteWidth(i.format) > 2)
      return std::string("the MXM of ") + m.name + " has no format " + nameOf(i.format);
    if (byteWidth(i.format) == 2 && (unit.index % 2 || unit.index + 1 >= m.mxm.planes))
      return "a 16-bit format works on an even plane and the next one (R4)";
    if (i.opcode != Opcode::Activate)
      return {};
    if (i.k0 >= i.k1 || i.k1 > m.lanes() || unsigned(i.k1 - i.k0) > format->lanesPerPass)
      return "lanes [" + std::to_string(i.k0) + ", " + std::to_string(i.k1) +
             ") are not what a pass multiplies: at most " + std::to_string(format->lanesPerPass) +
             " of " + std::to_string(m.lanes());
    const unsigned groups = m.mxm.columns / m.mxm.columnsPerInstall;
    if (i.g0 >= i.g1 || i.g1 > groups)
      return "column groups [" + std::to_string(i.g0) + ", " + std::to_string(i.g1) +
             ") are none, or more than " + std::to_string(groups);
    return {};
  }

  static bool isWidth(unsigned width) { return width == 1 || width == 2 || width == 4; }
  Problem operand(const Operand &o) const {
    const bool isStream = o.kind == OperandKind::Stream, isAlu = o.kind == OperandKind::Alu;
    if (!isStream && o.width)
      return "operand " + operandText(m, o) + " has a width of " + std::to_string(o.width);
    if (isAlu && o.index >= m.vxm.alus)
      return "alu." + std::to_string(o.index) + " does not exist";
    if (!isStream)
      return isAlu || !o.index ? "" : "operand " + operandText(m, o) + " has an index";
    if (!isWidth(o.width))
      return "operand " + operandText(m, o) + " must be 1, 2 or 4 streams wide";
    return group(o.index, o.width, "operand");
  }
  Problem vector() const {
    if (i.opcode != Opcode::Alu && i.opcode != Opcode::Latch)
      return {};
    for (const Operand *o : {&i.a, &i.b, &i.c})
      if (Problem p = operand(*o); !p.empty())
        return p;
    if (i.opcode == Opcode::Latch)
      return i.a.kind == OperandKind::Stream ? "" : "a latch is loaded from a stream";
    if (Problem p = operandCount(); !p.empty())
      return p;
    return results();
  }
  Problem operandCount() const {
    if (i.flags & ~AluFlag::Running)
      return "flags " + std::to_string(i.flags) + " are not known";
    const AluOpInfo &op = aluOpInfo(AluOp(i.function));
    const bool running = i.flags & AluFlag::Running;
    const Operand *operands[] = {&i.a, &i.b, &i.c};
    const unsigned wanted = running ? 1 : op.operands;
    if (running && (op.operands != 2 || i.n0 > m.vxm.runningAccumulators))
      return "the running form needs an operation of two operands and n0 of at most " +
             std::to_string(m.vxm.runningAccumulators) + " (R9)";
    for (unsigned k = 0; k < 3; ++k)
      if ((operands[k]->kind != OperandKind::None) != (k < wanted))
        return std::string(op.mnemonic) + " takes " + std::to_string(wanted) + " operand" +
               (wanted == 1 ? "" : "s") + " here; operand " + "abc"[k] + " is " +
               operandText(m, *operands[k]);
    return {};
  }
  Problem results() const {
    for (unsigned h = 0; h < kHemispheres; ++h) {
      if (i.out[h] == kNoStream)
        continue;
      if (!isWidth(i.outWidth))
        return "a result is 1, 2 or 4 streams wide, not " + std::to_string(i.outWidth);
      if (Problem p = group(i.out[h], i.outWidth, "its result"); !p.empty())
        return p;
      if (unsigned(m.hemisphereOf(i.out[h])) != h || m.directionOf(i.out[h]) != Direction::Outward)
        return "its result " + streamName(m, i.out[h]) + " must leave outward, " +
               (h ? "east" : "west");
    }
    return {};
  }

  const Instruction &i;
  const Machine &m;
  bool schedule;
  Unit unit{};
  FieldSet fields{};
};

/// An output that a host step makes goes from there to whoever wants it.
bool isUnplacedOutput(const Binding &b) {
  return b.role == Binding::Role::Output && b.placements.empty();
}

class ImageVerifier {
public:
  ImageVerifier(const Image &image, const Machine &m, bool schedule)
      : image(image), m(m), schedule(schedule) {}

  Problem run() {
    for (auto check :
         {&ImageVerifier::pes, &ImageVerifier::order, &ImageVerifier::memory, &ImageVerifier::maps})
      if (Problem p = (this->*check)(); !p.empty())
        return p;
    for (size_t k = 0; k < image.bindings.size(); ++k)
      if (Status s = verifyBinding(image.bindings[k], m); !s)
        return "binding " + std::to_string(k) + ": " + s.error();
      else if (isUnplacedOutput(image.bindings[k]) && !isOfHost(k))
        return "binding " + std::to_string(k) + ": output '" + image.bindings[k].name +
               "' lies nowhere in memory, and no host step makes it";
    return {};
  }

private:
  bool isOfHost(size_t binding) const {
    return std::any_of(image.steps.begin(), image.steps.end(), [&](const Step &step) {
      return std::count(step.outputs.begin(), step.outputs.end(), uint32_t(binding)) != 0;
    });
  }

  Problem pes() {
    if (image.instructions.size() != m.pes())
      return "it is for " + std::to_string(image.instructions.size()) + " PEs; " + m.name +
             " has " + std::to_string(m.pes());
    for (size_t pe = 0; pe < image.instructions.size(); ++pe)
      for (size_t k = 0; k < image.instructions[pe].size(); ++k)
        if (Problem p = InstructionVerifier(image.instructions[pe][k], m, schedule).run();
            !p.empty())
          return "instruction " + std::to_string(k) + " of pe " + std::to_string(pe) + " (" +
                 print(m, image.instructions[pe][k]) + "): " + p;
    return {};
  }
  /// Each PE's instructions belong to one grid step each, in order, and are sorted within it.
  Problem order() {
    for (size_t pe = 0; pe < image.instructions.size(); ++pe) {
      uint32_t next = 0;
      for (size_t s = 0; s < image.steps.size(); ++s) {
        if (image.steps[s].kind != Step::Kind::Grid)
          continue;
        const PeRange r = image.steps[s].pes[pe];
        if (r.begin != next)
          return "step " + std::to_string(s) + " of pe " + std::to_string(pe) +
                 " begins with instruction " + std::to_string(r.begin) + ", not with " +
                 std::to_string(next);
        next = r.end;
        if (Problem p = sorted(pe, r); !p.empty())
          return p;
      }
      if (next != image.instructions[pe].size())
        return "instructions from " + std::to_string(next) + " of pe " + std::to_string(pe) +
               " on belong to no step";
    }
    return {};
  }
  Problem sorted(size_t pe, PeRange r) {
    const Records<Instruction> &list = image.instructions[pe];
    for (uint32_t k = r.begin + 1; schedule && k < r.end; ++k)
      if (std::pair(list[k].cycle, list[k].queue) < std::pair(list[k - 1].cycle, list[k - 1].queue))
        return "instruction " + std::to_string(k) + " of pe " + std::to_string(pe) +
               " stands behind a later one; they are sorted by cycle and queue";
    return {};
  }
  Problem rows(const char *table, size_t k, unsigned slice, uint64_t row, uint64_t rows) {
    const std::string at = table + std::to_string(k);
    if (slice >= m.memory.slices)
      return at + " lies in slice " + std::to_string(slice) + "; a hemisphere has " +
             std::to_string(m.memory.slices);
    if (row + rows > m.rowsPerSlice())
      return at + " ends at row " + std::to_string(row + rows) + "; a slice has " +
             std::to_string(m.rowsPerSlice());
    return {};
  }
  Problem memory() {
    for (size_t k = 0; k < image.tensors.size(); ++k) {
      const Region &r = image.tensors[k];
      if (Problem p = rows("region ", k, r.slice, r.row, r.rows); !p.empty())
        return p;
    }
    for (size_t k = 0; k < image.blocks.size(); ++k) {
      const Block &b = image.blocks[k];
      if (Problem p = rows("block ", k, b.slice, b.row, b.rows); !p.empty())
        return p;
      if (b.bytes > m.lanes())
        return "block " + std::to_string(k) + " has rows of " + std::to_string(b.bytes) +
               " bytes; a row has " + std::to_string(m.lanes());
    }
    return {};
  }
  Problem maps() {
    for (size_t k = 0; k < image.laneMaps.size(); ++k)
      if (image.laneMaps[k].size() != m.lanes())
        return "lane map " + std::to_string(k) + " has " +
               std::to_string(image.laneMaps[k].size()) + " lanes; a vector has " +
               std::to_string(m.lanes());
    return permutations();
  }
  /// What keeps lane map `k` from being a bijection (R11).
  Problem permutation(size_t k) {
    std::vector<bool> taken(m.lanes());
    for (uint16_t lane : image.laneMaps[k]) {
      if (lane >= m.lanes())
        return "has a lane without a source";
      if (taken[lane])
        return "takes lane " + std::to_string(lane) + " twice";
      taken[lane] = true;
    }
    return {};
  }
  Problem permutations() {
    std::vector<bool> known(image.laneMaps.size());
    for (size_t pe = 0; pe < image.instructions.size(); ++pe)
      for (const Instruction &i : image.instructions[pe]) {
        if (i.opcode != Opcode::Config || m.unit(i.queue).kind != UnitKind::Permutor ||
            known[i.address])
          continue;
        known[i.address] = true;
        if (Problem p = permutation(i.address); !p.empty())
          return "lane map " + std::to_string(i.address) + " " + p + "; " + m.queueName(i.queue) +
                 " of pe " + std::to_string(pe) + " permutes by it, which needs a bijection (R11)";
      }
    return {};
  }

  const Image &image;
  const Machine &m;
  bool schedule;
};

} // namespace

Status verifyInstruction(const Instruction &instruction, const Machine &machine,
                         const VerifyOptions &options) {
  if (Problem p = InstructionVerifier(instruction, machine, options.schedule).run(); !p.empty())
    return Error{p};
  return Success{};
}

Status verifyBinding(const Binding &b, const Machine &m) {
  for (size_t k = 0; k < b.placements.size(); ++k) {
    const Placement &p = b.placements[k];
    const std::string at = "'" + b.name + "': placement " + std::to_string(k) + ": ";
    const Expected<PlacementExtent> extent = extentOf(b, p);
    if (!extent)
      return Error{at + extent.error()};
    for (uint16_t slice : p.slices)
      if (slice >= m.memory.slices)
        return Error{at + "slice " + std::to_string(slice) + " does not exist; a hemisphere has " +
                     std::to_string(m.memory.slices)};
    if (extent->lastRow >= int64_t(m.rowsPerSlice()))
      return Error{at + "rows " + range(extent->firstRow, extent->lastRow) + " lie outside " +
                   range(0, int64_t(m.rowsPerSlice()) - 1)};
    if (extent->lastLane >= int64_t(m.lanes()))
      return Error{at + "lanes " + range(extent->firstLane, extent->lastLane) + " lie outside " +
                   range(0, int64_t(m.lanes()) - 1)};
    if (extent->elements > uint64_t(m.rowsPerSlice()) * m.lanes())
      return Error{at + "it puts " + std::to_string(extent->elements) +
                   " elements into a slice of " +
                   std::to_string(uint64_t(m.rowsPerSlice()) * m.lanes()) + " bytes"};
  }
  // What a tensor read from memory needs on the host is thereby bounded by the machine's memory.
  const bool isRead = b.role == Binding::Role::Output || b.role == Binding::Role::HostInput;
  const Expected<uint64_t> elements = elementCount(b);
  if (!elements)
    return Error{"'" + b.name + "': " + elements.error()};
  if (isRead && !isUnplacedOutput(b) && elementsWritten(b) < *elements)
    return Error{"'" + b.name + "': its placements hold " + std::to_string(elementsWritten(b)) +
                 " of " + std::to_string(*elements) + " elements"};
  return Success{};
}

Status verifyImage(const Image &image, const Machine &machine, const VerifyOptions &options) {
  if (Status s = checkImage(image); !s)
    return s;
  if (!options.anyMachine && image.machineHash != machine.hash())
    return Error{"the image was made for a machine '" + image.machineName + "' of hash " +
                 hexadecimal(image.machineHash) + "; '" + machine.name + "' has " +
                 hexadecimal(machine.hash()) + "; compile again for this machine"};
  if (Problem p = ImageVerifier(image, machine, options.schedule).run(); !p.empty())
    return Error{p};
  return Success{};
}

} // namespace millrace
