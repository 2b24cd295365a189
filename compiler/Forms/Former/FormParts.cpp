// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts of tensors that go through sums of products unchanged. A product with 0 is 0 only for what
// is finite, so that a tensor that may hold infinities or NaN is moved by its bytes, as small whole
// numbers; fp32, which the MXM does not multiply, as three bf16 that add up to it.
#include "compiler/Forms/Former/Former.h"

#include <algorithm>
#include <cmath>

namespace millrace::forms {

using namespace mlir;

/// NaN that fills whole rows of lanes may as well be multiplied by 0: lanes move within a row.
void Former::noteRange(unsigned tensor, Value value) {
  const Range range = ranges.of(value);
  Tensor &added = graph.tensors[tensor];
  const bool isRow =
      shapeOf(value) == ArrayRef<int64_t>(added.shape) && added.laneDim + 1 == added.shape.size();
  if (!range.isFinite() && !(range.fillsRows && isRow))
    added.unbounded = true;
}

/// An access to every point of a tensor of this shape.
static Access wholeOf(KernelBuilder &build, const Tensor &tensor, unsigned number) {
  Access access{number, {}, 0};
  for (unsigned dim = 0; dim < tensor.shape.size(); ++dim)
    access.index.push_back(at(dim));
  if (build.kernel().loops.empty())
    for (int64_t extent : tensor.shape)
      build.loop(extent);
  return access;
}

std::optional<Former::Parts> Former::partsToSelect(unsigned tensor) {
  const Tensor from = graph.tensors[tensor];
  if (from.type == ElementType::Fp32) {
    Parts parts;
    for (unsigned part : partsToSum(tensor))
      parts.terms.push_back({part, 1});
    return parts.terms.empty() ? std::nullopt : std::optional(parts);
  }
  if (from.type != ElementType::Int8 && byteWidth(from.type) != 2)
    return std::nullopt;
  if (const auto marked = markedNan.find(tensor); marked != markedNan.end())
    return Parts{{{tensor, 1.0f}}, false, marked->second};
  if (!from.unbounded || from.type == ElementType::Int8)
    return Parts{{{tensor, 1.0f}}, false};
  auto [entry, isNew] = bytes.try_emplace(tensor);
  if (!isNew)
    return entry->second;
  Parts parts{{}, true};
  KernelBuilder build(graph);
  const unsigned bits = build.operand(wholeOf(build, from, tensor));
  const unsigned high = build.op(AluOp::ShiftRightLogical, {bits, build.immediate(8)});
  const unsigned low = build.op(AluOp::And, {bits, build.immediate(0xff)});
  for (auto [byte, factor, name] : {std::tuple(high, 256.0f, ".high"), {low, 1.0f, ".low"}}) {
    const unsigned part = addTensor(graph, from.name + name, from.shape, from.type, from.laneDim);
    build.store(build.op(AluOp::CvtI32F32, {byte}), wholeOf(build, from, part));
    parts.terms.push_back({part, factor});
  }
  build.finish(from.name + ".bytes");
  return bytes[tensor] = parts;
}

SmallVector<unsigned, 3> Former::partsToSum(unsigned tensor) {
  const ElementType type = graph.tensors[tensor].type;
  if (type == ElementType::Fp32)
    return graph.tensors[tensor].unbounded ? SmallVector<unsigned, 3>() : threeParts(tensor);
  if (type == ElementType::Int8 || byteWidth(type) == 2)
    return {tensor};
  return {};
}

SmallVector<unsigned, 3> Former::partsToMultiply(unsigned tensor, ElementType type) {
  if (graph.tensors[tensor].type == type)
    return {tensor};
  if (graph.tensors[tensor].type == ElementType::Fp32 && type == ElementType::Bf16)
    return threeParts(tensor); // products of infinities are as the model has them
  return {};
}

/// The bits of three bf16 that add up to `rest`, the greatest first: its significand's bits in
/// three pieces. None is rounded, so that no sum of them exceeds it.
std::array<unsigned, Former::kAllParts> Former::inThree(KernelBuilder &build, unsigned rest,
                                                        bool unbounded) {
  std::array<unsigned, kAllParts> parts;
  for (unsigned &part : parts) {
    part = build.op(AluOp::ShiftRightLogical, {rest, build.immediate(16)});
    const unsigned wide = build.op(AluOp::And, {rest, build.immediate(0xffff0000)});
    unsigned left = build.op(AluOp::SubF32, {rest, wide});
    if (unbounded) // infinity less itself would be NaN
      left = build.op(AluOp::SelectF32,
                      {build.op(AluOp::NeF32, {rest, wide}), left, build.constant(0)});
    rest = left;
  }
  return parts;
}

/// Three bf16 hold the 24 bits of an fp32 number's significand.
SmallVector<unsigned, 3> Former::threeParts(unsigned tensor) {
  auto [entry, isNew] = sums.try_emplace(tensor);
  if (!isNew)
    return entry->second;
  const Tensor from = graph.tensors[tensor];
  KernelBuilder build(graph);
  SmallVector<unsigned, 3> parts;
  const unsigned whole = build.load(wholeOf(build, from, tensor));
  constexpr const char *kNames[] = {".first", ".second", ".third"};
  for (auto [n, bits] : llvm::enumerate(inThree(build, whole, from.unbounded))) {
    parts.push_back(
        addTensor(graph, from.name + kNames[n], from.shape, ElementType::Bf16, from.laneDim));
    build.storeBits(bits, wholeOf(build, from, parts.back()));
  }
  build.finish(from.name + ".parts");
  return sums[tensor] = parts;
}

/// The value that a sum of products of all parts gives.
Scalar Former::joined(KernelBuilder &build, const Parts &parts, ElementType type) {
  const unsigned sum = build.accumulator();
  if (type == ElementType::Int8)
    return {sum, Scalar::Kind::I32};
  if (parts.nan)
    return {build.op(AluOp::SelectF32, {build.op(AluOp::GeF32, {sum, build.constant(*parts.nan)}),
                                        build.constant(NAN), sum}),
            Scalar::Kind::F32};
  if (!parts.areBits)
    return {sum, Scalar::Kind::F32};
  return {build.op(widenToF32(type), {build.op(AluOp::CvtF32I32, {sum})}), Scalar::Kind::F32};
}

/// Stores that value as the type that it had.
void Former::storeJoined(KernelBuilder &build, const Parts &parts, const Access &to) {
  const ElementType type = graph.tensors[to.tensor].type;
  if (parts.areBits)
    build.storeBits(build.op(AluOp::CvtF32I32, {build.accumulator()}), to);
  else if (type == ElementType::Int8)
    build.storeBits(build.op(AluOp::CvtI32I8, {build.accumulator()}), to);
  else
    build.store(joined(build, parts, type).node, to);
}

} // namespace millrace::forms
