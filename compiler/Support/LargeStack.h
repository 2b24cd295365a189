// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stack for recursions that go as deep as a model has layers.
#pragma once

#include <functional>

namespace millrace {

/// Runs `work` to its end on a thread whose stack takes 1 GiB of addresses (pages that are not
/// touched cost nothing), or as much of it as the system grants, or on this one.
void runOnLargeStack(const std::function<void()> &work);

/// Within runOnLargeStack: less than an eighth of the stack is left, so that a recursion should end
/// with an error. Elsewhere false.
bool isStackShort();

} // namespace millrace
