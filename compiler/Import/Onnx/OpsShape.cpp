// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that change a tensor's shape and move no arithmetic.
#include "compiler/Import/Onnx/Handlers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// 0 keeps the input's extent (unless allowzero), one -1 takes what is left.
Status importReshape(NodeImporter &node) {
  std::optional<Shape> target = node.constantIntegers(1);
  if (!target)
    return node.error("its shape is not constant");
  Shape shape = *target;
  int64_t open = -1;
  Shape others; // than the open one
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && node.getInt("allowzero", 0) == 0 && static_cast<int64_t>(i) < node.rank(0))
      shape[i] = node.shape(0)[i];
    if (shape[i] == -1)
      open = static_cast<int64_t>(i);
    else if (shape[i] < 0)
      return node.error("its shape holds " + std::to_string(shape[i]));
    else
      others.push_back(shape[i]);
  }
  int64_t count = productOf(node.shape(0)), known = productOf(others);
  if (open >= 0 && known != 0)
    shape[open] = count / known;
  if (llvm::any_of(shape, [](int64_t extent) { return extent < 0; }) || productOf(shape) != count)
    return node.error("cannot reshape " + std::to_string(count) + " elements to " +
                      shapeText({shape.begin(), shape.end()}));
  return node.done(node.t.reshape(node.in(0), shape));
}

Status importFlatten(NodeImporter &node) {
  int64_t axis = node.getInt("axis", 1);
  axis = axis < 0 ? axis + node.rank(0) : axis;
  ArrayRef<int64_t> shape = node.shape(0);
  if (axis < 0 || axis > node.rank(0))
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  return node.done(node.t.reshape(
      node.in(0), {productOf(shape.take_front(axis)), productOf(shape.drop_front(axis))}));
}

Status importSqueeze(NodeImporter &node) {
  std::optional<Shape> axes =
      node.has(1) ? node.constantIntegers(1) : std::optional(node.getInts("axes"));
  std::optional<Shape> normal = axes ? normalAxes(*axes, node.rank(0)) : std::nullopt;
  if (!normal)
    return node.error("its axes are not constant or lie outside of rank " +
                      std::to_string(node.rank(0)));
  Shape shape;
  for (int64_t i = 0; i < node.rank(0); ++i) {
    int64_t extent = node.shape(0)[i];
    bool drops = normal->empty() ? extent == 1 : llvm::is_contained(*normal, i);
    if (drops && extent != 1)
      return node.error("cannot squeeze dimension " + std::to_string(i) + " of extent " +
                        std::to_string(extent));
    if (!drops)
      shape.push_back(extent);
  }
  return node.done(node.t.reshape(node.in(0), shape));
}

Status importUnsqueeze(NodeImporter &node) {
  std::optional<Shape> axes =
      node.has(1) ? node.constantIntegers(1) : std::optional(node.getInts("axes"));
  int64_t rank = node.rank(0) + (axes ? static_cast<int64_t>(axes->size()) : 0);
  std::optional<Shape> normal = axes ? normalAxes(*axes, rank) : std::nullopt;
  if (!normal)
    return node.error("its axes are not constant or lie outside of rank " + std::to_string(rank));
  Shape shape(node.shape(0));
  for (int64_t axis : *normal)
    shape.insert(shape.begin() + axis, 1);
  return node.done(node.t.reshape(node.in(0), shape));
}

Status importTranspose(NodeImporter &node) {
  Shape reversed = allAxes(node.rank(0));
  std::reverse(reversed.begin(), reversed.end());
  Shape permutation = node.getInts("perm", reversed), sorted = permutation;
  llvm::sort(sorted);
  if (sorted != allAxes(node.rank(0)))
    return node.error("its perm " + shapeText({permutation.begin(), permutation.end()}) +
                      " does not name each of " + std::to_string(node.rank(0)) +
                      " dimensions once");
  return node.done(node.t.transpose(node.in(0), permutation));
}

Status importExpand(NodeImporter &node) {
  std::optional<Shape> target = node.constantIntegers(1);
  std::optional<Shape> shape = target ? broadcastShapes(node.shape(0), *target) : std::nullopt;
  if (!shape)
    return node.error("its shape is not constant or does not broadcast");
  return node.done(node.t.broadcast(node.in(0), *shape));
}

