// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Intervals.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace millrace::forms::intervals {

using namespace mlir;

constexpr double kInfinity = Range::kInfinity;

static bool hasInfinity(const Range &x) { return std::isinf(x.low) || std::isinf(x.high); }

/// Between the bounds, of what `from` are made of.
static Range span(double low, double high, bool nan, ArrayRef<Range> from, bool keepsWhole) {
  Range result{low, high, nan, keepsWhole, false, false};
  for (const Range &x : from) {
    result.nan |= x.nan;
    result.isWhole &= x.isWhole;
    result.fromIntegers |= x.fromIntegers;
    result.fromOthers |= x.fromOthers;
  }
  return result;
}

Range either(const Range &x, const Range &y) {
  return span(std::min(x.low, y.low), std::max(x.high, y.high), false, {x, y}, true);
}

Range clamped(Range range, double bound) {
  range.low = std::clamp(range.low, -bound, bound);
  range.high = std::clamp(range.high, -bound, bound);
  return range;
}

static double product(double x, double y) { return x == 0 || y == 0 ? 0 : x * y; }

static Range multiply(const Range &x, const Range &y, bool isSame) {
  const double corners[] = {product(x.low, y.low), product(x.low, y.high), product(x.high, y.low),
                            product(x.high, y.high)};
  const bool nan =
      !isSame && ((hasInfinity(x) && y.contains(0)) || (hasInfinity(y) && x.contains(0)));
  Range result = span(*std::min_element(corners, corners + 4),
                      *std::max_element(corners, corners + 4), nan, {x, y}, true);
  if (isSame) {
    result.high = std::max(product(x.low, x.low), product(x.high, x.high));
    result.low = x.contains(0) ? 0 : std::min(product(x.low, x.low), product(x.high, x.high));
  }
  return result;
}

Range times(const Range &x, double terms) {
  Range result = multiply(x, {terms, terms, false, true, false, false}, false);
  result.nan |= x.low == -kInfinity && x.high == kInfinity && terms > 1;
  return result;
}

static Range add(const Range &x, const Range &y) {
  const bool nan =
      (x.high == kInfinity && y.low == -kInfinity) || (x.low == -kInfinity && y.high == kInfinity);
  auto sum = [](double a, double b, double undefined) {
    return std::isnan(a + b) ? undefined : a + b;
  };
  return span(sum(x.low, y.low, -kInfinity), sum(x.high, y.high, kInfinity), nan, {x, y}, true);
}

static Range negate(Range x) {
  std::swap(x.low, x.high);
  x.low = -x.low;
  x.high = -x.high;
  return x;
}

static Range divide(const Range &x, const Range &y) {
  if (y.contains(0))
    return span(-kInfinity, kInfinity, x.contains(0) || (hasInfinity(x) && hasInfinity(y)), {x, y},
                false);
  auto quotient = [](double a, double b) { return std::isinf(b) ? 0 : a / b; };
  const double corners[] = {quotient(x.low, y.low), quotient(x.low, y.high),
                            quotient(x.high, y.low), quotient(x.high, y.high)};
  return span(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4),
              hasInfinity(x) && hasInfinity(y), {x, y}, false);
}

/// A function that grows, at both bounds.
template <class F> static Range monotone(const Range &x, F f, bool keepsWhole = false) {
  return span(f(x.low), f(x.high), false, {x}, keepsWhole);
}

/// A function that is bounded, whatever its operand: no index or angle any more.
static Range bounded(const Range &x, double low, double high, bool nan = false) {
  return {low, high, x.nan || nan, false, false, true};
}

static Range squareRoot(const Range &x) {
  return span(std::sqrt(std::max(0.0, x.low)), std::sqrt(std::max(0.0, x.high)), x.low < 0, {x},
              false);
}

static Range logarithm(const Range &x) {
  return span(std::log(std::max(0.0, x.low)), std::log(std::max(0.0, x.high)), x.low < 0, {x},
              false);
}

/// A function that grows and is computed to within a thousandth; of what lies below `least`, NaN.
template <class F> static Range growing(const Range &x, double least, F f) {
  const auto wider = [](double v, double side) { return v + side * 1e-3 * std::fabs(v); };
  Range range = monotone(x, [&](double v) { return f(std::max(v, least)); });
  range.low = wider(range.low, -1), range.high = wider(range.high, 1);
  range.nan |= x.low < least;
  return range;
}

static Range absolute(const Range &x) {
  const double high = std::max(std::fabs(x.low), std::fabs(x.high));
  const double low = x.contains(0) ? 0 : std::min(std::fabs(x.low), std::fabs(x.high));
  return span(low, high, false, {x}, true);
}

/// By a constant exponent alone, or of a positive base.
static Range power(const Range &x, const Range &y) {
  const bool isFixed = y.low == y.high && !y.nan;
  if (isFixed && y.low == 2)
    return multiply(x, x, true);
  if (isFixed && y.low > 0 && y.low == std::nearbyint(y.low) && std::isfinite(y.low)) {
    const bool isEven = std::fmod(y.low, 2) == 0;
    const Range base = isEven ? absolute(x) : x;
    return monotone(base, [&](double v) { return std::pow(v, y.low); });
  }
  if (x.low > 0) {
    const double corners[] = {std::pow(x.low, y.low), std::pow(x.low, y.high),
                              std::pow(x.high, y.low), std::pow(x.high, y.high)};
    if (std::none_of(corners, corners + 4, [](double v) { return std::isnan(v); }))
      return span(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4),
                  false, {x, y}, false);
  }
  return span(-kInfinity, kInfinity, true, {x, y}, false);
}

