// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Terms of a trace as code of an attention kernel.
#pragma once

#include "compiler/Codegen/Gpu/Attention/AttentionForm.h"
#include "compiler/Codegen/Gpu/Attention/FindAttention.h"

namespace millrace::gpu {

/// A tensor that a kernel reads, and where, by loops of the trace.
struct TermMemory {
  mlir::Value base;
  Point point;
};

/// A found attention as the form of a kernel.
class TermForm {
public:
  /// `found` outlives the result, which outlives the form's functions.
  TermForm(const FoundAttention &found, mlir::Type element, mlir::OpBuilder &builder);

  /// Why no kernel computes it; empty if one does.
  const std::string &why() const { return reason; }
  const AttentionForm &form() const { return made; }
  /// What the kernel's `others` are, with i1 as i8.
  llvm::ArrayRef<TermMemory> others() const { return leaves; }

private:
  AttentionMemory memoryOf(const Point &point, mlir::Type element) const;
  llvm::SmallVector<unsigned> numbersOf(llvm::ArrayRef<unsigned> loops) const;
  void collect(const Term &term);
  size_t leafOf(const Term &term) const;
  class Writer;

  const FoundAttention &found;
  AttentionForm made;
  llvm::SmallVector<unsigned> order; ///< loops of the trace by their number in the form
  llvm::SmallVector<TermMemory> leaves;
  std::string reason;
};

} // namespace millrace::gpu
