// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tile level becomes: loops for a CPU, code of one thread for a GPU.
#pragma once

#include <memory>

namespace mlir {
class Pass;
} // namespace mlir

namespace millrace::tile {

/// `tile-to-loops`: a kernel becomes a private func.func of its name, with a loop over programs and
/// in it loops over lanes; tile.launch becomes its call.
std::unique_ptr<mlir::Pass> createLowerToLoopsPass();

constexpr const char *kProgramsAttribute = "tile.programs";
/// And another holds the numbers of the arguments that it writes to, ascending.
constexpr const char *kWrittenAttribute = "tile.written";

/// `tile-to-hopper`: a kernel becomes a hopper.kernel of its name, a CTA per program. Thread t has
/// the lanes from t x W on; W is one, or as many as 16 bytes hold where that makes accesses to
/// memory whole. tile.launch stays; CTAs along x are
/// the kernel's attribute `tile.programs`. Operations of `math` that no GPU has are expanded; one
/// that cannot be is an error. With `hasWarpgroups` (`warpgroups`), for Hopper's sm_90a alone,
/// products whose operands TMA can load are those of warpgroups (Staging.h); such a kernel takes
/// the tensor maps of LaunchMaps.h behind its pointers.
std::unique_ptr<mlir::Pass> createLowerToHopperPass(bool hasWarpgroups = false);

/// Registers both by name.
void registerPasses();

} // namespace millrace::tile
