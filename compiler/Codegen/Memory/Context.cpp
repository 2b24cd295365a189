// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Storage: where tensors go, and the image blocks that fill them.
#include "compiler/Codegen/Memory/Context.h"

#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <cstring>

namespace millrace::grid {

using memory::HemisphereAllocator;
using memory::Span;

Context::Context(const Machine &machine, const KernelGraph &graph, schedule::Program &program,
                 const StorageWays &ways)
    : StorageWays(ways), machine(machine), graph(graph), program(program),
      layouts(inferLayouts(graph, machine)) {
  pes = pes ? std::min(pes, machine.pes()) : machine.pes();
  for (unsigned i = 0; i < machine.pes() * kHemispheres; ++i)
    allocators.emplace_back(machine, used.slicesPerRegister, used.banks);
  if (touches)
    meetings.emplace(machine, touches->ofConstants());
  reserved.assign(allocators.size(), std::vector<Reserve>(machine.memory.slices));
  string("");
  company.resize(graph.tensors.size());
  kernelsOf.resize(graph.tensors.size());
  ofHost = forms::Uses(graph).onHost;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    ofHost[t] = ofHost[t] || tensor(t).role == forms::TensorRole::Input ||
                tensor(t).role == forms::TensorRole::Output;
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    struct Touched {
      unsigned tensor;
      const forms::AffineIndex *lanes; ///< none: through the MXM, any lane tile meets any
      unsigned copies;                 ///< as Company has them
    };
    std::vector<Touched> in, out;
    const auto lanesOf = [&](const Access &access) {
      return &access.index[tensor(access.tensor).laneDim];
    };
    for (const forms::Term &t : kernel.terms)
      in.push_back({t.a.tensor, nullptr, 0});
    for (const Access &o : kernel.operands) {
      // Each read takes a copy, of each plane's worker another.
      const auto reads =
          unsigned(std::count_if(kernel.operands.begin(), kernel.operands.end(),
                                 [&](const Access &other) { return other.tensor == o.tensor; }));
      in.push_back(
          {o.tensor, lanesOf(o), kernel.terms.empty() ? reads : reads * machine.mxm.planes});
      if (o.lookup)
        in.push_back({o.lookup->tensor, nullptr, 0});
    }
    for (const forms::Result &r : kernel.results)
      out.push_back({r.access.tensor, lanesOf(r.access), 0});
    auto meet = [&](const Touched &x, const Touched &y, bool samePort) {
      if (x.tensor != y.tensor)
        company[x.tensor].push_back(
            {y.tensor, samePort, x.lanes && y.lanes && *x.lanes == *y.lanes, y.copies});
    };
    for (const std::vector<Touched> *side : {&in, &out})
      for (const Touched &x : *side)
        if (std::vector<size_t> &its = kernelsOf[x.tensor]; its.empty() || its.back() != k)
          its.push_back(k);
    for (const Touched &x : in) {
      for (const Touched &y : in)
        meet(x, y, true);
      for (const Touched &y : out) {
        meet(x, y, false);
        meet(y, x, false);
      }
    }
    for (const Touched &x : out)
      for (const Touched &y : out)
        meet(x, y, true);
  }
}

uint32_t Context::string(const std::string &text) {
  auto [it, fresh] = stringIds.emplace(text, uint32_t(strings.size()));
  if (fresh)
    strings.push_back(text);
  return it->second;
}

Error Context::outOfMemory(const std::string &what, unsigned pe, Hemisphere h, uint64_t rows,
                           unsigned first, unsigned last) const {
  full = true;
  const size_t where = allocatorOf(pe, h);
  auto size = [&](uint64_t n) {
    return std::to_string(n) + " rows (" + std::to_string(n * machine.lanes() / 1024) + " KiB)";
  };
  uint64_t free = 0, longest = 0, loaded = 0;
  for (unsigned slice = first; slice < last; ++slice) {
    free += allocators[where].freeRows(slice, slice + 1);
    longest = std::max<uint64_t>(longest, allocators[where].longestRun(slice));
  }
  for (const schedule::RegionState &r : program.regions)
    if (r.pe == pe && r.hemisphere == h && r.untilEnd)
      loaded += r.rows;
  std::vector<std::pair<uint64_t, unsigned>> values; ///< rows, tensor
  for (const auto &[id, taken] : spans) {
    uint64_t its = 0;
    for (const auto &[there, span] : taken)
      its += there == where ? span.rows * span.slices.size() : 0;
    if (its && tensor(id).role != forms::TensorRole::Constant)
      values.push_back({its, id});
  }
  std::sort(values.begin(), values.end(), [](const auto &x, const auto &y) {
    return x.first != y.first ? x.first > y.first : x.second < y.second;
  });
  uint64_t live = 0;
  for (const auto &[its, id] : values)
    live += its;
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, values.size()); ++i)
    largest += (i ? ", '" : ": '") + tensor(values[i].second).name + "' " + size(values[i].first);
  return {"'" + what + "' needs " + size(rows) + " in the " +
          (h == Hemisphere::West ? "west" : "east") + " hemisphere of PE " + std::to_string(pe) +
          ", where slices " + std::to_string(first) + " to " + std::to_string(last - 1) + " have " +
          size(free) + " free, " + std::to_string(longest) +
          " at most in a run; what is loaded with the program takes " + size(loaded) +
          ", values that are alive " + size(live) + largest +
          "; use a machine with more memory or more PEs"};
}

