// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Storage of what is loaded with the program: weight tiles, per-lane constants, constant tensors,
// and the zero rows of column copies. All of it needs rows that nothing has used before.
#include "compiler/Codegen/Memory/Context.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

namespace millrace::grid {

using memory::HemisphereAllocator;
using memory::Span;

std::vector<Span> Context::takeInstallRows(unsigned pe, Hemisphere h, unsigned rows,
                                           const std::vector<unsigned> &avoid, bool fresh) {
  const unsigned width = machine.mxm.columnsPerInstall;
  const unsigned sets = weightSets();
  // One whole set of slices after the other, so that the rest serves activations undisturbed.
  std::vector<std::pair<unsigned, unsigned>> order; ///< cost, first slice
  for (unsigned first = 0; first < sets * width; first += width) {
    unsigned cost = 0;
    for (size_t at = first * machine.memory.banks;
         at < (first + width) * machine.memory.banks && !avoid.empty(); ++at)
      cost = std::max(cost, avoid[at]);
    order.push_back({cost, first});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto &x, const auto &y) { return x.first < y.first; });
  std::vector<Span> spans;
  auto take = [&](unsigned first, unsigned last, const std::vector<unsigned> &cost) {
    if (spans.empty())
      spans = allocator(pe, h).takeApart(width, rows, first, last, cost, fresh);
  };
  for (unsigned most : {kTogether, HemisphereAllocator::kForbidden}) {
    if (most == kTogether && columnPlaces == ColumnPlaces::Sets)
      continue;
    std::vector<unsigned> cost = avoid;
    for (unsigned &slice : cost)
      slice = slice < most ? slice : HemisphereAllocator::kForbidden;
    for (const auto &set : order)
      take(set.second, set.second + width, cost);
    for (unsigned last : {weightSlices, machine.memory.slices})
      take(0, last, cost);
  }
  if (!spans.empty())
    return spans;
  // Few slices: beside copies of the same tensor, whose rows are other ones.
  std::vector<unsigned> allowed = avoid;
  for (unsigned &cost : allowed)
    if (cost < 2 * HemisphereAllocator::kForbidden)
      cost = std::min(cost, HemisphereAllocator::kForbidden - 1);
  return allocator(pe, h).takeApart(width, rows, 0, machine.memory.slices, allowed, fresh);
}

std::vector<Span> Context::takeColumnRows(unsigned pe, Hemisphere h, unsigned groups,
                                          unsigned bytes, const std::vector<unsigned> &avoid,
                                          bool fresh) {
  std::vector<Span> all = takeInstallRows(pe, h, groups * bytes, avoid, fresh);
  if (!all.empty() || bytes < 2 || fresh)
    return all;
  // Each byte in runs of its own: of the same slices, or of none of those of the bytes before, so
  // that no slice takes two of a column at a time.
  std::vector<unsigned> same(avoid.size(), HemisphereAllocator::kForbidden), others = avoid;
  for (unsigned b = 0; b < bytes; ++b) {
    std::vector<Span> its;
    if (b)
      its = allocator(pe, h).takeApart(machine.mxm.columnsPerInstall, groups, 0,
                                       machine.memory.slices, same, false);
    if (its.empty())
      its = takeInstallRows(pe, h, groups, others, false);
    for (const Span &span : its)
      for (unsigned bank = 0; bank < machine.memory.banks; ++bank) {
        const size_t at = span.slices.front() * machine.memory.banks + bank;
        same[at] = b ? same[at] : 0;
        others[at] = 2 * HemisphereAllocator::kForbidden;
      }
    all.insert(all.end(), its.begin(), its.end());
    if (!its.empty())
      continue;
    for (const Span &span : all)
      allocator(pe, h).give(span);
    return {};
  }
  return all;
}

