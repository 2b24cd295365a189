// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Text and bounds of accumulators and tensor maps.
#include "compiler/Dialect/Hopper/IR/Hopper.h"

namespace millrace::hopper {

using namespace mlir;

Type AccumulatorType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  const SMLoc place = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(element))
    return {};
  const bool inFlight = succeeded(parser.parseOptionalComma());
  if ((inFlight && parser.parseKeyword("in_flight")) || parser.parseGreater())
    return {};
  if (shape.size() != 2 || shape[0] != kRows || !element.isF32()) {
    parser.emitError(place, "an accumulator is 64 rows of fp32, as in <64x256xf32>");
    return {};
  }
  return parser.getChecked<AccumulatorType>(place, parser.getContext(),
                                            static_cast<unsigned>(shape[1]), inFlight);
}

void AccumulatorType::print(AsmPrinter &printer) const {
  printer << "<" << kRows << "x" << getColumns() << "xf32" << (getInFlight() ? ", in_flight" : "")
          << ">";
}

LogicalResult AccumulatorType::verify(function_ref<InFlightDiagnostic()> error, unsigned columns,
                                      bool) {
  if (columns < 8 || columns > 256 || columns % 8)
    return error() << "has " << columns << " columns; wgmma makes multiples of 8 between 8 and 256";
  return success();
}

Type TensorMapType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type element;
  unsigned swizzle = 0, outer = 0;
  const SMLoc place = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(element))
    return {};
  // Each at most once, in this order.
  while (succeeded(parser.parseOptionalComma())) {
    const bool isSwizzle = !outer && !swizzle && succeeded(parser.parseOptionalKeyword("swizzle"));
    if ((!isSwizzle && (outer || parser.parseKeyword("outer"))) ||
        parser.parseInteger(isSwizzle ? swizzle : outer))
      return {};
  }
  if (parser.parseGreater())
    return {};
  if (shape.size() != 2) {
    parser.emitError(place, "a box has two dimensions, as in <128x64xbf16, swizzle 128>");
    return {};
  }
  return parser.getChecked<TensorMapType>(place, parser.getContext(),
                                          static_cast<unsigned>(shape[0]),
                                          static_cast<unsigned>(shape[1]), element, swizzle, outer);
}

void TensorMapType::print(AsmPrinter &printer) const {
  printer << "<" << getRows() << "x" << getColumns() << "x" << getElementType();
  if (getSwizzle())
    printer << ", swizzle " << getSwizzle();
  if (getOuter())
    printer << ", outer " << getOuter();
  printer << ">";
}

LogicalResult TensorMapType::verify(function_ref<InFlightDiagnostic()> error, unsigned rows,
                                    unsigned columns, Type element, unsigned swizzle,
                                    unsigned outer) {
  if (outer > Limits::kOuter)
    return error() << "has " << outer << " outer dimensions; TMA moves boxes of tensors of at most "
                   << Limits::kOuter + 2 << " dimensions";
  if (!element.isBF16() && !element.isF16() && !element.isF32())
    return error() << "has elements of type " << element << "; TMA moves bf16, f16 and f32 here";
  if (!rows || !columns || rows > Limits::kBox || columns > Limits::kBox)
    return error() << "has a box of " << rows << " x " << columns
                   << " elements; TMA moves 1 to 256 along each dimension";
  const unsigned inner = columns * element.getIntOrFloatBitWidth() / 8;
  if (swizzle != 0 && swizzle != 128)
    return error() << "has swizzle " << swizzle << "; 128 is supported, or none";
  if (swizzle && inner != swizzle)
    return error() << "has rows of " << inner << " bytes; with swizzle 128 they have 128: "
                   << swizzle * 8 / element.getIntOrFloatBitWidth() << " columns of " << element;
  if (inner % 16)
    return error() << "has rows of " << inner << " bytes; TMA moves multiples of 16";
  return success();
}

} // namespace millrace::hopper
