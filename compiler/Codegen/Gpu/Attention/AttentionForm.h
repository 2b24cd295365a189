// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention over any order of dimensions, with any function of the scores: what a kernel is made
// of.
#pragma once

#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"

#include "mlir/IR/Builders.h"

#include <functional>

namespace millrace::gpu {

/// A tensor in memory: each dimension's index is the number whose digits the loops are, by their
/// number in the form; none: 0.
struct AttentionMemory {
  mlir::Type element;
  llvm::SmallVector<llvm::SmallVector<unsigned>> dims;
};

/// What the score and the sinks of a form are written with, by whoever knows them.
class ScoreCode {
public:
  virtual ~ScoreCode() = default;
  virtual mlir::OpBuilder &builder() = 0;
  /// The type of a block's scores: a row of keys per lane.
  virtual mlir::VectorType blockType(mlir::Type element) = 0;
  virtual mlir::VectorType laneType(mlir::Type element) = 0;
  /// Elements of `others[memory]`: one for all rows, one per lane, or a row of keys per lane.
  virtual mlir::Value load(size_t memory) = 0;
  /// An index by its loops: a scalar, or a tile of lanes; where `key` is among them, of a block.
  virtual mlir::Value index(llvm::ArrayRef<unsigned> loops) = 0;
  virtual mlir::Value spread(mlir::Value lanes, int64_t columns) = 0;
};

/// Loops are numbered: those of `batch`, then those of `rows`, the key, the elements of a key,
/// those of a value.
struct AttentionForm {
  llvm::SmallVector<int64_t> batch; ///< a program has one point of these
  llvm::SmallVector<int64_t> rows;  ///< and some of the points of these, the last one fastest
  int64_t keys = 1, depth = 1, valueDepth = 1;
  mlir::Type element;      ///< of Q, K and V: f16 or bf16
  AttentionMemory q, k, v; ///< their element is `element`
  llvm::SmallVector<AttentionMemory> others;
  AttentionMemory o; ///< fp32
  /// Of rows whose outermost loop is the query: keys that count, as the problem says.
  bool isCausal = false;
  int64_t window = 0;
  bool emptyRowsAreZero = true; ///< rows without a score above -infinity; else NaN
  /// fp32 scores of the products; and one per lane that takes part in the sum alone.
  std::function<mlir::Value(ScoreCode &, mlir::Value)> score;
  llvm::SmallVector<std::function<mlir::Value(ScoreCode &)>> sinks;

  unsigned key() const { return unsigned(batch.size() + rows.size()); }
  unsigned keyElement() const { return key() + 1; }
  unsigned valueElement() const { return key() + 2; }
  int64_t size(unsigned loop) const;
  KernelKind kind(bool isStaged) const; ///< as the tuning table has it
};

/// The table's for such a kernel, else one that leaves a thread enough registers. `isStaged`: one
/// whose keys and values TMA loads and warpgroups multiply, on a chip that has them.
AttentionSchedule chooseSchedule(const AttentionForm &form, const TuningTable &table,
                                 bool isStaged);

/// Adds the tile.kernel `name` at the builder's place. Its arguments: Q, K, V, the others, O.
/// Errors: as buildAttention has them of sizes and schedules.
Status buildAttentionForm(mlir::OpBuilder &builder, llvm::StringRef name, const AttentionForm &form,
                          const AttentionSchedule &schedule);

/// With a schedule for warpgroups if the chip has them and TMA can load its keys and values, else
/// with the table's.
Status buildAttentionForm(mlir::OpBuilder &builder, llvm::StringRef name, const AttentionForm &form,
                          const TuningTable &table = TuningTable::builtIn());

} // namespace millrace::gpu
