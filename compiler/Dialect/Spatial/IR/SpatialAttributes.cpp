// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The text of #spatial.host; its grammar stands in SpatialOps.td.
#include "compiler/Dialect/Spatial/IR/Spatial.h"

#include "mlir/IR/Builders.h"

namespace millrace::spatial {

using namespace mlir;

static ParseResult parseNumbers(AsmParser &parser, SmallVectorImpl<int64_t> &numbers) {
  return parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Square, [&] { return parser.parseInteger(numbers.emplace_back()); });
}

/// `loop EXTENT dim DIM by STEP host DIM by STEP`, after its first word.
static ParseResult parseLoop(AsmParser &parser, SmallVectorImpl<int64_t> &loops) {
  for (const char *word : {"", "dim", "by", "host", "by"})
    if ((*word && parser.parseKeyword(word)) || parser.parseInteger(loops.emplace_back()))
      return failure();
  return success();
}

Attribute HostAttr::parse(AsmParser &parser, Type) {
  std::string name, type;
  SmallVector<int64_t> shape, loops, start;
  FloatAttr scale = parser.getBuilder().getF64FloatAttr(0);
  int64_t zero = 0;
  uint32_t fill = 0;
  int64_t extent = 0;
  if (parser.parseLess() || parser.parseString(&name) || parser.parseColon() ||
      parser.parseString(&type) || parseNumbers(parser, shape))
    return {};
  while (succeeded(parser.parseOptionalKeyword("loop")))
    if (parseLoop(parser, loops))
      return {};
  if (succeeded(parser.parseOptionalKeyword("start")) && parseNumbers(parser, start))
    return {};
  if (succeeded(parser.parseOptionalKeyword("scale")) &&
      parser.parseAttribute(scale, parser.getBuilder().getF64Type()))
    return {};
  if (succeeded(parser.parseOptionalKeyword("zero")) && parser.parseInteger(zero))
    return {};
  if (succeeded(parser.parseOptionalKeyword("fill")) && parser.parseInteger(fill))
    return {};
  if (succeeded(parser.parseOptionalKeyword("extent")) && parser.parseInteger(extent))
    return {};
  if (parser.parseGreater())
    return {};
  return get(parser.getContext(), name, type, shape, loops, start, scale, zero, fill, extent);
}

void HostAttr::print(AsmPrinter &printer) const {
  const auto numbers = [&](ArrayRef<int64_t> values) {
    printer << " [";
    llvm::interleaveComma(values, printer);
    printer << "]";
  };
  printer << "<";
  printer.printString(getName());
  printer << " : ";
  printer.printString(getType());
  numbers(getShape());
  for (size_t i = 0; i + 5 <= getLoops().size(); i += 5) {
    ArrayRef<int64_t> loop = getLoops().slice(i, 5);
    printer << " loop " << loop[0] << " dim " << loop[1] << " by " << loop[2] << " host " << loop[3]
            << " by " << loop[4];
  }
  if (!getStart().empty()) {
    printer << " start";
    numbers(getStart());
  }
  if (!getScale().getValue().isPosZero()) {
    printer << " scale ";
    printer.printAttributeWithoutType(getScale());
  }
  if (getZero() != 0)
    printer << " zero " << getZero();
  if (getFill() != 0)
    printer << " fill " << getFill();
  if (getExtent() != 0)
    printer << " extent " << getExtent();
  printer << ">";
}

} // namespace millrace::spatial
