// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Mutants.h"

#include "arch/isa/Print.h"
#include "arch/operations/AluOp.h"

#include <algorithm>
#include <numeric>

namespace millrace::test {
namespace {

using Random = std::mt19937;

StreamId otherStream(StreamId s, unsigned width, const Machine &m, Random &random) {
  const unsigned groups = m.streams / width, index = m.indexOf(s) / width;
  return StreamId(s - m.indexOf(s) + (index + 1 + random() % (groups - 1)) % groups * width);
}

bool moveOperand(Operand &o, const Instruction &i, const Machine &m, Random &random) {
  if (o.kind == OperandKind::Stream) {
    const bool group = i.opcode == Opcode::Install || i.opcode == Opcode::Transpose;
    o.index = otherStream(o.index, group ? 16 : std::max<unsigned>(1, o.width), m, random);
    return true;
  }
  if (o.kind == OperandKind::Alu) {
    o.index = uint16_t((o.index + 1 + random() % (m.vxm.alus - 1)) % m.vxm.alus);
    return true;
  }
  if (o.kind == OperandKind::Latch || o.kind == OperandKind::Immediate) {
    o.kind = o.kind == OperandKind::Latch ? OperandKind::Immediate : OperandKind::Latch;
    return true;
  }
  return false;
}

template <class T> bool step(T &value, Random &random, int64_t least = 0) {
  const int64_t by = random() % 2 ? 1 : -1;
  value = T(int64_t(value) + (int64_t(value) + by < least ? 1 : by));
  return true;
}

bool changeLoops(Instruction &i, Random &random) {
  switch (random() % 4) {
  case 0:
    return step(i.n0, random, 1);
  case 1:
    return step(i.n1, random, 1);
  case 2:
    return i.n0 > 1 && step(i.c0, random, 1);
  default:
    return i.n1 > 1 && step(i.c1, random, 1);
  }
}

bool changeFormat(Instruction &i, const Machine &m, Random &random) {
  const ElementType old = i.format;
  i.format = m.mxm.formats[random() % m.mxm.formats.size()].type;
  return i.format != old;
}

bool changeFunction(Instruction &i, Random &random) {
  const AluOpInfo &old = aluOpTable[i.function];
  i.function = uint8_t(random() % aluOpCount);
  return i.function != uint8_t(old.op) && aluOpTable[i.function].operands == old.operands;
}

bool changeOut(StreamId &out, unsigned width, const Machine &m, Random &random) {
  if (out == kNoStream)
    return false;
  if (random() % 4 == 0)
    out = kNoStream;
  else
    out = otherStream(out, std::max(1u, width), m, random);
  return true;
}

/// Changes what the field means; false when this cannot change anything here.
bool damage(Instruction &i, Field field, const Machine &m, Random &random) {
  switch (field) {
  case Field::Count:
    return step(i.n0, random, 1);
  case Field::Interval:
    return step(i.c0, random, 1);
  case Field::Map:
  case Field::Address:
    if (m.unit(i.queue).kind == UnitKind::Mem && random() % 3 == 0) { // the other bank
      i.address = (i.address + m.memory.rowsPerBank) % m.rowsPerSlice();
      return true;
    }
    return step(i.address, random);
  case Field::Loops:
    return changeLoops(i, random);
  case Field::Strides:
    return random() % 2 ? i.n0 > 1 && step(i.s0, random, INT32_MIN)
                        : i.n1 > 1 && step(i.s1, random, INT32_MIN);
  case Field::StreamA:
  case Field::OperandA:
    return moveOperand(i.a, i, m, random);
  case Field::StreamB:
  case Field::OperandB:
    return moveOperand(i.b, i, m, random);
  case Field::OperandC:
    return moveOperand(i.c, i, m, random);
  case Field::OutStream:
    return changeOut(i.out[0], i.opcode == Opcode::Accumulate ? 4 : 1, m, random);
  case Field::OutWest:
    return changeOut(i.out[0], i.outWidth, m, random);
  case Field::OutEast:
    return changeOut(i.out[1], i.outWidth, m, random);
  case Field::OutWidth: // means nothing without a result on a stream
    if (i.out[0] == kNoStream && i.out[1] == kNoStream)
      return false;
    i.outWidth = uint8_t(i.outWidth == 4 ? 1 : 2 * i.outWidth);
    return true;
  case Field::Tensor:
    return step(i.tensor, random);
  case Field::Buffer:
    i.buffer = uint8_t((i.buffer + 1u) % m.mxm.buffers);
    return true;
  case Field::Format:
    return changeFormat(i, m, random);
  case Field::Lanes:
    return random() % 2 ? step(i.k0, random) : step(i.k1, random);
  case Field::Groups:
    return random() % 2 ? step(i.g0, random) : step(i.g1, random);
  case Field::Mode:
    i.function ^= random() % 2 ? AccumulateMode::Add : AccumulateMode::Emit;
    return true;
  case Field::Function:
    return changeFunction(i, random);
  case Field::Immediate: // of an ALU only where an operand names it
    if (i.opcode == Opcode::Alu && i.a.kind != OperandKind::Immediate &&
        i.b.kind != OperandKind::Immediate && i.c.kind != OperandKind::Immediate)
      return false;
    i.immediate ^= 1u << random() % 32;
    return true;
  case Field::Flags:
    i.flags ^= AluFlag::Running;
    return true;
  }
  return false;
}
constexpr unsigned kFields = unsigned(Field::Flags) + 1;
constexpr const char *kFieldNames[kFields] = {
    "count", "interval", "map",    "loops",     "address", "strides", "a",     "b",
    "out",   "tensor",   "buffer", "format",    "lanes",   "groups",  "mode",  "function",
    "a",     "b",        "c",      "immediate", "west",    "east",    "width", "flags"};

/// Puts one PE's instructions back into (step, cycle, queue) order and renumbers who names them.
void restoreOrder(Image &image, unsigned pe) {
  auto &list = image.instructions[pe].edit();
  std::vector<uint32_t> order(list.size());
  std::iota(order.begin(), order.end(), 0);
  for (const Step &s : image.steps)
    if (s.kind == Step::Kind::Grid)
      std::stable_sort(order.begin() + s.pes[pe].begin, order.begin() + s.pes[pe].end,
                       [&](uint32_t x, uint32_t y) {
                         return std::pair(list[x].cycle, list[x].queue) <
                                std::pair(list[y].cycle, list[y].queue);
                       });
  std::vector<Instruction> sorted;
  std::vector<uint32_t> now(list.size());
  for (uint32_t k = 0; k < order.size(); ++k) {
    sorted.push_back(list[order[k]]);
    now[order[k]] = k;
  }
  list = std::move(sorted);
  for (auto &producers : image.producers)
    for (Producer &p : producers.edit())
      if (p.pe == pe && p.instruction < now.size())
        p.instruction = now[p.instruction];
}

/// Kinds that are not a field: of an instruction's place, of its being there, of the annotation.
struct PlaceKind {
  const char *name;
  std::function<bool(Image &, unsigned pe, uint32_t index, const Machine &, Random &)> apply;
};

bool moveQueue(Instruction &i, const Machine &m, Random &random) {
  Unit unit = m.unit(i.queue);
  const uint16_t old = i.queue;
  i.queue = uint16_t(random() % m.queues());
  return i.queue != old && m.unit(i.queue).kind == unit.kind;
}

bool duplicate(Image &image, unsigned pe, uint32_t index, Random &random) {
  auto &list = image.instructions[pe].edit();
  Instruction copy = list[index];
  copy.cycle = copy.lastCycle() + 1 + random() % 3;
  for (Step &s : image.steps) {
    if (s.kind != Step::Kind::Grid || index >= s.pes[pe].end)
      s.pes[pe].begin += s.pes[pe].begin > index, s.pes[pe].end += s.pes[pe].end > index;
    else
      s.pes[pe].begin += s.pes[pe].begin > index, ++s.pes[pe].end;
  }
  list.insert(list.begin() + index + 1, copy);
  for (auto &producers : image.producers)
    for (Producer &p : producers.edit())
      p.instruction += p.pe == pe && p.instruction != kInitialContents && p.instruction > index;
  return true;
}

bool changeProducer(Image &image, unsigned pe, uint32_t index, Random &random) {
  const Instruction &i = image.instructions[pe][index];
  if (!i.producerCount)
    return false;
  Producer &p = image.producers[pe].edit()[i.producers + random() % i.producerCount];
  switch (random() % 7) {
  case 0:
    return step(p.first, random);
  case 1:
    return step(p.count0, random, 1);
  case 2:
    return step(p.from0, random);
  case 3:
    return p.count0 > 1 && step(p.step0, random, INT32_MIN);
  case 4:
    return p.count1 > 1 && step(p.step1, random, INT32_MIN);
  case 5:
    return p.instruction != kInitialContents && step(p.instruction, random);
  default:
    return p.instruction == kInitialContents && step(p.block, random);
  }
}

/// A second access to a bank in the slot of an access that is there: a copy of a Read beside a
/// Write of its slice, or of a Write beside a Read.
bool crossBank(Image &image, unsigned pe, uint32_t index, const Machine &m, Random &random) {
  auto &list = image.instructions[pe].edit();
  const Instruction from = list[index];
  if (from.opcode != Opcode::Read && from.opcode != Opcode::Write)
    return false;
  const bool reads = from.opcode == Opcode::Read;
  std::vector<uint32_t> others;
  for (uint32_t k = 0; k < list.size(); ++k)
    if (list[k].queue == from.queue && list[k].opcode == (reads ? Opcode::Write : Opcode::Read))
      others.push_back(k);
  if (others.empty())
    return false;
  const Instruction other = list[others[random() % others.size()]]; // the list grows below
  const uint64_t slot = m.latency.memWrite;
  if (!reads && other.cycle < slot)
    return false;
  const uint32_t rows = m.memory.rowsPerBank;
  if (!duplicate(image, pe, index, random))
    return false;
  Instruction &copy = image.instructions[pe].edit()[index + 1];
  copy.cycle = reads ? other.cycle + slot : other.cycle - slot;
  copy.address = copy.address % rows + other.address / rows * rows;
  return true;
}

std::vector<PlaceKind> placeKinds() {
  using I = uint32_t;
  return {
      {"cycle",
       [](Image &g, unsigned pe, I k, const Machine &, Random &r) {
         Instruction &i = g.instructions[pe].edit()[k];
         const int64_t by = int64_t(1 + r() % 3) * (r() % 2 ? 1 : -1);
         i.cycle = uint64_t(std::max<int64_t>(0, int64_t(i.cycle) + by));
         return true;
       }},
      {"queue", [](Image &g, unsigned pe, I k, const Machine &m,
                   Random &r) { return moveQueue(g.instructions[pe].edit()[k], m, r); }},
      {"dropped",
       [](Image &g, unsigned pe, I k, const Machine &, Random &) {
         Instruction nop, &i = g.instructions[pe].edit()[k];
         nop.cycle = i.cycle, nop.queue = i.queue, nop.provenance = i.provenance;
         i = nop;
         return true;
       }},
      {"duplicated", [](Image &g, unsigned pe, I k, const Machine &,
                        Random &r) { return duplicate(g, pe, k, r); }},
      {"crossed", [](Image &g, unsigned pe, I k, const Machine &m,
                     Random &r) { return crossBank(g, pe, k, m, r); }},
      {"swapped",
       [](Image &g, unsigned pe, I k, const Machine &m, Random &r) {
         auto &list = g.instructions[pe].edit();
         Instruction &x = list[k], &y = list[r() % list.size()];
         if (x.queue == y.queue || m.unit(x.queue).kind != m.unit(y.queue).kind)
           return false;
         std::swap(x.queue, y.queue);
         return true;
       }},
      {"annotation", [](Image &g, unsigned pe, I k, const Machine &,
                        Random &r) { return changeProducer(g, pe, k, r); }},
  };
}

/// Damage to the tables of the image; says what it did, or nothing.
struct TableKind {
  const char *name;
  std::function<std::string(Image &, Random &)> apply;
};

std::string damageBlock(Image &g, Random &random) {
  const uint32_t index = uint32_t(random() % g.blocks.size());
  unsigned uses = 0;
  for (const auto &producers : g.producers)
    for (const Producer &p : producers)
      uses += p.instruction == kInitialContents && p.block == index;
  step(g.blocks[index].row, random);
  return "block " + std::to_string(index) + ", named by " + std::to_string(uses) + " producers";
}

/// A region is moved, cut, or dies or is born at the wrong end of its life.
std::string damageRegion(Image &g, Random &random, unsigned way) {
  const size_t index = random() % g.tensors.size();
  Region &region = g.tensors[index];
  const std::string old = "region " + std::to_string(index) + ": row " +
                          std::to_string(region.row) + ", " + std::to_string(region.rows) +
                          " rows, cycles " + std::to_string(region.from) + " to " +
                          std::to_string(region.to);
  if (way == 0)
    step(region.row, random);
  else if (way == 1 ? region.rows < 2 : region.from >= region.to)
    return "";
  else if (way == 1)
    --region.rows;
  else if (way == 2)
    region.to = region.from;
  else
    region.from = region.to;
  return old;
}

std::vector<TableKind> tableKinds() {
  return {
      {"image.header",
       [](Image &g, Random &r) {
         step(g.steps[0].predictedCycles, r);
         return std::string("by 1");
       }},
      {"image.constant",
       [](Image &g, Random &r) {
         if (g.data.empty())
           return std::string();
         const size_t at = r() % g.data.size();
         g.data.edit()[at] ^= uint8_t(0x40);
         return "byte " + std::to_string(at);
       }},
      {"image.block",
       [](Image &g, Random &r) { return g.blocks.empty() ? std::string() : damageBlock(g, r); }},
      {"image.region.row", [](Image &g, Random &r) { return damageRegion(g, r, 0); }},
      {"image.region.rows", [](Image &g, Random &r) { return damageRegion(g, r, 1); }},
      {"image.region.to", [](Image &g, Random &r) { return damageRegion(g, r, 2); }},
      {"image.region.from", [](Image &g, Random &r) { return damageRegion(g, r, 3); }},
  };
}

} // namespace

std::vector<std::string> mutantKinds(Opcode opcode) {
  const std::string mnemonic(info(opcode).mnemonic);
  std::vector<std::string> kinds;
  for (const PlaceKind &kind : placeKinds())
    if (kind.name != std::string("crossed") || opcode == Opcode::Read || opcode == Opcode::Write)
      kinds.push_back(mnemonic + "." + kind.name);
  for (unsigned f = 0; f < kFields; ++f)
    if (info(opcode).fields.has(Field(f)))
      kinds.push_back(mnemonic + "." + kFieldNames[f]);
  return kinds;
}

void forEachMutant(const Image &image, const Machine &machine, unsigned each, unsigned seed,
                   const std::function<void(const Mutant &)> &visit) {
  Random random(seed);
  std::map<Opcode, std::vector<std::pair<unsigned, uint32_t>>> places;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      places[image.instructions[pe][k].opcode].push_back({pe, k});

  using Apply = std::function<bool(Image &, unsigned, uint32_t)>;
  auto some = [&](Opcode opcode, const std::string &what, const Apply &apply) {
    const auto &list = places[opcode];
    for (unsigned done = 0, tries = 0; done < each && tries < 40 * each; ++tries) {
      const auto [pe, index] = list[random() % list.size()];
      Mutant mutant{std::string(info(opcode).mnemonic) + "." + what,
                    "pe " + std::to_string(pe) + ", instruction " + std::to_string(index) +
                        ", try " + std::to_string(tries),
                    image};
      if (!apply(mutant.image, pe, index))
        continue;
      mutant.where += ": " + print(machine, image.instructions[pe][index]) + " -> " +
                      print(machine, mutant.image.instructions[pe][index]);
      restoreOrder(mutant.image, pe);
      ++done;
      visit(mutant);
    }
  };
  for (const auto &[opcode, list] : places) {
    for (const PlaceKind &kind : placeKinds())
      some(opcode, kind.name, [&](Image &g, unsigned pe, uint32_t k) {
        return kind.apply(g, pe, k, machine, random);
      });
    for (unsigned f = 0; f < kFields; ++f)
      if (info(opcode).fields.has(Field(f)))
        some(opcode, kFieldNames[f], [&](Image &g, unsigned pe, uint32_t k) {
          return damage(g.instructions[pe].edit()[k], Field(f), machine, random);
        });
  }
  for (const TableKind &kind : tableKinds())
    for (unsigned done = 0, tries = 0; done < each && tries < 40 * each; ++tries) {
      Mutant mutant{kind.name, "try " + std::to_string(tries), image};
      const std::string what = kind.apply(mutant.image, random);
      if (what.empty())
        continue;
      mutant.where += ": " + what;
      ++done;
      visit(mutant);
    }
}

} // namespace millrace::test
