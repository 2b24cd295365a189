// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/pe/SwitchUnit.h"

namespace millrace::sim {

SwitchUnit::SwitchUnit(const sc_core::sc_module_name &name, PeContext &context, Hemisphere)
    : UnitModule(name, context), map(context.machine.queues()) {
  for (std::vector<uint8_t> &s : scratch)
    s.resize(context.machine.lanes());
}

unsigned SwitchUnit::inputs(const Instruction &i) const {
  return i.opcode == Opcode::Transpose ? kSquare : 1;
}

void SwitchUnit::element(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  if (i.opcode == Opcode::Config) {
    map[i.queue] = i.address;
    return;
  }
  const unsigned last = context.timing.last, width = inputs(i);
  std::vector<VectorRef> in(width), out(width);
  for (unsigned b = 0; b < width; ++b)
    in[b] =
        context.sample(burst, ProducerOf::A, slot::A + b, b, StreamId(i.a.index + b), last, now);
  if (i.opcode == Opcode::Select)
    in.push_back(context.sample(burst, ProducerOf::B, slot::B, 0, i.b.index, last, now));
  const bool needsMap =
      i.opcode == Opcode::Permute || i.opcode == Opcode::Distribute || i.opcode == Opcode::Select;
  if (needsMap && !map[i.queue])
    context.report(Invariant::S4, now, burst,
                   [] { return "no lane map was loaded into this unit"; });
  if (context.values) {
    for (VectorRef &v : out)
      v = context.pool.acquireNarrow();
    if (i.opcode == Opcode::Transpose)
      transpose(in, out);
    else if (!needsMap || map[i.queue])
      moveLanes(i, in, context.pool.narrow(out[0]),
                needsMap ? context.laneMap(*map[i.queue]).data() : nullptr);
    else
      std::memset(context.pool.narrow(out[0]), 0, context.machine.lanes());
  }
  const Cycle at = now + context.timing.switchResult[unsigned(context.unitOf(i.queue).kind)];
  for (unsigned b = 0; b < width; ++b)
    context.inject(burst, at, StreamId(i.out[0] + b), last, out[b]);
}

/// Lane l of output stream s is lane s of input stream l, in every superlane; lanes of a superlane
/// beyond the square are 0.
void SwitchUnit::transpose(const std::vector<VectorRef> &in, std::vector<VectorRef> &out) {
  const Machine &m = context.machine;
  if (m.lanesPerSuperlane > kSquare)
    for (VectorRef v : out)
      std::memset(context.pool.narrow(v), 0, m.lanes());
  std::vector<uint8_t> cut(m.lanes());
  for (unsigned l = 0; l < kSquare; ++l) {
    const uint8_t *from = context.pool.bytes(in[l], cut.data());
    for (unsigned superlane = 0; superlane < m.superlanes; ++superlane)
      for (unsigned s = 0; s < kSquare; ++s)
        context.pool.narrow(out[s])[superlane * m.lanesPerSuperlane + l] =
            from[superlane * m.lanesPerSuperlane + s];
  }
}

void SwitchUnit::moveLanes(const Instruction &i, const std::vector<VectorRef> &in, uint8_t *out,
                           const uint16_t *map) {
  const int lanes = int(context.machine.lanes()),
            perSuperlane = int(context.machine.lanesPerSuperlane);
  const uint8_t *a = context.pool.bytes(in[0], scratch[0].data());
  const uint8_t *b = in.size() > 1 ? context.pool.bytes(in[1], scratch[1].data()) : nullptr;
  const int64_t shift = int32_t(i.immediate);
  const int64_t width = std::max(1, int(i.k1) - int(i.k0));
  for (int l = 0; l < lanes; ++l) {
    switch (i.opcode) {
    case Opcode::Permute:
      out[l] = map[l] < lanes ? a[map[l]] : 0;
      break;
    case Opcode::Distribute: // the map names lanes within the superlane
      out[l] = map[l] < perSuperlane ? a[l / perSuperlane * perSuperlane + map[l]] : 0;
      break;
    case Opcode::Shift:
      out[l] = l - shift >= 0 && l - shift < lanes ? a[l - shift] : 0;
      break;
    case Opcode::Select:
      out[l] = map[l] ? a[l] : b[l];
      break;
    default: { // Rotate
      bool moves = l >= i.k0 && l < i.k1;
      int64_t from = moves ? i.k0 + (((l - i.k0 - shift) % width) + width) % width : l;
      out[l] = a[from];
    }
    }
  }
}

void SwitchUnit::endStep() { map.assign(map.size(), std::nullopt); }

} // namespace millrace::sim
