// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/Layout.h"

#include <algorithm>
#include <numeric>

namespace millrace::layouts {

Layout Layout::plain(const Tensor &tensor) {
  Layout layout;
  layout.laneDim = tensor.laneDim;
  layout.lanes = tensor.shape[tensor.laneDim];
  for (unsigned d = 0; d < tensor.shape.size(); ++d) {
    DimLayout dim;
    (d == tensor.laneDim ? dim.slots : dim.rows) = tensor.shape[d];
    dim.pitch = d == tensor.laneDim ? 1 : 0;
    layout.dims.push_back(dim);
  }
  return layout;
}

namespace {

/// Dimensions with slots, those furthest apart first.
std::vector<unsigned> byPitch(const Layout &layout) {
  std::vector<unsigned> order;
  for (unsigned d = 0; d < layout.dims.size(); ++d)
    if (layout.dims[d].pitch)
      order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](unsigned x, unsigned y) {
    return layout.dims[x].pitch > layout.dims[y].pitch;
  });
  return order;
}

} // namespace

std::optional<std::vector<int64_t>> Layout::slotsAt(int64_t lane) const {
  std::vector<int64_t> slots(dims.size(), 0);
  for (unsigned d : byPitch(*this)) {
    if (d == laneDim && runs.length) {
      const std::optional<int64_t> index = runs.indexAt(lane);
      if (!index || *index >= dims[d].slots)
        return std::nullopt;
      slots[d] = *index;
      lane = 0;
      continue;
    }
    slots[d] = std::min(lane / dims[d].pitch, dims[d].slots - 1);
    lane -= slots[d] * dims[d].pitch;
  }
  return lane == 0 ? std::optional(slots) : std::nullopt;
}

int64_t Layout::laneOf(const std::vector<int64_t> &slots) const {
  int64_t lane = 0;
  for (unsigned d = 0; d < dims.size(); ++d)
    lane += d == laneDim ? runs.laneOf(slots[d]) : slots[d] * dims[d].pitch;
  return lane;
}

std::vector<Place> Layout::placesOf(unsigned dim, int64_t index) const {
  std::vector<Place> places;
  findPlaces(dim, index, places);
  return places;
}

void Layout::findPlaces(unsigned dim, int64_t index, std::vector<Place> &places) const {
  const DimLayout &d = dims[dim];
  places.clear();
  for (int64_t slot = d.slots; slot-- > 0;) { // later slots lie in earlier rows
    const int64_t rest = index + d.start - slot * d.slotStep;
    if (d.slotStep == 0) {
      places = {{rest / d.rowStep, 0}};
      return;
    }
    if (rest % d.rowStep == 0)
      places.push_back({rest / d.rowStep, slot});
  }
}

std::vector<int64_t> Layout::rowShape() const {
  std::vector<int64_t> shape;
  for (unsigned d = 0; d < dims.size(); ++d)
    if (d != laneDim)
      shape.push_back(dims[d].rows);
  shape.push_back(lanes);
  return shape;
}

bool Layout::hasOutside(const Tensor &tensor) const {
  for (unsigned d = 0; d < dims.size(); ++d)
    if (dims[d].start > 0 ||
        dims[d].indexAt(dims[d].rows - 1, dims[d].slots - 1) >= tensor.shape[d])
      return true;
  return false;
}

double Layout::repetition(const Tensor &tensor) const {
  double places = 1;
  for (unsigned d = 0; d < dims.size(); ++d)
    if (d != laneDim)
      places *= double(dims[d].rows * dims[d].slots) / double(tensor.shape[d]);
  return places;
}

std::string Layout::verify(const Tensor &tensor, bool whole) const {
  if (dims.size() != tensor.shape.size() || laneDim != tensor.laneDim)
    return "layout of '" + tensor.name + "' has other dimensions than the tensor";
  int64_t most = 1;
  for (unsigned d = 0; d < dims.size(); ++d) {
    const DimLayout &dim = dims[d];
    if (dim.rows < 1 || dim.slots < 1 || dim.rowStep < 1 || dim.slotStep < 0 ||
        (dim.slots > 1 && dim.pitch < 1))
      return "layout of '" + tensor.name + "': dimension " + std::to_string(d) +
             " has no rows, slots or steps";
    most += d == laneDim ? runs.laneOf(dim.slots - 1) : (dim.slots - 1) * dim.pitch;
    for (int64_t index = 0; whole && index < tensor.shape[d]; ++index) {
      const std::vector<Place> places = placesOf(d, index);
      if (std::none_of(places.begin(), places.end(),
                       [&](const Place &p) { return p.row >= 0 && p.row < dim.rows; }))
        return "layout of '" + tensor.name + "': index " + std::to_string(index) +
               " of dimension " + std::to_string(d) + " has no place";
    }
  }
  if (runs.length < 0 || (runs.length && runs.pitch < runs.length))
    return "layout of '" + tensor.name + "' has runs of " + std::to_string(runs.length) +
           " lanes every " + std::to_string(runs.pitch);
  if (most > lanes)
    return "layout of '" + tensor.name + "' needs " + std::to_string(most) + " lanes, not " +
           std::to_string(lanes);
  int64_t within = 0; // lanes from the first slot to the last of all closer dimensions
  const std::vector<unsigned> order = byPitch(*this);
  for (size_t i = order.size(); i-- > 0;
       within += order[i] == laneDim ? runs.laneOf(dims[order[i]].slots - 1)
                                     : (dims[order[i]].slots - 1) * dims[order[i]].pitch)
    if (dims[order[i]].slots > 1 && dims[order[i]].pitch <= within)
      return "layout of '" + tensor.name + "': slots of dimension " + std::to_string(order[i]) +
             " overlap";
  return {};
}

std::string Layout::text() const {
  std::string sizes, steps;
  for (unsigned d = 0; d < dims.size(); ++d)
    if (d != laneDim && dims[d].slots > 1) {
      sizes += (sizes.empty() ? "" : " x ") + std::to_string(dims[d].slots);
      steps += " dim " + std::to_string(d);
      if (dims[d].slotStep != 1)
        steps += " by " + std::to_string(dims[d].slotStep);
      if (dims[d].start)
        steps += " from -" + std::to_string(dims[d].start);
    }
  const std::string gaps = runs.length ? ", runs of " + std::to_string(runs.length) +
                                             " lanes every " + std::to_string(runs.pitch)
                                       : "";
  return (sizes.empty() ? "1 a row"
                        : sizes + " a row in " + std::to_string(lanes) + " lanes:" + steps) +
         gaps;
}

DimLayout blocksOf(int64_t extent, int64_t block, int64_t start, int64_t pitch) {
  DimLayout dim;
  dim.rowStep = dim.slots = block;
  dim.start = start;
  dim.rows = (extent + start + block - 1) / block;
  dim.pitch = block > 1 ? pitch : 0;
  return dim;
}

} // namespace millrace::layouts
