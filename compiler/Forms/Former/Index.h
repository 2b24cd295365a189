// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Affine arithmetic on the loops of a kernel under construction. Reshapes divide indices; a
// division that does not come out affine says how a loop must be split so that it does.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Operation.h"

#include <map>
#include <optional>

namespace millrace::forms {

/// Where a loop comes from: dimension `dim` of operation `op`'s iteration space (no op: of the
/// kernel's root value).
struct LoopKey {
  mlir::Operation *op = nullptr;
  unsigned dim = 0;
  auto operator<=>(const LoopKey &) const = default;
};

/// Factors of the extents of split loops, outermost first.
using Splits = std::map<LoopKey, std::vector<int64_t>>;

/// An index: affine in the loops.
struct Linear {
  int64_t offset = 0;
  std::map<unsigned, int64_t> terms; ///< loop to coefficient, never 0

  static Linear constant(int64_t value) { return {value, {}}; }
  bool operator==(const Linear &) const = default;
  bool uses(unsigned loop) const { return terms.count(loop) != 0; }
  Linear &add(const Linear &other, int64_t factor = 1);
  AffineIndex affine() const;
};

/// A dimension that no split of its loop takes apart as an index needs: its points from one of
/// `first`, `first` + `period`, ... to the next can be taken apart.
struct Ragged {
  LoopKey key;
  int64_t first = 0, period = 1;
};

/// The loops of one kernel, created as they are asked for.
class LoopSpace {
public:
  LoopSpace(std::vector<Loop> &loops, const Splits &splits) : loops(loops), splits(splits) {}

  /// The index that runs over dimension `key`; its loops exist afterwards. An extent of 1 needs no
  /// loop.
  Linear dimension(LoopKey key, int64_t extent, LoopKind kind);
  std::pair<int64_t, int64_t> range(const Linear &index) const;
  std::pair<int64_t, int64_t> range(const AffineIndex &index) const;
  /// floor(index / divisor); nothing if that is not affine: then `wanted` may hold a split that
  /// helps.
  std::optional<Linear> divide(const Linear &index, int64_t divisor);
  std::optional<Linear> modulo(const Linear &index, int64_t divisor);
  std::optional<Linear> evaluate(mlir::AffineExpr expr, llvm::ArrayRef<Linear> dims);
  /// The indices of one dimension of extent `product(shape)` taken apart, row major.
  bool delinearize(const Linear &index, llvm::ArrayRef<int64_t> shape,
                   llvm::SmallVectorImpl<Linear> &out);

  const Loop &loop(unsigned index) const { return loops[index]; }
  size_t size() const { return loops.size(); }
  std::optional<Splits> wanted; ///< the splits with which to try again
  std::optional<Ragged> ragged; ///< where no split helps: what would

private:
  void want(unsigned loop, int64_t inner);
  void noteRagged(const Linear &index, const Linear &rest, int64_t divisor);

  struct Origin {
    LoopKey key;
    size_t position; ///< among the factors
  };
  std::vector<Loop> &loops;
  const Splits &splits;
  std::vector<Origin> origins;
  std::map<LoopKey, Linear> known;
};

} // namespace millrace::forms
