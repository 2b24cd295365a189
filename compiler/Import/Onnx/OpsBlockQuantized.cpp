// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft: products with, and rows of, constants that are quantised in blocks of 2, 4 or 8
// bits. What they stand for is a constant in fp32.
#include "compiler/Import/Onnx/Gather.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/MatMul.h"
#include "compiler/Import/Onnx/Narrow.h"
#include "compiler/Support/Constants.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Rows of `columns` numbers, of which each run of `block` has a scale and a zero point.
struct Blocks {
  int64_t rows = 0, columns = 0, block = 0;
  unsigned bits = 0;
  std::string numbers = {}; ///< bytes, row by row
  bool isSigned = false;
  int64_t perRow() const { return (columns + block - 1) / block; }
};

std::string bytesOf(const ConstantView &view) {
  return view.splat ? std::string(size_t(view.type.getNumElements()), view.bytes[0])
                    : std::string(view.bytes.begin(), view.bytes.end());
}

/// A scale per block, and a zero point: packed as the numbers are, each row in bytes of its own, or
/// as many reals as scales; `without`: where there is none. Empty: they are no constants or do not
/// fit.
std::vector<float> dequantised(const NodeImporter &node, const Blocks &of, size_t scaleAt,
                               size_t zeroAt, double without) {
  const std::optional<ConstantView> scale = viewConstant(node.in(scaleAt)),
                                    zero = node.has(zeroAt) ? viewConstant(node.in(zeroAt))
                                                            : std::nullopt;
  const int64_t blocks = of.rows * of.perRow(), perByte = 8 / of.bits,
                bytesPerRow = (of.perRow() + perByte - 1) / perByte;
  if (!scale || scale->type.getNumElements() != blocks || (node.has(zeroAt) && !zero))
    return {};
  std::vector<double> zeros(size_t(blocks), without);
  if (zero && isa<FloatType>(zero->type.getElementType())) {
    if (zero->type.getNumElements() != blocks)
      return {};
    for (int64_t i = 0; i < blocks; ++i)
      zeros[size_t(i)] = zero->real(zero->splat ? 0 : i);
  } else if (zero && zero->type.getNumElements() == blocks) { // a byte each
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t value = zero->integer(zero->splat ? 0 : i);
      zeros[size_t(i)] = double(of.isSigned ? value : value & 0xFF);
    }
  } else if (zero) {
    if (zero->type.getNumElements() != of.rows * bytesPerRow)
      return {};
    const std::string each =
        unpackBits(bytesOf(*zero), of.bits, of.isSigned, size_t(of.rows * bytesPerRow * perByte));
    for (int64_t i = 0; i < blocks; ++i) {
      const char value = each[size_t(i / of.perRow() * bytesPerRow * perByte + i % of.perRow())];
      zeros[size_t(i)] = of.isSigned ? value : static_cast<unsigned char>(value);
    }
  }
  std::vector<float> reals(size_t(of.rows * of.columns));
  for (int64_t i = 0; i < of.rows * of.columns; ++i) {
    const int64_t block = i / of.columns * of.perRow() + i % of.columns / of.block;
    const char number = of.numbers[size_t(i)];
    const double value = of.isSigned ? number : static_cast<unsigned char>(number);
    reals[size_t(i)] =
        float(value - zeros[size_t(block)]) * float(scale->real(scale->splat ? 0 : block));
  }
  return reals;
}

Value realConstant(TensorBuilder &t, ArrayRef<int64_t> shape, const std::vector<float> &reals) {
  const auto type = RankedTensorType::get(shape, t.ops().getF32Type());
  return arith::ConstantOp::create(
      t.ops(),
      cast<TypedAttr>(makeConstant(
          type, {reinterpret_cast<const char *>(reals.data()), 4 * reals.size()}, "dequantized")));
}

bool isBits(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }
bool isExtent(int64_t extent) { return extent >= 1 && extent <= kMostElements; }