Status Context::addColumnCopy(unsigned id, unsigned pe, Hemisphere h, ColumnPadding padding) {
  const bool padded = padding == ColumnPadding::Zeros;
  const Tensor &t = tensor(id);
  TensorLayout &layout = layouts[id];
  const unsigned width = machine.mxm.columnsPerInstall, bytes = byteWidth(t.type);
  Copy copy;
  copy.pe = pe;
  copy.hemisphere = h;
  copy.columns = true;
  for (size_t tile = 0; tile < layout.tiles.size(); ++tile) {
    const unsigned groups =
        unsigned((layout.rows + width - 1) / width) + (padding != ColumnPadding::None);
    // All in the last bank while it has room: what is read beside them finds the others free.
    std::vector<unsigned> avoid = costs(id, unsigned(tile), pe, h);
    for (size_t at = 0; at < avoid.size(); ++at)
      avoid[at] += at % machine.memory.banks + 1 < machine.memory.banks;
    const CopyTile its = nextCopy(id, pe, h, true, unsigned(tile));
    if (meetings) // of its first place, as all are touched alike
      meetings->addTo(avoid, allocatorOf(pe, h), touches->of(its, 0, 1), mostForMeeting);
    const std::vector<Span> taken = takeColumnRows(pe, h, groups, bytes, avoid, padded);
    if (taken.empty())
      return outOfMemory(t.name, pe, h, uint64_t(groups) * bytes * width, 0, machine.memory.slices);
    Columns columns;
    columns.rows = layout.rows;
    columns.repeats = padding == ColumnPadding::Repeats;
    columns.slices.resize(bytes * width);
    columns.addresses.resize(bytes * width);
    columns.regions.resize(bytes * width);
    for (unsigned i = 0; i < taken.size(); ++i) { // a span for each place, of some bytes
      const Span &span = taken[i];
      const uint32_t of =
          region(t.name, pe, h, span.slices.front(), span.address, span.rows, span.notBefore);
      for (unsigned b = 0; b < span.rows / groups; ++b) {
        const unsigned at = i + b * width;
        columns.slices[at] = span.slices.front();
        columns.addresses[at] = span.address + b * groups;
        columns.regions[at] = of;
        if (meetings)
          meetings->note(allocatorOf(pe, h), columns.slices[at],
                         columns.addresses[at] / machine.memory.rowsPerBank,
                         touches->of(its, at, at + 1));
      }
      if (padded) // zero rows stay as loaded: only other padded copies come after this one
        program.noteAccessFromStart(of);
      else
        spans[id].push_back({allocatorOf(pe, h), span});
    }
    const uint64_t zero = padded ? data.add(1) : 0;
    for (int64_t n = layout.rows; padded && n < int64_t(groups) * width; ++n)
      for (unsigned b = 0; b < bytes; ++b) {
        const unsigned at = b * width + unsigned(n + int64_t(width / 2) * b) % width;
        addBlock(pe, h, columns.slices[at], columns.addresses[at] + unsigned(n / width), 1, 1,
                 columns.regions[at], zero);
      }
    copy.columnTiles.push_back(std::move(columns));
  }
  layout.copies.push_back(std::move(copy));
  return Success{};
}

void Context::inheritColumnCopies(unsigned id, unsigned before, unsigned pe) {
  std::vector<Copy> copies;
  for (Copy copy : layouts[before].copies) {
    if (copy.pe != pe || !copy.columns)
      continue;
    for (Columns &columns : copy.columnTiles) {
      std::map<uint32_t, uint32_t> next; // a region may hold several bytes of a place
      for (size_t at = 0; at < columns.slices.size(); ++at) {
        uint32_t &of = columns.regions[at];
        const auto [its, isNew] = next.try_emplace(of, 0);
        if (isNew)
          heirs[of] = its->second =
              region(tensor(id).name, pe, copy.hemisphere, columns.slices[at],
                     columns.addresses[at], program.regions[of].rows, schedule::kNever);
        of = its->second;
      }
    }
    copies.push_back(std::move(copy));
  }
  std::move(copies.begin(), copies.end(), std::back_inserter(layouts[id].copies));
}

bool Context::wouldMeet(unsigned id, unsigned before, unsigned pe) const {
  for (const Copy &copy : layouts[before].copies)
    for (size_t tile = 0; copy.pe == pe && tile < copy.columnTiles.size(); ++tile) {
      const std::vector<unsigned> cost = costs(id, unsigned(tile), pe, copy.hemisphere);
      const Columns &columns = copy.columnTiles[tile];
      for (size_t place = 0; place < columns.slices.size(); ++place)
        if (cost[columns.slices[place] * machine.memory.banks +
                 columns.addresses[place] / machine.memory.rowsPerBank] >= kTogether)
          return true;
    }
  return false;
}