uint32_t Context::region(const std::string &name, unsigned pe, Hemisphere h, unsigned slice,
                         unsigned row, unsigned rows, Cycle notBefore) {
  schedule::RegionState state;
  state.name = string(name);
  state.pe = pe;
  state.hemisphere = h;
  state.slice = slice;
  state.row = row;
  state.rows = rows;
  state.notBefore = notBefore;
  return program.addRegion(state);
}

uint32_t Context::constantRegion(const std::string &name, unsigned pe, Hemisphere h, unsigned slice,
                                 unsigned row, unsigned rows) {
  uint32_t id = region(name, pe, h, slice, row, rows, schedule::kNever);
  program.noteAccessFromStart(id);
  program.regions[id].untilEnd = true;
  return id;
}

void Context::addBlock(unsigned pe, Hemisphere h, unsigned slice, unsigned row, unsigned rows,
                       unsigned bytes, uint32_t region, uint64_t offset) {
  Block block;
  block.pe = uint16_t(pe);
  block.hemisphere = h;
  block.slice = uint16_t(slice);
  block.bytes = uint16_t(bytes);
  block.row = row;
  block.rows = rows;
  block.tensor = region;
  block.offset = offset;
  for (unsigned r = 0; r < rows; ++r)
    program.state[pe].row(h, slice, row + r).origin = {kInitialContents, r,
                                                       uint32_t(blocks.size())};
  blocks.push_back(block);
}

/// Cost of every (slice, bank) of a hemisphere for a lane tile of a new copy of the tensor.
std::vector<unsigned> Context::costs(unsigned id, unsigned tile, unsigned pe, Hemisphere h) const {
  constexpr unsigned kNear = 60; // perhaps in neighbouring pieces
  const MemorySpec &spec = machine.memory;
  std::vector<unsigned> cost(size_t(spec.slices) * spec.banks, 0);
  auto mark = [&](unsigned slice, unsigned address, bool wholeSlice, unsigned amount) {
    for (unsigned b = 0; b < spec.banks; ++b)
      if (wholeSlice || b == address / spec.rowsPerBank)
        cost[slice * spec.banks + b] = std::max(cost[slice * spec.banks + b], amount);
  };
  auto add = [&](const Company &other, unsigned amount) {
    const TensorLayout &layout = layouts[other.tensor];
    auto amountOf = [&](size_t k) {
      return other.aligned && layout.tiles[k].start != layouts[id].tiles[tile].start ? kNear
                                                                                     : amount;
    };
    unsigned rowCopies = 0;
    for (const Copy &copy : layout.copies) {
      if (copy.pe != pe || copy.hemisphere != h ||
          (!copy.columns && other.copies && rowCopies++ >= other.copies))
        continue;
      for (size_t k = 0; k < copy.tiles.size(); ++k)
        for (const Segment &s : copy.tiles[k])
          for (size_t b = 0; b < s.slices.size(); ++b)
            mark(s.slices[b], s.addresses[b], other.samePort, amountOf(k));
      for (size_t k = 0; k < copy.columnTiles.size(); ++k)
        for (size_t place = 0; place < copy.columnTiles[k].slices.size(); ++place)
          mark(copy.columnTiles[k].slices[place], copy.columnTiles[k].addresses[place],
               other.samePort, amountOf(k));
    }
    for (const TableCopy &copy : tables) // a Gather holds all its slice
      if (copy.table == other.tensor && copy.pe == pe && copy.hemisphere == h)
        for (unsigned slice : copy.slices)
          mark(slice, 0, true, amount);
    for (const IndexMap &map : indexMaps)
      if (map.key.indices == other.tensor && map.pe == pe && map.hemisphere == h)
        mark(map.slice, 0, true, amount);
  };
  for (const Company &other : company[id])
    add(other, kTogether);
  add({id, true, false}, HemisphereAllocator::kForbidden);
  for (const size_t kernel : kernelsOf[id]) // its installs read while the tensor is touched
    for (const unsigned slice : slicesToLeave(kernel, pe, h))
      mark(slice, 0, true, kNear);
  return cost;
}

