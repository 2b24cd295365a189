// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a kernel is, noted on it, so that times are looked up by the sizes by which its schedule
// was.
#pragma once

#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

#include <optional>

namespace millrace::gpu {

/// An attribute of kernels: a dictionary of op, type and sizes.
constexpr const char *kKindAttribute = "tile.kind";

void setKind(tile::KernelOp kernel, const KernelKind &kind);
/// Nothing if nobody noted it.
std::optional<KernelKind> kindOf(tile::KernelOp kernel);

} // namespace millrace::gpu
