// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Handlers.h"
namespace millrace::onnx_import {
void addEmbeddingOps(HandlerTable &) {}
} // namespace millrace::onnx_import
