// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Ledger.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace millrace::schedule {

namespace {

/// Who held which resource of one PE in one step, found by cycle.
class Holders {
public:
  Holders(const std::vector<Held> &all, uint32_t resources) : begin(resources + 1, 0) {
    for (const Held &h : all)
      ++begin[h.resource + 1];
    for (uint32_t r = 0; r < resources; ++r)
      begin[r + 1] += begin[r];
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    held.resize(all.size());
    for (const Held &h : all)
      held[next[h.resource]++] = h;
    isSorted.assign(resources, false);
  }

  /// The burst that holds the resource in a cycle; none: nothing.
  std::optional<uint32_t> at(uint32_t resource, Cycle cycle) {
    const auto first = held.begin() + begin[resource], last = held.begin() + begin[resource + 1];
    if (!isSorted[resource])
      std::sort(first, last, [](const Held &x, const Held &y) { return x.first < y.first; });
    isSorted[resource] = true;
    const auto behind = std::upper_bound(
        first, last, cycle, [](Cycle c, const Held &h) { return c < h.first; });
    if (behind == first || std::prev(behind)->last < cycle)
      return std::nullopt;
    return std::prev(behind)->burst;
  }

private:
  std::vector<uint32_t> begin; ///< by resource
  std::vector<Held> held;
  std::vector<bool> isSorted;
};

constexpr uint32_t kIdle = UINT32_MAX;

class Accountant {
public:
  Accountant(const Image &image, const Program &program,
             const std::vector<std::vector<uint32_t>> &numbers, bool withGaps)
      : image(image), program(program), machine(program.machine), resources(machine),
        numbers(numbers), withGaps(withGaps), firstWork(program.waits.placements.size()) {}

  Expected<Ledger> run();

private:
  const Image &image;
  const Program &program;
  const Machine &machine;
  const Resources resources;
  const std::vector<std::vector<uint32_t>> &numbers;
  const bool withGaps;
  Ledger ledger;
  std::string wrong;
  std::vector<std::vector<bool>> isKept; ///< [pe][number in the program]
  std::map<std::pair<Engine, uint32_t>, int64_t> busy;
  std::map<std::tuple<Engine, uint32_t, Cause, uint32_t>, int64_t> idle;
  int64_t activated = 0; ///< elements of Activates, times their planes
  // Of the unit that is looked at.
  unsigned step = 0, pe = 0, unit = 0;
  Engine engine = Engine::Mxm;
  std::vector<uint32_t> owner; ///< by cycle: instruction that works, or kIdle
  struct Stamped {
    uint32_t unit = 0;
    Cycle cycle = 0;
  };
  std::vector<Stamped> firstWork; ///< by placement: its first cycle on the unit
  uint32_t stamp = 0;
  std::optional<Holders> holders; ///< of the PE in the step, once one was asked for

