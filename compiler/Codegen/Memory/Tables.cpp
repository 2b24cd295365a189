// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tables and their map vectors lie. All of a kernel's lookups in one lane tile share a
// hemisphere, in slices of their own: they are gathered in one piece.
#include "compiler/Codegen/Memory/Tables.h"

#include "compiler/Codegen/Memory/Context.h"

#include <algorithm>
#include <set>

namespace millrace::grid {

using memory::HemisphereAllocator;
using memory::Span;

LookupKey lookupKey(const Kernel &kernel, unsigned operand) {
  const Access &access = kernel.operands[operand];
  LookupKey key{access.tensor, access.lookup->tensor, access.index[access.lookup->dim].offset, 0,
                access.pad};
  for (unsigned o = 0; o < operand; ++o)
    key.use += kernel.operands[o].lookup && kernel.operands[o].tensor == access.tensor;
  return key;
}

bool needsPadRow(const KernelGraph &graph, const LookupKey &key) {
  const Tensor &table = graph.tensors[key.table];
  int64_t rows = 1;
  for (size_t d = 0; d < table.shape.size(); ++d)
    rows *= d == table.laneDim ? 1 : table.shape[d];
  return key.offset != 0 || graph.tensors[key.indices].hostExtent != rows;
}

const TableCopy *Context::tableCopy(const LookupKey &key, unsigned pe, unsigned tile) const {
  for (const TableCopy &copy : tables)
    if (copy.table == key.table && copy.use == key.use && copy.pad == key.pad && copy.pe == pe &&
        copy.tile == tile)
      return &copy;
  return nullptr;
}

const IndexMap *Context::indexMap(const LookupKey &key, unsigned pe, Hemisphere h) const {
  for (const IndexMap &map : indexMaps)
    if (map.key == key && map.pe == pe && map.hemisphere == h)
      return &map;
  return nullptr;
}

bool Context::looksUpIn(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned slice,
                        std::optional<unsigned> tile) const {
  for (unsigned o = 0; o < kernel.operands.size(); ++o) {
    if (!kernel.operands[o].lookup)
      continue;
    const LookupKey key = lookupKey(kernel, o);
    for (const TableCopy &copy : tables)
      if (copy.table == key.table && copy.use == key.use && copy.pe == pe && copy.hemisphere == h &&
          (!tile || copy.tile == *tile) &&
          std::count(copy.slices.begin(), copy.slices.end(), slice))
        return true;
    for (const IndexMap &map : indexMaps)
      if (map.key == key && map.pe == pe && map.hemisphere == h && map.slice == slice)
        return true;
  }
  return false;
}

/// Runs of `rows` rows in `width` slices of [first, last): within a bank each, or whole slices.
static std::vector<Span> takeRows(HemisphereAllocator &allocator, const MemorySpec &spec,
                                  unsigned width, unsigned rows, unsigned first, unsigned last,
                                  const std::vector<unsigned> &cost) {
  return rows <= spec.rowsPerBank ? allocator.takeApart(width, rows, first, last, cost)
                                  : allocator.takeAcross(width, rows, first, last, cost);
}

/// Slices for `width` bytes of a table of `rows` rows.
std::vector<Span> Context::takeTable(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned tile,
                                     unsigned width, unsigned rows) {
  constexpr unsigned kOtherTile = 20; // gathered one after the other, if they must be
  const MemorySpec &spec = machine.memory;
  std::vector<unsigned> cost(size_t(spec.slices) * spec.banks, 0);
  for (unsigned slice = 0; slice < spec.slices; ++slice) {
    // The first sets of slices fill with weights.
    unsigned amount =
        (weightSlices > slice ? weightSlices - slice : 0) / machine.mxm.columnsPerInstall;
    if (looksUpIn(kernel, pe, h, slice))
      amount += kOtherTile;
    if (looksUpIn(kernel, pe, h, slice, tile))
      amount = HemisphereAllocator::kForbidden;
    for (unsigned b = 0; b < spec.banks; ++b)
      cost[slice * spec.banks + b] = amount;
  }
  // Beyond the table there must be slices for the maps.
  const unsigned last = spec.slices - spec.slices / 6;
  std::vector<Span> spans;
  for (unsigned end : {std::min(weightSlices, last), last})
    if (spans.empty())
      spans = takeRows(allocator(pe, h), spec, width, rows, 0, end, cost);
  return spans;
}

void Context::loadTable(const TableCopy &copy, const LookupKey &key) {
  const Tensor &t = tensor(copy.table);
  const LaneTile &tile = layouts[copy.table].tiles[copy.tile];
  const int64_t rows = layouts[copy.table].rows, pads = needsPadRow(graph, key);
  const unsigned width = byteWidth(t.type);
  const std::string name = "table " + std::to_string(copy.table) + " " + std::to_string(copy.tile) +
                           " " + std::to_string(pads) + " " + std::to_string(copy.pad);
  const auto [known, fresh] = tileData.emplace(name, 0);
  const uint64_t bytes = uint64_t((rows + pads) * tile.count);
  int64_t laneStride = 1; // elements from one lane to the next
  for (size_t d = t.laneDim + 1; d < t.shape.size(); ++d)
    laneStride *= t.shape[d];
  if (fresh)
    known->second = data.add(bytes * width, [=, &t, pad = copy.pad](uint8_t *to) {
      for (unsigned b = 0; b < width; ++b)
        for (int64_t r = 0; r < rows + pads; ++r)
          for (int64_t l = 0; l < tile.count; ++l) {
            const int64_t element =
                (r / laneStride * t.shape[t.laneDim] + tile.start + l) * laneStride +
                r % laneStride;
            *to++ = r < rows ? t.data[size_t(t.splat ? 0 : element) * width + b]
                             : uint8_t(pad >> (8 * b));
          }
    });
  for (unsigned b = 0; b < width; ++b)
    addBlock(copy.pe, copy.hemisphere, copy.slices[b], copy.addresses[b], unsigned(rows + pads),
             unsigned(tile.count), copy.regions[b], known->second + b * bytes);
}

/// One lane tile of the tables that a kernel looks up, on hemisphere `h`; false if they do not fit.
bool Context::addTables(const Kernel &kernel, unsigned pe, Hemisphere h, unsigned tile) {
  const size_t before = tables.size();
  std::vector<Span> taken;
  for (unsigned o = 0; o < kernel.operands.size(); ++o) {
    if (!kernel.operands[o].lookup)
      continue;
    const LookupKey key = lookupKey(kernel, o);
    if (tile >= layouts[key.table].tiles.size() || tableCopy(key, pe, tile))
      continue;
    const unsigned rows = unsigned(layouts[key.table].rows + needsPadRow(graph, key));
    std::vector<Span> spans =
        takeTable(kernel, pe, h, tile, byteWidth(tensor(key.table).type), rows);
    if (spans.empty()) {
      for (const Span &span : taken)
        allocator(pe, h).give(span, true);
      tables.resize(before);
      return false;
    }
    TableCopy copy{key.table, key.use, pe, tile, key.pad, h, {}, {}, {}};
    for (const Span &span : spans) {
      if (!copy.slices.empty() && copy.slices.back() == span.slices.front())
        continue; // the next bank of a whole slice
      copy.slices.push_back(span.slices.front());
      copy.addresses.push_back(span.address);
    }
    taken.insert(taken.end(), spans.begin(), spans.end());
    tables.push_back(std::move(copy));
  }
  for (unsigned o = 0; o < kernel.operands.size(); ++o)
    for (size_t i = before; i < tables.size() && kernel.operands[o].lookup; ++i) {
      const LookupKey key = lookupKey(kernel, o);
      TableCopy &copy = tables[i];
      if (copy.table != key.table || copy.use != key.use || copy.pad != key.pad)
        continue;
      const unsigned rows = unsigned(layouts[key.table].rows + needsPadRow(graph, key));
      for (size_t b = 0; b < copy.slices.size(); ++b)
        copy.regions.push_back(
            constantRegion(tensor(key.table).name, pe, h, copy.slices[b], copy.addresses[b], rows));
      loadTable(copy, key);
    }
  return true;
}

/// The map vectors of a lookup, beside every copy of its table that they must flow past.
Status Context::addMaps(const Kernel &kernel, unsigned operand, unsigned pe, Hemisphere h) {
  const LookupKey key = lookupKey(kernel, operand);
  const MemorySpec &spec = machine.memory;
  unsigned outermost = 0;
  bool any = false;
  for (const TableCopy &copy : tables)
    if (copy.table == key.table && copy.use == key.use && copy.pad == key.pad && copy.pe == pe &&
        copy.hemisphere == h)
      for (unsigned slice : copy.slices)
        outermost = std::max(outermost, slice), any = true;
  if (!any || indexMap(key, pe, h))
    return Success{};
  std::vector<unsigned> cost(size_t(spec.slices) * spec.banks, 0);
  for (unsigned slice = 0; slice < spec.slices; ++slice)
    if (looksUpIn(kernel, pe, h, slice))
      for (unsigned b = 0; b < spec.banks; ++b)
        cost[slice * spec.banks + b] = HemisphereAllocator::kForbidden;
  const unsigned rows = unsigned(layouts[key.indices].rows);
  std::vector<Span> spans;
  for (unsigned first : {std::max(outermost + 1, weightSlices), outermost + 1})
    if (spans.empty())
      spans = takeRows(allocator(pe, h), spec, 1, rows, first, spec.slices, cost);
  if (spans.empty())
    return outOfMemory(tensor(key.indices).name, pe, h, rows, outermost + 1, spec.slices);
  IndexMap map{
      key, pe, h, spans.front().slices.front(), spans.front().address, 0, layouts[key.table].rows};
  map.region =
      region(tensor(key.indices).name, pe, h, map.slice, map.address, rows, schedule::kNever);
  program.noteAccess(map.region, 0, 0);
  addBlock(pe, h, map.slice, map.address, rows, 0, map.region, 0);
  indexMaps.push_back(map);
  return Success{};
}

Status Context::addLookups(const Kernel &kernel, unsigned pe) {
  size_t tiles = 0;
  for (unsigned o = 0; o < kernel.operands.size(); ++o)
    if (kernel.operands[o].lookup) {
      const LookupKey key = lookupKey(kernel, o);
      const Tensor &indices = tensor(key.indices);
      if (indices.role != forms::TensorRole::Input || !indices.hostExtent)
        return Error{"kernel '" + kernel.name + "' looks up indices in '" + indices.name +
                     "', which no input of the model delivers"};
      const int64_t rows = layouts[key.table].rows + needsPadRow(graph, key);
      const int64_t most = std::min<int64_t>(machine.rowsPerSlice(), kMostTableRows + 1);
      if (rows > most)
        return Error{"table '" + tensor(key.table).name + "' has " + std::to_string(rows) +
                     " rows for one Gather, which reaches " + std::to_string(most) +
                     "; cut the table (split-tables)"};
      tiles = std::max(tiles, layouts[key.table].tiles.size());
    }
  for (unsigned tile = 0; tile < tiles; ++tile) {
    const Hemisphere near = Hemisphere(tile % kHemispheres),
                     far = Hemisphere((tile + 1) % kHemispheres);
    if (!addTables(kernel, pe, near, tile) && !addTables(kernel, pe, far, tile))
      return Error{"the tables that kernel '" + kernel.name +
                   "' looks up do not fit beside each other " + "into a hemisphere of PE " +
                   std::to_string(pe) + ": use a machine with more memory or more PEs"};
  }
  for (unsigned o = 0; o < kernel.operands.size(); ++o)
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
      if (kernel.operands[o].lookup)
        if (Status s = addMaps(kernel, o, pe, h); !s)
          return s;
  return Success{};
}

} // namespace millrace::grid