/// Inputs: a (... x K), b (uint8: N x blocks x bytes of a block), scales, zero points, an index of
/// groups, which older versions had, and a bias.
Status importMatMulNBits(NodeImporter &node) {
  const int64_t bits = node.getInt("bits", 4), block = node.getInt("block_size", 0);
  const Blocks wanted{node.getInt("N", 0), node.getInt("K", 0), block, unsigned(bits)};
  const std::optional<ConstantView> packed = viewConstant(node.in(1));
  if (!packed || !packed->type.getElementType().isInteger(8))
    return node.error("its weights are no constant bytes");
  if (!isBits(bits) || !isExtent(block) || !isExtent(wanted.rows) || !isExtent(wanted.columns))
    return node.error("has " + std::to_string(wanted.rows) + " x " +
                      std::to_string(wanted.columns) + " weights of " + std::to_string(bits) +
                      " bits in blocks of " + std::to_string(block) +
                      "; 2, 4 and 8 bits are supported");
  if (node.has(4))
    return node.error("orders its rows by g_idx, which is not supported");
  const int64_t bytes = (block * bits + 7) / 8;
  if (packed->type.getNumElements() != productOf({wanted.rows, wanted.perRow(), bytes}) ||
      node.rank(0) < 1 || node.shape(0).back() != wanted.columns)
    return node.error("its weights do not fit N = " + std::to_string(wanted.rows) +
                      ", K = " + std::to_string(wanted.columns));
  Blocks weights = wanted;
  const int64_t perBlock = bytes * 8 / bits; // that lie there
  const std::string all = unpackBits(bytesOf(*packed), unsigned(bits), false,
                                     size_t(wanted.rows * wanted.perRow() * perBlock));
  for (int64_t i = 0; i < wanted.rows * wanted.columns; ++i) {
    const int64_t row = i / wanted.columns, column = i % wanted.columns;
    weights.numbers +=
        all[size_t((row * wanted.perRow() + column / block) * perBlock + column % block)];
  }
  const std::vector<float> reals =
      dequantised(node, weights, 2, 3, double(int64_t(1) << (bits - 1)));
  if (reals.empty())
    return node.error("its scales or zero points are no constants or do not fit its weights");
  std::vector<float> turned(reals.size()); // K x N
  for (int64_t n = 0; n < wanted.rows; ++n)
    for (int64_t k = 0; k < wanted.columns; ++k)
      turned[size_t(k * wanted.rows + n)] = reals[size_t(n * wanted.columns + k)];
  const Value w = realConstant(node.t, {wanted.columns, wanted.rows}, turned);
  if (node.rank(0) >= 2)
    return node.done(linear(node, node.in(0), w, node.has(5) ? node.in(5) : Value()));
  Expected<Value> product = multiply(node, node.in(0), w);
  if (!product || !node.has(5))
    return product ? node.done(*product) : Status(product.takeError());
  return node.done(
      node.t.map({*product, node.in(5)}, elementTypeOf(*product),
                 [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); }));
}

/// Inputs: data (int8 or uint8, the latter packed along the last dimension where its numbers have
/// fewer bits), indices, scales, zero points.
Status importGatherBlockQuantized(NodeImporter &node) {
  const std::optional<ConstantView> data = viewConstant(node.in(0));
  const int64_t bits = node.getInt("bits", 4), block = node.getInt("block_size", 128);
  if (!data || !data->type.getElementType().isInteger(8) || !isBits(bits) || !isExtent(block) ||
      data->type.getNumElements() == 0)
    return node.error("gathers of what is no constant of 2, 4 or 8 bits");
  Shape shape(node.shape(0));
  const auto axis = normalAxis(node.getInt("gather_axis", 0), node.rank(0)),
             along = normalAxis(node.getInt("quantize_axis", 1), node.rank(0));
  if (!axis || !along || *along != node.rank(0) - 1)
    return node.error("its blocks do not lie along the last dimension, which is not supported");
  const bool isSigned = node.inType(0) == HostType::Int8;
  std::string bytes = bytesOf(*data);
  // Constants that have fewer bits by their type are bytes by now, whose scales say so.
  const int64_t perByte = 8 / bits, scales = productOf(node.shape(2));
  const auto blocksOf = [&](int64_t columns) {
    return productOf(shape) / shape.back() * ((columns + block - 1) / block);
  };
  const bool isPacked = !isSigned && perByte > 1 && scales == blocksOf(shape.back() * perByte);
  if (isPacked) {
    shape.back() *= perByte;
    bytes = unpackBits(bytes, unsigned(bits), false, size_t(productOf(shape)));
  }
  const Blocks blocks{
      productOf(shape) / shape.back(), shape.back(), block, unsigned(bits), bytes, isSigned};
  // Of bytes the zero point is in the middle, of types that have fewer bits it is 0.
  const bool isOfBytes = !isSigned && (isPacked || bits == 8);
  const std::vector<float> reals =
      dequantised(node, blocks, 2, 3, isOfBytes ? double(int64_t(1) << (bits - 1)) : 0);
  if (reals.empty())
    return node.error("its scales or zero points are no constants or do not fit its data");
  return node.done(gather(node.t, realConstant(node.t, shape, reals), node.in(1), *axis),
                   node.inType(2));
}

} // namespace

void addBlockQuantizedOps(HandlerTable &table) {
  table["com.microsoft:MatMulNBits"] =
      needing({0, 1, 2}, typed({reals(0), reals(2)}, importMatMulNBits));
  table["com.microsoft:GatherBlockQuantized"] =
      needing({0, 1, 2}, typed({indices(1), reals(2)}, importGatherBlockQuantized));
}

} // namespace millrace::onnx_import
