// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an element of a tensor is made of, as a function of loops: views, transpositions and
// broadcasts are looked through, so that the order of dimensions and their number do not matter.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

#include <deque>
#include <optional>
#include <string>

namespace millrace::gpu {

/// Loops by number. One may turn out to be two, where a view cuts a dimension.
class Loops {
public:
  unsigned add(int64_t size);
  int64_t size(unsigned loop) const { return all[loop].size; }
  /// Cuts the loop in an outer one and one of `inner` steps; returns both.
  std::pair<unsigned, unsigned> split(unsigned loop, int64_t inner);
  /// Each loop as the ones that it was cut into.
  llvm::SmallVector<unsigned> parts(llvm::ArrayRef<unsigned> loops) const;

private:
  struct Loop {
    int64_t size = 1;
    std::optional<std::pair<unsigned, unsigned>> parts;
  };
  std::vector<Loop> all;
};

/// An index: `offset` + the number whose digits the loops are, the last one counting ones.
struct Place {
  llvm::SmallVector<unsigned> loops;
  int64_t offset = 0;
};
using Point = llvm::SmallVector<Place>; ///< one index per dimension

/// A number for each point of the loops that it depends on.
struct Term {
  enum class Kind : uint8_t {
    Product,  ///< an element of the contraction that the trace begins at
    Leaf,     ///< an element of a tensor that does not depend on it
    Constant, ///< `constant`
    Index,    ///< `point[0]`
    Apply,    ///< a scalar operation
    Reduce    ///< operands combined, each over its bound loops
  };
  Kind kind = Kind::Constant;
  mlir::Operation *op = nullptr; ///< of an application
  llvm::SmallVector<Term *> operands;
  mlir::Value base; ///< of a leaf or product
  Point point;
  mlir::TypedAttr constant;
  bool isMaximum = false;                               ///< of a reduction; else a sum
  llvm::SmallVector<llvm::SmallVector<unsigned>> bound; ///< per operand of a reduction
};

/// Follows values of one block back to a contraction.
class Trace {
public:
  /// `product`: the contraction. What depends on it is looked into, up to `end`; all else is a
  /// leaf.
  Trace(mlir::linalg::LinalgOp product, mlir::Operation *end);

  /// Looks into the operation, too, though it does not depend on the product.
  void follow(mlir::Operation *op) { dependent.insert(op); }
  /// The element of `value` at `point`; null, with `why`, if it is made in a way that is not known.
  Term *at(mlir::Value value, const Point &point);
  /// Where an element of a value lies in what it is a view of. `widens`: also in what it was
  /// widened from.
  std::pair<mlir::Value, Point> baseOf(mlir::Value value, Point point, bool widens);
  /// The index of an operand where the loops of the operation are at `loops`; nothing for windows.
  static std::optional<Point> pointOf(mlir::AffineMap map, llvm::ArrayRef<Place> loops);

  bool depends(const Term &term, llvm::ArrayRef<unsigned> loops) const;
  /// Whether two terms are one, if the loops `from` of the second are called `to`.
  bool areEqual(const Term &x, const Term &y, llvm::ArrayRef<unsigned> from = {},
                llvm::ArrayRef<unsigned> to = {}) const;
  bool areEqual(const Point &x, const Point &y, llvm::ArrayRef<unsigned> from = {},
                llvm::ArrayRef<unsigned> to = {}) const;

  Loops loops;
  std::string why;
  llvm::SetVector<mlir::Operation *> visited; ///< operations that depend on the product

private:
  /// One step through a view; false if there is none, or it cuts what the point does not.
  bool step(mlir::Value &value, Point &point, bool slices);
  bool stepLinalg(mlir::linalg::LinalgOp op, mlir::Value &value, Point &point);
  std::optional<llvm::SmallVector<Place>> cut(const Place &place, llvm::ArrayRef<int64_t> sizes);
  std::optional<Place> join(llvm::ArrayRef<Place> places, llvm::ArrayRef<int64_t> sizes);
  Term *leaf(mlir::Value value, Point point);
  Term *apply(mlir::linalg::LinalgOp op, const Point &point);
  Term *reduce(mlir::linalg::LinalgOp op, const Point &point);
  /// Of a scalar in the body of an operation whose loops are at `loops`.
  Term *scalar(mlir::linalg::LinalgOp op, mlir::Value value, llvm::ArrayRef<Place> loops,
               llvm::DenseMap<mlir::Value, Term *> &known);
  Term *refuse(const std::string &reason);
  Term *newTerm(Term::Kind kind);

  mlir::linalg::LinalgOp product;
  llvm::DenseSet<mlir::Operation *> dependent;
  std::deque<Term> terms;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<std::pair<Point, Term *>>> known;
  /// A loop that a concatenation cuts, and where; of the last refusal.
  std::optional<std::pair<unsigned, int64_t>> border;
};

/// Whether an operation moves elements of its first operand and does nothing with them.
bool isView(mlir::Operation *op);

/// The number that fills a tensor, constants of one number included; null for others.
mlir::TypedAttr filling(mlir::Value tensor);

/// The ONNX node that an operation came from, or what it is.
std::string nodeOf(mlir::Operation *op);

} // namespace millrace::gpu
