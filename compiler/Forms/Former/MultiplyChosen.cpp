// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products with one of several constant matrices that each row chooses, as a mixture of experts
// has: libraries gather the matrices of all rows and multiply by those.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// A contraction of whose operands one holds table[.., choice[..], ..]: by each loop, what indexes
/// that operand.
struct Chosen {
  linalg::LinalgOp product;
  unsigned operand = 0;        ///< of the product: what is chosen
  linalg::GenericOp lookup;    ///< that chooses
  tensor::ExtractOp extract;   ///< in it
  unsigned dim = 0;            ///< of the table: what is chosen along
  SmallVector<unsigned> loops; ///< per dimension of what is chosen: the product's loop
  RankedTensorType table() { return cast<RankedTensorType>(extract.getTensor().getType()); }
  int64_t extent(unsigned loop) { return product.getStaticLoopRanges()[loop]; }
};

constexpr int64_t kMostChoices = 256;

bool isOfLoops(AffineMap map) {
  return llvm::all_of(map.getResults(), [](AffineExpr expr) { return isa<AffineDimExpr>(expr); });
}

/// The loop of each dimension.
SmallVector<unsigned> loopsOf(AffineMap map) {
  SmallVector<unsigned> loops;
  for (AffineExpr expr : map.getResults())
    loops.push_back(cast<AffineDimExpr>(expr).getPosition());
  return loops;
}

