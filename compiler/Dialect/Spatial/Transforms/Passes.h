// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages from the tensor level to kernels that fit the machine, each as a pass of its own.
#pragma once

namespace millrace::spatial {

/// Registers, for textual pipelines: the rewrites of the tensor level (Rewrite.h), `form-kernels`,
/// every rewriting of kernel graphs (Rewritings.h) under its name, and `rewrite-kernels`, which is
/// all of these in order.
void registerPasses();

} // namespace millrace::spatial
