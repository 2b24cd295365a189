// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention as one program of the tile level: softmax along the keys, block by block, so that
// scores are never stored.
#pragma once

#include "arch/spec/Expected.h"

#include "mlir/IR/BuiltinOps.h"

namespace millrace::gpu {

/// What is computed for query head h, which reads head h / (queryHeads / keyHeads) of K and V:
/// O = softmax(cap(scale Q Kᵀ) where allowed) V. Query i stands at position keys - queries + i
/// among the keys: with one query it is decoding. Tensors: Q and O queryHeads x queries, K and V
/// keyHeads x keys, each batch times, of `depth` and, for V and O, `valueDepth` elements.
struct AttentionProblem {
  enum class Type : uint8_t { BFloat16, Float16 };
  Type type =
      Type::Float16; ///< of Q, K and V; sums, softmax and O are fp32, its weights of this type
  int64_t batch = 1, queryHeads = 1, keyHeads = 1, queries = 1, keys = 1, depth = 64,
          valueDepth = 64;
  bool isCausal = false; ///< keys behind a query's position are not allowed
  int64_t window = 0;    ///< as many keys up to the position are allowed; 0: all
  double scale = 1;
  double softcap = 0;    ///< scores become softcap x tanh(score / softcap); 0: they stay
  bool hasSinks = false; ///< a score per query head (fp32) that takes part in the sum alone
};

/// How: rows of a program (queries of all heads that share a key head), and keys of a block.
struct AttentionSchedule {
  int64_t rows = 64, keys = 32;

  /// One that leaves a thread of the problem's kernel enough registers.
  static AttentionSchedule choose(const AttentionProblem &problem);
};

/// Adds the tile.kernel `name` to the end of the module. Its arguments: Q, K, V, the sinks if there
/// are some, O. A row without any allowed key is 0. Errors: sizes below one, heads that do not
/// divide, more than 256 elements of depth or 160 of values, rows that are no multiple of 32 up to
/// 256, keys of a block that are no multiple of 16 up to 128, a name that the module has.
Status buildAttention(mlir::ModuleOp module, const std::string &name,
                      const AttentionProblem &problem, const AttentionSchedule &schedule);

/// Registers the pass `build-attention{name= type= ...}`, which does that.
void registerAttentionPass();

/// "attention has `what` `number`; `remedy`".
Error refusedAttention(const std::string &what, int64_t number, const std::string &remedy);

} // namespace millrace::gpu