/// Reads of a tensor in one piece, at most.
unsigned Context::mostReadsOf(unsigned id) const {
  unsigned most = 0;
  for (const size_t kernel : kernelsOf[id]) {
    const std::vector<Access> &operands = graph.kernels[kernel].operands;
    most = std::max(most, unsigned(std::count_if(operands.begin(), operands.end(),
                                                 [&](const Access &o) { return o.tensor == id; })));
  }
  return most;
}

CopyTile Context::nextCopy(unsigned id, unsigned pe, Hemisphere h, bool columns,
                           unsigned tile) const {
  const auto before =
      std::count_if(layouts[id].copies.begin(), layouts[id].copies.end(), [&](const Copy &copy) {
        return copy.pe == pe && copy.hemisphere == h && copy.columns == columns;
      });
  return {id, pe, h, columns, unsigned(before), tile};
}

RowRuns allRows(const TensorLayout &layout) {
  return RowRuns(layout.tiles.size(), {RowRun{0, layout.rows, 0}});
}

Status Context::addRowCopy(unsigned id, unsigned pe, Hemisphere h, const RowRuns &runs, bool isPart,
                           unsigned copies) {
  const Tensor &t = tensor(id);
  TensorLayout &layout = layouts[id];
  const MemorySpec &spec = machine.memory;
  const unsigned width = byteWidth(t.type);
  std::vector<unsigned> base;
  std::vector<int> owned(spec.slices, -1); ///< which owner's rows a slice holds
  struct Last {
    unsigned bank = 0;
    std::vector<unsigned> slices;
  };
  std::map<int, Last> lastOf;                     ///< where an owner's last segment lies
  std::vector<unsigned> lastBank(spec.slices, 0); ///< in a slice that is owned
  Copy copy;
  copy.pe = pe;
  copy.hemisphere = h;
  copy.isPart = isPart;
  copy.tiles.resize(layout.tiles.size());
  const bool constant = t.role == forms::TensorRole::Constant;
  // With as many writers as there are slices, each in slices of its own, none would be left to a
  // tensor that is written, or read, in the same piece.
  const auto companions = unsigned(std::count_if(company[id].begin(), company[id].end(),
                                                 [](const Company &c) { return c.samePort; }));
  const auto shareOf = [&](const std::vector<unsigned> &costs) {
    if (columnPlaces == ColumnPlaces::Shared)
      return spec.slices / (companions + 1);
    if (copies < 2)
      return spec.slices;
    unsigned quiet = 0; // slices in which the copies to come meet nothing
    for (unsigned slice = 0; slice < spec.slices; ++slice)
      quiet += *std::min_element(&costs[slice * spec.banks], &costs[(slice + 1) * spec.banks]) <
               kTogether;
    return std::max(width, quiet / copies);
  };
  unsigned share = spec.slices;
  constexpr int64_t kShortest = 32; // rows that are worth bursts of their own
  constexpr unsigned kOthers = 200; // a slice with another owner's rows: one writes after the other
  // Of wide rows, and of those that a piece reads often, copies take slices enough.
  constexpr unsigned kNarrow = 2;
  const bool isReadOften = mostReadsOf(id) > 1;
  const bool rotates = segments && width <= kNarrow && !isReadOften;
  const int64_t parts = !alternates || constant ? 1 : rotates ? segments : 2;
  const bool isRoomy = 4 * allocator(pe, h).freeRows(0, spec.slices) > rowsOfHemisphere();
  auto allocate = [&](unsigned tile, int64_t row, int64_t end, int owner) -> Status {
    const int64_t count = end - row;
    const int64_t longest =
        count < kShortest ? count : std::max((count + parts - 1) / parts, kShortest / 2);
    while (row < end) {
      std::vector<unsigned> cost = base;
      const auto used =
          unsigned(std::count_if(owned.begin(), owned.end(), [](int whose) { return whose >= 0; }));
      const unsigned another = used + width <= share ? 20 : 300;
      for (unsigned slice = 0; slice < spec.slices; ++slice) // an owner keeps to its own slices
        for (unsigned b = 0; b < spec.banks; ++b)
          cost[slice * spec.banks + b] += owned[slice] < 0        ? another
                                          : owned[slice] == owner ? 0
                                                                  : kOthers;
      if (const auto last = lastOf.find(owner); alternates && last != lastOf.end()) {
        for (unsigned slice = 0; slice < spec.slices; ++slice)
          if (!rotates || owned[slice] == owner)
            cost[slice * spec.banks + (rotates ? lastBank[slice] : last->second.bank)] += 10;
        for (const unsigned slice : last->second.slices)
          for (unsigned b = 0; rotates && b < spec.banks; ++b)
            cost[slice * spec.banks + b] += 25; // more than for slices that it has none in
      }
      std::vector<Window> windows;
      if (meetings) {
        constexpr unsigned kWithin = 15; // less than for slices that it has none in
        windows =
            touches->of(nextCopy(id, pe, h, false, tile), row, row + std::min(longest, end - row));
        meetings->addTo(cost, allocatorOf(pe, h), windows,
                        isReadOften ? std::min(kWithin, mostForMeeting) : mostForMeeting);
      }
      // Its own part of the hemisphere, then the other part if that keeps bursts apart (of owners,
      // too, while a quarter is free), then whatever is left, at last beside its own copies (few
      // slices): other rows are free there.
      const unsigned want = unsigned(std::min<int64_t>({longest, end - row, spec.rowsPerBank}));
      Span span;
      for (unsigned most : {kOthers, kTogether, HemisphereAllocator::kForbidden,
                            2 * HemisphereAllocator::kForbidden})
        for (bool own : {true, false})
          if (span.slices.empty() && (most != kOthers || isRoomy))
            span = allocator(pe, h).take(width, want, own == constant ? 0 : weightSlices,
                                         own == constant ? weightSlices : spec.slices, cost, most,
                                         constant);
      std::vector<Span> taken{span};
      if (span.slices.empty()) // no address is free in several slices
        taken = ofHost[id]
                    ? std::vector<Span>()
                    : allocator(pe, h).takeLongest(width, want, 0, spec.slices, cost, constant);
      if (taken.empty())
        return outOfMemory(t.name, pe, h, uint64_t(end - row) * width, 0, spec.slices);
      Last &last = lastOf[owner] = {taken.front().address / spec.rowsPerBank, {}};
      Segment s;
      s.firstRow = row;
      s.rows = taken.front().rows;
      for (const Span &part : taken) {
        for (unsigned slice : part.slices) {
          s.slices.push_back(slice);
          s.addresses.push_back(part.address);
          s.regions.push_back(
              region(t.name, pe, h, slice, part.address, part.rows, part.notBefore));
          owned[slice] = owner;
          last.slices.push_back(slice);
          lastBank[slice] = part.address / spec.rowsPerBank;
          if (meetings)
            meetings->note(allocatorOf(pe, h), slice, lastBank[slice], windows);
        }
        spans[id].push_back({allocatorOf(pe, h), part});
      }
      row += s.rows;
      copy.tiles[tile].push_back(std::move(s));
    }
    return Success{};
  };
  for (unsigned tile = 0; tile < runs.size(); ++tile) {
    base = costs(id, tile, pe, h);
    share = shareOf(base);
    for (const RowRun &run : runs[tile])
      if (Status s = allocate(tile, run.first, run.first + run.rows, int(run.owner)); !s)
        return s;
  }
  layout.copies.push_back(std::move(copy));
  if (constant)
    loadConstant(id, layout.copies.back());
  return Success{};
}

