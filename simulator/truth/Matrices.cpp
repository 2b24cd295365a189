// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Matrices.h"

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Convert.h"
#include "arch/isa/semantics/ExactSum.h"

#include <bit>

namespace millrace::sim::truth {

Matrices::Matrices(Core &core)
    : core(core),
      groups(core.machine.mxm.planes ? core.machine.mxm.columns / core.machine.mxm.columnsPerInstall
                                     : 0),
      width(core.machine.mxm.columnsPerInstall) {}

unsigned Matrices::planeOf(const Work &work) const {
  const Unit unit = core.machine.unit(work.what->queue);
  return unsigned(unit.hemisphere) * core.machine.mxm.planes + unit.index;
}

void Matrices::element(const Work &work, Cycle now) {
  switch (work.what->opcode) {
  case Opcode::Install:
    return install(work, now);
  case Opcode::Clear:
    for (unsigned group = 0; group < groups; ++group)
      fill(work, now, group);
    return;
  case Opcode::Activate:
    return activate(work, now);
  default:
    return accumulate(work, now);
  }
}

/// The group is new, and zero.
void Matrices::fill(const Work &work, Cycle now, unsigned group) {
  groupOf(planeOf(work), work.what->buffer,
          group) = {work.tag(), now, std::vector<Lanes>(width, Lanes(core.machine.lanes()))};
}

void Matrices::install(const Work &work, Cycle now) {
  if (work.row() < 0 || work.row() >= int64_t(groups))
    return core.report(Invariant::S7, now, work, "the column group does not exist");
  const unsigned group = unsigned(work.row());
  fill(work, now, group);
  for (unsigned c = 0; c < width; ++c) {
    const Bytes column = core.sample(work, ProducerOf::A, c, StreamId(work.what->a.index + c),
                                     core.machine.lastPosition(), now);
    if (column)
      groupOf(planeOf(work), work.what->buffer, group).columns[c] = *column;
  }
}

void Matrices::activate(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  core.counters.partnerActivations += byteWidth(i.format) - 1;
  auto activation = std::make_shared<Activation>();
  activation->at = now;
  activation->plane = planeOf(work);
  activation->work = work;
  activation->products.resize(core.machine.mxm.columns);
  for (unsigned b = 0; b < byteWidth(i.format); ++b)
    activation->bytes[b] = core.sample(work, ProducerOf::A, b, StreamId(i.a.index + b),
                                       core.machine.lastPosition(), now);
  activations.push_back(activation);
  products[{activation->plane, now}] = activation;
  const uint64_t macs = uint64_t(i.k1 - i.k0) * (i.g1 - i.g0) * width;
  (i.format == ElementType::Int8 ? core.counters.macsInt8 : core.counters.macsFloat) += macs;
}

/// T12: the activation dispatched mxmEntry + mxmMultiply cycles before, in the same format.
std::shared_ptr<Matrices::Activation> Matrices::activationOf(const Work &work, Cycle now) const {
  const LatencySpec &l = core.machine.latency;
  const auto found = products.find({planeOf(work), now - Cycle(l.mxmEntry) - Cycle(l.mxmMultiply)});
  const bool there =
      found != products.end() && found->second->work.what->format == work.what->format;
  return there ? found->second : nullptr;
}

/// S8, and S4 of the partial sum that an Accumulate adds to (R3).
void Matrices::checkRow(const Work &work, std::pair<unsigned, uint32_t> row, Cycle now) const {
  const auto used = lastUse.find(row);
  const bool written = used != lastUse.end();
  if (work.what->function & AccumulateMode::Add) {
    if (!written) {
      core.report(Invariant::S4, now, work, "adds to a row that nothing has written");
    } else if (used->second.isInteger != (work.what->format == ElementType::Int8)) {
      core.report(Invariant::S4, now, work, "adds to a row of another type");
    } else if (core.checks(work)) {
      const std::optional<Meant> expected = meant(work, ProducerOf::Sum, 0);
      if (!expected || expected->pe != core.pe || expected->tag != used->second.by)
        core.report(Invariant::S4, now, work, "adds to another partial sum than is meant");
    }
  }
  if (written && now < used->second.at + Cycle(core.machine.latency.accumulateInterval))
    core.report(Invariant::S8, now, work, "uses an accumulator row again too soon");
}

void Matrices::accumulate(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  core.counters.partnerAccumulations += byteWidth(i.format) - 1;
  const LatencySpec &l = core.machine.latency;
  if (work.row() < 0 || work.row() >= int64_t(core.machine.mxm.accumulatorRows))
    return core.report(Invariant::S8, now, work, "the accumulator row does not exist");
  Sum sum{now, {planeOf(work), uint32_t(work.row())}, i.function, i.format, activationOf(work, now),
          {}};
  if (!sum.activation) {
    core.report(Invariant::S4, now, work, "no activation gives a product now");
  } else if (core.checks(work)) {
    const std::optional<Meant> expected = meant(work, ProducerOf::Product, 0);
    if (!expected || expected->pe != core.pe || expected->tag != sum.activation->work.tag())
      core.report(Invariant::S4, now, work, "the product is not the one that is meant");
  }
  checkRow(work, sum.row, now);
  lastUse[sum.row] = {now, work.tag(), i.format == ElementType::Int8};
  for (unsigned b = 0; b < 4 && (i.function & AccumulateMode::Emit); ++b) {
    sum.result[b] = core.vector();
    core.inject(work, now + l.mxmAccumulate + l.mxmExit, StreamId(i.out[0] + b),
                core.machine.lastPosition(), sum.result[b]);
  }
  sums.push_back(sum);
}

void Matrices::endCycle(Cycle now) {
  const Cycle product = core.machine.latency.mxmEntry + core.machine.latency.mxmMultiply;
  for (const std::shared_ptr<Activation> &a : activations)
    pass(*a, unsigned(now - a->at));
  std::erase_if(activations, [&](const auto &a) { return now - a->at + 1 >= Cycle(groups); });
  // A product's group c is there in cycle c of its activation at the latest when it is summed.
  for (Sum &sum : sums)
    for (unsigned c = 0; c < groups; ++c)
      if (sum.at + std::max<Cycle>(0, Cycle(c) - product) == now)
        add(sum, c);
  std::erase_if(sums, [&](const Sum &sum) {
    return sum.at + std::max<Cycle>(0, Cycle(groups) - 1 - product) <= now;
  });
  std::erase_if(products, [&](const auto &entry) { return entry.first.second + product < now; });
}

/// T11: an activation dispatched at t uses group c as it stands at t + c.
void Matrices::pass(Activation &a, unsigned group) {
  const Instruction &i = *a.work.what;
  if (group < i.g0 || group >= i.g1)
    return;
  for (unsigned b = 0; b < byteWidth(i.format); ++b)
    checkGroup(a, group, b);
  if (core.values)
    for (unsigned c = group * width; c < (group + 1) * width; ++c)
      a.products[c] = product(a, c);
}

/// S7.
void Matrices::checkGroup(const Activation &a, unsigned group, unsigned byte) {
  const Instruction &i = *a.work.what;
  const Group &there = groupOf(a.plane + byte, i.buffer, group);
  const Cycle needed = a.at + Cycle(group) - Cycle(core.machine.latency.installToActivate);
  const std::optional<Meant> expected = meantWeights(a.work, group - i.g0, byte);
  const bool other =
      core.checks(a.work) && expected && (expected->pe != core.pe || expected->tag != there.tag);
  if (there.tag.empty() || other)
    core.report(Invariant::S7, a.at, a.work, "a column group does not hold what is meant");
  else if (there.at > needed)
    core.report(Invariant::S7, a.at, a.work, "a column group was filled too late");
}

static float decode(ElementType format, uint8_t low, uint8_t high) {
  switch (format) {
  case ElementType::Fp16:
    return semantics::fp16ToFp32(uint16_t(low | high << 8));
  case ElementType::Bf16:
    return semantics::bf16ToFp32(uint16_t(low | high << 8));
  case ElementType::E4M3:
    return semantics::e4m3ToFp32(low);
  default:
    return semantics::e5m2ToFp32(low);
  }
}

/// R13: the exact sum of products over the lanes that multiply, rounded once.
uint32_t Matrices::product(const Activation &a, unsigned column) const {
  const Instruction &i = *a.work.what;
  const bool wide = byteWidth(i.format) == 2;
  const auto columnOf = [&](unsigned byte) -> const Lanes * {
    const auto found = weights.find({a.plane + byte, i.buffer, column / width});
    const bool filled = found != weights.end() && !found->second.columns.empty();
    return filled ? &found->second.columns[column % width] : nullptr; // else S7 was reported
  };
  const Lanes *low = columnOf(0), *high = wide ? columnOf(1) : nullptr;
  semantics::ExactSum sum;
  uint32_t integers = 0;
  for (unsigned k = i.k0; k < i.k1; ++k) {
    const uint8_t x = (*a.bytes[0])[k], y = wide ? (*a.bytes[1])[k] : 0;
    const uint8_t w = low ? (*low)[k] : 0, v = high ? (*high)[k] : 0;
    if (i.format == ElementType::Int8)
      integers += uint32_t(int32_t(int8_t(x)) * int32_t(int8_t(w)));
    else
      sum.addProduct(decode(i.format, x, y), decode(i.format, w, v));
  }
  return i.format == ElementType::Int8 ? integers : std::bit_cast<uint32_t>(sum.rounded());
}

/// R3, for the columns of one group.
void Matrices::add(Sum &sum, unsigned group) {
  if (!core.values)
    return;
  std::vector<uint32_t> &row = accumulators[sum.row];
  row.resize(core.machine.mxm.columns);
  const AluOp plus = sum.format == ElementType::Int8 ? AluOp::AddI32 : AluOp::AddF32;
  for (unsigned c = group * width; c < (group + 1) * width; ++c) {
    if (sum.activation) {
      const uint32_t product = sum.activation->products[c];
      row[c] =
          sum.mode & AccumulateMode::Add ? semantics::applyAlu(plus, row[c], product) : product;
    }
    for (unsigned b = 0; b < 4 && sum.result[b]; ++b)
      (*sum.result[b])[c] = uint8_t(row[c] >> 8 * b);
  }
}

void Matrices::clear() {
  weights.clear();
  activations.clear();
  products.clear();
  sums.clear();
  lastUse.clear();
  accumulators.clear();
}

} // namespace millrace::sim::truth
