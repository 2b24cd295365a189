// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a value keeps weights, accumulator rows, latches and memory rows from other values.
#include "compiler/Schedule/Problem/Extractor.h"

#include "arch/program/PlacementWalk.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace millrace::schedule {
namespace {

/// The first of each bundle's moments, or with `last` the last.
std::vector<Moment> onePerBundle(std::vector<Moment> moments, bool last) {
  std::sort(moments.begin(), moments.end());
  std::vector<Moment> result;
  for (const Moment &m : moments)
    if (result.empty() || result.back().bundle != m.bundle)
      result.push_back(m);
    else if (last)
      result.back() = m;
  return result;
}

} // namespace

std::vector<bool> regionsLoaded(const Image &image) {
  std::vector<bool> loaded(image.tensors.size());
  for (const Block &b : image.blocks)
    loaded[b.tensor] = true;
  return loaded;
}

bool isKeptToEnd(const Image &image, const Region &region) {
  const Step &last = image.steps[std::min<size_t>(region.step1, image.steps.size() - 1)];
  return last.kind == Step::Kind::Host || region.step1 >= image.steps.size() ||
         region.to >= last.predictedCycles;
}

/// S7, T11: from an install until the last activation has passed the group. Groups are passed one a
/// cycle: in the time of the resource a moment of group g lies g cycles earlier.
void Extractor::addWeights() {
  const unsigned groups = machine.mxm.columns / machine.mxm.columnsPerInstall;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    std::map<std::tuple<uint32_t, uint32_t, unsigned>, size_t>
        valueOf; // instruction, element, group
    const auto install = [&](uint32_t k, uint32_t e, unsigned group) {
      const Instruction &i = at(pe, k);
      const Place &place = places[pe][k];
      const Cycle put = (i.opcode == Opcode::Clear ? place.at : cycleIn(pe, k, e)) - group;
      valueOf[{k, i.opcode == Opcode::Clear ? 0 : e, group}] = values.size();
      const uint32_t of = resource(ResourceKind::Weights, pe, i.queue,
                                   ".buffer" + std::to_string(unsigned(i.buffer)), 1);
      values.push_back({of,
                        place.step,
                        group,
                        group,
                        {{place.bundle, put}},
                        {{place.bundle, put + 1}},
                        Cycle(i.cycle)});
    };
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      if (i.opcode == Opcode::Install) {
        uint32_t e = 0;
        forEachElement(
            i, [&](unsigned i0, unsigned i1) { install(k, e++, elementAddress(i, i0, i1)); });
      }
      for (unsigned g = 0; i.opcode == Opcode::Clear && g < groups; ++g)
        install(k, 0, g);
    }
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      const Place &place = places[pe][k];
      for (const Producer &p : image.producersOf(pe, i)) {
        if (p.of != ProducerOf::Weights)
          continue;
        const bool clears = at(p.pe, p.instruction).opcode == Opcode::Clear;
        forEachProduced(p, [&](unsigned i0, unsigned, uint32_t e) {
          const auto found = valueOf.find({p.instruction, clears ? 0 : e, i.g0 + i0});
          if (p.pe != pe || found == valueOf.end())
            return refuse(pe, k, "multiplies by weights that its annotation does not name");
          values[found->second].ends.push_back(
              {place.bundle, place.at + lastElementCycle(i) + 1}); // group g: g later, and earlier
        });
      }
    }
  }
}

/// Cycles from one accumulator row to the next of most elements on a queue.
Cycle Extractor::slopeOf(unsigned pe, unsigned queue) const {
  std::map<Cycle, uint64_t> elements;
  for (const Instruction &i : image.instructions[pe]) {
    if (i.queue != queue || i.opcode != Opcode::Accumulate)
      continue;
    const bool inner = i.n0 > 1;
    const int64_t cycles = inner ? i.c0 : i.c1, rows = inner ? i.s0 : i.s1;
    if (rows && cycles % rows == 0)
      elements[cycles / rows] += i.elements();
  }
  Cycle slope = 1;
  uint64_t most = 0;
  for (const auto &[of, count] : elements)
    if (count > most)
      slope = of, most = count;
  return slope;
}

