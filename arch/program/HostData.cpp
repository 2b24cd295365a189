// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/HostData.h"

#include "arch/program/HostNumbers.h"
#include "arch/program/PlacementWalk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace millrace {

namespace {
Error inBinding(const Binding &binding, const std::string &what) {
  return Error{(binding.role == Binding::Role::Output || binding.role == Binding::Role::HostInput
                    ? "output '"
                    : "input '") +
               binding.name + "': " + what};
}

/// The tensor in the grid's type, byte b of all elements together: each goes to a slice of its own.
struct Planes {
  Planes(size_t elements, unsigned width)
      : elements(elements), width(width), bytes(elements * width) {}
  uint8_t *plane(unsigned byte) { return bytes.data() + byte * elements; }

  void split(const uint8_t *grid) {
    for (unsigned b = 0; b < width; ++b)
      for (size_t k = 0; k < elements; ++k)
        plane(b)[k] = grid[k * width + b];
  }
  void join(uint8_t *grid) {
    for (unsigned b = 0; b < width; ++b)
      for (size_t k = 0; k < elements; ++k)
        grid[k * width + b] = plane(b)[k];
  }

  size_t elements;
  unsigned width;
  std::vector<uint8_t> bytes;
};

/// out[k * outStep] = in[k * inStep]. Most runs are either one step of both, or short.
void copyRun(uint8_t *out, int64_t outStep, const uint8_t *in, int64_t inStep, size_t count) {
  if (outStep == 1 && inStep == 1 && count >= 16) {
    std::memcpy(out, in, count);
    return;
  }
  for (size_t k = 0; k < count; ++k, out += outStep, in += inStep)
    *out = *in;
}
void fillRun(uint8_t *out, int64_t step, uint8_t value, size_t count) {
  for (size_t k = 0; k < count; ++k, out += step)
    *out = value;
}

/// Type, count and placements of a binding, checked.
struct Checked {
  HostElement host;
  size_t elements;
};
Expected<Checked> check(const Binding &binding, const RowAccess &memory) {
  std::optional<HostElement> host = hostElementNamed(binding.hostType);
  if (!host)
    return inBinding(binding, "host type '" + binding.hostType +
                                  "' is not supported; use float32, float16, bfloat16, float64, "
                                  "bool or an integer type");
  Expected<uint64_t> elements = elementCount(binding);
  if (!elements)
    return inBinding(binding, elements.error());
  for (size_t k = 0; k < binding.placements.size(); ++k) {
    Expected<PlacementExtent> extent = extentOf(binding, binding.placements[k]);
    if (!extent)
      return inBinding(binding, "placement " + std::to_string(k) + ": " + extent.error());
    if (extent->lastLane >= int64_t(memory.lanes()))
      return inBinding(binding, "placement " + std::to_string(k) + " reaches lane " +
                                    std::to_string(extent->lastLane) + "; the machine has " +
                                    std::to_string(memory.lanes()));
  }
  return Checked{*host, size_t(*elements)};
}

void put(const Binding &binding, const Placement &p, Planes &planes, RowAccess &memory) {
  const unsigned bytes = bytesPlaced(binding, p);
  PlacementWalk(binding, p).forEachRows([&](const RowWork &work) {
    for (unsigned k = 0; k < bytes; ++k) {
      const unsigned slice = p.slices[p.bytesInLanes ? 0 : k], byte = p.firstByte + k;
      for (uint32_t r = 0; r < work.count; ++r) {
        uint8_t *row = memory.write(p.pe, p.hemisphere, slice, work.rowAt(r)).data() +
                       work.laneAt(r) + (p.bytesInLanes ? k : 0);
        const uint8_t *from = planes.plane(byte);
        for (const LaneRun &run : *work.inside)
          copyRun(row + run.lane, run.laneStep, from + work.elementAt(r, run),
                  int64_t(run.elementStep), run.count);
        for (const LaneRun &run : *work.outside)
          fillRun(row + run.lane, run.laneStep, uint8_t(p.fill >> 8 * byte), run.count);
      }
    }
  });
}

/// `seen` has a bit for every byte of every element that was read.
void take(const Binding &binding, const Placement &p, Planes &planes, std::vector<uint8_t> &seen,
          RowAccess &memory) {
  const unsigned bytes = bytesPlaced(binding, p);
  const uint8_t mask = uint8_t(((1u << bytes) - 1) << p.firstByte);
  std::vector<uint8_t> line(memory.lanes());
  PlacementWalk(binding, p).forEachRows([&](const RowWork &work) {
    for (uint32_t r = 0; r < work.count && !work.inside->empty(); ++r) {
      for (unsigned k = 0; k < bytes; ++k) {
        if (!k || !p.bytesInLanes)
          memory.read(p.pe, p.hemisphere, p.slices[k], work.rowAt(r), line);
        const uint8_t *row = line.data() + work.laneAt(r) + (p.bytesInLanes ? k : 0);
        uint8_t *to = planes.plane(p.firstByte + k);
        for (const LaneRun &run : *work.inside)
          copyRun(to + work.elementAt(r, run), int64_t(run.elementStep), row + run.lane,
                  run.laneStep, run.count);
      }
      for (const LaneRun &run : *work.inside) {
        uint8_t *at = seen.data() + work.elementAt(r, run);
        for (uint32_t k = 0; k < run.count; ++k, at += int64_t(run.elementStep))
          *at |= mask;
      }
    }
  });
}

/// round(x / scale) + zero, ties to even, clamped; NaN is the zero point.
std::vector<int8_t> quantize(const Binding &binding, const float *host, size_t elements) {
  std::vector<int8_t> values(elements);
  for (size_t k = 0; k < elements; ++k) {
    const double x = std::nearbyint(double(host[k]) / binding.scale) + double(binding.zero);
    values[k] = std::isnan(x) ? int8_t(binding.zero) : int8_t(std::clamp(x, -128.0, 127.0));
  }
  return values;
}
/// The indices of a table of `extent` rows, none of them negative any more. Errors name the
/// element.
Expected<std::vector<int64_t>> indicesOf(const Binding &binding, HostElement from, const void *host,
                                         size_t elements) {
  std::vector<int64_t> indices(elements);
  for (size_t k = 0; k < elements; ++k) {
    std::optional<int64_t> index = integerAt(from, host, k);
    if (!index)
      return inBinding(binding, "indices of a table must be integers, not " + binding.hostType);
    if (*index < -binding.extent || *index >= binding.extent)
      return inBinding(binding, "element " + std::to_string(k) + " is " + std::to_string(*index) +
                                    ", but the table that it looks up has " +
                                    std::to_string(binding.extent) + " rows: give " +
                                    std::to_string(-binding.extent) + " to " +
                                    std::to_string(binding.extent - 1));
    indices[k] = *index < 0 ? *index + binding.extent : *index;
  }
  return indices;
}

/// Every placement has addresses of its own rows of the table.
Status writeIndices(const Binding &binding, HostElement from, const void *host, size_t elements,
                    RowAccess &memory) {
  Expected<std::vector<int64_t>> indices = indicesOf(binding, from, host, elements);
  if (!indices)
    return indices.takeError();
  Planes planes(elements, byteWidth(binding.gridType));
  std::vector<int32_t> addresses(elements);
  for (const Placement &p : binding.placements) {
    for (size_t k = 0; k < elements; ++k) {
      const int64_t row = (*indices)[k] - int64_t(p.first);
      addresses[k] = int32_t(row >= 0 && row < int64_t(p.rows) ? row : int64_t(p.rows));
    }
    planes.split(reinterpret_cast<const uint8_t *>(addresses.data()));
    put(binding, p, planes, memory);
  }
  return Success{};
}
} // namespace