std::optional<Context::WaitingRows> Context::takeWaitingRows(unsigned pe, Hemisphere h,
                                                             unsigned rows,
                                                             const std::vector<unsigned> &cost) {
  if (rows > machine.memory.rowsPerBank)
    return std::nullopt;
  WaitingRows taken;
  taken.allocator = allocatorOf(pe, h);
  taken.span = allocators[taken.allocator].take(1, rows, 0, machine.memory.slices, cost);
  if (taken.span.slices.empty())
    return std::nullopt;
  if (taken.span.rows < rows) {
    allocators[taken.allocator].give(taken.span);
    return std::nullopt;
  }
  taken.slice = taken.span.slices.front();
  taken.address = taken.span.address;
  taken.region = region("detour", pe, h, taken.slice, taken.address, rows, taken.span.notBefore);
  return taken;
}

void Context::give(WaitingRows rows) {
  if (const schedule::RegionState &r = program.regions[rows.region]; r.step1 == program.step())
    rows.span.notBefore = std::max(rows.span.notBefore, r.to);
  allocators[rows.allocator].give(rows.span);
}

void Context::release(unsigned id) {
  for (const Copy &copy : layouts[id].copies)
    for (const Columns &columns : copy.columnTiles)
      for (uint32_t r : columns.regions)
        if (const auto heir = heirs.find(r); heir != heirs.end())
          if (const schedule::RegionState &its = program.regions[r]; its.step1 == program.step())
            program.regions[heir->second].notBefore = its.to;
  auto it = spans.find(id);
  if (it == spans.end())
    return;
  // A span's last use is the last of its regions, which name the same rows.
  std::map<std::pair<size_t, unsigned>, Cycle> lastUse; ///< (allocator, slice and address) -> cycle
  auto note = [&](const Copy &copy, unsigned slice, unsigned address, uint32_t region) {
    Cycle &use =
        lastUse[{allocatorOf(copy.pe, copy.hemisphere), slice * machine.rowsPerSlice() + address}];
    if (const schedule::RegionState &r = program.regions[region]; r.step1 == program.step())
      use = std::max(use, r.to);
  };
  for (const Copy &copy : layouts[id].copies) {
    for (const auto &tile : copy.tiles)
      for (const Segment &s : tile)
        for (size_t b = 0; b < s.slices.size(); ++b)
          note(copy, s.slices[b], s.addresses[b], s.regions[b]);
    for (const Columns &columns : copy.columnTiles)
      for (size_t place = 0; place < columns.slices.size(); ++place)
        note(copy, columns.slices[place], columns.addresses[place], columns.regions[place]);
  }
  for (auto &[where, span] : it->second) {
    for (unsigned slice : span.slices)
      span.notBefore =
          std::max(span.notBefore, lastUse[{where, slice * machine.rowsPerSlice() + span.address}]);
    allocators[where].give(span);
  }
  spans.erase(it);
}