/// S8, R3: from the first part of a sum until the row may take another one behind the last. A
/// moment of row r lies r slopes earlier in the time of the resource.
void Extractor::addAccumulators() {
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    std::map<unsigned, Cycle> slopes;                                        // by queue
    std::vector<std::vector<size_t>> valueOf(image.instructions[pe].size()); // by element
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      if (i.opcode != Opcode::Accumulate)
        continue;
      if (!slopes.contains(i.queue))
        slopes[i.queue] = slopeOf(pe, i.queue);
      const uint32_t of =
          resource(ResourceKind::Accumulators, pe, i.queue, ".rows", slopes[i.queue]);
      const Place &place = places[pe][k];
      valueOf[k].assign(i.elements(), SIZE_MAX);
      for (const Producer &p : image.producersOf(pe, i))
        if (p.of == ProducerOf::Sum)
          forEachProduced(p, [&](unsigned i0, unsigned i1, uint32_t e) {
            if (p.pe == pe && p.instruction < k && e < valueOf[p.instruction].size())
              valueOf[k][i1 * i.n0 + i0] = valueOf[p.instruction][e];
          });
      uint32_t e = 0;
      forEachElement(i, [&](unsigned i0, unsigned i1) {
        const unsigned row = elementAddress(i, i0, i1);
        const Cycle put = place.at + elementCycle(i, i0, i1) - Cycle(row) * slopes[i.queue];
        size_t &value = valueOf[k][e++];
        if (!(i.function & AccumulateMode::Add)) {
          value = values.size();
          values.push_back({of, place.step, row, row, {{place.bundle, put}}, {}, Cycle(i.cycle)});
        } else if (value == SIZE_MAX || values[value].low != row || values[value].resource != of) {
          return refuse(pe, k, "adds to a partial sum that its annotation does not name");
        }
        values[value].ends = {{place.bundle, put + timing.accumulateInterval()}};
      });
    }
  }
}

/// T9, R8: from a Latch until the last operation that takes what it loaded.
void Extractor::addLatches() {
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe) {
    std::map<uint32_t, size_t> valueOf;
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &i = at(pe, k);
      const Place &place = places[pe][k];
      if (i.opcode == Opcode::Latch) {
        valueOf[k] = values.size();
        values.push_back({resource(ResourceKind::Latch, pe, i.queue, ".latch"),
                          place.step,
                          0,
                          0,
                          {{place.bundle, place.at}},
                          {{place.bundle, place.at + 1}},
                          Cycle(i.cycle)});
      }
    }
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      for (const Producer &p : image.producersOf(pe, at(pe, k)))
        if (p.of <= ProducerOf::C && isKept(at(pe, k), p)) {
          const auto found = valueOf.find(p.instruction);
          if (found == valueOf.end() || p.pe != pe ||
              at(pe, p.instruction).queue != at(pe, k).queue)
            return refuse(pe, k, "takes a latch that its annotation does not name");
          values[found->second].ends.push_back(
              {places[pe][k].bundle, places[pe][k].at + lastElementCycle(at(pe, k)) + 1});
        }
  }
}

/// Whose rows the host takes, or a later step.
void Extractor::markWhatOutlives() {
  for (const auto &list : image.instructions)
    outlives.emplace_back(list.size());
  std::map<std::tuple<unsigned, unsigned, uint32_t>, uint32_t> last; // pe, queue, row: its writer
  const auto read = [&](const Binding &binding) {
    for (const millrace::Placement &p : binding.placements)
      PlacementWalk(binding, p).forEachRows([&](const RowWork &work) {
        for (uint32_t r = 0; r < work.count; ++r)
          for (const uint16_t slice : p.slices)
            if (const auto found = last.find(
                    {p.pe, machine.queue({UnitKind::Mem, p.hemisphere, slice}), work.rowAt(r)});
                found != last.end())
              outlives[p.pe][found->second] = true;
      });
  };
  for (const Step &step : image.steps) {
    for (unsigned pe = 0; step.kind == Step::Kind::Grid && pe < step.pes.size(); ++pe)
      for (uint32_t k = step.pes[pe].begin; k < step.pes[pe].end; ++k)
        if (const Instruction &i = at(pe, k); i.opcode == Opcode::Write)
          forEachElement(i, [&](unsigned i0, unsigned i1) {
            last[{pe, i.queue, elementAddress(i, i0, i1)}] = k;
          });
    for (const uint32_t binding : step.inputs)
      read(image.bindings[binding]);
  }
  for (const Binding &binding : image.bindings)
    if (binding.role == Binding::Role::Output)
      read(binding);
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      for (const Producer &p : image.producersOf(pe, at(pe, k)))
        if (p.instruction != kInitialContents &&
            places[p.pe][p.instruction].step != places[pe][k].step)
          outlives[p.pe][p.instruction] = true;
}

