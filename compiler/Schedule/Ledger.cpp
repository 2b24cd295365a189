// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Ledger.h"

#include "compiler/Schedule/Holders.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

namespace millrace::schedule {

namespace {

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
  std::map<std::pair<Engine, Cause>, int64_t> installs;
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
  std::map<unsigned, Holders> holders; ///< in the step, by PE, once asked for

  void accountPe();
  void accountUnit(const std::vector<uint32_t> &bursts);
  void accountGap(Cycle from, Cycle to);
  void add(Cycle from, Cycle to, uint32_t kernel, Cause cause, uint32_t holder);
  const PlacedPiece &placementOf(uint32_t at, uint32_t number) const {
    return program.waits.placements[program.pes[at].placements[number]];
  }
  uint32_t placementOf(uint32_t instruction) const {
    return program.pes[pe].placements[numbers[pe][instruction]];
  }
  /// Starts [from, to) of a piece that a wait kept it from, as cycles behind `offset`.
  struct Range {
    uint32_t placement = 0;
    Cycle from = 0, to = 0, offset = 0;
  };
  void addWait(const Wait &wait, const Range &range);
  void addDropped(const Range &range, uint32_t holder);
  void addInstall(const Wait &wait, const Range &range);
  Holders &holdersOf(unsigned its) {
    return holders.try_emplace(its, program.waits.held[step][its], resources.count()).first->second;
  }
  std::optional<uint32_t> holderOf(const Wait &wait);
  std::span<const Wait> waitsOf(uint32_t placement) const {
    const Waits &waits = program.waits;
    const size_t begin = waits.placements[placement].firstWait,
                 end = placement + 1 < waits.placements.size()
                           ? waits.placements[placement + 1].firstWait
                           : waits.waits.size();
    return std::span(waits.waits).subspan(begin, end - begin);
  }
  void refuse(const std::string &what) {
    if (wrong.empty())
      wrong = "the compiler's account of cycles is wrong: step " + std::to_string(step) + ", PE " +
              std::to_string(pe) + ", " + (engine == Engine::Mxm ? "MXM plane " : "VXM ") +
              std::to_string(unit) + ": " + what +
              "; please report it with the model and the machine";
  }
};

/// The burst behind a wait.
std::optional<uint32_t> Accountant::holderOf(const Wait &wait) {
  if (wait.holder != kNobody)
    return wait.holder;
  if (wait.resource == kNobody)
    return std::nullopt;
  const std::optional<uint32_t> found = holdersOf(wait.pe).at(wait.resource, wait.heldAt);
  if (!found && wait.cause != Cause::MemoryReuse) // what was in the rows may lie in further banks
    refuse("nobody held what a piece waited for in cycle " + std::to_string(wait.heldAt) + " (" +
           std::string(nameOf(wait.cause)) + ")");
  return found;
}

/// By its cause in the program as it is, and the kernel behind it.
void Accountant::addWait(const Wait &wait, const Range &range) {
  const uint32_t kernel = program.waits.placements[range.placement].kernel;
  const std::optional<uint32_t> holder = holderOf(wait);
  const uint32_t by = holder ? placementOf(wait.pe, *holder).kernel : kNobody;
  if ((wait.burst != kNobody && !isKept[wait.pe][wait.burst]) ||
      (holder && !isKept[wait.pe][*holder])) {
    addDropped(range, by);
    return;
  }
  add(range.from + range.offset, range.to + range.offset, kernel, wait.cause, by);
  if (wait.cause == Cause::Install)
    addInstall(wait, range);
}

/// Starts that a piece was kept from by bursts that pruning left out: those of them at which what
/// is left of the piece would have met what is left of pieces placed before go to the first such
/// conflict. Which ALUs and streams would have been free is not known.
void Accountant::addDropped(const Range &range, uint32_t holder) {
  const PlacedPiece &placement = program.waits.placements[range.placement];
  const std::vector<Held> &all = program.waits.held[step][pe]; // in the order of placements
  const auto ofPe = [&](const Held &h) { return program.pes[pe].placements[h.burst]; };
  const auto first = std::partition_point(all.begin(), all.end(),
                                          [&](const Held &h) { return ofPe(h) < range.placement; });
  struct Conflict {
    Cycle from, to;
    Cause cause;
    uint32_t kernel;
  };
  std::vector<Conflict> conflicts;
  for (auto own = first; own != all.end() && ofPe(*own) == range.placement; ++own) {
    const std::optional<Cause> cause = resources.causeOf(own->resource);
    if (!cause || !isKept[pe][own->burst])
      continue;
    const Cycle begin = own->first - placement.start, end = own->last - placement.start;
    for (const Held &other :
         holdersOf(pe).during(own->resource, range.from + begin, range.to - 1 + end))
      if (isKept[pe][other.burst] && ofPe(other) < range.placement)
        conflicts.push_back({other.first - end, other.last + 1 - begin, *cause,
                             placementOf(pe, other.burst).kernel});
  }
  for (Cycle at = range.from; at < range.to;) {
    Cycle to = range.to;
    const Conflict *meets = nullptr;
    for (const Conflict &c : conflicts)
      if (!meets && c.from <= at && at < c.to)
        meets = &c;
      else if (!meets && c.from > at)
        to = std::min(to, c.from);
    if (meets)
      to = std::min(range.to, meets->to);
    add(at + range.offset, to + range.offset, placement.kernel,
        meets ? meets->cause : Cause::Dropped, meets ? meets->kernel : holder);
    at = to;
  }
}

/// Why the install that a sweep waited for came no sooner: by the waits of its piece.
void Accountant::addInstall(const Wait &wait, const Range &range) {
  const std::optional<uint32_t> burst = holderOf(wait);
  if (!burst)
    return;
  const uint32_t number = program.pes[wait.pe].placements[*burst];
  const Cycle behind = program.waits.placements[number].start - wait.until; // its start for ours
  Cycle from = range.from + behind;
  for (const Wait &w : waitsOf(number))
    if (const Cycle to = std::min(w.until, range.to + behind); to > from) {
      const std::optional<uint32_t> holder = holderOf(w);
      const bool isDropped =
          (w.burst != kNobody && !isKept[w.pe][w.burst]) || (holder && !isKept[w.pe][*holder]);
      installs[{engine, isDropped ? Cause::Dropped : w.cause}] += to - from;
      from = to;
    }
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
  const PlacedPiece &placement = program.waits.placements[number];
  if (firstWork[number].cycle < from) {
    add(from, to, placement.kernel, Cause::Pace, kNobody);
    return;
  }
  const std::span<const Wait> waits = waitsOf(number);
  const Cycle offset = to - placement.start; // of the work, from the start of its piece
  Cycle until = placement.start;
  if (waits.empty() || waits.back().until != until)
    refuse("a piece has no reason to start in cycle " + std::to_string(until));
  const size_t firstGap = ledger.gaps.size();
  for (size_t w = waits.size(); w-- > 0 && until + offset > from;) {
    const Cycle begin = w ? std::max(from - offset, waits[w - 1].until) : from - offset;
    if (begin >= until)
      continue;
    addWait(waits[w], {number, begin, until, offset});
    until = begin;
  }
  if (until + offset != from)
    refuse("cycles " + std::to_string(from) + " to " + std::to_string(until + offset) +
           " idle without a cause");
  std::sort(ledger.gaps.begin() + ptrdiff_t(firstGap), ledger.gaps.end(),
            [](const Gap &x, const Gap &y) { return x.from < y.from; });
}

/// `bursts`: instructions of the PE that make the unit work, in order of time.
void Accountant::accountUnit(const std::vector<uint32_t> &bursts) {
  std::fill(owner.begin(), owner.end(), kIdle);
  ++stamp;
  for (const uint32_t b : bursts) {
    const Instruction &i = image.instructions[pe][b];
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const auto cycle = size_t(Cycle(i.cycle) + elementCycle(i, i0, i1));
      if (cycle >= owner.size()) // of a burst of which others need the first elements alone
        return;
      if (engine == Engine::Mxm && owner[cycle] != kIdle)
        refuse("works twice in cycle " + std::to_string(cycle));
      else
        owner[cycle] = b;
      if (engine == Engine::Mxm)
        ++activated;
    });
    Stamped &first = firstWork[placementOf(b)];
    if (first.unit != stamp)
      first = {stamp, Cycle(i.cycle)};
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
    holders.clear();
    for (pe = 0; pe < machine.pes(); ++pe)
      accountPe();
  }
  for (const auto &[key, cycles] : busy)
    ledger.busy.push_back({key.first, key.second, cycles});
  for (const auto &[key, cycles] : idle)
    ledger.idle.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<3>(key), std::get<2>(key), cycles});
  for (const auto &[key, cycles] : installs)
    ledger.installs.push_back({key.first, kNobody, kNobody, key.second, cycles});
  for (const Engine e : {Engine::Mxm, Engine::Vxm})
    if (engine = e; ledger.busyOf(e) + ledger.idleOf(e) != ledger.unitCycles(e))
      refuse("busy " + std::to_string(ledger.busyOf(e)) + " and idle " +
             std::to_string(ledger.idleOf(e)) + " cycles of " +
             std::to_string(ledger.unitCycles(e)));
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
