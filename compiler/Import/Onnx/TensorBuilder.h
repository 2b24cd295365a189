// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The few shapes of tensor-level code that all handlers of ONNX operations are made of.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace millrace::onnx_import {

using Shape = llvm::SmallVector<int64_t>;
using Scalars = mlir::ImplicitLocOpBuilder;
/// Emits the scalar body of a map: block arguments (one per input) to the result.
using MapBody = llvm::function_ref<mlir::Value(Scalars &, mlir::ValueRange)>;
/// Emits one step of a reduction: (element, accumulator) to accumulator.
using ReduceBody = llvm::function_ref<mlir::Value(Scalars &, mlir::Value, mlir::Value)>;

mlir::RankedTensorType typeOf(mlir::Value tensor);
llvm::ArrayRef<int64_t> shapeOf(mlir::Value tensor);
mlir::Type elementTypeOf(mlir::Value tensor);
/// NumPy's broadcast of two shapes; nothing if they disagree.
std::optional<Shape> broadcastShapes(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);
/// Saturates.
int64_t productOf(llvm::ArrayRef<int64_t> shape);
/// Elements of the largest tensor: no memory holds more, and sizes in bits stay below 2^63.
inline constexpr int64_t kMostElements = int64_t(1) << 36;
/// The largest constant that an operation is given here: weights of a Resize, counts of windows.
inline constexpr int64_t kMostMade = int64_t(1) << 26;

/// Builds operations at one location. All tensors are static and ranked; all indices row major.
/// Shapes that do not fit are remembered in `failure` and give a value of no meaning: a handler
/// goes on, its caller asks once. (The ONNX library has checked the shapes of its own operations,
/// not of com.microsoft's.)
class TensorBuilder {
public:
  TensorBuilder(mlir::Location location, mlir::OpBuilder &builder) : b(location, builder) {}

  Scalars &ops() { return b; }
  void setLocation(mlir::Location location) { b.setLoc(location); }
  /// What did not fit first; empty if all did.
  const std::string &failure() const { return firstFailure; }

  /// A scalar constant (not a tensor) of `type`.
  mlir::Value scalar(mlir::Type type, double value);
  /// The scalar that a reduction by maximum (or minimum) starts from, or that padding for it is
  /// made of.
  mlir::Value lowest(mlir::Type type, bool isUnsigned);
  mlir::Value highest(mlir::Type type, bool isUnsigned);
  /// A tensor constant with all elements equal to `value`.
  mlir::Value splat(llvm::ArrayRef<int64_t> shape, mlir::Type type, double value);
  mlir::Value integers(llvm::ArrayRef<int64_t> values);
  /// `type`: f32 or f64, what tensors are computed in.
  mlir::Value reals(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<float> values, mlir::Type type);
  mlir::Value empty(llvm::ArrayRef<int64_t> shape, mlir::Type type);
  mlir::Value filled(llvm::ArrayRef<int64_t> shape, mlir::Value scalar);

  /// result[i] = body(inputs[i]...) with NumPy broadcasting; a constant splat becomes a scalar in
  /// the body.
  mlir::Value map(llvm::ArrayRef<mlir::Value> inputs, mlir::Type elementType, MapBody body);
  /// The same with one map per input, from the result's indices.
  mlir::Value map(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<mlir::Value> inputs,
                  llvm::ArrayRef<mlir::AffineMap> maps, mlir::Type elementType, MapBody body);
  /// Reduces over `axes` (ascending), which the result lacks, starting from `initial`.
  mlir::Value reduce(mlir::Value input, llvm::ArrayRef<int64_t> axes, mlir::Value initial,
                     ReduceBody body);
  mlir::Value reduceSum(mlir::Value input, llvm::ArrayRef<int64_t> axes);
  mlir::Value reduceMax(mlir::Value input, llvm::ArrayRef<int64_t> axes, bool isUnsigned = false);
  /// What products of the type add up in: bytes in int32, all else in itself.
  mlir::Type sumType(mlir::Type type) { return type.isInteger(8) ? b.getI32Type() : type; }
  /// result = sum of a * w over the loops in `contracted`, of a's type or wider; maps go from all
  /// loops to a, w, result.
  mlir::Value contract(mlir::Value a, mlir::Value w, llvm::ArrayRef<int64_t> resultShape,
                       llvm::ArrayRef<mlir::AffineMap> maps, llvm::ArrayRef<unsigned> contracted,
                       mlir::Type sum = {});

  mlir::Value reshape(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value input, llvm::ArrayRef<int64_t> permutation);
  mlir::Value broadcast(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  /// Each index of `axis` as often as `times` says, one after the other.
  mlir::Value repeat(mlir::Value input, int64_t axis, int64_t times);
  mlir::Value pad(mlir::Value input, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high,
                  mlir::Value scalar);
  mlir::Value slice(mlir::Value input, llvm::ArrayRef<int64_t> offsets,
                    llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides = {});
  /// input[..., offset : offset + size, ...] along `axis`.
  mlir::Value sliceAxis(mlir::Value input, int64_t axis, int64_t offset, int64_t size);
  mlir::Value concat(llvm::ArrayRef<mlir::Value> inputs, int64_t axis);

  /// The map (d0, ..., d[rank-1]) -> (d[loops[0]], d[loops[1]], ...).
  mlir::AffineMap select(unsigned rank, llvm::ArrayRef<unsigned> loops);
  /// The map of a tensor of `shape` that is broadcast to `result`.
  mlir::AffineMap broadcastMap(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> result);
  /// The map from all loops to those not in `axes`: what a reduction over `axes` writes.
  mlir::AffineMap withoutAxes(unsigned rank, llvm::ArrayRef<int64_t> axes);

  /// The value, the result of an operation, lies in memory as fp32 whatever the precision.
  void keepFp32(mlir::Value value);

  /// Remembers `text` and returns a tensor of zeros.
  mlir::Value fail(const std::string &text, llvm::ArrayRef<int64_t> shape, mlir::Type type);

private:
  Scalars b;
  std::string firstFailure;
};

} // namespace millrace::onnx_import