void Extractor::noteTouches() {
  touched.resize(image.tensors.size());
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      if (const Instruction &i = at(pe, k); machine.unit(i.queue).kind == UnitKind::Mem) {
        const uint32_t step = problem.steps[places[pe][k].step].step;
        touched[i.tensor].first = std::min(touched[i.tensor].first, step);
        touched[i.tensor].last = std::max(touched[i.tensor].last, step);
      }
}

/// S10: a region lives from its first access to its last.
void Extractor::addRegions(unsigned step) {
  const uint32_t s = problem.steps[step].step;
  const std::vector<bool> loaded = regionsLoaded(image);
  std::map<uint32_t, Value> byRegion;
  std::map<uint32_t, bool> outlivesStep;
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k) {
      const Instruction &i = at(pe, k);
      if (machine.unit(i.queue).kind != UnitKind::Mem)
        continue;
      const Region &region = image.tensors[i.tensor];
      const bool writes = i.opcode == Opcode::Write;
      const Place &place = places[pe][k];
      const Cycle first = place.at + (writes ? timing.writeSlot() : 0);
      const auto [found, isNew] = byRegion.emplace(i.tensor, Value());
      Value &v = found->second;
      if (isNew) {
        v.resource = resource(ResourceKind::Rows, pe, i.queue, ".rows");
        v.step = step;
        v.low = region.row;
        v.high = region.row + std::max(region.rows, 1u) - 1;
        v.order = Cycle(i.cycle);
      }
      v.begins.push_back({place.bundle, first});
      v.ends.push_back({place.bundle, first + lastElementCycle(i) + 1});
      outlivesStep[i.tensor] = outlivesStep[i.tensor] || (writes && outlives[pe][k]);
    }
  for (auto &[r, v] : byRegion) {
    const Region &region = image.tensors[r];
    if (loaded[r] || touched[r].first < s)
      v.begins.clear();
    if (outlivesStep[r] || touched[r].last > s || isKeptToEnd(image, region))
      v.ends.clear();
    values.push_back(std::move(v));
  }
}

/// S6: rows with more than one content in a step: a content is there from its write slot to its
/// last read.
void Extractor::addContents(unsigned step) {
  const uint32_t s = problem.steps[step].step;
  const std::vector<bool> loaded = regionsLoaded(image);
  // A row of a region: where regions share it, their own spans keep them apart.
  const auto keyOf = [&](const Instruction &i, unsigned row) {
    return uint64_t(i.tensor) << 32 | row;
  };
  const auto forEachBurst = [&](auto f) {
    for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
      for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k)
        f(pe, k, at(pe, k));
  };
  std::unordered_map<uint64_t, unsigned> contents;
  forEachBurst([&](unsigned, uint32_t, const Instruction &i) {
    if (i.opcode == Opcode::Write)
      forEachElement(
          i, [&](unsigned i0, unsigned i1) { ++contents[keyOf(i, elementAddress(i, i0, i1))]; });
  });
  const auto isShared = [&](const Instruction &i, unsigned row) {
    const auto found = contents.find(keyOf(i, row));
    return found != contents.end() &&
           found->second + (loaded[i.tensor] || touched[i.tensor].first < s) > 1;
  };
  // By row, instruction and element; what was there before has no instruction.
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, size_t> valueOf;
  std::unordered_map<uint64_t, std::pair<Cycle, size_t>> latest; // by row
  const auto add = [&](unsigned pe, const Instruction &i, unsigned row, uint32_t k, uint32_t e) {
    const auto [found, isNew] = valueOf.emplace(std::tuple(keyOf(i, row), k, e), values.size());
    if (isNew)
      values.push_back({resource(ResourceKind::Contents, pe, i.queue, ".contents"),
                        step,
                        row,
                        row,
                        {},
                        {},
                        Cycle(i.cycle)});
    return found->second;
  };
  forEachBurst([&](unsigned pe, uint32_t k, const Instruction &i) {
    uint32_t e = 0;
    if (i.opcode == Opcode::Write)
      forEachElement(i, [&](unsigned i0, unsigned i1) {
        const uint32_t element = e++;
        const unsigned row = elementAddress(i, i0, i1);
        if (!isShared(i, row))
          return;
        const size_t v = add(pe, i, row, k, element);
        const Cycle slot = cycleIn(pe, k, element) + timing.writeSlot();
        values[v].begins = {{places[pe][k].bundle, slot}};
        values[v].ends = {{places[pe][k].bundle, slot + 1}};
        auto &[cycle, number] = latest[keyOf(i, row)];
        if (const Cycle now = Cycle(i.cycle) + elementCycle(i, i0, i1); now >= cycle)
          cycle = now, number = v;
        if (loaded[i.tensor] || touched[i.tensor].first < s)
          add(pe, i, row, kInitialContents, 0);
      });
  });
  forEachBurst([&](unsigned pe, uint32_t k, const Instruction &i) {
    if (i.opcode != Opcode::Read)
      return;
    for (const Producer &p : image.producersOf(pe, i)) {
      if (p.of != ProducerOf::Memory)
        continue;
      const bool isOfStep =
          p.instruction != kInitialContents && p.pe == pe && places[pe][p.instruction].step == step;
      forEachProduced(p, [&](unsigned i0, unsigned i1, uint32_t e) {
        const unsigned row = elementAddress(i, i0, i1);
        const auto found = valueOf.find(
            {keyOf(i, row), isOfStep ? p.instruction : kInitialContents, isOfStep ? e : 0});
        if (found != valueOf.end())
          values[found->second].ends.push_back(
              {places[pe][k].bundle, places[pe][k].at + elementCycle(i, i0, i1) + 1});
      });
    }
  });
  for (const auto &[key, v] : valueOf) {
    const auto [row, k, e] = key;
    const bool isLast = latest[row].second == v && k != kInitialContents;
    if (isLast && outlives[image.tensors[row >> 32].pe][k])
      values[v].ends.clear();
    if (k == kInitialContents && values[v].ends.empty()) // nobody reads what was there before
      values[v].low = 1, values[v].high = 0;
  }
}

