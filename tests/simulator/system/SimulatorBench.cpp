// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How fast the simulator is: a stream of annotated kernels of the size of ResNet-50's on tsp-v1.
// Timed by hand. Usage: SimulatorBench [int8|fp16] [tiles]
#include "tests/simulator/system/Program.h"

#include <chrono>

using namespace millrace;
using namespace millrace::sim;
using namespace millrace::sim::test;

namespace {
constexpr unsigned kRows = 196; ///< activations per tile

/// Adds the instruction's index-free annotations: the producer is found by (unit, cycle) after
/// sorting.
struct Note {
  Unit unit;
  Cycle cycle;
  ProducerOf of;
  Unit producer;
  Cycle produced;
  unsigned count;
  uint8_t byte;
  int32_t step;
};

struct Builder {
  Program p{machineNamed("tsp-v1")};
  std::vector<Note> notes;
  bool halves;

  void tile(unsigned hemisphere, unsigned number);
  void finish();
};

void Builder::tile(unsigned hemisphere, unsigned number) {
  const Hemisphere h = Hemisphere(hemisphere);
  const unsigned planes = p.machine.mxm.planes, pairs = halves ? 1 : planes;
  const Cycle start = 100 + Cycle(number) * (kRows + 44);
  const unsigned buffer = number % 2;
  for (unsigned plane = 0; plane < planes; ++plane) {
    const Cycle install = start + 20 * plane;
    for (unsigned s = 0; s < 16; ++s) {
      const unsigned slice = 16 + s;
      const Cycle t = install - 1 - (11 - p.machine.position(slice));
      p.read(t, h, slice, (number % 100) * 40 + 20 * plane, p.stream(h, Out, s), times(20));
      notes.push_back({{UnitKind::MxmInstall, h, plane},
                       install,
                       ProducerOf::A,
                       {UnitKind::Mem, h, slice},
                       t,
                       20,
                       uint8_t(s),
                       1});
    }
    p.install(install, h, plane, buffer, 0, p.on(h, Out, 0), times(20));
  }
  const Cycle activate = start + 44;
  for (unsigned plane = 0; plane < pairs; ++plane) {
    const ElementType format = halves ? ElementType::Fp16 : ElementType::Int8;
    const unsigned bytes = halves ? 2 : 1, in = 16 + 2 * plane;
    const Unit act{UnitKind::MxmActivate, h, plane}, acc{UnitKind::MxmAccumulate, h, plane};
    for (unsigned b = 0; b < bytes; ++b) {
      const unsigned slice = 40 + 2 * plane + b;
      const Cycle t = activate - 1 - (11 - p.machine.position(slice));
      p.read(t, h, slice, 0, p.stream(h, Out, in + b), times(kRows));
      notes.push_back(
          {act, activate, ProducerOf::A, {UnitKind::Mem, h, slice}, t, kRows, uint8_t(b), 1});
    }
    p.activate(activate, h, plane, buffer, p.on(h, Out, in, bytes), format, 0, halves ? 160 : 320,
               20, times(kRows));
    for (unsigned b = 0; b < bytes; ++b)
      notes.push_back({act,
                       activate,
                       ProducerOf::Weights,
                       {UnitKind::MxmInstall, h, plane + b},
                       start + 20 * (plane + b),
                       20,
                       uint8_t(b),
                       1});
    p.accumulate(activate + 21, h, plane, 0, AccumulateMode::Emit, format,
                 p.stream(h, In, 4 * plane), times(kRows));
    notes.push_back({acc, activate + 21, ProducerOf::Product, act, activate, kRows, kAllBytes, 1});
    const Cycle vxm = activate + 21 + 38 + 11;
    const unsigned first = 8 * hemisphere + 4 * plane;
    const AluOp ops[] = {halves ? AluOp::Pass : AluOp::CvtI32F32, AluOp::MulF32, AluOp::ReluF32,
                         halves ? AluOp::CvtF32F16 : AluOp::CvtF32I8};
    for (unsigned k = 0; k < 4; ++k) {
      const StreamId out = k == 3 ? p.stream(h, Out, 24 + 2 * plane) : kNoStream;
      p.compute(vxm + 3 * k, first + k, ops[k],
                k ? Program::alu(first + k - 1) : p.on(h, In, 4 * plane, 4),
                k == 1 ? Program::immediate() : Operand{}, out, bytes, times(kRows))
          .immediate = 0x3c000000;
      notes.push_back({{UnitKind::Alu, W, first + k},
                       vxm + 3 * k,
                       ProducerOf::A,
                       k ? Unit{UnitKind::Alu, W, first + k - 1} : acc,
                       k ? vxm + 3 * k - 3 : activate + 21,
                       kRows,
                       kAllBytes,
                       1});
    }
    for (unsigned b = 0; b < bytes; ++b) {
      const unsigned slice = 4 * plane + 2 * b;
      const Cycle t = vxm + 9 + 7 + p.machine.position(slice);
      p.write(t, h, slice, 0, p.on(h, Out, 24 + 2 * plane + b), times(kRows));
      notes.push_back({{UnitKind::Mem, h, slice},
                       t,
                       ProducerOf::A,
                       {UnitKind::Alu, W, first + 3},
                       vxm + 9,
                       kRows,
                       kAllBytes,
                       1});
    }
  }
}

void Builder::finish() {
  p.sort();
  const auto &list = p.image.instructions[0];
  std::map<std::pair<unsigned, Cycle>, uint32_t> index;
  for (uint32_t k = 0; k < list.size(); ++k)
    index[{list[k].queue, Cycle(list[k].cycle)}] = k;
  std::vector<std::vector<Producer>> byInstruction(list.size());
  for (const Note &n : notes) {
    Producer entry;
    entry.of = n.of, entry.byte = n.byte,
    entry.instruction = index.at({p.machine.queue(n.producer), n.produced});
    entry.count0 = uint16_t(n.count), entry.count1 = 1, entry.step0 = n.step;
    byInstruction[index.at({p.machine.queue(n.unit), n.cycle})].push_back(entry);
  }
  for (uint32_t k = 0; k < list.size(); ++k) {
    Instruction &i = p.image.instructions[0].edit()[k];
    if (i.opcode == Opcode::Read) {
      Producer entry;
      entry.of = ProducerOf::Memory, entry.instruction = kInitialContents;
      const Region &r = p.image.tensors[i.tensor];
      for (uint32_t b = 0; b < p.image.blocks.size(); ++b)
        if (p.image.blocks[b].tensor == i.tensor)
          entry.block = b;
      entry.first = i.address - r.row, entry.count0 = i.n0, entry.count1 = 1, entry.step0 = 1;
      byInstruction[k].push_back(entry);
    }
    i.producers = uint32_t(p.image.producers[0].size());
    i.producerCount = uint16_t(byInstruction[k].size());
    p.image.producers[0].append(byInstruction[k].begin(), byInstruction[k].end());
  }
}
} // namespace