Expected<std::vector<uint8_t>> gridElements(const Binding &binding, const void *host) {
  const std::optional<HostElement> type = hostElementNamed(binding.hostType);
  const Expected<uint64_t> elements = elementCount(binding);
  if (!type || !elements)
    return inBinding(binding, elements ? "host type '" + binding.hostType + "' is not supported"
                                       : elements.error());
  std::vector<uint8_t> grid(size_t(*elements) * byteWidth(binding.gridType));
  std::vector<int8_t> quantized;
  HostElement from = *type;
  if (binding.scale != 0) {
    if (from != HostElement::Float32)
      return inBinding(binding,
                       "only float32 can be quantised by the host, not " + binding.hostType);
    quantized = quantize(binding, static_cast<const float *>(host), size_t(*elements));
    host = quantized.data(), from = HostElement::Int8;
  }
  if (Status s = toGrid(from, host, binding.gridType, grid.data(), size_t(*elements)); !s)
    return inBinding(binding, s.error());
  return grid;
}

Status writeTensor(const Binding &binding, const void *host, RowAccess &memory) {
  Expected<Checked> checked = check(binding, memory);
  if (!checked)
    return checked.takeError();
  if (binding.extent)
    return writeIndices(binding, checked->host, host, checked->elements, memory);
  Planes planes(checked->elements, byteWidth(binding.gridType));
  {
    Expected<std::vector<uint8_t>> grid = gridElements(binding, host);
    if (!grid)
      return grid.takeError();
    planes.split(grid->data());
  }
  for (const Placement &p : binding.placements)
    put(binding, p, planes, memory);
  return Success{};
}