/// Each dimension d repeated r times: broadcast to (r, d), then one dimension r * d.
Status importTile(NodeImporter &node) {
  std::optional<Shape> repeats = node.constantIntegers(1);
  if (!repeats || static_cast<int64_t>(repeats->size()) != node.rank(0))
    return node.error("its repeats are not constant or not one per dimension");
  Shape wide, flat;
  SmallVector<unsigned> kept;
  for (auto [extent, count] : llvm::zip_equal(node.shape(0), *repeats)) {
    wide.append({count, extent});
    flat.push_back(count * extent);
    kept.push_back(static_cast<unsigned>(wide.size() - 1));
  }
  AffineMap map = node.t.select(static_cast<unsigned>(wide.size()), kept);
  Value repeated = node.t.map(wide, {node.in(0)}, {map}, elementTypeOf(node.in(0)),
                              [](Scalars &, ValueRange x) { return x[0]; });
  return node.done(node.t.reshape(repeated, flat));
}

/// The side of the blocks that an image's pixels or channels come in, when they divide them.
Expected<int64_t> blockSize(NodeImporter &node, bool ofPixels) {
  constexpr int64_t kMost = 8192; // its square times any extent is below 2^63
  const int64_t size = node.getInt("blocksize", 1);
  const Shape s(node.shape(0));
  if (s.size() != 4)
    return node.error("its input has " + std::to_string(s.size()) +
                      " dimensions, not 4 (images, channels, rows, columns)");
  if (size < 1 || size > kMost)
    return node.error("its blocksize is " + std::to_string(size) + ", not from 1 to " +
                      std::to_string(kMost));
  if (ofPixels ? s[2] % size || s[3] % size : s[1] % (size * size))
    return node.error("blocks of " + std::to_string(size) + " x " + std::to_string(size) +
                      " do not divide its input " + shapeText({s.begin(), s.end()}));
  return size;
}

/// Blocks of blocksize x blocksize pixels become channels.
Status importSpaceToDepth(NodeImporter &node) {
  const Expected<int64_t> side = blockSize(node, true);
  if (!side)
    return Error{side.error()};
  const int64_t size = *side;
  const Shape s(node.shape(0));
  Value split = node.t.reshape(node.in(0), {s[0], s[1], s[2] / size, size, s[3] / size, size});
  bool channelsFirst = node.getString("mode", "DCR") == "CRD";
  Value moved =
      node.t.transpose(split, channelsFirst ? Shape{0, 1, 3, 5, 2, 4} : Shape{0, 3, 5, 1, 2, 4});
  return node.done(node.t.reshape(moved, {s[0], s[1] * size * size, s[2] / size, s[3] / size}));
}

Status importDepthToSpace(NodeImporter &node) {
  const Expected<int64_t> side = blockSize(node, false);
  if (!side)
    return Error{side.error()};
  const int64_t size = *side;
  const Shape s(node.shape(0));
  int64_t channels = s[1] / (size * size);
  bool columnsFirst = node.getString("mode", "DCR") == "CRD";
  Value moved;
  if (columnsFirst) {
    moved = node.t.reshape(node.in(0), {s[0], channels, size, size, s[2], s[3]});
    moved = node.t.transpose(moved, {0, 1, 4, 2, 5, 3});
  } else {
    moved = node.t.reshape(node.in(0), {s[0], size, size, channels, s[2], s[3]});
    moved = node.t.transpose(moved, {0, 3, 4, 1, 5, 2});
  }
  return node.done(node.t.reshape(moved, {s[0], channels, s[2] * size, s[3] * size}));
}

Status importIdentity(NodeImporter &node) { return node.done(node.in(0)); }

/// Inference: the identity; the mask is all true.
Status importDropout(NodeImporter &node) {
  if (node.has(2) && node.constantReal(2).value_or(1) != 0)
    return node.error("training mode is not supported");
  if (node.wants(1))
    node.set(1, node.t.splat(node.shape(0), node.t.ops().getI1Type(), 1), HostType::Bool);
  return node.done(node.in(0));
}

} // namespace

void addShapeOps(HandlerTable &table) {
  table[":Reshape"] = importReshape;
  table[":Flatten"] = importFlatten;
  table[":Squeeze"] = importSqueeze;
  table[":Unsqueeze"] = importUnsqueeze;
  table[":Transpose"] = importTranspose;
  table[":Expand"] = importExpand;
  table[":Tile"] = importTile;
  table[":SpaceToDepth"] = importSpaceToDepth;
  table[":DepthToSpace"] = importDepthToSpace;
  table[":Identity"] = importIdentity;
  table[":Dropout"] = importDropout;
}

} // namespace millrace::onnx_import