int main(int argc, char **argv) {
  Builder b;
  b.halves = argc > 1 && std::string(argv[1]) == "fp16";
  const unsigned tiles = argc > 2 ? unsigned(atoi(argv[2])) : 125;
  uint8_t value = 1;
  for (Hemisphere h : {W, E}) {
    for (unsigned slice = 16; slice < 32; ++slice)
      b.p.rows(h, slice, 0, std::vector<Row>(4000, Row(320, value = uint8_t(value * 5 + 1))));
    for (unsigned slice = 40; slice < 44; ++slice)
      b.p.rows(h, slice, 0,
               std::vector<Row>(kRows, Row(320, value = uint8_t(value * 5 + 1) & 0x3f)));
    for (unsigned slice = 0; slice < 8; slice += 2)
      b.p.tensor(h, slice, 0, kRows);
  }
  for (unsigned t = 0; t < tiles; ++t)
    for (unsigned h = 0; h < 2; ++h)
      b.tile(h, t);
  b.finish();
  Image &image = b.p.image;
  image.machineHash = b.p.machine.hash();
  image.steps.assign(1, Step());
  image.steps[0].pes = {{0, uint32_t(image.instructions[0].size())}};
  for (bool values : {false, false, true}) {
    SimulationOptions options;
    options.values = values;
    auto begin = std::chrono::steady_clock::now();
    auto r = simulate(image, b.p.machine, options);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!r) {
      puts(r.error().c_str());
      return 1;
    }
    image.steps[0].predictedCycles = r->measuredCycles;
    uint64_t elements = 0;
    for (uint64_t n : r->total.busy)
      elements += n;
    printf("%s: %.3f s, %zu instructions, %llu cycles, %llu elements (%.1f ns each), %llu MACs, "
           "%llu stream vectors; %s\n",
           values ? "values" : "cycles", seconds, image.instructions[0].size(),
           (unsigned long long)r->measuredCycles, (unsigned long long)elements,
           1e9 * seconds / double(elements),
           (unsigned long long)(r->total.macsInt8 + r->total.macsFloat),
           (unsigned long long)r->total.streamVectors, verdict(*r).c_str());
  }
}
