// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rewrites of the tensor level that make forms cheaper; what comes out is tensor level again.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace millrace::forms {

/// `to` makes the ONNX value that `from` made, and `from` something else.
void handOnValue(mlir::Operation *from, mlir::Operation *to);

/// What is computed element by element, put together, padded or cut between two transposes of which
/// the second undoes the first for a convolution or pooling is computed of what the first
/// transposes: images whose channels come last are as others then. Exact.
void cancelTransposes(mlir::func::FuncOp function);

/// A concatenation of concatenations along the same dimension becomes one of all their parts.
/// Exact.
void flattenConcats(mlir::func::FuncOp function);

/// Sums, products and extremes begin with what does not matter; what they began with (a bias, a
/// bound) is combined with their result in a map.
void beginNeutral(mlir::func::FuncOp function);

/// A minimum that no element is below what it begins with, as of what is quantised by its own range
/// behind a Relu, becomes that, or NaN where the maximum of the same elements is; and a maximum
/// likewise. `stored`: as memory holds reals.
void skipUnreached(mlir::func::FuncOp function, ElementType stored);

/// Folds chains of maps that are affine per channel (batch normalisation): of a contraction with
/// constant weights into the weights and one addition, of anything else into one multiplication and
/// one addition, in fp32.
void foldChannels(mlir::func::FuncOp function);

/// Sums of convolutions of one image with constant weights, of which one's window holds the
/// other's, and of maps of it that are affine per channel, become one with the sum of their
/// weights, in fp32. After foldChannels().
void addBranches(mlir::func::FuncOp function);

/// On a dequantising map: its results are reals like any others, although integers are behind them.
inline constexpr llvm::StringLiteral kOfReals = "millrace.of_reals";

/// For products of reals alone: what is dequantised of constants becomes a constant in fp32, so
/// that weights of 4 or 8 bits are stored as what they stand for; what is dequantised at run time
/// is `kOfReals`.
void foldDequantized(mlir::func::FuncOp function);

/// Whether maps, each of its first operand, make the value of a product of two run-time values.
bool isProductOfTwo(mlir::Value value);

/// What is dequantised and multiplied with reals is `kOfReals`. So is what is dequantised at run
/// time and multiplied with another such, one of them with a zero point: reals are multiplied.
void noteRealFactors(mlir::func::FuncOp function);

/// The constant bytes that a map dequantises, less their zero points: int8 constants that add up to
/// it, up to three, made beside the map. None where something is no constant.
llvm::SmallVector<mlir::Value, 1> centredParts(mlir::linalg::LinalgOp dequantize);

/// On a sum of squares: each is rounded to bf16.
inline constexpr char kRoundedSquares[] = "millrace.rounded_squares";

/// Squares of normalisations. A sum of many of which a root is taken is noted to be one of rounded
/// squares: of n alike, their roundings put 1e-3 / sqrt(n) on what scales a row, and 1e-3 at most
/// where one square is nearly all; fp16 does as much to the element that is squared.
///
/// Where both sums of a normalisation are better made at once, as few elements are summed or
/// products take what is normalised along other dimensions, the sum of squares of x less its own
/// mean becomes the sum of x's squares less that of the mean's, at least 0. Where products add to
/// x, so that it is rounded to 16 bits: with a mean of r deviations that puts r * 1.4e-4 deviations
/// of noise on each element, and the variance of n squares of two parts is off by some r^2 * 4e-6 /
/// sqrt(n), which is less up to r = 1,000.
void prepareSquares(mlir::func::FuncOp function);

/// Of a whole tensor of signed integers q of 8 bits: (q - zero) * scale.
struct TensorScheme {
  double scale = 1;
  int64_t zero = 0;
};
/// By what a map quantises to such integers, if it does.
std::optional<TensorScheme> quantizedBy(mlir::linalg::LinalgOp op);
/// By what a map dequantises, if it does, what is no constant.
std::optional<TensorScheme> dequantizedBy(mlir::linalg::LinalgOp op);

/// One constant, or two of the same type and elements.
bool isSameConstant(mlir::Value x, mlir::Value y);

/// Whether `quantize` undoes `dequantize`: the same signed integers with one scale and one zero
/// point for the whole tensor (of an axis, a window or another axis would mix the channels).
bool haveOneScheme(mlir::linalg::GenericOp dequantize, mlir::linalg::GenericOp quantize);

/// Whether a user named it, for a device or for fp32: it stays as it is.
bool isNamedByUser(mlir::Operation *op);

/// What quantises by one scheme for `dequantize` alone, which one operation reads; null for other
/// operations, and where a user named either.
mlir::linalg::GenericOp quantizerOf(mlir::linalg::GenericOp dequantize);

/// What is rounded, clamped and rounded in the same way again (a Relu between two roundings of one
/// scheme) is clamped first and rounded once. Exact: rounding keeps the order of numbers.
void clampBeforeRounding(mlir::func::FuncOp function);

/// quantize(maxpool(dequantize(x))) with one scheme becomes maxpool(x) on the integers, which is
/// exact.
void poolIntegers(mlir::func::FuncOp function);