void Context::loadConstant(unsigned id, const Copy &copy) {
  const Tensor &t = tensor(id);
  const TensorLayout &layout = layouts[id];
  const unsigned width = byteWidth(t.type);
  int64_t laneStride = 1; // elements from one lane to the next
  for (size_t d = t.laneDim + 1; d < t.shape.size(); ++d)
    laneStride *= t.shape[d];
  // Element (row, lane): rows count all dimensions but the lanes, row major.
  const auto elementOf = [laneStride, &t](int64_t row, int64_t lane) {
    int64_t above = row / laneStride, below = row % laneStride;
    return (above * t.shape[t.laneDim] + lane) * laneStride + below;
  };
  for (size_t tile = 0; tile < layout.tiles.size(); ++tile)
    for (const Segment &s : copy.tiles[tile])
      for (unsigned b = 0; b < width; ++b) {
        const int64_t first = s.firstRow, rows = s.rows, start = layout.tiles[tile].start,
                      count = layout.tiles[tile].count;
        const uint64_t offset = data.add(uint64_t(rows * count), [=, &t](uint8_t *bytes) {
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t l = 0; l < count; ++l) {
              const int64_t e = t.splat ? 0 : elementOf(first + r, start + l);
              *bytes++ = t.data[size_t(e) * width + b];
            }
        });
        addBlock(copy.pe, copy.hemisphere, s.slices[b], s.addresses[b], unsigned(s.rows),
                 unsigned(count), s.regions[b], offset);
        program.noteAccessFromStart(s.regions[b]);
        program.regions[s.regions[b]].untilEnd = true;
      }
}

void Context::reserveConstantRows(unsigned rows) {
  for (size_t a = 0; a < allocators.size(); ++a)
    for (unsigned slice = 0; slice < machine.memory.slices; ++slice)
      for (const Span &span : allocators[a].takeApart(1, rows, slice, slice + 1))
        reserved[a][slice] = {span.address, span.rows};
}

/// Does some part of a copy of the tensor lie where `meets` (slice, address) says?
static bool liesWhere(const TensorLayout &layout, unsigned pe, Hemisphere h,
                      const std::function<bool(unsigned, unsigned)> &meets) {
  for (const Copy &copy : layout.copies) {
    if (copy.pe != pe || copy.hemisphere != h)
      continue;
    for (const auto &tile : copy.tiles)
      for (const Segment &segment : tile)
        for (size_t b = 0; b < segment.slices.size(); ++b)
          if (meets(segment.slices[b], segment.addresses[b]))
            return true;
    for (const Columns &columns : copy.columnTiles)
      for (size_t place = 0; place < columns.slices.size(); ++place)
        if (meets(columns.slices[place], columns.addresses[place]))
          return true;
  }
  return false;
}

bool Context::writesIn(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice,
                       unsigned address) const {
  const unsigned bank = address / machine.memory.rowsPerBank;
  return std::any_of(kernel.results.begin(), kernel.results.end(), [&](const forms::Result &r) {
    return liesWhere(layouts[r.access.tensor], pe, h, [&](unsigned s, unsigned a) {
      return s == slice && a / machine.memory.rowsPerBank == bank;
    });
  });
}

bool Context::readsFrom(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice) const {
  return std::any_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &o) {
    return liesWhere(layouts[o.tensor], pe, h, [&](unsigned s, unsigned) { return s == slice; });
  });
}

Expected<ConstantRow> Context::constantRow(const Kernel &kernel, unsigned pe, Hemisphere h,
                                           const std::vector<uint8_t> &bytes, unsigned width,
                                           const std::function<bool(unsigned)> &reads) {
  if (std::optional<ConstantRow> row = findConstantRow(kernel, pe, h, bytes, width, reads))
    return *std::move(row);
  return outOfMemory("constant row", pe, h, width, 0, machine.memory.slices);
}

