// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Memory/Touches.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace millrace::grid {

namespace {

/// Where a region's rows lie in a copy.
struct Place {
  CopyTile copy;
  int64_t first = 0;    ///< row, or place of a column copy
  unsigned address = 0; ///< of that
};

/// Of bytes of a segment, which are touched together, the first.
std::unordered_map<uint32_t, std::vector<Place>>
placesOf(const std::vector<TensorLayout> &layouts) {
  std::unordered_map<uint32_t, std::vector<Place>> places;
  for (unsigned tensor = 0; tensor < layouts.size(); ++tensor) {
    std::map<std::tuple<unsigned, Hemisphere, bool>, unsigned> copies;
    for (const Copy &copy : layouts[tensor].copies) {
      CopyTile its{tensor,
                   copy.pe,
                   copy.hemisphere,
                   copy.columns,
                   copies[{copy.pe, copy.hemisphere, copy.columns}]++,
                   0};
      for (; its.tile < copy.tiles.size(); ++its.tile)
        for (const Segment &s : copy.tiles[its.tile])
          for (size_t byte = 0; byte < s.regions.size(); ++byte) {
            std::vector<Place> &list = places[s.regions[byte]];
            if (byte == 0)
              list.push_back({its, s.firstRow, s.addresses[byte]});
          }
      for (its.tile = 0; its.tile < copy.columnTiles.size(); ++its.tile) {
        const Columns &columns = copy.columnTiles[its.tile];
        for (size_t place = 0; place < columns.regions.size(); ++place)
          places[columns.regions[place]].push_back({its, int64_t(place), columns.addresses[place]});
      }
    }
  }
  return places;
}

} // namespace

Touches::Touches(const Machine &machine, const std::vector<TensorLayout> &layouts,
                 const schedule::Program &program) {
  const std::unordered_map<uint32_t, std::vector<Place>> places = placesOf(layouts);
  const MemorySpec &memory = machine.memory;
  constants.resize(size_t(machine.pes()) * kHemispheres * memory.slices * memory.banks);
  program.forEachBurst([&](unsigned step, unsigned pe, const Instruction &i) {
    const Unit unit = machine.unit(i.queue);
    if (unit.kind != UnitKind::Mem)
      return;
    const bool writes = i.opcode == Opcode::Write || i.opcode == Opcode::Scatter;
    const Cycle from = Cycle(i.cycle) + (writes ? program.timing.writeSlot() : 0);
    const Window window{step, from, from + schedule::lastElementCycle(i), writes};
    const auto known = places.find(i.tensor);
    if (known == places.end()) {
      const size_t slice =
          (size_t(pe) * kHemispheres + size_t(unit.hemisphere)) * memory.slices + unit.index;
      constants[slice * memory.banks + i.address / memory.rowsPerBank].push_back(window);
      return;
    }
    const int64_t reach0 = int64_t(i.n0 - 1) * i.s0, reach1 = int64_t(i.n1 - 1) * i.s1;
    const int64_t low = std::min<int64_t>(reach0, 0) + std::min<int64_t>(reach1, 0),
                  high = std::max<int64_t>(reach0, 0) + std::max<int64_t>(reach1, 0);
    for (const Place &place : known->second) {
      const int64_t row = place.first + int64_t(i.address) - place.address;
      bursts[place.copy].push_back(place.copy.columns
                                       ? Burst{window, place.first, place.first, false}
                                       : Burst{window, row + low, row + high, reach0 + reach1 < 0});
    }
  });
}

std::vector<Window> Touches::of(const CopyTile &copy, int64_t row, int64_t end) const {
  std::vector<Window> windows;
  const auto known = bursts.find(copy);
  if (known == bursts.end())
    return windows;
  for (const Burst &burst : known->second) {
    const int64_t first = std::max(row, burst.first), last = std::min(end - 1, burst.last);
    if (first > last)
      continue;
    const int64_t before = burst.down ? burst.last - last : first - burst.first,
                  rows = burst.last - burst.first + 1;
    const Cycle length = burst.window.to - burst.window.from + 1;
    Window part = burst.window;
    part.from += length * before / rows;
    part.to = burst.window.from + length * (before + last - first + 1) / rows;
    windows.push_back(part);
  }
  return windows;
}

Meetings::Meetings(const Machine &machine, const std::vector<std::vector<Window>> &constants)
    : slices(machine.memory.slices), banks(machine.memory.banks), all(constants.size()) {
  for (size_t bank = 0; bank < all.size(); ++bank)
    add(all[bank], constants[bank]);
}

void Meetings::add(Bank &bank, const std::vector<Window> &its) {
  const auto before = std::ptrdiff_t(bank.windows.size());
  bank.windows.insert(bank.windows.end(), its.begin(), its.end());
  std::sort(bank.windows.begin() + before, bank.windows.end());
  std::inplace_merge(bank.windows.begin(), bank.windows.begin() + before, bank.windows.end());
  for (const Window &window : its)
    bank.longest = std::max(bank.longest, window.to - window.from);
}

void Meetings::addTo(std::vector<unsigned> &cost, size_t hemisphere, const std::vector<Window> &its,
                     unsigned most) const {
  // What memory holds up comes later than the windows say, some of it more than other.
  constexpr Cycle kNear = 32;
  std::vector<Cycle> met(banks);
  for (unsigned slice = 0; slice < slices; ++slice) {
    std::fill(met.begin(), met.end(), 0);
    for (unsigned b = 0; b < banks; ++b) {
      const Bank &bank = all[numberOf(hemisphere, slice, b)];
      for (const Window &window : its) {
        const Window first{window.step, window.from - bank.longest - kNear, 0, false};
        for (auto other = std::lower_bound(bank.windows.begin(), bank.windows.end(), first);
             other != bank.windows.end() && other->step == window.step &&
             other->from < window.to + kNear;
             ++other) {
          const Cycle both =
              std::min(window.to, other->to) - std::max(window.from, other->from) + kNear;
          if (both <= 0)
            continue;
          if (window.writes != other->writes)
            met[b] += both;
          else // they need one port
            for (Cycle &cycles : met)
              cycles += both;
        }
      }
    }
    for (unsigned b = 0; b < banks; ++b)
      cost[slice * banks + b] += unsigned(std::min<Cycle>(met[b], most));
  }
}

void Meetings::note(size_t hemisphere, unsigned slice, unsigned bank,
                    const std::vector<Window> &its) {
  add(all[numberOf(hemisphere, slice, bank)], its);
}

} // namespace millrace::grid