Range withinType(Range range, Type type) {
  if (auto real = dyn_cast<FloatType>(type)) {
    if (real.isF64())
      return range;
    // What lies above by less than half of the last place is rounded down.
    const double largest = real.isF16() ? 65504 : real.isBF16() ? 0x1.fep127 : double(FLT_MAX);
    const double over = largest * (1 + std::ldexp(1.0, -int(real.getFPMantissaWidth()) - 1));
    auto rounded = [&](double bound) {
      return std::fabs(bound) <= largest
                 ? bound
                 : std::copysign(std::fabs(bound) < over ? largest : kInfinity, bound);
    };
    range.low = rounded(range.low);
    range.high = rounded(range.high);
    return range;
  }
  if (auto integer = dyn_cast<IntegerType>(type)) {
    const double half = std::ldexp(1.0, std::max(1, int(integer.getWidth()) - 1));
    const bool fits = integer.getWidth() == 1 ? range.low >= 0 && range.high <= 1
                                              : range.low >= -half && range.high <= half;
    if (!fits)
      return integer.getWidth() == 1 ? Range{0, 1, false, true, true, false}
                                     : Range{-half, half, false, true, true, false};
    range.nan = false;
    range.isWhole = true;
  }
  return range;
}

std::optional<Range> resultOf(Operation *op, ArrayRef<Range> x, bool isSame) {
  using Result = std::optional<Range>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case<arith::AddFOp, arith::AddIOp>([&](auto) -> Result { return add(x[0], x[1]); })
      .Case<arith::SubFOp, arith::SubIOp>([&](auto) -> Result { return add(x[0], negate(x[1])); })
      .Case<arith::MulFOp, arith::MulIOp>(
          [&](auto) -> Result { return multiply(x[0], x[1], isSame); })
      .Case<arith::DivFOp>([&](auto) -> Result { return divide(x[0], x[1]); })
      .Case<arith::NegFOp>([&](auto) -> Result { return negate(x[0]); })
      .Case<arith::MaximumFOp, arith::MaxSIOp>([&](auto) -> Result {
        return span(std::max(x[0].low, x[1].low), std::max(x[0].high, x[1].high), false, x, true);
      })
      .Case<arith::MinimumFOp, arith::MinSIOp>([&](auto) -> Result {
        return span(std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high), false, x, true);
      })
      .Case<arith::SelectOp>([&](auto) -> Result { return either(x[1], x[2]); })
      .Case<arith::CmpFOp, arith::CmpIOp>(
          [&](auto) -> Result { return Range{0, 1, false, true, false, false}; })
      .Case<arith::SIToFPOp, arith::UIToFPOp>([&](auto cast) -> Result {
        Range range = x[0];
        if (isa<arith::UIToFPOp>(cast.getOperation()) && range.low < 0)
          range.low = 0, range.high = std::max(range.high, std::fabs(x[0].low) * 2);
        range.isWhole = range.fromIntegers = true;
        range.fromOthers = false;
        return range;
      })
      .Case<arith::ExtUIOp>([&](auto cast) -> Result {
        if (x[0].low >= 0)
          return x[0];
        const double all = std::ldexp(1.0, int(cast.getIn().getType().getIntOrFloatBitWidth()));
        return Range{0, all, false, true, true, false};
      })
      .Case<arith::ExtFOp, arith::TruncFOp, arith::ExtSIOp, arith::TruncIOp, arith::IndexCastOp>(
          [&](auto) -> Result { return x[0]; })
      .Case<math::ExpOp>([&](auto) -> Result {
        Range range = monotone(x[0], [](double v) { return std::exp(v); });
        range.high *= 1.001;
        return range;
      })
      .Case<math::ExpM1Op>([&](auto) -> Result {
        return growing(x[0], -kInfinity, [](double v) { return std::expm1(v); });
      })
      .Case<math::Log1pOp>(
          [&](auto) -> Result { return growing(x[0], -1, [](double v) { return std::log1p(v); }); })
      .Case<math::LogOp>([&](auto) -> Result { return logarithm(x[0]); })
      .Case<math::SqrtOp>([&](auto) -> Result { return squareRoot(x[0]); })
      .Case<math::RsqrtOp>([&](auto) -> Result {
        return divide({1, 1, false, true, false, false}, squareRoot(x[0]));
      })
      .Case<math::TanhOp, math::ErfOp>([&](auto) -> Result {
        const Range grown = growing(x[0], -kInfinity, [&](double v) {
          return isa<math::TanhOp>(op) ? std::tanh(v) : std::erf(v);
        });
        return bounded(x[0], std::max(-1.0, grown.low), std::min(1.0, grown.high));
      })
      .Case<math::SinOp, math::CosOp>(
          [&](auto) -> Result { return bounded(x[0], -1, 1, hasInfinity(x[0])); })
      .Case<math::AbsFOp>([&](auto) -> Result { return absolute(x[0]); })
      .Case<math::FloorOp, math::CeilOp, math::RoundEvenOp, math::RoundOp, math::TruncOp>(
          [&](auto) -> Result {
            Range range = span(std::floor(x[0].low), std::ceil(x[0].high), false, x, false);
            range.isWhole = true;
            return range;
          })
      .Case<math::PowFOp>([&](auto) -> Result { return power(x[0], x[1]); })
      .Default([](Operation *) -> Result { return std::nullopt; });
}

} // namespace millrace::forms::intervals