std::optional<ConstantRow> Context::findConstantRow(const Kernel &kernel, unsigned pe, Hemisphere h,
                                                    const std::vector<uint8_t> &bytes,
                                                    unsigned width,
                                                    const std::function<bool(unsigned)> &reads) {
  const std::string key = std::to_string(pe) + (h == Hemisphere::West ? "w" : "e") +
                          std::to_string(width) + ":" + std::string(bytes.begin(), bytes.end());
  auto taken = [&](unsigned slice) { return reads(slice) || looksUpIn(kernel, pe, h, slice); };
  // Of a bank that the kernel writes, or a slice that it reads, perhaps meanwhile.
  auto trouble = [&](unsigned slice, unsigned address) {
    if (writesIn(kernel, pe, h, slice, address))
      return 2u;
    return columnPlaces == ColumnPlaces::Apart && readsFrom(kernel, pe, h, slice) ? 1u : 0u;
  };
  const ConstantRow *known = nullptr;
  unsigned least = 3;
  for (const ConstantRow &row : constantRows[key]) {
    if (std::any_of(row.slices.begin(), row.slices.end(), taken))
      continue;
    unsigned most = 0;
    for (unsigned b = 0; b < width; ++b)
      most = std::max(most, trouble(row.slices[b], row.addresses[b]));
    if (most == 0)
      return row;
    if (most < least)
      known = &row, least = most;
  }
  const size_t allocator = allocatorOf(pe, h);
  std::vector<Reserve> &rows = reserved[allocator];
  // Those that it does not touch, those that none of its installs read, and slices of weights
  // first, the emptiest ones: activations are read meanwhile.
  const std::vector<unsigned> leave = slicesToLeave(size_t(&kernel - graph.kernels.data()), pe, h);
  std::vector<std::pair<unsigned, unsigned>> slices; ///< trouble, slice
  for (unsigned slice = 0; slice < machine.memory.slices; ++slice)
    if (rows[slice].rows && !taken(slice))
      slices.push_back({trouble(slice, rows[slice].address), slice});
  std::stable_sort(slices.begin(), slices.end(), [&](const auto &x, const auto &y) {
    const bool a = x.second < weightSlices, b = y.second < weightSlices,
               meetsA = std::binary_search(leave.begin(), leave.end(), x.second),
               meetsB = std::binary_search(leave.begin(), leave.end(), y.second);
    return x.first != y.first ? x.first < y.first
           : meetsA != meetsB ? meetsB
           : a != b           ? a
                              : rows[x.second].rows > rows[y.second].rows;
  });
  if (known && (slices.size() < width || slices[width - 1].first >= least))
    return *known;
  ConstantRow row;
  if (slices.size() >= width) {
    slices.resize(width);
    for (auto [costs, slice] : slices) {
      row.slices.push_back(slice);
      row.addresses.push_back(rows[slice].address++);
      --rows[slice].rows;
    }
  } else {
    std::vector<unsigned> cost(size_t(machine.memory.slices) * machine.memory.banks, 0);
    for (size_t at = 0; at < cost.size(); ++at)
      cost[at] = taken(unsigned(at / machine.memory.banks)) ? HemisphereAllocator::kForbidden : 0;
    for (const Span &span :
         allocators[allocator].takeApart(width, 1, 0, machine.memory.slices, cost)) {
      row.slices.push_back(span.slices.front());
      row.addresses.push_back(span.address);
    }
  }
  if (row.slices.empty()) {
    full = true;
    return std::nullopt;
  }
  const size_t lanes = bytes.size() / width;
  for (unsigned b = 0; b < width; ++b) {
    row.regions.push_back(constantRegion("constant", pe, h, row.slices[b], row.addresses[b], 1));
    const uint64_t offset = data.add(lanes, [=](uint8_t *to) {
      for (size_t l = 0; l < lanes; ++l)
        to[l] = bytes[l * width + b];
    });
    addBlock(pe, h, row.slices[b], row.addresses[b], 1, unsigned(lanes), row.regions[b], offset);
  }
  constantRows[key].push_back(row);
  return row;
}

unsigned Context::numberOfData(unsigned id) {
  const auto [known, fresh] = dataNumbers.emplace(id, id);
  if (!fresh)
    return known->second;
  const Tensor &t = tensor(id);
  const std::string_view bytes(reinterpret_cast<const char *>(t.data.data()), t.data.size());
  constexpr size_t kSample = 4096; // enough to tell trained weights apart
  const uint64_t sample = std::hash<std::string_view>()(bytes.substr(0, kSample)) + bytes.size();
  for (unsigned other : firstOfData[sample])
    if (tensor(other).type == t.type && tensor(other).splat == t.splat &&
        tensor(other).data == t.data)
      return known->second = other;
  firstOfData[sample].push_back(id);
  return id;
}