/// Values of one fate side by side become one span; what meets no other needs none.
void Extractor::finishSpans() {
  for (Value &v : values) {
    v.begins = onePerBundle(std::move(v.begins), false);
    v.ends = onePerBundle(std::move(v.ends), true);
  }
  std::erase_if(values, [](const Value &v) { return v.low > v.high; });
  const auto fate = [](const Value &v) { return std::tie(v.step, v.resource, v.begins, v.ends); };
  std::sort(values.begin(), values.end(), [&](const Value &x, const Value &y) {
    return std::tuple(fate(x), x.low) < std::tuple(fate(y), y.low);
  });
  std::vector<Value> spans;
  for (Value &v : values)
    if (!spans.empty() && fate(spans.back()) == fate(v) && spans.back().high + 1 == v.low)
      spans.back().high = v.high;
    else
      spans.push_back(std::move(v));
  std::sort(spans.begin(), spans.end(), [](const Value &x, const Value &y) {
    return std::tie(x.step, x.resource, x.low, x.high) <
           std::tie(y.step, y.resource, y.low, y.high);
  });
  std::vector<Value> meeting;
  for (size_t k = 0; k < spans.size();) { // those that overlap, by the parts they hold
    size_t end = k + 1;
    uint32_t high = spans[k].high;
    while (end < spans.size() && spans[end].step == spans[k].step &&
           spans[end].resource == spans[k].resource && spans[end].low <= high)
      high = std::max(high, spans[end++].high);
    if (end > k + 1)
      std::move(spans.begin() + ptrdiff_t(k), spans.begin() + ptrdiff_t(end),
                std::back_inserter(meeting));
    k = end;
  }
  std::stable_sort(meeting.begin(), meeting.end(), [](const Value &x, const Value &y) {
    return std::tie(x.step, x.resource, x.order) < std::tie(y.step, y.resource, y.order);
  });
  for (Value &v : meeting)
    problem.spans.push_back(
        {v.resource, v.low, v.high, v.step, std::move(v.begins), std::move(v.ends)});
}

void Extractor::addSpans() {
  addWeights();
  addAccumulators();
  addLatches();
  markWhatOutlives();
  noteTouches();
  for (unsigned step = 0; step < problem.steps.size(); ++step) {
    addRegions(step);
    addContents(step);
  }
  finishSpans();
}

} // namespace millrace::schedule
