// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Domain.h"

#include <algorithm>

namespace millrace::grid {

std::vector<int64_t> loopsAtLane(const Domain &d, int64_t l) {
  std::vector<int64_t> loops = d.loops;
  if (!d.roles->lane)
    return loops;
  int64_t n = loops[*d.roles->lane] + l;
  if (d.roles->group) { // lanes run over the lane loop within a group, then over groups
    const int64_t extent = d.kernel->loops[*d.roles->lane].extent;
    loops[*d.roles->group] += n / extent;
    n %= extent;
  }
  loops[*d.roles->lane] = n;
  return loops;
}

RowPattern rowsOf(const TensorLayout &layout, const Access &access, const Domain &d) {
  RowPattern rows;
  rows.row = rowOf(layout, access, d.loops);
  rows.step0 = d.loop0 ? rowCoefficient(layout, access, *d.loop0) : 0;
  rows.step1 = d.loop1 ? rowCoefficient(layout, access, *d.loop1) : 0;
  return rows;
}

namespace {

int64_t ceilDivide(int64_t x, int64_t y) { return x >= 0 ? (x + y - 1) / y : -(-x / y); }

/// Cuts [from, from + n) down to those i with 0 <= base + step i < extent.
void cut(int64_t &from, int64_t &n, int64_t base, int64_t step, int64_t extent) {
  int64_t lo = from, hi = from + n;
  if (step > 0) {
    lo = std::max(lo, ceilDivide(-base, step));
    hi = std::min(hi, ceilDivide(extent - base, step));
  } else {
    lo = std::max(lo, ceilDivide(base - extent + 1, -step));
    hi = std::min(hi, ceilDivide(base + 1, -step));
  }
  from = lo;
  n = std::max<int64_t>(0, hi - lo);
}

} // namespace

Expected<Box> insideOf(const Context &c, const Access &access, const Domain &d, const Flow &flow) {
  const Tensor &t = c.tensor(access.tensor);
  Box box{0, flow.n0, 0, flow.n1};
  auto isJoined = [&](const forms::AffineIndex &index) {
    const std::optional<unsigned> joined = d.loop1 ? d.loop1 : d.loop0;
    return d.linear && joined && coefficient(index, *joined);
  };
  for (size_t k = 0; k < t.shape.size(); ++k) {
    if (k == t.laneDim || isJoined(access.index[k])) // joined loops leave no tensor
      continue;
    const int64_t base = evaluate(access.index[k], d.loops);
    const int64_t s0 = d.loop0 && flow.n0 > 1 ? coefficient(access.index[k], *d.loop0) : 0;
    const int64_t s1 = d.loop1 && flow.n1 > 1 ? coefficient(access.index[k], *d.loop1) : 0;
    if (s0 && s1) {
      const int64_t e0 = s0 * (flow.n0 - 1), e1 = s1 * (flow.n1 - 1);
      const int64_t low = base + std::min<int64_t>(0, e0) + std::min<int64_t>(0, e1);
      const int64_t high = base + std::max<int64_t>(0, e0) + std::max<int64_t>(0, e1);
      if (low < 0 || high >= t.shape[k])
        return Error{"kernel '" + d.kernel->name + "': dimension " + std::to_string(k) + " of '" +
                     t.name +
                     "' is indexed by two row loops and leaves its range; split the loops"};
    } else if (s0) {
      cut(box.from0, box.n0, base, s0, t.shape[k]);
    } else if (s1) {
      cut(box.from1, box.n1, base, s1, t.shape[k]);
    } else if (base < 0 || base >= t.shape[k]) {
      box.n0 = box.n1 = 0;
    }
  }
  return box;
}

Expected<ConstantRow> constantRowBeside(Context &c, Piece &piece, const Domain &d, Hemisphere h,
                                        const std::vector<uint8_t> &bytes, unsigned width,
                                        bool mayMeet) {
  const auto isRead = [&](unsigned slice) { return piece.reads(d.pe, h, slice); };
  const auto besideReads = [&]() -> Expected<ConstantRow> {
    if (mayMeet || c.detours) { // whose reads are led around each other
      if (std::optional<ConstantRow> row =
              c.findConstantRow(*d.kernel, d.pe, h, bytes, width, isRead))
        return *std::move(row);
      return c.constantRow(*d.kernel, d.pe, h, bytes, width, [](unsigned) { return false; });
    }
    Expected<ConstantRow> row = c.constantRow(*d.kernel, d.pe, h, bytes, width, isRead);
    c.program.crowded |= !row;
    return row;
  };
  if (!d.keepsCopies)
    return besideReads();
  std::vector<bool> isBusy(c.machine.memory.slices, false);
  auto mark = [&](unsigned tensor) {
    for (const Copy &copy : c.layouts[tensor].copies)
      if (copy.pe == d.pe && copy.hemisphere == h)
        for (const auto &tile : copy.tiles)
          for (const Segment &segment : tile)
            for (unsigned slice : segment.slices)
              isBusy[slice] = true;
  };
  const auto row = [&] {
    return c.findConstantRow(*d.kernel, d.pe, h, bytes, width,
                             [&](unsigned slice) { return isBusy[slice] || isRead(slice); });
  };
  for (const Access &operand : d.kernel->operands)
    mark(operand.tensor);
  const std::vector<bool> holdsCopy = isBusy;
  for (const forms::Result &result : d.kernel->results)
    mark(result.access.tensor);
  if (std::optional<ConstantRow> beside = row())
    return *std::move(beside);
  isBusy = holdsCopy;
  if (std::optional<ConstantRow> beside = row())
    return *std::move(beside);
  return besideReads();
}

Status readWindow(Context &c, Piece &piece, const Copy &copy, unsigned tile, const Access &access,
                  const Domain &d, const Flow &flow, Piece::StreamVar stream, unsigned position,
                  Cycle arrive) {
  Expected<Box> inside = insideOf(c, access, d, flow);
  if (!inside)
    return inside.takeError();
  auto at = [&](const Box &b) { return arrive + b.from1 * flow.c1 + b.from0 * flow.c0; };
  auto part = [&](const Box &b) { return Flow{unsigned(b.n0), unsigned(b.n1), flow.c0, flow.c1}; };
  Box in = *inside;
  if (!in.empty()) {
    RowPattern rows = rowsOf(c.layouts[access.tensor], access, d);
    rows.row += in.from0 * rows.step0 + in.from1 * rows.step1;
    readRows(c, piece, copy, tile, rows, part(in), stream, position, at(in), d.provenance);
    if (in.covers(flow))
      return Success{};
  } else {
    in = Box{0, 0, 0, 0};
  }
  const unsigned width = byteWidth(c.tensor(access.tensor).type);
  std::vector<uint8_t> bytes(size_t(c.layouts[access.tensor].tiles[tile].count) * width);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = uint8_t(access.pad >> (8 * (i % width)));
  auto padRow = [&] { return constantRowBeside(c, piece, d, copy.hemisphere, bytes, width); };
  Expected<ConstantRow> pad = padRow();
  if (!pad)
    return pad.takeError();
  const int64_t n0 = flow.n0, n1 = flow.n1, end0 = in.from0 + in.n0, end1 = in.from1 + in.n1;
  const Box outside[] = {{0, n0, 0, in.from1},                // before the first row inside
                         {0, n0, end1, n1 - end1},            // after the last
                         {0, in.from0, in.from1, in.n1},      // left
                         {end0, n0 - end0, in.from1, in.n1}}; // right
  for (const Box &box : outside) {
    if (box.empty())
      continue;
    // Left and right take turns: each has a port of its own.
    if (&box == &outside[3] && !outside[2].empty())
      if (pad = padRow(); !pad)
        return pad.takeError();
    readConstant(c, piece, copy.pe, copy.hemisphere, *pad, part(box), stream, position, at(box),
                 d.provenance);
  }
  return Success{};
}

} // namespace millrace::grid
