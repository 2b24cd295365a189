// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that code made at run time calls and no library of every computer has.
#pragma once

#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/Mangling.h"

namespace millrace {

/// __truncsfbf2 and __truncdfbf2, rounding to nearest even. LLVM calls them where the CPU has no
/// instruction for them; GCC 12's library lacks them. For ExecutionEngine::registerSymbols.
llvm::orc::SymbolMap roundingsToBf16(llvm::orc::MangleAndInterner named);

} // namespace millrace