void Context::forgetTimes() {
  for (HemisphereAllocator &a : allocators)
    a.forgetTimes();
  for (auto &[tensor, taken] : spans)
    for (auto &[where, span] : taken)
      span.notBefore = schedule::kNever;
  for (const auto &[before, heir] : heirs)
    program.regions[heir].notBefore = schedule::kNever;
}

namespace {
template <class F> void forEachRegion(const TensorLayout &layout, F f) {
  for (const Copy &copy : layout.copies) {
    for (const auto &tile : copy.tiles)
      for (const Segment &s : tile)
        for (uint32_t r : s.regions)
          f(r);
    for (const Columns &c : copy.columnTiles)
      for (uint32_t r : c.regions)
        f(r);
  }
}
} // namespace

void Context::keepToEnd(unsigned id) {
  forEachRegion(layouts[id], [&](uint32_t r) { program.regions[r].untilEnd = true; });
}

void Context::loadFromHost(unsigned id) {
  forEachRegion(layouts[id], [&](uint32_t r) { program.noteAccess(r, 0, 0); });
  for (const Copy &copy : layouts[id].copies) {
    for (const auto &tile : copy.tiles)
      for (const Segment &s : tile)
        for (size_t b = 0; b < s.slices.size(); ++b)
          addBlock(copy.pe, copy.hemisphere, s.slices[b], s.addresses[b], unsigned(s.rows), 0,
                   s.regions[b], 0);
    for (const Columns &columns : copy.columnTiles)
      for (unsigned at = 0; at < columns.slices.size(); ++at) {
        // The zero rows after the last column keep the block that they have.
        const unsigned width = machine.mxm.columnsPerInstall, b = at / width,
                       column = (at + width - (width / 2) * b % width) % width;
        const int64_t used = (columns.rows - int64_t(column) + width - 1) / width;
        if (used > 0)
          addBlock(copy.pe, copy.hemisphere, columns.slices[at], columns.addresses[at],
                   unsigned(used), 0, columns.regions[at], 0);
      }
  }
}

const Copy *Context::rowCopy(unsigned t, unsigned pe, Hemisphere h, unsigned which) const {
  for (const Copy &copy : layouts[t].copies)
    if (copy.pe == pe && copy.hemisphere == h && !copy.columns && which-- == 0)
      return &copy;
  return nullptr;
}

const Copy *Context::columnCopy(unsigned t, unsigned pe, Hemisphere h) const {
  for (const Copy &copy : layouts[t].copies)
    if (copy.pe == pe && copy.hemisphere == h && copy.columns)
      return &copy;
  return nullptr;
}

} // namespace millrace::grid
