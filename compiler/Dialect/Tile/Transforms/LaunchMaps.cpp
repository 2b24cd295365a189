// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/LaunchMaps.h"

namespace millrace::tile {

using namespace mlir;

ArrayAttr attributeOf(Builder &builder, ArrayRef<LaunchMap> maps) {
  SmallVector<Attribute> all;
  for (const LaunchMap &map : maps) {
    SmallVector<int64_t> numbers = {map.argument, map.offset,   map.elementBytes, map.rows,
                                    map.columns,  map.rowBytes, map.boxRows,      map.boxColumns};
    for (const auto &[size, bytes] : map.outer)
      numbers.append({size, bytes});
    all.push_back(builder.getDenseI64ArrayAttr(numbers));
  }
  return builder.getArrayAttr(all);
}

SmallVector<LaunchMap> launchMapsOf(Operation *kernel) {
  SmallVector<LaunchMap> maps;
  auto attribute = kernel->getAttrOfType<ArrayAttr>(kMapsAttribute);
  if (!attribute)
    return maps;
  for (Attribute one : attribute) {
    const ArrayRef<int64_t> n = cast<DenseI64ArrayAttr>(one).asArrayRef();
    LaunchMap map{unsigned(n[0]), n[1],           unsigned(n[2]), n[3], n[4],
                  n[5],           unsigned(n[6]), unsigned(n[7]), {}};
    for (size_t i = 8; i + 1 < n.size(); i += 2)
      map.outer.emplace_back(n[i], n[i + 1]);
    maps.push_back(std::move(map));
  }
  return maps;
}

} // namespace millrace::tile