Status readTensor(const Binding &binding, void *host, RowAccess &memory) {
  Expected<Checked> checked = check(binding, memory);
  if (!checked)
    return checked.takeError();
  // Before anything as large as the shape is allocated: the placements bound it.
  if (elementsWritten(binding) < checked->elements)
    return inBinding(binding, "its placements hold " + std::to_string(elementsWritten(binding)) +
                                  " of " + std::to_string(checked->elements) + " elements");
  const unsigned width = byteWidth(binding.gridType);
  Planes planes(checked->elements, width);
  std::vector<uint8_t> seen(checked->elements, 0);
  for (const Placement &p : binding.placements)
    take(binding, p, planes, seen, memory);
  const uint8_t whole = uint8_t((1u << width) - 1);
  const auto missing =
      std::find_if(seen.begin(), seen.end(), [&](uint8_t s) { return s != whole; });
  if (missing != seen.end())
    return inBinding(binding,
                     "element " + std::to_string(missing - seen.begin()) + " of " +
                         std::to_string(checked->elements) +
                         " lies in no placement; the program does not hold the whole tensor");
  std::vector<uint8_t> grid(checked->elements * width);
  planes.join(grid.data());
  if (Status s = fromGrid(binding.gridType, grid.data(), checked->host, host, checked->elements);
      !s)
    return inBinding(binding, s.error());
  return Success{};
}

bool hostHasGridBits(const Binding &binding) {
  const std::optional<HostElement> host = hostElementNamed(binding.hostType);
  return host && sameBits(*host, binding.gridType);
}

Status readConstant(const Binding &binding, const uint8_t *data, void *host) {
  const std::optional<HostElement> type = hostElementNamed(binding.hostType);
  const Expected<uint64_t> elements = elementCount(binding);
  if (!type || !elements)
    return inBinding(binding, elements ? "host type '" + binding.hostType + "' is not supported"
                                       : elements.error());
  if (Status s = fromGrid(binding.gridType, data + binding.offset, *type, host, size_t(*elements));
      !s)
    return inBinding(binding, s.error());
  return Success{};
}

uint64_t elementsWritten(const Binding &binding) {
  uint64_t total = 0;
  for (const Placement &p : binding.placements) {
    uint64_t elements = 1;
    for (const BindingLoop &loop : p.loops)
      elements *= loop.count;
    total += elements;
  }
  return total;
}

uint64_t hostBytes(const Binding &binding) {
  const std::optional<HostElement> host = hostElementNamed(binding.hostType);
  const Expected<uint64_t> elements = elementCount(binding);
  return host && elements ? *elements * byteWidth(*host) : 0;
}

} // namespace millrace