  void accountPe();
  void accountUnit(const std::vector<uint32_t> &bursts);
  void accountGap(Cycle from, Cycle to);
  void add(Cycle from, Cycle to, uint32_t kernel, Cause cause, uint32_t holder);
  const Placement &placementOf(uint32_t at, uint32_t number) const {
    return program.waits.placements[program.pes[at].placements[number]];
  }
  uint32_t placementOf(uint32_t instruction) const {
    return program.pes[pe].placements[numbers[pe][instruction]];
  }
  std::pair<Cause, uint32_t> resolve(const Wait &wait);
  void refuse(const std::string &what) {
    if (wrong.empty())
      wrong = "the compiler's account of cycles is wrong: step " + std::to_string(step) + ", PE " +
              std::to_string(pe) + ", " + (engine == Engine::Mxm ? "MXM plane " : "VXM ") +
              std::to_string(unit) + ": " + what + "; please report it with the model and the machine";
  }
};

/// The cause of a wait in the program as it is, and the kernel that is behind it.
std::pair<Cause, uint32_t> Accountant::resolve(const Wait &wait) {
  if (wait.burst != kNobody && !isKept[wait.pe][wait.burst])
    return {Cause::Dropped, kNobody};
  uint32_t holder = wait.holder;
  if (holder == kNobody && wait.resource != kNobody) {
    std::optional<uint32_t> found;
    if (wait.pe == pe) {
      if (!holders)
        holders.emplace(program.waits.held[step][pe], resources.count());
      found = holders->at(wait.resource, wait.heldAt);
    } else { // a piece of several PEs
      for (const Held &h : program.waits.held[step][wait.pe])
        if (h.resource == wait.resource && h.first <= wait.heldAt && wait.heldAt <= h.last)
          found = h.burst;
    }
    // What was in the rows before may lie in further banks.
    if (!found && wait.cause != Cause::MemoryReuse)
      refuse("nobody held what a piece waited for in cycle " + std::to_string(wait.heldAt) + " (" +
             std::string(textOf(wait.cause)) + ")");
    holder = found.value_or(kNobody);
  }
  if (holder == kNobody)
    return {wait.cause, kNobody};
  if (!isKept[wait.pe][holder])
    return {Cause::Dropped, placementOf(wait.pe, holder).kernel};
  return {wait.cause, placementOf(wait.pe, holder).kernel};
}

void Accountant::add(Cycle from, Cycle to, uint32_t kernel, Cause cause, uint32_t holder) {
  idle[{engine, kernel, cause, holder}] += to - from;
  if (withGaps)
    ledger.gaps.push_back({engine, step, pe, unit, from, to, kernel, holder, cause});
}

/// Idle cycles [from, to) before the work of an instruction in `to`, each by what kept its piece
/// from starting so much earlier; or before the end of the step.
void Accountant::accountGap(Cycle from, Cycle to) {
  if (size_t(to) == owner.size()) {
    const bool isLast = step + 1 >= image.steps.size();
    add(from, to, kNobody, isLast ? Cause::NothingLeft : Cause::HostBarrier, kNobody);
    return;
  }
  const uint32_t number = placementOf(owner[size_t(to)]);
  const Placement &placement = program.waits.placements[number];
  if (firstWork[number].cycle < from) {
    add(from, to, placement.kernel, Cause::Pace, kNobody);
    return;
  }
  const std::vector<Wait> &waits = program.waits.waits;
  const size_t end = number + 1 < program.waits.placements.size()
                         ? program.waits.placements[number + 1].firstWait
                         : waits.size();
  const Cycle offset = to - placement.start; // of the work, from the start of its piece
  Cycle until = placement.start;
  if (end == placement.firstWait || waits[end - 1].until != until)
    refuse("a piece has no reason to start in cycle " + std::to_string(until));
  const size_t firstGap = ledger.gaps.size();
  for (size_t w = end; w-- > placement.firstWait && until + offset > from;) {
    const Cycle begin = w > placement.firstWait ? std::max(from - offset, waits[w - 1].until)
                                                : from - offset;
    if (begin >= until)
      continue;
    const auto [cause, holder] = resolve(waits[w]);
    add(begin + offset, until + offset, placement.kernel, cause, holder);
    until = begin;
  }
  if (until + offset != from)
    refuse("cycles " + std::to_string(from) + " to " + std::to_string(until + offset) +
           " idle without a cause");
  std::reverse(ledger.gaps.begin() + ptrdiff_t(firstGap), ledger.gaps.end());
}

/// `bursts`: instructions of the PE that make the unit work, in order of time.
void Accountant::accountUnit(const std::vector<uint32_t> &bursts) {
  std::fill(owner.begin(), owner.end(), kIdle);
  ++stamp;
  for (const uint32_t b : bursts) {
    const Instruction &i = image.instructions[pe][b];
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const auto cycle = size_t(Cycle(i.cycle) + elementCycle(i, i0, i1));
      if (cycle >= owner.size())
        refuse("works in cycle " + std::to_string(cycle) + ", behind the end");
      else if (engine == Engine::Mxm && owner[cycle] != kIdle)
        refuse("works twice in cycle " + std::to_string(cycle));
      else
        owner[cycle] = b;
    });
    Stamped &first = firstWork[placementOf(b)];
    if (first.unit != stamp)
      first = {stamp, Cycle(i.cycle)};
    if (engine == Engine::Mxm)
      activated += i.elements();
  }
  for (size_t t = 0; t < owner.size() && wrong.empty();) {
    size_t end = t + 1;
    while (end < owner.size() && owner[end] == owner[t])
      ++end;
    if (owner[t] == kIdle)
      accountGap(Cycle(t), Cycle(end));
    else
      busy[{engine, program.waits.placements[placementOf(owner[t])].kernel}] += int64_t(end - t);
    t = end;
  }
}