std::optional<Chosen> chosenBy(linalg::LinalgOp product, unsigned operand) {
  if (!llvm::all_of(product.getIndexingMapsArray(), isOfLoops))
    return std::nullopt;
  SmallVector<unsigned> loops = loopsOf(product.getIndexingMapsArray()[operand]); // of the value
  Value value = product->getOperand(operand);
  while (auto transpose = value.getDefiningOp<linalg::TransposeOp>()) {
    SmallVector<unsigned> before(loops.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      before[size_t(from)] = loops[to];
    loops = before;
    value = transpose.getInput();
  }
  auto lookup = value.getDefiningOp<linalg::GenericOp>();
  if (!lookup || !isMap(lookup) || lookup.getNumDpsInputs() != 1 || lookup->hasAttr(kDevice) ||
      !lookup.getIndexingMapsArray()[0].isProjectedPermutation() ||
      !lookup.getIndexingMapsArray()[1].isIdentity())
    return std::nullopt;
  auto extract =
      lookup.getBody()->getTerminator()->getOperand(0).getDefiningOp<tensor::ExtractOp>();
  if (!extract || !isConstantValue(extract.getTensor()) ||
      !cast<RankedTensorType>(extract.getTensor().getType()).getElementType().isF32())
    return std::nullopt;
  Chosen chosen{product, operand, lookup, extract, 0, std::move(loops)};
  unsigned found = 0;
  for (auto [dim, index] : llvm::enumerate(extract.getIndices()))
    if (!index.getDefiningOp<linalg::IndexOp>()) {
      chosen.dim = unsigned(dim);
      ++found;
      auto cast = index.getDefiningOp<arith::IndexCastOp>();
      if (!cast || wrappedIndex(cast.getIn(), chosen.table().getDimSize(unsigned(dim))) !=
                       lookup.getBody()->getArgument(0))
        return std::nullopt;
    }
  const bool isRow = lookupOf(lookup).has_value(); // of each choice: gathered on the grid
  return found == 1 && !isRow && chosen.table().getDimSize(chosen.dim) <= kMostChoices
             ? std::optional(std::move(chosen))
             : std::nullopt;
}

/// The integers as reals: what they were converted from, if nothing but views lies between, without
/// its fractions.
Value asReals(OpBuilder &builder, Value integers) {
  const Location loc = integers.getLoc();
  SmallVector<Operation *> views;
  Value value = integers;
  while (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(value.getDefiningOp())) {
    views.push_back(value.getDefiningOp());
    value = views.back()->getOperand(0);
  }
  auto map = value.getDefiningOp<linalg::GenericOp>();
  arith::FPToSIOp cut;
  if (map && isMap(map) && map.getNumDpsInputs() == 1 &&
      llvm::all_of(map.getIndexingMapsArray(), [](AffineMap m) { return m.isIdentity(); }))
    cut = map.getBody()->getTerminator()->getOperand(0).getDefiningOp<arith::FPToSIOp>();
  const bool isCut =
      cut && cut.getIn() == map.getBody()->getArgument(0) && cut.getIn().getType().isF32();
  const Value source = isCut ? map->getOperand(0) : integers;
  auto type = cast<RankedTensorType>(source.getType()).clone(builder.getF32Type());
  const Value none = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  Value reals =
      linalg::GenericOp::create(
          builder, loc, TypeRange(type), ValueRange(source), ValueRange(none),
          SmallVector<AffineMap>(2, builder.getMultiDimIdentityMap(unsigned(type.getRank()))),
          SmallVector<utils::IteratorType>(size_t(type.getRank()), utils::IteratorType::parallel),
          [&](OpBuilder &b, Location at, ValueRange x) {
            const Value real =
                isCut ? math::TruncOp::create(b, at, x[0]).getResult()
                      : arith::SIToFPOp::create(b, at, b.getF32Type(), x[0]).getResult();
            linalg::YieldOp::create(b, at, real);
          })
          ->getResult(0);
  for (Operation *view : llvm::reverse(isCut ? views : SmallVector<Operation *>()))
    reals = viewOf(builder, view, reals);
  return reals;
}

/// The other operand for each choice, zeros where another one is chosen, by the whole table.
void multiplyAll(Chosen &chosen) {
  linalg::LinalgOp product = chosen.product;
  OpBuilder builder(product);
  const Location loc = product.getLoc();
  const unsigned other = 1 - chosen.operand, loopCount = unsigned(product.getNumLoops()),
                 choice = loopCount; // the last loop
  const int64_t choices = chosen.table().getDimSize(chosen.dim);
  const SmallVector<utils::IteratorType> kinds = product.getIteratorTypesArray();
  const SmallVector<unsigned> given = loopsOf(product.getIndexingMapsArray()[other]);
  SmallVector<unsigned> choosing; // loops of the rows that choose
  for (unsigned dim : loopsOf(chosen.lookup.getIndexingMapsArray()[0]))
    choosing.push_back(chosen.loops[dim]);
  // Rows first, then the choices, what is summed behind them.
  SmallVector<unsigned> order;
  for (bool isSummed : {false, true}) {
    for (unsigned loop = 0; loop < loopCount; ++loop)
      if ((kinds[loop] == utils::IteratorType::reduction) == isSummed &&
          (llvm::is_contained(given, loop) || llvm::is_contained(choosing, loop)))
        order.push_back(loop);
    if (!isSummed)
      order.push_back(choice);
  }
  SmallVector<int64_t> shape;
  for (unsigned loop : order)
    shape.push_back(loop == choice ? choices : chosen.extent(loop));
  const auto positions = [&](ArrayRef<unsigned> of) {
    SmallVector<AffineExpr> exprs;
    for (unsigned loop : of)
      exprs.push_back(builder.getAffineDimExpr(unsigned(llvm::find(order, loop) - order.begin())));
    return AffineMap::get(unsigned(order.size()), 0, exprs, builder.getContext());
  };
  // Numbers as reals, which lanes can share; whole ones up to kMostChoices are exact in 16 bits.
  const Value index = asReals(builder, chosen.lookup->getOperand(0));
  auto indexType = cast<RankedTensorType>(index.getType());
  const auto parallel = [](size_t rank) {
    return SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel);
  };
  const Value none =
      tensor::EmptyOp::create(builder, loc, indexType.getShape(), indexType.getElementType());
  auto number = linalg::GenericOp::create(
      builder, loc, TypeRange(indexType), ValueRange(index), ValueRange(none),
      SmallVector<AffineMap>(2, builder.getMultiDimIdentityMap(unsigned(indexType.getRank()))),
      parallel(size_t(indexType.getRank())), [&](OpBuilder &b, Location at, ValueRange x) {
        const auto real = [&](double value) {
          return arith::ConstantOp::create(b, at, b.getF32FloatAttr(float(value))).getResult();
        };
        const Value isNegative =
            arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT, x[0], real(0));
        const Value wrapped = arith::AddFOp::create(b, at, x[0], real(double(choices)));
        linalg::YieldOp::create(
            b, at, arith::SelectOp::create(b, at, isNegative, wrapped, x[0]).getResult());
      });
  SmallVector<float> numbers;
  for (int64_t i = 0; i < choices; ++i)
    numbers.push_back(float(i));
  const Value all = arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(RankedTensorType::get({choices}, builder.getF32Type()),
                             ArrayRef<float>(numbers)));
  const Value masked =
      tensor::EmptyOp::create(builder, loc, shape, chosen.table().getElementType());
  auto rows = linalg::GenericOp::create(
      builder, loc, TypeRange(masked.getType()),
      ValueRange{product->getOperand(other), number->getResult(0), all}, ValueRange(masked),
      {positions(given), positions(choosing), positions({choice}), positions(order)},
      parallel(order.size()), [&](OpBuilder &b, Location at, ValueRange x) {
        const Value isOwn = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OEQ, x[1], x[2]);
        const Value zero = arith::ConstantOp::create(b, at, b.getF32FloatAttr(0));
        const Value kept = arith::SelectOp::create(b, at, isOwn, x[0], zero);
        linalg::YieldOp::create(b, at, kept);
      });
  // The product, over the choices, too.
  const auto exprsOf = [&](ArrayRef<unsigned> of) {
    SmallVector<AffineExpr> exprs;
    for (unsigned loop : of)
      exprs.push_back(builder.getAffineDimExpr(loop));
    return AffineMap::get(loopCount + 1, 0, exprs, builder.getContext());
  };
  SmallVector<unsigned> ofTable;
  for (auto [dim, at] : llvm::enumerate(chosen.extract.getIndices()))
    if (auto inner = at.getDefiningOp<linalg::IndexOp>())
      ofTable.push_back(chosen.loops[size_t(inner.getDim())]);
    else
      ofTable.push_back(choice);
  SmallVector<utils::IteratorType> allKinds(kinds);
  allKinds.push_back(utils::IteratorType::reduction);
  auto made = linalg::GenericOp::create(
      builder, loc, product->getResultTypes(),
      ValueRange{rows->getResult(0), chosen.extract.getTensor()},
      ValueRange(product.getDpsInitOperand(0)->get()),
      {exprsOf(order), exprsOf(ofTable), exprsOf(loopsOf(product.getIndexingMapsArray().back()))},
      allKinds, [&](OpBuilder &b, Location at, ValueRange x) {
        const Value multiplied = arith::MulFOp::create(b, at, x[0], x[1]);
        linalg::YieldOp::create(b, at, arith::AddFOp::create(b, at, x[2], multiplied).getResult());
      });
  made->setAttr(kUncounted, builder.getUnitAttr());
  handOnValue(product, made);
  product->getResult(0).replaceAllUsesWith(made->getResult(0));
  product->erase();
}

} // namespace

void multiplyChosen(func::FuncOp function, ElementType stored) {
  std::vector<Chosen> all;
  function.walk([&](linalg::LinalgOp op) {
    if (op->hasAttr(kDevice) || op->getNumResults() != 1 || op.getNumDpsInputs() != 2 ||
        !isContraction(op) || !getElementTypeOrSelf(op->getResult(0)).isF32())
      return;
    for (unsigned operand : {0u, 1u})
      if (std::optional<Chosen> chosen = chosenBy(op, operand); chosen) {
        all.push_back(std::move(*chosen));
        return;
      }
  });
  if (all.empty())
    return;
  const Ranges ranges(function, stored);
  for (Chosen &chosen : all)
    if (ranges.of(chosen.extract.getTensor()).isFinite())
      multiplyAll(chosen);
}

} // namespace millrace::forms
