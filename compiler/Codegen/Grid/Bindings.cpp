// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Bindings.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <limits>
#include <set>

namespace millrace::grid {
namespace {

/// A box of a tensor's row indices whose rows are contiguous in the row order.
struct RowBox {
  std::vector<int64_t> start, count; ///< per dimension; the lane dimension has count 1
};

/// Rows [from, to) as boxes: whole inner dimensions where possible.
void boxesOf(const Tensor &t, const TensorLayout &layout, size_t dim, std::vector<int64_t> start,
             int64_t from, int64_t to, std::vector<RowBox> &boxes) {
  if (from >= to)
    return;
  while (dim < t.shape.size() && dim == t.laneDim)
    ++dim;
  RowBox box{start, std::vector<int64_t>(t.shape.size(), 1)};
  if (dim >= t.shape.size()) {
    boxes.push_back(box);
    return;
  }
  const int64_t pitch = layout.pitch[dim], first = (from + pitch - 1) / pitch, last = to / pitch;
  auto descend = [&](int64_t index, int64_t lo, int64_t hi) {
    std::vector<int64_t> inner = start;
    inner[dim] = index;
    boxesOf(t, layout, dim + 1, inner, lo - index * pitch, hi - index * pitch, boxes);
  };
  if (first > last) { // within one step of this dimension
    descend(from / pitch, from, to);
    return;
  }
  if (from < first * pitch)
    descend(first - 1, from, first * pitch);
  if (first < last) {
    box.start[dim] = first;
    box.count[dim] = last - first;
    for (size_t d = dim + 1; d < t.shape.size(); ++d)
      if (d != t.laneDim)
        box.count[d] = t.shape[d];
    boxes.push_back(box);
  }
  if (last * pitch < to)
    descend(last, last * pitch, to);
}

/// Iterations of every host loop of a tensor, [first, first + count).
struct HostPart {
  std::vector<int64_t> first, count;
};

/// The iterations that lead to indices [from, to) of a dimension, from the loop `at` on; those of
/// `part` of other loops.
void addParts(const Tensor &t, unsigned dim, size_t at, int64_t from, int64_t to, HostPart part,
              std::vector<HostPart> &parts) {
  while (at < t.hostLoops.size() && t.hostLoops[at].dim != dim)
    ++at;
  if (at == t.hostLoops.size()) {
    if (from <= 0 && 0 < to)
      parts.push_back(part);
    return;
  }
  int64_t lowest = 0, highest = 0; // what the loops behind add
  for (size_t inner = at + 1; inner < t.hostLoops.size(); ++inner)
    if (const forms::HostLoop &l = t.hostLoops[inner]; l.dim == dim)
      (l.step < 0 ? lowest : highest) += l.step * (l.extent - 1);
  const int64_t step = t.hostLoops[at].step, extent = t.hostLoops[at].extent;
  const auto isWhole = [&](int64_t i) {
    return i * step + lowest >= from && i * step + highest < to;
  };
  for (int64_t i = 0; i < extent;) {
    part.first[at] = i;
    int64_t end = i;
    while (end < extent && isWhole(end))
      ++end;
    part.count[at] = std::max<int64_t>(end - i, 1);
    if (end > i)
      parts.push_back(part);
    else if (i * step + highest >= from && i * step + lowest < to)
      addParts(t, dim, at + 1, from - i * step, to - i * step, part, parts);
    i += part.count[at];
  }
}

/// Where the host finds one lane tile of a box of rows: one placement, or several of a tensor with
/// host loops that the tile or the box cuts.
std::vector<Placement> placementsOf(const Tensor &t, const TensorLayout &layout,
                                    const LaneTile &tile, const Copy &copy, const Segment &segment,
                                    const RowBox &box) {
  Placement p;
  p.pe = uint16_t(copy.pe);
  p.hemisphere = copy.hemisphere;
  p.slices.assign(segment.slices.begin(), segment.slices.end());
  int64_t row = 0;
  for (size_t d = 0; d < t.shape.size(); ++d)
    row += layout.pitch[d] * box.start[d];
  p.row = uint32_t(segment.addresses.front() + row - segment.firstRow);
  if (t.hostLoops.empty()) {
    p.start = box.start;
    p.start[t.laneDim] = tile.start;
    for (unsigned d = 0; d < t.shape.size(); ++d)
      if (d != t.laneDim && box.count[d] > 1)
        p.loops.push_back({uint32_t(box.count[d]), int32_t(layout.pitch[d]), 0, d, 1});
    p.loops.push_back({uint32_t(tile.count), 0, 1, t.laneDim, 1});
    return {p};
  }
  HostPart all;
  for (const forms::HostLoop &l : t.hostLoops)
    all.first.push_back(0), all.count.push_back(l.extent);
  std::vector<HostPart> parts{all};
  for (unsigned dim = 0; dim < t.shape.size(); ++dim) {
    const int64_t from = dim == t.laneDim ? tile.start : box.start[dim],
                  count = dim == t.laneDim ? tile.count : box.count[dim];
    std::vector<HostPart> cut;
    for (const HostPart &part : parts)
      addParts(t, dim, 0, from, from + count, part, cut);
    parts = std::move(cut);
  }
  p.fill = t.hostFill;
  std::vector<Placement> placements;
  for (const HostPart &part : parts) {
    Placement q = p;
    q.start = t.hostStart;
    int64_t lane = -tile.start, moved = -row;
    for (size_t n = 0; n < t.hostLoops.size(); ++n) {
      const forms::HostLoop &l = t.hostLoops[n];
      const int64_t pitch = l.dim == t.laneDim ? 0 : layout.pitch[l.dim],
                    lanes = l.dim == t.laneDim ? l.step : 0;
      if (l.hostStep)
        q.start[l.hostDim] += part.first[n] * l.hostStep;
      lane += part.first[n] * lanes;
      moved += part.first[n] * l.step * pitch;
      q.loops.push_back({uint32_t(part.count[n]), int32_t(pitch * l.step), int32_t(lanes),
                         l.hostStep ? l.hostDim : kNoDim, int32_t(l.hostStep)});
    }
    q.row = uint32_t(int64_t(p.row) + moved);
    q.lane = uint32_t(lane);
    placements.push_back(std::move(q));
  }
  return placements;
}

/// Runs of rows of a segment that were written on this PE.
std::vector<std::pair<int64_t, int64_t>> writtenRuns(const RowSet &owned, unsigned tile,
                                                     const Segment &segment) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  if (owned.tiles.empty() || owned.tiles[tile].empty())
    return runs;
  for (int64_t row = segment.firstRow; row < segment.firstRow + segment.rows; ++row)
    if (owned.tiles[tile][size_t(row)]) {
      if (!runs.empty() && runs.back().second == row)
        ++runs.back().second;
      else
        runs.push_back({row, row + 1});
    }
  return runs;
}

/// Rows that bursts read of each region, from the first to behind the last.
struct RowRange {
  int64_t from = std::numeric_limits<int64_t>::max(), to = 0;
  void add(int64_t row) {
    from = std::min(from, row);
    to = std::max(to, row + 1);
  }
};
std::vector<RowRange> rowsRead(const schedule::Program &program) {
  std::vector<RowRange> read(program.regions.size());
  for (const schedule::PeProgram &pe : program.pes)
    for (const Instruction &i : pe.instructions) {
      if (i.opcode == Opcode::Gather) {
        read[i.tensor].add(program.regions[i.tensor].row);
        read[i.tensor].add(program.lastRowOf(i));
      } else if (i.opcode == Opcode::Read) { // addresses are affine: the corners are the extremes
        for (unsigned i1 : {0u, i.n1 - 1u})
          for (unsigned i0 : {0u, i.n0 - 1u})
            read[i.tensor].add(schedule::elementAddress(i, i0, i1));
      }
    }
  return read;
}

/// The rows of a segment of this copy that something reads: all that the host need write.
std::vector<std::pair<int64_t, int64_t>> readRuns(const std::vector<RowRange> &read,
                                                  const Segment &segment) {
  RowRange all;
  for (uint32_t region : segment.regions) {
    all.from = std::min(all.from, read[region].from);
    all.to = std::max(all.to, read[region].to);
  }
  if (all.from >= all.to)
    return {};
  const int64_t shift = segment.firstRow - int64_t(segment.addresses.front());
  return {{all.from + shift, all.to + shift}};
}

void addColumns(const Context &c, const Tensor &t, const TensorLayout &layout, const Copy &copy,
                std::vector<Placement> &placements) {
  // Row by row: an input used as run-time weights (a key cache) is small.
  const unsigned width = c.machine.mxm.columnsPerInstall;
  for (size_t k = 0; k < layout.tiles.size(); ++k)
    for (int64_t n = 0; n < layout.rows; ++n) {
      const Columns &columns = copy.columnTiles[k];
      std::vector<RowBox> boxes;
      boxesOf(t, layout, 0, std::vector<int64_t>(t.shape.size(), 0), n, n + 1, boxes);
      for (unsigned b = 0; b < byteWidth(t.type); ++b) {
        Segment s;
        s.firstRow = n;
        const int64_t column = layout.columnOf(n);
        const unsigned place = b * width + unsigned(column + int64_t(width / 2) * b) % width;
        s.addresses = {columns.addresses[place] + unsigned(column / width)};
        s.slices = {columns.slices[place]};
        for (Placement &p : placementsOf(t, layout, layout.tiles[k], copy, s, boxes.front())) {
          p.firstByte = uint8_t(b);
          placements.push_back(std::move(p));
        }
      }
    }
}

/// Map vectors: the address of each index in every superlane.
std::vector<Placement> mapPlacements(const Context &c, unsigned indices) {
  std::vector<Placement> placements;
  const Tensor &t = c.tensor(indices);
  const TensorLayout &layout = c.layouts[indices];
  for (const IndexMap &map : c.indexMaps) {
    if (map.key.indices != indices)
      continue;
    Placement p;
    p.pe = uint16_t(map.pe);
    p.hemisphere = map.hemisphere;
    p.bytesInLanes = true;
    p.slices = {uint16_t(map.slice)};
    p.row = map.address;
    p.start.assign(t.hostShape.size(), 0);
    for (unsigned d = 0; d < t.hostShape.size();
         ++d) // the tensor has one dimension more: its lanes
      p.loops.push_back({uint32_t(t.hostShape[d]), int32_t(layout.pitch[d]), 0, d, 1});
    p.loops.push_back(
        {uint32_t(c.machine.superlanes), 0, int32_t(c.machine.lanesPerSuperlane), kNoDim, 0});
    p.first = uint32_t(-map.key.offset);
    p.rows = uint32_t(map.tableRows);
    placements.push_back(p);
  }
  return placements;
}

} // namespace

