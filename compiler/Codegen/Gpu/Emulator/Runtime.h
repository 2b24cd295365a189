// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that compiled kernels call, one per hopper operation.
#pragma once

#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/Mangling.h"

namespace millrace::gpu {

/// Their names and addresses, for the linker of the JIT.
llvm::orc::SymbolMap runtimeSymbols(llvm::orc::MangleAndInterner named);

} // namespace millrace::gpu