const std::string &Context::keyOfContent(const std::string &name,
                                         const std::function<std::string()> &content) {
  const auto known = contentKeys.find(name);
  if (known != contentKeys.end())
    return known->second;
  const auto [key, fresh] =
      keysByContent.emplace(content(), "w" + std::to_string(keysByContent.size()));
  return contentKeys.emplace(name, key->second).first->second;
}

ColumnGroups Context::groupsOf(TileLanes lanes, const std::function<ColumnGroups()> &look) {
  const auto known = groups.find(lanes);
  return known != groups.end() ? known->second
                               : groups.emplace(std::move(lanes), look()).first->second;
}

/// Rows of as many slices as an install reads at once, loaded from the data that begins there. What
/// a worker installs one after the other lies in the same slices, so that others are free for what
/// is read and written meanwhile; and in other ones after an eighth of a slice, so that none runs
/// full before the others.
Expected<WeightTile> Context::takeWeightRows(const std::string &tensor, const Installer &by,
                                             unsigned groups, unsigned planes, unsigned lanes,
                                             uint64_t dataAt) {
  const auto [pe, h, plane] = by.worker;
  const unsigned width = machine.mxm.columnsPerInstall, rows = groups * planes;
  WeightPlace &place = weightPlaces[{allocatorOf(pe, h), plane}];
  if (place.kernel != by.kernel && place.rows >= rowsPerSlice() / 8)
    place = {};
  std::vector<unsigned> elsewhere;
  for (const bool holds : gathersWeights() ? place.slices : std::vector<bool>())
    elsewhere.insert(elsewhere.end(), machine.memory.banks, holds ? 0 : 1);
  const std::vector<Span> spans = takeInstallRows(pe, h, rows, elsewhere);
  if (spans.empty())
    return outOfMemory("weights of " + tensor, pe, h, uint64_t(rows) * width, 0,
                       machine.memory.slices);
  place.slices.resize(machine.memory.slices);
  place.rows += rows;
  place.kernel = by.kernel;
  WeightTile tile;
  tile.groups = tile.pitch = groups;
  for (unsigned s = 0; s < width; ++s) {
    const unsigned slice = spans[s].slices.front(), address = spans[s].address;
    place.slices[slice] = true;
    tile.slices.push_back(slice);
    tile.addresses.push_back(address);
    tile.regions.push_back(constantRegion("weights", pe, h, slice, address, rows));
    addBlock(pe, h, slice, address, rows, lanes, tile.regions[s],
             dataAt + uint64_t(s) * rows * lanes);
  }
  return tile;
}

std::vector<unsigned> Context::slicesToLeave(size_t kernel, unsigned pe, Hemisphere h) const {
  std::vector<unsigned> slices;
  const auto its = slicesOfWeights.find({allocatorOf(pe, h), kernel});
  for (unsigned slice = 0;
       gathersWeights() && its != slicesOfWeights.end() && slice < machine.memory.slices; ++slice)
    if (its->second[slice])
      slices.push_back(slice);
  return slices;
}

const WeightTile &Context::noteWeights(const Installer &by, const WeightTile &tile) {
  std::vector<bool> &slices =
      slicesOfWeights[{allocatorOf(by.worker.pe, by.worker.hemisphere), by.kernel}];
  slices.resize(machine.memory.slices);
  for (const unsigned slice : tile.slices)
    slices[slice] = true;
  return tile;
}

namespace {
std::string placeOf(const std::string &key, const Worker &worker) {
  return std::to_string(worker.pe) + (worker.hemisphere == Hemisphere::West ? "w" : "e") + key;
}
} // namespace