/// quantize(view(dequantize(x))) with one scheme becomes view(x), which is exact: quantisers round
/// behind every Reshape and Transpose. What is quantised, or dequantised, by one scheme behind a
/// reshape that tears dimensions apart is so before it; also exact.
void viewIntegers(mlir::func::FuncOp function);

/// Maps and sums between a view that joins dimensions and views that cut them again as they were
/// become ones over the dimensions that are joined, where a quantiser is among them: what it gives
/// is stored in its own shape, whose lanes may be all of a normalised image. The same where
/// products sum all that is joined and its innermost part is too short for the lanes: a small image
/// that is flattened lies along its channels. Sums in another order.
void expandJoined(mlir::func::FuncOp function);
/// The same for one view, whatever is among them.
void expandJoined(mlir::tensor::CollapseShapeOp view);

/// Products with constants that mix up to `mostRows` rows with each other, turned along the lanes
/// for that (talking heads), become maps of the rows as they lie. Sums in fp32.
void mixRows(mlir::func::FuncOp function, int64_t mostRows);

/// Products with a column of constants of what is compared with the greatest of few elements (the
/// expectation of a softmax over channels) become maps and sums over rows, where the other elements
/// fill vectors of `lanes`.
void sumInRows(mlir::func::FuncOp function, int64_t lanes);

/// Chains of reshapes and transpositions that join dimensions and later cut them apart again: these
/// are cut first, moved once, and joined last, so that each stays one of its own as far as it can
/// (patches of images as tokens, channels joined with their rows). Exact.
void simplifyViews(mlir::func::FuncOp function);

/// map(view(x)) becomes view(map(x)), where the view joins no dimensions and nothing else takes it
/// or x: whoever makes x then makes the map, too, and what reads the view reads what lies there
/// already. Exact.
void mapBeforeViews(mlir::func::FuncOp function);

/// Where a product of two run-time values is cut, meets what is repeated along some of its
/// dimensions, and is joined again as it was, what it meets is joined instead (scores of pixels and
/// relative positions of their rows and columns). Exact.
void joinBesideScores(mlir::func::FuncOp function);

/// Sums over blocks of a tensor's last dimension that are handed back to all members of their block
/// (group normalisation) become one product with a constant matrix of 0 and 1, where the tensor is
/// finite as memory holds it in `stored`: sums keep its lanes.
void multiplyBlocks(mlir::func::FuncOp function, ElementType stored);

/// Sums of all elements up to each along a dimension (`kCumulative`) become products with a
/// constant triangle of ones, where the elements are finite as memory holds them in `stored`, or
/// computed and finite if all that is given is; else sums in as many steps as the extent has bits.
void multiplyCumulative(mlir::func::FuncOp function, ElementType stored);

/// Products of rows with one of up to 256 constant matrices that each row chooses by a number of
/// its own (experts), which the host would gather for all rows, become one product with all of the
/// matrices, of rows that are zeros where another one is chosen: where those are finite. Sums in
/// another order.
void multiplyChosen(mlir::func::FuncOp function, ElementType stored);

/// Rows that chains of views (padding, reshaping, cutting) move along their lanes by a multiple of
/// their number, as relative positions of attention are, become products with constant matrices of
/// 0 and 1, one for each number, where the rows are finite as memory holds them in `stored`, or
/// computed and finite if all that is given is. Maps of elements between the views (roundings) come
/// behind the product, and integers of 8 bits are multiplied as reals. Exact.
void multiplySkewed(mlir::func::FuncOp function, ElementType stored);

/// What concatenations make of slices of rows, negated or not (the pairs of rotary positions),
/// becomes one product of the rows with a constant matrix of 0, 1 and -1, where they are finite as
/// memory holds them in `stored`; of blocks of up to `lanes`. Exact.
void multiplySlices(mlir::func::FuncOp function, ElementType stored, int64_t lanes);

/// Functions of fp32 that no ALU computes (of triangles and of hyperbolas) become those that ALUs
/// do, within some 5e-6 beside the result.
void expandFunctions(mlir::func::FuncOp function);

/// Cuts 2-D maximum windows into one along each dimension: k x k operands become k and k. Exact.
void splitMaxWindows(mlir::func::FuncOp function);

/// dequantize(quantize(x)) becomes x, clamped to what the integers can stand for, where x is one
/// side of a sum and nothing else uses it: the sum is then rounded once, and differs by at most
/// half a step of the quantiser that went. At most one side of each sum, of one scale per tensor.
void fuseResiduals(mlir::func::FuncOp function);

/// dequantize(quantize(x)) becomes x, clamped to what the integers can stand for, where x is
/// computed element by element and one map or depthwise convolution reads it: x is left unrounded,
/// and what is clamped for certain no further than it was rounded is not clamped either.
void dropRoundings(mlir::func::FuncOp function);

/// dequantize(quantize(x)) of 16 bits becomes x, clamped to what the integers can stand for: reals
/// of 16 bits hold no more of it.
void dropWideRoundings(mlir::func::FuncOp function);

/// An input less its own maximum, as a softmax takes it, or quantised by its own range becomes the
/// host's: there that is done before it is rounded. In fp16 10,001 is 10,000, but the difference of
/// both is exact.
void shiftInputs(mlir::func::FuncOp function, bool isBf16);

} // namespace millrace::forms
