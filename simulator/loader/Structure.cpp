// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/loader/Loader.h"

#include "arch/isa/AluOp.h"

#include <optional>

namespace millrace::sim {

namespace {
using Problem = std::optional<std::string>;

/// Checks one instruction; every check gives the reason why it cannot be executed.
class InstructionCheck {
public:
  InstructionCheck(const Image &image, const Machine &machine, unsigned pe, const Instruction &i)
      : image(image), m(machine), pe(pe), i(i) {}

  Problem run() {
    if (unsigned(i.opcode) >= opcodes().size())
      return "opcode " + std::to_string(unsigned(i.opcode)) + " does not exist";
    if (i.queue >= m.queues())
      return "queue " + std::to_string(i.queue) + " does not exist; a PE has " +
             std::to_string(m.queues());
    if (i.cycle >> 48)
      return std::string("its cycle is beyond 2^48");
    unit = m.unit(i.queue);
    fields = info(i.opcode).fields;
    for (auto check :
         {&InstructionCheck::place, &InstructionCheck::loops, &InstructionCheck::tables,
          &InstructionCheck::streams, &InstructionCheck::matrix, &InstructionCheck::vector})
      if (Problem p = (this->*check)())
        return p;
    return std::nullopt;
  }

private:
  bool isSwitch() const {
    return unit.kind >= UnitKind::Transposer && unit.kind <= UnitKind::Rotator;
  }

  Problem place() {
    if (i.opcode == Opcode::Config ? !isSwitch()
                                   : !info(i.opcode).anyUnit && info(i.opcode).unit != unit.kind)
      return "queue " + m.queueName(i.queue) + " does not dispatch it";
    return std::nullopt;
  }
  Problem loops() {
    bool counts = fields.has(Field::Loops) || fields.has(Field::Count);
    if (counts && (!i.n0 || !i.n1 || !i.c0 || !i.c1))
      return std::string("a loop count or cycle stride is 0");
    return std::nullopt;
  }
  Problem tables() {
    if (uint64_t(i.producers) + i.producerCount > image.producers[pe].size())
      return std::string("its annotation lies outside the producer table");
    if (fields.has(Field::Map) &&
        (i.address >= image.laneMaps.size() || image.laneMaps[i.address].size() != m.lanes()))
      return "lane map " + std::to_string(i.address) +
             " does not exist or is not as long as a vector";
    return std::nullopt;
  }

  /// `width` adjacent streams that begin at a multiple of `width`, all of one hemisphere and
  /// direction.
  Problem group(StreamId s, unsigned width, const char *what) const {
    if (s >= m.streamCount() || m.indexOf(s) + width > m.streams || m.indexOf(s) % width)
      return std::string(what) + " is not an aligned group of " + std::to_string(width) +
             " streams";
    return std::nullopt;
  }
  Problem here(StreamId s, const char *what) const {
    bool anywhere =
        unit.kind == UnitKind::Alu || unit.kind == UnitKind::Send || unit.kind == UnitKind::Receive;
    if (!anywhere && m.hemisphereOf(s) != unit.hemisphere)
      return std::string(what) + " is a stream of the other hemisphere";
    return std::nullopt;
  }
  unsigned inputWidth() const {
    if (i.opcode == Opcode::Install)
      return m.mxm.columnsPerInstall;
    if (i.opcode == Opcode::Transpose)
      return 16;
    return i.opcode == Opcode::Activate ? byteWidth(i.format) : 1;
  }
  unsigned outputWidth() const {
    if (i.opcode == Opcode::Accumulate)
      return 4;
    return i.opcode == Opcode::Transpose ? 16 : 1;
  }
  Problem streams() {
    const std::pair<Field, const Operand *> inputs[] = {{Field::StreamA, &i.a},
                                                        {Field::StreamB, &i.b}};
    for (auto [field, operand] : inputs) {
      if (!fields.has(field))
        continue;
      if (operand->kind != OperandKind::Stream)
        return std::string("an operand that must be a stream is none");
      if (Problem p = group(operand->index, inputWidth(), "its operand"))
        return p;
      if (Problem p = here(operand->index, "its operand"))
        return p;
    }
    bool silent = i.opcode == Opcode::Accumulate && !(i.function & AccumulateMode::Emit);
    if (!fields.has(Field::OutStream) || silent)
      return std::nullopt;
    if (Problem p = group(i.out[0], outputWidth(), "its result"))
      return p;
    return here(i.out[0], "its result");
  }
  Problem matrix() {
    if (fields.has(Field::Buffer) && i.buffer >= m.mxm.buffers)
      return "weight buffer " + std::to_string(i.buffer) + " does not exist";
    if (i.opcode == Opcode::Rotate && (i.k0 >= i.k1 || i.k1 > m.lanes()))
      return std::string("its lane range is empty or too long");
    if (!fields.has(Field::Format))
      return std::nullopt;
    const MxmFormatSpec *format =
        unsigned(i.format) < kElementTypes ? m.mxm.format(i.format) : nullptr;
    if (!format || byteWidth(i.format) > 2)
      return "the MXM has no such format";
    if (byteWidth(i.format) == 2 && (unit.index % 2 || unit.index + 1 >= m.mxm.planes))
      return "a 16-bit format works on an even plane and the next one";
    if (i.opcode != Opcode::Activate)
      return std::nullopt;
    if (i.k0 >= i.k1 || i.k1 > m.lanes() || unsigned(i.k1 - i.k0) > format->lanesPerPass)
      return "lanes [" + std::to_string(i.k0) + ", " + std::to_string(i.k1) +
             ") are not what a pass of this format multiplies";
    if (i.g0 >= i.g1 || i.g1 * m.mxm.columnsPerInstall > m.mxm.columns)
      return std::string("its column groups do not exist");
    return std::nullopt;
  }
  Problem operand(const Operand &o) const {
    if (unsigned(o.kind) > unsigned(OperandKind::Immediate))
      return std::string("an operand is of no known kind");
    if (o.kind == OperandKind::Alu && o.index >= m.vxm.alus)
      return "alu." + std::to_string(o.index) + " does not exist";
    if (o.kind != OperandKind::Stream)
      return std::nullopt;
    if (o.width != 1 && o.width != 2 && o.width != 4)
      return std::string("a stream operand is 1, 2 or 4 bytes wide");
    return group(o.index, o.width, "an operand");
  }
  Problem vector() {
    if (i.opcode != Opcode::Alu && i.opcode != Opcode::Latch)
      return std::nullopt;
    for (const Operand *o : {&i.a, &i.b, &i.c})
      if (Problem p = operand(*o))
        return p;
    if (i.opcode == Opcode::Latch)
      return i.a.kind == OperandKind::Stream ? std::nullopt
                                             : Problem("a latch is loaded from a stream");
    if (!aluOpFromNumber(i.function))
      return "ALU operation " + std::to_string(i.function) + " does not exist";
    // The running form has its accumulator in the place of operand b.
    const bool runs = i.flags & AluFlag::Running;
    const unsigned needed = aluOpInfo(AluOp(i.function)).operands;
    const bool given[] = {i.a.kind != OperandKind::None, i.b.kind != OperandKind::None,
                          i.c.kind != OperandKind::None};
    for (unsigned k = 0; k < 3; ++k)
      if (given[k] != (k < (runs ? 1 : needed)) || (runs && needed != 2))
        return std::string("it does not have the operands of its operation");
    for (unsigned h = 0; h < kHemispheres; ++h) {
      if (i.out[h] == kNoStream)
        continue;
      if (i.outWidth != 1 && i.outWidth != 2 && i.outWidth != 4)
        return std::string("a result is 1, 2 or 4 bytes wide");
      if (Problem p = group(i.out[h], i.outWidth, "its result"))
        return p;
      if (unsigned(m.hemisphereOf(i.out[h])) != h || m.directionOf(i.out[h]) != Direction::Outward)
        return std::string("its result must leave outward, in the hemisphere of its field");
    }
    return std::nullopt;
  }