Expected<WeightTile> Context::weightTile(const std::string &key, const std::string &tensor,
                                         const Installer &by, const WeightShape &shape,
                                         const std::function<ConstantData::Writer()> &writer) {
  const std::string place = placeOf(key, by.worker);
  if (auto it = weightTiles.find(place); it != weightTiles.end())
    return noteWeights(by, it->second);
  const auto [known, fresh] = tileData.emplace(key, 0);
  if (fresh)
    known->second = data.add(
        uint64_t(machine.mxm.columnsPerInstall) * shape.groups * shape.planes * shape.k1, writer());
  Expected<WeightTile> tile =
      takeWeightRows(tensor, by, shape.groups, shape.planes, shape.k1, known->second);
  if (!tile)
    return tile;
  weightTiles.emplace(place, *tile);
  return noteWeights(by, *tile);
}

/// Where lanes of a pass begin, and where others end, least is lost below the tile.
std::optional<Context::SharedPlace> Context::placeIn(SharedRows &rows, const WeightShape &shape) {
  const std::vector<unsigned> &used = rows.used;
  const unsigned width = shape.k1 - shape.k0;
  std::optional<SharedPlace> best;
  if (rows.free < uint64_t(width) * shape.groups)
    return best;
  for (unsigned lane = 0; lane + width <= used.size(); ++lane) {
    if (lane % shape.step + width > shape.step ||
        (lane % shape.step && used[lane] == used[lane - 1]))
      continue;
    const auto from = used.begin() + lane, to = from + width;
    const unsigned group = *std::max_element(from, to);
    if (group + shape.groups > rows.rows.groups)
      continue;
    const uint64_t wasted = uint64_t(group) * width - std::accumulate(from, to, uint64_t(0));
    if (!best || std::pair(wasted, group) < std::pair(best->wasted, best->group))
      best = {&rows, lane, group, wasted};
  }
  return best;
}

Expected<WeightTile>
Context::weightTileBeside(const std::string &key, const std::string &tensor, const Installer &by,
                          const WeightShape &shape,
                          const std::function<ConstantData::Writer()> &writer) {
  const std::string name = placeOf(key, by.worker);
  if (auto it = weightTiles.find(name); it != weightTiles.end())
    return noteWeights(by, it->second);
  const unsigned width = shape.k1 - shape.k0, lanes = machine.lanes() / shape.step * shape.step,
                 high = machine.mxm.columns / machine.mxm.columnsPerInstall;
  std::vector<SharedRows> &all =
      sharedRows[{allocatorOf(by.worker.pe, by.worker.hemisphere), shape.planes, shape.step}];
  std::optional<SharedPlace> place;
  for (SharedRows &its : all)
    if (const std::optional<SharedPlace> in = placeIn(its, shape);
        in && (!place || in->wasted < place->wasted))
      place = in;
  if (!place) {
    const uint64_t at =
        data.add(uint64_t(machine.mxm.columnsPerInstall) * high * shape.planes * machine.lanes());
    Expected<WeightTile> fresh =
        takeWeightRows(tensor, by, high, shape.planes, machine.lanes(), at);
    if (!fresh)
      return fresh;
    all.push_back({std::move(*fresh), at, std::vector<unsigned>(lanes, 0), uint64_t(high) * lanes});
    place = placeIn(all.back(), shape);
  }
  SharedRows &rows = *place->rows;
  const unsigned lane = place->lane, first = place->group;
  std::fill_n(rows.used.begin() + lane, width, first + shape.groups);
  rows.free -= place->wasted + uint64_t(width) * shape.groups;
  WeightTile tile = rows.rows;
  tile.groups = shape.groups;
  tile.shift = int(lane) - int(shape.k0);
  for (unsigned &address : tile.addresses)
    address += first;
  data.fill(rows.data, [=, write = writer(), lanes = machine.lanes(),
                        planes = machine.mxm.columnsPerInstall * shape.planes](uint8_t *to) {
    std::vector<uint8_t> bytes(size_t(planes) * shape.groups * shape.k1);
    write(bytes.data());
    const uint8_t *from = bytes.data() + shape.k0;
    for (size_t plane = 0; plane < planes; ++plane)
      for (size_t g = first; g < first + shape.groups; ++g, from += shape.k1)
        std::copy(from, from + width, to + (plane * high + g) * lanes + lane);
  });
  weightTiles.emplace(name, tile);
  return noteWeights(by, tile);
}

} // namespace millrace::grid
