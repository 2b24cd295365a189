// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/pe/MatrixUnit.h"

#include <algorithm>

namespace millrace::sim {

MatrixUnit::MatrixUnit(const sc_core::sc_module_name &name, PeContext &context, size_t batch)
    : UnitModule(name, context), batch(batch), groupCount(context.timing.weightWave),
      groupColumns(context.machine.mxm.columnsPerInstall), columns(context.machine.mxm.columns),
      lanes(context.machine.lanes()) {
  for (unsigned p = 0; p < context.machine.mxm.planes; ++p) {
    auto plane = std::make_unique<Plane>();
    plane->unit = this;
    plane->index = p;
    plane->buffers.resize(context.machine.mxm.buffers);
    for (Buffer &buffer : plane->buffers)
      buffer.groups.resize(groupCount);
    plane->sums.resize(context.machine.mxm.accumulatorRows);
    plane->accumulators.resize(context.machine.mxm.accumulatorRows);
    planes.push_back(std::move(plane));
  }
}

MatrixUnit::~MatrixUnit() = default;

void MatrixUnit::element(Burst &burst, Cycle now) {
  switch (burst.instruction->opcode) {
  case Opcode::Install:
    return install(burst, now);
  case Opcode::Clear:
    return clear(burst, now);
  case Opcode::Activate:
    return activate(burst, now);
  default:
    return accumulate(burst, now);
  }
}

// ---- Weights ------------------------------------------------------------------------------------

void MatrixUnit::install(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  const unsigned planeIndex = context.unitOf(i.queue).index;
  const int64_t group = burst.row();
  if (group < 0 || group >= int64_t(groupCount)) {
    context.report(Invariant::S7, now, burst, [&] {
      return "column group " + std::to_string(group) + " does not exist; a plane has " +
             std::to_string(groupCount);
    });
    return;
  }
  replace(burst, planeIndex, unsigned(group), now);
  PlaneWeights *weights = planes[planeIndex]->buffers[i.buffer].weights.get();
  columnBytes.resize(lanes);
  for (unsigned c = 0; c < groupColumns; ++c) {
    VectorRef column = context.sample(burst, ProducerOf::A, std::min(c, slot::B - 1), c,
                                      StreamId(i.a.index + c), context.timing.last, now);
    if (context.values)
      weights->installColumns(unsigned(group) * groupColumns + c, 1,
                              context.pool.bytes(column, columnBytes.data()), lanes);
  }
}

void MatrixUnit::clear(Burst &burst, Cycle now) {
  const unsigned planeIndex = context.unitOf(burst.instruction->queue).index;
  for (unsigned group = 0; group < groupCount; ++group)
    replace(burst, planeIndex, group, now);
  if (context.values)
    planes[planeIndex]->buffers[burst.instruction->buffer].weights->clear();
}

void MatrixUnit::replace(Burst &burst, unsigned planeIndex, unsigned group, Cycle now) {
  const unsigned bufferIndex = burst.instruction->buffer;
  beforeInstall(planeIndex, bufferIndex, group, now);
  Buffer &buffer = planes[planeIndex]->buffers[bufferIndex];
  buffer.groups[group] = {burst.tag(), now};
  if (context.values && !buffer.weights)
    buffer.weights = std::make_unique<PlaneWeights>(lanes, columns);
}

void MatrixUnit::beforeInstall(unsigned planeIndex, unsigned buffer, unsigned group, Cycle now) {
  auto settleRuns = [&](Plane &plane, bool pairsOnly) {
    for (std::unique_ptr<Run> &run : plane.runs) {
      if (run->burst.instruction->buffer != buffer || (pairsOnly && planesOf(*run) == 1) ||
          group < run->groups0 || group >= run->groups1)
        continue;
      verify(*run, plane.index, group, now);
      if (!context.values)
        continue;
      const size_t until = settledBefore(*run, group, now);
      if (run->computed[group] > until)
        run->computed[group] = until; // the rest was computed ahead, with weights that go now
      else
        multiplyAll(plane, *run, until);
    }
  };
  settleRuns(*planes[planeIndex], false);
  if (planeIndex % 2)
    settleRuns(*planes[planeIndex - 1], true);
}

size_t MatrixUnit::settledBefore(const Run &run, unsigned group, Cycle now) {
  auto end = std::partition_point(run.activations.begin(), run.activations.end(),
                                  [&](const Activation &a) { return a.at + Cycle(group) < now; });
  return run.discarded + size_t(end - run.activations.begin());
}

/// S7 for the elements that used the group's present contents and no later ones.
void MatrixUnit::verify(Run &run, unsigned planeIndex, unsigned group, Cycle now) {
  size_t until = settledBefore(run, group, now);
  size_t &from = run.verified[group];
  if (from >= until)
    return;
  verifyBytes(run, planeIndex, group, from);
  from = until;
}

void MatrixUnit::verifyBytes(Run &run, unsigned planeIndex, unsigned group, size_t element) {
  const Cycle at = run.at(element).at;
  for (unsigned byte = 0; byte < planesOf(run); ++byte) {
    const Group &held =
        planes[planeIndex + byte]->buffers[run.burst.instruction->buffer].groups[group];
    auto expected = meantWeights(run.burst.producers, group - run.groups0, byte);
    bool wrong = context.checks(run.burst) && expected &&
                 (held.tag != expected->tag || expected->pe != context.pe);
    if (held.tag.empty() || wrong)
      context.report(Invariant::S7, at, run.burst, [&] {
        return "column group " + std::to_string(group) + " of buffer " +
               std::to_string(run.burst.instruction->buffer) + " should hold " +
               (expected ? context.describe(expected->tag) : std::string("weights")) +
               ", but holds " + context.describe(held.tag);
      });
    else if (held.at > at + Cycle(group) - Cycle(context.machine.latency.installToActivate))
      context.report(Invariant::S7, at, run.burst, [&] {
        return "column group " + std::to_string(group) + " is installed in cycle " +
               std::to_string(held.at) + "; this activation needs it by cycle " +
               std::to_string(at + Cycle(group) - Cycle(context.machine.latency.installToActivate));
      });
  }
}

// ---- Activations --------------------------------------------------------------------------------

std::unique_ptr<MatrixUnit::Run> MatrixUnit::newRun(const Burst &burst) {
  std::unique_ptr<Run> run;
  if (spare.empty()) {
    run = std::make_unique<Run>();
  } else {
    run = std::move(spare.back());
    spare.pop_back();
  }
  run->burst = burst;
  run->groups0 = burst.instruction->g0;
  run->groups1 = burst.instruction->g1;
  run->discarded = run->taken = 0;
  run->verified.assign(groupCount, 0);
  run->computed.assign(groupCount, 0);
  run->activations.clear();
  run->low.clear();
  run->high.clear();
  run->products.clear();
  return run;
}

void MatrixUnit::activate(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  Plane &plane = *planes[context.unitOf(i.queue).index];
  if (plane.runs.empty() || plane.runs.back()->burst.index != burst.index || burst.number == 0) {
    dropRuns(plane, now);
    plane.runs.push_back(newRun(burst));
  }
  Run &run = *plane.runs.back();
  const unsigned bytes = byteWidth(i.format);
  context.counters.partnerActivations += bytes - 1;
  for (unsigned b = 0; b < bytes; ++b) {
    VectorRef v = context.sample(burst, ProducerOf::A, slot::A + b, b, StreamId(i.a.index + b),
                                 context.timing.last, now);
    if (!context.values)
      continue;
    UnfilledRows<uint8_t> &rows = b ? run.high : run.low;
    rows.resize(rows.size() + lanes);
    uint8_t *row = rows.data() + rows.size() - lanes;
    const uint8_t *from = context.pool.bytes(v, row);
    if (from != row)
      std::memcpy(row, from, lanes);
  }
  run.activations.push_back({now, burst.number});
  if (run.activations.size() >= batch)
    trim(plane, run);
  uint64_t macs = uint64_t(i.k1 - i.k0) * (i.g1 - i.g0) * groupColumns;
  (i.format == ElementType::Int8 ? context.counters.macsInt8 : context.counters.macsFloat) += macs;
}

std::pair<MatrixUnit::Run *, size_t> MatrixUnit::productOf(Plane &plane, Cycle activated) {
  for (std::unique_ptr<Run> &run : plane.runs) {
    while (run->taken < run->count() && run->at(run->taken).at < activated)
      ++run->taken;
    if (run->taken < run->count() && run->at(run->taken).at == activated)
      return {run.get(), run->taken++};
  }
  return {nullptr, 0};
}

static bool isInteger(const Burst &accumulate) {
  return accumulate.instruction->format == ElementType::Int8;
}

/// Whether an Accumulate adds to a partial sum of its type, and the one that is meant.
void MatrixUnit::checkSum(Burst &burst, const LastSum &sum, int64_t row, Cycle now) {
  const Tag &held = sum.tag;
  if (held.empty()) {
    context.report(Invariant::S4, now, burst, [&] {
      return "adds to accumulator row " + std::to_string(row) + ", which nothing has written";
    });
  } else if (sum.isInteger != isInteger(burst)) {
    context.report(Invariant::S4, now, burst, [&] {
      return "adds a product of " + std::string(millrace::nameOf(burst.instruction->format)) +
             " to accumulator row " + std::to_string(row) + ", which holds " +
             (sum.isInteger ? "int32" : "fp32");
    });
  } else if (context.checks(burst)) {
    if (!isMeant(burst, ProducerOf::Sum, slot::Sum, 0, held, context.pe))
      context.report(Invariant::S4, now, burst, [&] {
        const auto expected = meant(burst, ProducerOf::Sum, slot::Sum, 0);
        return "accumulator row " + std::to_string(row) + " should hold the sum of " +
               (expected ? context.describe(expected->tag)
                         : std::string("an annotated Accumulate")) +
               ", but holds that of " + context.describe(held);
      });
  }
}

void MatrixUnit::accumulate(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  context.counters.partnerAccumulations += byteWidth(i.format) - 1;
  Plane &plane = *planes[context.unitOf(i.queue).index];
  // Before this product is taken: what is taken and in no operation may be dropped with the rest.
  if (plane.operations.size() >= batch)
    compute(plane);
  const Cycle activated = now - context.timing.product;
  auto [run, element] = productOf(plane, activated);
  const int64_t row = burst.row();
  if (row < 0 || row >= int64_t(plane.sums.size())) {
    context.report(Invariant::S8, now, burst, [&] {
      return "accumulator row " + std::to_string(row) + " does not exist; a plane has " +
             std::to_string(plane.sums.size());
    });
    return;
  }
  if (!run || run->burst.instruction->format != i.format) {
    context.report(Invariant::S4, now, burst, [&] {
      return "no " + std::string(millrace::nameOf(i.format)) + " activation of cycle " +
             std::to_string(activated) + " gives a product now";
    });
    run = nullptr;
  } else if (context.checks(burst)) {
    Tag tag{run->burst.index, run->at(element).element};
    if (!isMeant(burst, ProducerOf::Product, slot::Product, 0, tag, context.pe))
      context.report(Invariant::S4, now, burst, [&] {
        const auto expected = meant(burst, ProducerOf::Product, slot::Product, 0);
        return "the product should be of " +
               (expected ? context.describe(expected->tag)
                         : std::string("an annotated activation")) +
               ", but is of " + context.describe(tag);
      });
  }
  LastSum &sum = plane.sums[size_t(row)];
  if (i.function & AccumulateMode::Add)
    checkSum(burst, sum, row, now);
  if (sum.at + Cycle(context.machine.latency.accumulateInterval) > now)
    context.report(Invariant::S8, now, burst, [&] {
      return "accumulator row " + std::to_string(row) + " was used in cycle " +
             std::to_string(sum.at) + " and is free again after " +
             std::to_string(context.machine.latency.accumulateInterval) + " cycles";
    });
  sum = {now, burst.tag(), isInteger(burst)};
  const bool emits = i.function & AccumulateMode::Emit;
  VectorRef result = 0;
  if (context.values && emits)
    result = context.pool.acquireWide(); // this reference belongs to the operation
  if (emits)
    for (unsigned b = 0; b < 4; ++b) {
      context.pool.retain(result);
      context.inject(burst, now + context.timing.emit, StreamId(i.out[0] + b), context.timing.last,
                     context.values ? VectorPool::byteOf(result, b) : 0);
    }
  if (!context.values)
    return;
  if (result)
    context.pool.setSource(result, &plane);
  plane.operations.push_back({activated, run, element, uint32_t(row), i.function, result});
}

// ---- Values -------------------------------------------------------------------------------------

/// A row of products for every activation. Columns of groups that the run leaves out are 0.
void MatrixUnit::growProducts(Run &run) const {
  const size_t begin = run.groups0 * groupColumns, end = run.groups1 * groupColumns;
  size_t row = run.products.size() / columns;
  run.products.resize(run.activations.size() * columns);
  for (; row < run.activations.size(); ++row) {
    uint32_t *products = run.products.data() + row * columns;
    std::fill(products, products + begin, 0);
    std::fill(products + end, products + columns, 0);
  }
}

/// Products of column groups [group0, group1) for the elements of the run before `until`.
void MatrixUnit::multiply(Plane &plane, Run &run, unsigned group0, unsigned group1, size_t until) {
  size_t from = run.computed[group0];
  if (from >= until || group0 >= group1)
    return;
  const Instruction &i = *run.burst.instruction;
  const size_t rowCount = until - from, skip = from - run.discarded;
  growProducts(run);
  lowRows.resize(rowCount);
  highRows.resize(rowCount);
  for (size_t r = 0; r < rowCount; ++r) {
    lowRows[r] = run.low.data() + (skip + r) * lanes;
    highRows[r] = run.high.empty() ? nullptr : run.high.data() + (skip + r) * lanes;
  }
  const bool whole = group0 == run.groups0 && group1 == run.groups1;
  if (!whole)
    partial.resize(rowCount * columns);
  uint32_t *out = whole ? run.products.data() + skip * columns : partial.data();
  const PlaneWeights *weights[2] = {};
  for (unsigned b = 0; b < planesOf(run); ++b) {
    Buffer &buffer = planes[plane.index + b]->buffers[i.buffer];
    if (!buffer.weights)
      buffer.weights =
          std::make_unique<PlaneWeights>(lanes, columns); // never installed: S7 was reported
    weights[b] = buffer.weights.get();
  }
  ProductRange range{i.k0, i.k1, group0 * groupColumns, (group1 - group0) * groupColumns};
  gemm(*weights[0], weights[1], i.format, lowRows.data(), highRows.data(), rowCount, range, out);
  if (!whole)
    for (size_t r = 0; r < rowCount; ++r)
      std::copy_n(out + r * columns + range.firstColumn, range.columnCount,
                  run.products.data() + (skip + r) * columns + range.firstColumn);
  for (unsigned g = group0; g < group1; ++g)
    run.computed[g] = until;
}

void MatrixUnit::multiplyAll(Plane &plane, Run &run, size_t until) {
  for (unsigned g = run.groups0; g < run.groups1;) {
    unsigned end = g + 1;
    while (end < run.groups1 && run.computed[end] == run.computed[g])
      ++end;
    multiply(plane, run, g, end, until);
    g = end;
  }
}

/// Performs every Accumulate whose product's weights are settled.
void MatrixUnit::compute(Plane &plane) {
  size_t ready = 0;
  while (ready < plane.operations.size() &&
         plane.operations[ready].activated + Cycle(groupCount) <= context.now)
    ++ready;
  for (size_t k = 0; k < ready; ++k) {
    const Operation &last = plane.operations[k];
    bool lastOfRun = k + 1 == ready || plane.operations[k + 1].run != last.run;
    if (last.run && lastOfRun)
      multiplyAll(plane, *last.run, last.element + 1);
  }
  for (size_t k = 0; k < ready; ++k)
    perform(plane, plane.operations[k]);
  plane.operations.erase(plane.operations.begin(), plane.operations.begin() + ptrdiff_t(ready));
  for (std::unique_ptr<Run> &run : plane.runs) {
    for (unsigned g = run->groups0; g < run->groups1; ++g)
      verify(*run, plane.index, g, context.now);
    discard(plane, *run);
  }
}

void MatrixUnit::perform(Plane &plane, const Operation &o) {
  std::vector<uint32_t> &row = plane.accumulators[o.row];
  if (row.empty())
    row.resize(columns); // accumulators start at +0
  if (o.run) {
    const uint32_t *product = o.run->products.data() + (o.element - o.run->discarded) * columns;
    if (o.mode & AccumulateMode::Add)
      accumulateRows(o.run->burst.instruction->format, product, row.data(), columns);
    else
      std::copy_n(product, columns, row.data());
  }
  if (!o.result)
    return;
  uint32_t *out = context.pool.wideStorage(o.result);
  const size_t common = std::min<size_t>(columns, lanes);
  std::copy_n(row.data(), common, out);
  std::fill(out + common, out + lanes, 0);
  context.pool.setSource(o.result, nullptr);
  context.pool.release(o.result);
}

/// Drops the elements that nobody needs any more.
void MatrixUnit::discard(Plane &plane, Run &run) {
  size_t done = run.taken;
  for (const Operation &o : plane.operations)
    if (o.run == &run)
      done = std::min(done, o.element);
  for (unsigned g = run.groups0; g < run.groups1; ++g)
    done = std::min({done, run.verified[g], context.values ? run.computed[g] : done});
  if (done <= run.discarded + 256 && done < run.count())
    return;
  size_t n = done - run.discarded;
  auto erase = [&](auto &rows, size_t width) {
    rows.erase(rows.begin(), rows.begin() + ptrdiff_t(std::min(rows.size(), n * width)));
  };
  erase(run.activations, 1);
  erase(run.low, lanes);
  erase(run.high, lanes);
  erase(run.products, columns);
  run.discarded = done;
}

/// Keeps a long run short although nobody asks for its results.
void MatrixUnit::trim(Plane &plane, Run &run) {
  compute(plane);
  while (run.taken < run.count() &&
         run.at(run.taken).at + Cycle(context.timing.product) < context.now)
    ++run.taken;
  if (context.values)
    multiplyAll(plane, run, settledBefore(run, groupCount - 1, context.now));
  discard(plane, run);
}

/// Forgets runs that are over and settled.
void MatrixUnit::dropRuns(Plane &plane, Cycle now) {
  while (!plane.runs.empty()) {
    Run &run = *plane.runs.front();
    const Cycle last = run.burst.lastCycle();
    if (last + Cycle(groupCount) >= now || last + Cycle(context.timing.product) >= now)
      return;
    for (const Operation &o : plane.operations)
      if (o.run == &run)
        return;
    for (unsigned g = run.groups0; g < run.groups1; ++g)
      verify(run, plane.index, g, now);
    spare.push_back(std::move(plane.runs.front()));
    plane.runs.pop_front();
  }
}

void MatrixUnit::settle(Cycle now) {
  for (std::unique_ptr<Plane> &plane : planes)
    for (std::unique_ptr<Run> &run : plane->runs)
      for (unsigned g = run->groups0; g < run->groups1; ++g)
        verify(*run, plane->index, g, now);
}

void MatrixUnit::endStep() {
  for (std::unique_ptr<Plane> &plane : planes) {
    for (Operation &o : plane->operations)
      if (o.result) { // a result that nobody sampled
        context.pool.setSource(o.result, nullptr);
        context.pool.release(o.result);
      }
    plane->operations.clear();
    plane->runs.clear();
    for (Buffer &buffer : plane->buffers)
      buffer.groups.assign(groupCount, Group());
    plane->sums.assign(plane->sums.size(), LastSum());
    for (std::vector<uint32_t> &row : plane->accumulators)
      row.clear();
  }
}

} // namespace millrace::sim