namespace {
/// Input, Output, or what a host call does with an intermediate tensor.
std::optional<Binding::Role> roleOf(const KernelGraph &graph, unsigned tensor) {
  if (graph.tensors[tensor].role == forms::TensorRole::Input)
    return Binding::Role::Input;
  if (graph.tensors[tensor].role == forms::TensorRole::Output)
    return Binding::Role::Output;
  for (const forms::HostCall &call : graph.hostCalls) {
    if (std::count(call.outputs.begin(), call.outputs.end(), tensor))
      return Binding::Role::HostOutput;
    if (std::count(call.inputs.begin(), call.inputs.end(), tensor))
      return graph.tensors[tensor].role == forms::TensorRole::Constant ? Binding::Role::HostConstant
                                                                       : Binding::Role::HostInput;
  }
  return std::nullopt;
}
} // namespace

std::vector<unsigned> boundTensors(const KernelGraph &graph) {
  std::vector<unsigned> bound;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (roleOf(graph, t))
      bound.push_back(t);
  return bound;
}

/// Appends the elements of a constant to the image's data; returns where they begin.
static uint64_t addElements(Context &c, const Tensor &t) {
  size_t elements = 1;
  for (int64_t extent : t.shape)
    elements *= size_t(extent);
  return c.data.add(elements * byteWidth(t.type),
                    [&t, copies = t.splat ? elements : 1](uint8_t *to) {
                      for (size_t k = 0; k < copies; ++k)
                        to = std::copy(t.data.begin(), t.data.end(), to);
                    });
}

