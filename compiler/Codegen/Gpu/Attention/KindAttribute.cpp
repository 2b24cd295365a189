// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/KindAttribute.h"

#include "mlir/IR/Builders.h"

namespace millrace::gpu {

using namespace mlir;

void setKind(tile::KernelOp kernel, const KernelKind &kind) {
  Builder b(kernel.getContext());
  NamedAttrList all;
  all.set("op", b.getStringAttr(kind.op));
  all.set("type", b.getStringAttr(kind.type));
  for (const auto &[name, size] : kind.sizes)
    all.set(name, b.getI64IntegerAttr(size));
  kernel->setAttr(kKindAttribute, all.getDictionary(kernel.getContext()));
}

std::optional<KernelKind> kindOf(tile::KernelOp kernel) {
  auto noted = kernel->getAttrOfType<DictionaryAttr>(kKindAttribute);
  if (!noted)
    return std::nullopt;
  KernelKind kind;
  for (NamedAttribute own : noted) {
    if (auto text = dyn_cast<StringAttr>(own.getValue()))
      (own.getName() == "op" ? kind.op : kind.type) = text.str();
    else if (auto size = dyn_cast<IntegerAttr>(own.getValue()))
      kind.sizes[own.getName().str()] = size.getInt();
  }
  return kind;
}

} // namespace millrace::gpu