  const Image &image;
  const Machine &m;
  unsigned pe;
  const Instruction &i;
  Unit unit{};
  FieldSet fields{};
};
} // namespace

static Problem checkSteps(const Image &image, const Machine &m) {
  if (image.instructions.size() != m.pes() || image.producers.size() != m.pes())
    return "the image is for " + std::to_string(image.instructions.size()) +
           " PEs; the machine has " + std::to_string(m.pes());
  for (size_t s = 0; s < image.steps.size(); ++s) {
    const Step &step = image.steps[s];
    if (step.kind == Step::Kind::Host)
      continue;
    if (step.pes.size() != m.pes())
      return "step " + std::to_string(s) + " names " + std::to_string(step.pes.size()) +
             " PEs; the machine has " + std::to_string(m.pes());
    for (unsigned pe = 0; pe < m.pes(); ++pe)
      if (step.pes[pe].begin > step.pes[pe].end || step.pes[pe].end > image.instructions[pe].size())
        return "step " + std::to_string(s) + " names instructions that pe " + std::to_string(pe) +
               " does not have";
  }
  return std::nullopt;
}

static Problem checkMemory(const Image &image, const Machine &m) {
  for (size_t k = 0; k < image.tensors.size(); ++k) {
    const Region &r = image.tensors[k];
    if (r.pe >= m.pes() || r.slice >= m.memory.slices || unsigned(r.hemisphere) >= kHemispheres)
      return "tensor " + std::to_string(k) + " lies in a slice that does not exist";
  }
  for (size_t k = 0; k < image.blocks.size(); ++k) {
    const Block &b = image.blocks[k];
    if (b.pe >= m.pes() || b.slice >= m.memory.slices || unsigned(b.hemisphere) >= kHemispheres ||
        uint64_t(b.row) + b.rows > m.rowsPerSlice())
      return "block " + std::to_string(k) + " names rows that do not exist";
    if (b.bytes > m.lanes() || b.offset > image.data.size() ||
        uint64_t(b.rows) * b.bytes > image.data.size() - b.offset)
      return "block " + std::to_string(k) + " reaches beyond the image's data";
    if (b.tensor >= image.tensors.size())
      return "block " + std::to_string(k) + " names tensor " + std::to_string(b.tensor) +
             ", which does not exist";
  }
  return std::nullopt;
}

static Problem checkMachine(const Machine &m) {
  if (!m.latency.hop || !m.latency.memGather)
    return std::string("the simulator needs latency hop and gather of at least 1");
  if (m.mxm.planes && (m.mxm.columnsPerInstall % 16 || !m.mxm.columnsPerInstall ||
                       m.mxm.columns % m.mxm.columnsPerInstall))
    return std::string(
        "the simulator needs column groups that are multiples of 16 and divide the columns");
  return std::nullopt;
}

Status checkStructure(const Image &image, const Machine &machine) {
  for (auto check : {&checkSteps, &checkMemory})
    if (Problem p = check(image, machine))
      return Error{*p};
  if (Problem p = checkMachine(machine))
    return Error{*p};
  for (unsigned pe = 0; pe < machine.pes(); ++pe)
    for (size_t k = 0; k < image.instructions[pe].size(); ++k)
      if (Problem p = InstructionCheck(image, machine, pe, image.instructions[pe][k]).run())
        return Error{"instruction " + std::to_string(k) + " of pe " + std::to_string(pe) + ": " +
                     *p};
  return Success{};
}

} // namespace millrace::sim