/// A scalar of the model has no dimension; the tensor that holds it has one, of extent 1.
static void makeScalar(Binding &binding) {
  binding.shape.clear();
  for (Placement &p : binding.placements) {
    p.start.clear();
    std::erase_if(p.loops, [](const auto &loop) { return loop.dim != kNoDim; });
  }
}

std::vector<Binding> bindingsOf(Context &c, const Partition &partition) {
  std::vector<Binding> bindings;
  const std::vector<RowRange> reads = rowsRead(c.program);
  for (unsigned id : boundTensors(c.graph)) {
    const Tensor &t = c.tensor(id);
    const Binding::Role role = *roleOf(c.graph, id);
    const bool input =
        role == Binding::Role::Input || role == Binding::Role::HostOutput; // to the grid
    const TensorLayout &layout = c.layouts[id];
    Binding binding;
    binding.role = role;
    binding.name = t.hostName.empty() ? t.name : t.hostName;
    binding.hostType = t.hostType.empty() ? "float32" : t.hostType;
    binding.shape = t.shape;
    // Bytes have no sign on the grid: what the kernels do with them says it.
    const bool isUnsigned = t.type == ElementType::Int8 && t.hostType == "uint8";
    binding.gridType = isUnsigned ? ElementType::UInt8 : t.type;
    binding.scale = t.hostScale;
    binding.zero = t.hostZero;
    if (!t.hostLoops.empty() || t.hostExtent)
      binding.shape = t.hostShape;
    if (t.hostExtent) {
      binding.extent = t.hostExtent;
      binding.placements = mapPlacements(c, id);
      bindings.push_back(std::move(binding));
      continue;
    }
    if (role == Binding::Role::HostConstant) {
      binding.offset = addElements(c, t);
      bindings.push_back(std::move(binding));
      continue;
    }
    std::set<unsigned> read; // PEs whose copy an output is read from
    for (const Copy &copy : layout.copies) {
      if (!input && (copy.columns || !read.insert(copy.pe).second))
        continue;
      if (copy.columns) {
        if (input)
          addColumns(c, t, layout, copy, binding.placements);
        continue;
      }
      for (size_t k = 0; k < layout.tiles.size(); ++k)
        for (const Segment &segment : copy.tiles[k]) {
          std::vector<RowBox> boxes;
          for (auto [from, to] :
               input ? readRuns(reads, segment)
                     : writtenRuns(partition.tensors[id].owned[copy.pe], unsigned(k), segment))
            boxesOf(t, layout, 0, std::vector<int64_t>(t.shape.size(), 0), from, to, boxes);
          for (const RowBox &box : boxes)
            for (Placement &p : placementsOf(t, layout, layout.tiles[k], copy, segment, box))
              binding.placements.push_back(std::move(p));
        }
    }
    const bool isOfModel = role == Binding::Role::Input || role == Binding::Role::Output;
    if (isOfModel && !t.hostName.empty() && t.hostShape.empty() && forms::elementCount(t) == 1)
      makeScalar(binding);
    bindings.push_back(std::move(binding));
  }
  return bindings;
}

} // namespace millrace::grid
