// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Matchers.h"

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

// Above this a constant becomes a resource: hashing and uniquing of weights would cost more than it
// saves.
constexpr size_t largestDenseBytes = 4096;

int64_t loadInteger(const char *bytes, unsigned count) {
  uint64_t raw = 0;
  std::memcpy(&raw, bytes, count);
  unsigned unused = 64 - 8 * count;
  return static_cast<int64_t>(raw << unused) >> unused;
}

} // namespace

unsigned elementBytes(mlir::Type type) {
  return type.isIndex() ? 8 : (type.getIntOrFloatBitWidth() + 7) / 8;
}

int64_t ConstantView::integer(int64_t index) const {
  unsigned size = elementBytes(type.getElementType());
  return loadInteger(bytes.data() + (splat ? 0 : index) * size, size);
}

double ConstantView::real(int64_t index) const {
  auto floatType = mlir::cast<mlir::FloatType>(type.getElementType());
  if (floatType.isF32()) { // an APFloat takes long
    float value;
    std::memcpy(&value, bytes.data() + (splat ? 0 : index) * sizeof(value), sizeof(value));
    return value;
  }
  unsigned size = elementBytes(floatType);
  auto bits = static_cast<uint64_t>(loadInteger(bytes.data() + (splat ? 0 : index) * size, size));
  llvm::APFloat value(
      floatType.getFloatSemantics(),
      llvm::APInt(floatType.getWidth(), bits, /*isSigned=*/false, /*implicitTrunc=*/true));
  bool lossy = false;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lossy);
  return value.convertToDouble();
}

std::vector<float> ConstantView::floats() const {
  const mlir::Type element = type.getElementType();
  std::vector<float> values(splat ? 1 : size_t(type.getNumElements()));
  if (element.isF32()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  const bool isFloat = mlir::isa<mlir::FloatType>(element);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = isFloat ? float(real(int64_t(i))) : float(integer(int64_t(i)));
  return values;
}

std::optional<ConstantView> viewConstant(mlir::Attribute attribute) {
  if (auto resource = mlir::dyn_cast_or_null<mlir::DenseResourceElementsAttr>(attribute)) {
    auto type = mlir::dyn_cast<mlir::RankedTensorType>(resource.getType());
    mlir::AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!type || !blob)
      return std::nullopt;
    return ConstantView{type, blob->getData(), false, nullptr};
  }
  auto dense = mlir::dyn_cast_or_null<mlir::DenseElementsAttr>(attribute);
  auto type =
      dense ? mlir::dyn_cast<mlir::RankedTensorType>(dense.getType()) : mlir::RankedTensorType();
  if (!type || !type.getElementType().isIntOrIndexOrFloat())
    return std::nullopt;
  if (!type.getElementType().isInteger(1))
    return ConstantView{type, dense.getRawData(), dense.isSplat(), nullptr};
  auto values = dense.getValues<bool>();
  auto unpacked = dense.isSplat()
                      ? std::make_shared<std::vector<char>>(1, dense.getSplatValue<bool>())
                      : std::make_shared<std::vector<char>>(values.begin(), values.end());
  return ConstantView{type, *unpacked, dense.isSplat(), unpacked};
}

std::optional<ConstantView> viewConstant(mlir::Value value) {
  auto constant =
      value ? value.getDefiningOp<mlir::arith::ConstantOp>() : mlir::arith::ConstantOp();
  if (!constant)
    return std::nullopt;
  return viewConstant(constant.getValue());
}

mlir::ElementsAttr makeConstant(mlir::RankedTensorType type, llvm::ArrayRef<char> bytes,
                                llvm::StringRef name) {
  if (type.getElementType().isInteger(1)) {
    llvm::SmallVector<bool> bits(bytes.begin(), bytes.end());
    return mlir::DenseElementsAttr::get(type, bits);
  }
  unsigned size = elementBytes(type.getElementType());
  bool splat = bytes.size() > size &&
               std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
  if (splat)
    return mlir::DenseElementsAttr::getFromRawBuffer(type, bytes.take_front(size));
  if (bytes.size() <= largestDenseBytes)
    return mlir::DenseElementsAttr::getFromRawBuffer(type, bytes);
  return mlir::DenseResourceElementsAttr::get(
      type, name, mlir::HeapAsmResourceBlob::allocateAndCopyWithAlign(bytes, 64));
}

std::vector<std::vector<char>> int8Parts(std::vector<int16_t> numbers) {
  std::vector<std::vector<char>> parts;
  bool isMore = true;
  while (isMore) {
    isMore = false;
    std::vector<char> &part = parts.emplace_back();
    part.reserve(numbers.size());
    for (int16_t &rest : numbers) {
      const auto its = static_cast<signed char>(std::clamp<int>(rest, -128, 127));
      part.push_back(static_cast<char>(its));
      rest = static_cast<int16_t>(rest - its);
      isMore |= rest != 0;
    }
  }
  return parts;
}

} // namespace millrace
