// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Switches.h"

namespace millrace::sim::truth {

/// T10.
Cycle Switches::latency(const Work &work) const {
  const LatencySpec &l = core.machine.latency;
  switch (work.what->opcode) {
  case Opcode::Transpose:
    return l.sxmEntry + l.transposer + l.transposerExit;
  case Opcode::Permute:
    return l.sxmEntry + l.permutor;
  case Opcode::Distribute:
    return l.sxmEntry + l.distributor;
  case Opcode::Shift:
    return l.sxmEntry + l.shifter;
  case Opcode::Select:
    return l.sxmEntry + l.selector;
  default:
    return l.sxmEntry + l.rotator;
  }
}

/// Lane l of output stream s is lane s of input stream l, in every superlane; lanes of a superlane
/// beyond the square stay 0.
void Switches::transpose(const std::vector<Bytes> &in, const std::vector<Bytes> &out) const {
  const unsigned width = core.machine.lanesPerSuperlane;
  for (unsigned superlane = 0; superlane < core.machine.superlanes; ++superlane)
    for (unsigned s = 0; s < 16; ++s)
      for (unsigned l = 0; l < 16; ++l)
        (*out[s])[superlane * width + l] = (*in[l])[superlane * width + s];
}

/// One lane of the result of any other unit.
uint8_t Switches::lane(const Work &work, const std::vector<uint16_t> &map, const Lanes &a,
                       const Lanes *b, unsigned lane) const {
  const Instruction &i = *work.what;
  const unsigned width = core.machine.lanesPerSuperlane;
  const int64_t from = int64_t(lane) - int32_t(i.immediate);
  switch (i.opcode) {
  case Opcode::Permute:
    return map[lane] < a.size() ? a[map[lane]] : 0;
  case Opcode::Distribute:
    return map[lane] < width ? a[lane / width * width + map[lane]] : 0;
  case Opcode::Shift:
    return from >= 0 && from < int64_t(a.size()) ? a[size_t(from)] : 0;
  case Opcode::Select:
    return map[lane] ? a[lane] : (*b)[lane];
  default: { // Rotate
    if (lane < i.k0 || lane >= i.k1)
      return a[lane];
    const int64_t size = i.k1 - i.k0, moved = (from - i.k0) % size;
    return a[size_t(i.k0 + (moved < 0 ? moved + size : moved))];
  }
  }
}

void Switches::element(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  if (i.opcode == Opcode::Config) {
    maps[i.queue] = i.address;
    return;
  }
  const unsigned last = core.machine.lastPosition(), width = i.opcode == Opcode::Transpose ? 16 : 1;
  std::vector<Bytes> in, out;
  for (unsigned s = 0; s < width; ++s) {
    in.push_back(core.sample(work, ProducerOf::A, s, StreamId(i.a.index + s), last, now));
    out.push_back(core.vector());
  }
  Bytes b;
  if (i.opcode == Opcode::Select)
    b = core.sample(work, ProducerOf::B, 0, i.b.index, last, now);
  const bool mapped =
      i.opcode == Opcode::Permute || i.opcode == Opcode::Distribute || i.opcode == Opcode::Select;
  const auto map = maps.find(i.queue);
  const bool ready = !mapped || map != maps.end();
  if (!ready)
    core.report(Invariant::S4, now, work, "the unit has no lane map");
  if (core.values && i.opcode == Opcode::Transpose) {
    transpose(in, out);
  } else if (core.values && ready) {
    static const std::vector<uint16_t> none;
    for (unsigned l = 0; l < core.machine.lanes(); ++l)
      (*out[0])[l] =
          lane(work, mapped ? core.image.laneMaps[map->second] : none, *in[0], b.get(), l);
  }
  for (unsigned s = 0; s < width; ++s)
    core.inject(work, now + latency(work), StreamId(i.out[0] + s), last, out[s]);
}

} // namespace millrace::sim::truth