void Accountant::accountPe() {
  holders.reset();
  const PeRange range = image.steps[step].pes[pe];
  std::vector<std::vector<uint32_t>> planes(size_t(kHemispheres) * machine.mxm.planes);
  std::vector<uint32_t> alus;
  for (uint32_t k = range.begin; k < range.end; ++k) {
    const Instruction &i = image.instructions[pe][k];
    const Unit its = machine.unit(i.queue);
    if (its.kind == UnitKind::Alu)
      alus.push_back(k);
    if (i.opcode != Opcode::Activate)
      continue;
    for (unsigned p = 0; p < machine.mxm.format(i.format)->planes; ++p)
      planes[size_t(its.hemisphere) * machine.mxm.planes + its.index + p].push_back(k);
  }
  engine = Engine::Mxm;
  for (unit = 0; unit < planes.size(); ++unit)
    accountUnit(planes[unit]);
  engine = Engine::Vxm;
  unit = 0;
  accountUnit(alus);
}

Expected<Ledger> Accountant::run() {
  for (size_t at = 0; at < numbers.size(); ++at) {
    isKept.emplace_back(program.pes[at].instructions.size(), false);
    for (const uint32_t number : numbers[at])
      isKept[at][number] = true;
  }
  ledger.units = {int64_t(machine.pes()) * kHemispheres * machine.mxm.planes,
                  int64_t(machine.pes())};
  for (step = 0; step < image.steps.size(); ++step) {
    if (image.steps[step].kind != Step::Kind::Grid)
      continue;
    ledger.cycles += int64_t(image.steps[step].predictedCycles);
    owner.resize(image.steps[step].predictedCycles);
    for (pe = 0; pe < machine.pes(); ++pe)
      accountPe();
  }
  for (const auto &[key, cycles] : busy)
    ledger.busy.push_back({key.first, key.second, cycles});
  for (const auto &[key, cycles] : idle)
    ledger.idle.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<3>(key), std::get<2>(key), cycles});
  for (const Engine e : {Engine::Mxm, Engine::Vxm})
    if (engine = e; ledger.busyOf(e) + ledger.idleOf(e) != ledger.unitCycles(e))
      refuse("busy " + std::to_string(ledger.busyOf(e)) + " and idle " +
             std::to_string(ledger.idleOf(e)) + " cycles of " + std::to_string(ledger.unitCycles(e)));
  if (ledger.busyOf(Engine::Mxm) != activated)
    refuse("busy " + std::to_string(ledger.busyOf(Engine::Mxm)) + " cycles for " +
           std::to_string(activated) + " activations");
  if (!wrong.empty())
    return Error{wrong};
  return std::move(ledger);
}

} // namespace

int64_t Ledger::busyOf(Engine e) const {
  int64_t sum = 0;
  for (const BusyCycles &b : busy)
    sum += b.engine == e ? b.unitCycles : 0;
  return sum;
}

int64_t Ledger::idleOf(Engine e) const {
  int64_t sum = 0;
  for (const IdleCycles &i : idle)
    sum += i.engine == e ? i.unitCycles : 0;
  return sum;
}

int64_t Ledger::idleOf(Engine e, Cause cause) const {
  int64_t sum = 0;
  for (const IdleCycles &i : idle)
    sum += i.engine == e && i.cause == cause ? i.unitCycles : 0;
  return sum;
}

Expected<Ledger> account(const Image &image, const Program &program,
                         const std::vector<std::vector<uint32_t>> &numbers, bool withGaps) {
  return Accountant(image, program, numbers, withGaps).run();
}

} // namespace millrace::schedule
