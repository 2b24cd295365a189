// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace millrace {

/// Text of docs/spec/isa.md: every instruction with its unit and operands, every ALU operation.
/// Derived from Opcodes.def and AluOp.def.
std::string isaMarkdown();

} // namespace millrace
