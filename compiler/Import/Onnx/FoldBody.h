// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluates a linalg operation on constants: its body becomes a list of steps once, which then runs
// for a row of points at a time.
#pragma once

#include "compiler/Import/Onnx/FoldRows.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace millrace::onnx_import {

/// The numbers of a tensor, and which of them have no value, as a quotient by 0: nobody may read
/// these, but a select need not choose them.
struct FoldedTensor {
  ConstantView numbers;
  std::optional<ConstantView> unknown; ///< i8: 1 for these; nothing if there are none
};

/// The constant that a tensor equals.
using ConstantOf = llvm::function_ref<const FoldedTensor &(mlir::Value)>;

/// A constant of its own; true bytes of `i1` are 1. One element if all are the same.
ConstantView ownConstant(mlir::RankedTensorType type, std::vector<char> bytes);
/// `isUnknown` for each element, or empty.
FoldedTensor ownTensor(mlir::RankedTensorType type, std::vector<char> bytes,
                       std::vector<char> isUnknown);

class FoldBody {
public:
  /// Nothing for more than one result, operands that are neither tensors nor constants, and bodies
  /// with an operation that rowStepOf does not know, other than linalg.index and tensor.extract.
  static std::optional<FoldBody> create(mlir::linalg::LinalgOp op);

  /// The tensors whose constants `evaluate` asks for: inputs, those that are read at computed
  /// positions, and the one that the results begin with if there is any.
  llvm::ArrayRef<mlir::Value> reads() const { return tensors; }

  /// Scalar operations in all, loads and stores among them; int64_t's greatest if there are more.
  int64_t work() const;

  /// Does it only say which element of an input stands where?
  bool onlyMoves() const { return steps.empty() && lookups.empty() && indices.empty() && copies; }

  /// Is it nothing that the grid makes of its operands while it reads them: a sum, a read at a
  /// computed position, a function of the C library, or arithmetic that it has no instructions for?
  bool isCostly() const { return costly; }

  /// The result; numbers that are read at computed positions outside of their tensor are unknown.
  /// Nothing if an affine position lies outside.
  std::optional<FoldedTensor> evaluate(ConstantOf constantOf) const;

private:
  /// A tensor that is read (or, last, written) at an affine position of each point.
  struct Operand {
    mlir::Value tensor;
    mlir::AffineMap map;
    unsigned row;
  };
  /// rows[row] = `tensor` at the positions in rows[positions...]
  struct Lookup {
    mlir::Value tensor;
    std::vector<unsigned> positions;
    unsigned row;
  };
  /// rows[row] = the points' indices of `loop`
  struct Index {
    unsigned loop, row;
  };
  /// What happens next: a step, or a lookup.
  struct Next {
    bool isLookup;
    size_t at;
  };
  /// A number that all points have in common.
  struct Fixed {
    mlir::Attribute value;
    unsigned row;
  };
  struct Run;

  bool addOperands(mlir::linalg::LinalgOp op);
  bool addOperation(mlir::Operation &op);
  std::optional<unsigned> rowOf(mlir::Value scalar);
  std::optional<unsigned> addRow(mlir::Value scalar);
  void chooseRowLoop(mlir::linalg::LinalgOp op);

  llvm::SmallVector<int64_t> extents;
  std::optional<unsigned> rowLoop; ///< the loop whose points make a row; none: one point at a time
  mlir::RankedTensorType resultType;
  mlir::Value initial; ///< null: zeros
  bool readsResult = false, costly = false, copies = false;
  std::vector<Operand> inputs;
  std::optional<Operand> result;
  std::vector<RowStep> steps;
  std::vector<Lookup> lookups;
  std::vector<Index> indices;
  std::vector<Next> order;
  std::vector<Fixed> fixed;
  std::vector<NumberType> rowTypes;
  unsigned yielded = 0;
  llvm::DenseMap<mlir::Value, unsigned> rows; ///< of a scalar of the body
  llvm::SmallVector<mlir::Value> tensors;
};

} // namespace millrace::onnx_import
