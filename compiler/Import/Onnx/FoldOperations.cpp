// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar operations on rows.
#include "compiler/Import/Onnx/FoldRows.h"

#include "arch/isa/semantics/Convert.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

using Kind = NumberType::Kind;
using Function = RowStep::Function;

/// The low `width` bits of `value`, sign-extended.
int64_t wrap(uint64_t value, unsigned width) {
  const unsigned unused = 64 - width;
  return static_cast<int64_t>(value << unused) >> unused;
}

/// The low `width` bits of `value`, as a number without sign.
uint64_t withoutSign(int64_t value, unsigned width) {
  return static_cast<uint64_t>(value) & (~uint64_t{0} >> (64 - width));
}

float rounded(float value, NumberType type) {
  if (type.width == 32)
    return value;
  return type.isBf16 ? semantics::bf16ToFp32(semantics::fp32ToBf16(value))
                     : semantics::fp16ToFp32(semantics::fp32ToFp16(value));
}

void round(Row &row, size_t count) {
  if (row.type.kind == Kind::Single && row.type.width < 32)
    for (size_t i = 0; i < count; ++i)
      row.singles[i] = rounded(row.singles[i], row.type);
}

/// rows[result][i] = f(x[i]) of a float type; f is given the type's own numbers.
template <class F> void floats1(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  if (result.type.kind == Kind::Double) {
    for (size_t i = 0; i < count; ++i)
      result.doubles[i] = F()(x.doubles[i]);
    return;
  }
  for (size_t i = 0; i < count; ++i)
    result.singles[i] = F()(x.singles[i]);
  round(result, count);
}

template <class F> void floats2(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]], &y = rows[step.arguments[1]];
  Row &result = rows[step.result];
  if (result.type.kind == Kind::Double) {
    for (size_t i = 0; i < count; ++i)
      result.doubles[i] = F()(x.doubles[i], y.doubles[i]);
    return;
  }
  for (size_t i = 0; i < count; ++i)
    result.singles[i] = F()(x.singles[i], y.singles[i]);
  round(result, count);
}

/// rows[result][i] = f(x[i], y[i], width), of which the low `width` bits stay; unknown where f
/// gives nothing.
template <class F> void integers2(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]], &y = rows[step.arguments[1]];
  Row &result = rows[step.result];
  const unsigned width = result.type.width;
  for (size_t i = 0; i < count; ++i) {
    const std::optional<uint64_t> value = F()(x.integers[i], y.integers[i], width);
    result.integers[i] = wrap(value.value_or(0), width);
    if (!value)
      result.setUnknown(i);
  }
}

void absoluteIntegers(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  for (size_t i = 0; i < count; ++i) {
    const uint64_t value = static_cast<uint64_t>(x.integers[i]);
    result.integers[i] = wrap(x.integers[i] < 0 ? 0 - value : value, result.type.width);
  }
}

template <class F> Function unary(F) { return &floats1<F>; }
template <class F> Function binary(F) { return &floats2<F>; }
template <class F> Function onIntegers(F) { return &integers2<F>; }

/// A function of the C library in double precision, of which an f32 or narrower result keeps what
/// it has digits for.
template <class F> Function library(F) {
  return unary([](auto x) { return static_cast<decltype(x)>(F()(static_cast<double>(x))); });
}

/// The greater, or NaN if one of both is; of zeros, the positive one.
template <class T> T maximum(T x, T y) {
  if (std::isnan(x) || std::isnan(y))
    return std::numeric_limits<T>::quiet_NaN();
  return x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
}

template <class T> T minimum(T x, T y) { return -maximum(-x, -y); }

template <class T> bool holds(arith::CmpFPredicate predicate, T x, T y) {
  using P = arith::CmpFPredicate;
  const bool isUnordered = std::isnan(x) || std::isnan(y);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::OEQ:
    return x == y;
  case P::OGT:
    return x > y;
  case P::OGE:
    return x >= y;
  case P::OLT:
    return x < y;
  case P::OLE:
    return x <= y;
  case P::ONE:
    return !isUnordered && x != y;
  case P::ORD:
    return !isUnordered;
  case P::UEQ:
    return isUnordered || x == y;
  case P::UGT:
    return isUnordered || x > y;
  case P::UGE:
    return isUnordered || x >= y;
  case P::ULT:
    return isUnordered || x < y;
  case P::ULE:
    return isUnordered || x <= y;
  case P::UNE:
    return x != y;
  case P::UNO:
    return isUnordered;
  case P::AlwaysTrue:
    return true;
  }
  return false;
}

bool holds(arith::CmpIPredicate predicate, int64_t x, int64_t y, unsigned width) {
  using P = arith::CmpIPredicate;
  const uint64_t u = withoutSign(x, width), v = withoutSign(y, width);
  switch (predicate) {
  case P::eq:
    return x == y;
  case P::ne:
    return x != y;
  case P::slt:
    return x < y;
  case P::sle:
    return x <= y;
  case P::sgt:
    return x > y;
  case P::sge:
    return x >= y;
  case P::ult:
    return u < v;
  case P::ule:
    return u <= v;
  case P::ugt:
    return u > v;
  case P::uge:
    return u >= v;
  }
  return false;
}

/// Flags are sign-extended as all integers are: true is -1.
int64_t flag(bool value) { return value ? -1 : 0; }

void compareFloats(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]], &y = rows[step.arguments[1]];
  std::vector<int64_t> &result = rows[step.result].integers;
  const auto predicate = static_cast<arith::CmpFPredicate>(step.predicate);
  for (size_t i = 0; i < count; ++i)
    result[i] = flag(x.type.kind == Kind::Double ? holds(predicate, x.doubles[i], y.doubles[i])
                                                 : holds(predicate, x.singles[i], y.singles[i]));
}

void compareIntegers(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]], &y = rows[step.arguments[1]];
  const auto predicate = static_cast<arith::CmpIPredicate>(step.predicate);
  for (size_t i = 0; i < count; ++i)
    rows[step.result].integers[i] =
        flag(holds(predicate, x.integers[i], y.integers[i], x.type.width));
}

void select(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const std::vector<int64_t> &condition = rows[step.arguments[0]].integers;
  const Row &x = rows[step.arguments[1]], &y = rows[step.arguments[2]];
  auto choose = [&](auto &result, const auto &one, const auto &other) {
    for (size_t i = 0; i < count; ++i)
      result[i] = condition[i] ? one[i] : other[i];
  };
  Row &result = rows[step.result];
  if (result.type.kind == Kind::Integer)
    choose(result.integers, x.integers, y.integers);
  else if (result.type.kind == Kind::Single)
    choose(result.singles, x.singles, y.singles);
  else
    choose(result.doubles, x.doubles, y.doubles);
}

/// Between integers of any two widths.
template <bool isSigned> void resize(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  for (size_t i = 0; i < count; ++i) {
    const auto value =
        isSigned ? static_cast<uint64_t>(x.integers[i]) : withoutSign(x.integers[i], x.type.width);
    result.integers[i] = wrap(value, result.type.width);
  }
}

/// Between floats of any two types but f64 and 16 bits, since two roundings are not one.
void convertFloats(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  const bool fromDouble = x.type.kind == Kind::Double;
  for (size_t i = 0; i < count; ++i) {
    if (result.type.kind == Kind::Double)
      result.doubles[i] = fromDouble ? x.doubles[i] : x.singles[i];
    else
      result.singles[i] = fromDouble ? static_cast<float>(x.doubles[i]) : x.singles[i];
  }
  round(result, count);
}

/// An integer of more digits than f32 has would be rounded twice on its way to 16 bits: unknown.
template <bool isSigned> void toFloats(const RowStep &step, std::vector<Row> &rows, size_t count) {
  constexpr uint64_t longest = uint64_t{1} << 24;
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  for (size_t i = 0; i < count; ++i) {
    const int64_t value = x.integers[i];
    const uint64_t positive = withoutSign(value, x.type.width);
    const uint64_t magnitude =
        !isSigned || value >= 0 ? positive : 0 - static_cast<uint64_t>(value);
    if (result.type.width == 16 && magnitude > longest)
      result.setUnknown(i);
    if (result.type.kind == Kind::Double)
      result.doubles[i] = isSigned ? static_cast<double>(value) : static_cast<double>(positive);
    else
      result.singles[i] = isSigned ? static_cast<float>(value) : static_cast<float>(positive);
  }
  round(result, count);
}

/// Rounds towards zero; unknown where that lies outside of the integer type, and for NaN.
template <bool isSigned>
void toIntegers(const RowStep &step, std::vector<Row> &rows, size_t count) {
  const Row &x = rows[step.arguments[0]];
  Row &result = rows[step.result];
  const auto width = static_cast<int>(result.type.width);
  const double end = std::ldexp(1.0, isSigned ? width - 1 : width), first = isSigned ? -end : 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = std::trunc(x.type.kind == Kind::Double ? x.doubles[i] : x.singles[i]);
    if (!(value >= first && value < end)) {
      result.setUnknown(i);
      continue;
    }
    result.integers[i] = wrap(isSigned ? static_cast<uint64_t>(static_cast<int64_t>(value))
                                       : static_cast<uint64_t>(value),
                              result.type.width);
  }
}

using Integer = std::optional<uint64_t>;

uint64_t unsignedOf(int64_t x) { return static_cast<uint64_t>(x); }

/// Whether x / y is defined for numbers of `width` bits: y is not 0, and the quotient has a place.
bool divides(int64_t x, int64_t y, unsigned width) {
  return y != 0 && !(y == -1 && x == wrap(uint64_t{1} << (width - 1), width));
}

Function integerFunction(StringRef name) {
  return llvm::StringSwitch<Function>(name)
      .Case("arith.addi", onIntegers([](int64_t x, int64_t y, unsigned) -> Integer {
              return unsignedOf(x) + unsignedOf(y);
            }))
      .Case("arith.subi", onIntegers([](int64_t x, int64_t y, unsigned) -> Integer {
              return unsignedOf(x) - unsignedOf(y);
            }))
      .Case("arith.muli", onIntegers([](int64_t x, int64_t y, unsigned) -> Integer {
              return unsignedOf(x) * unsignedOf(y);
            }))
      .Case("arith.divsi", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return divides(x, y, width) ? Integer(unsignedOf(x / y)) : std::nullopt;
            }))
      .Case("arith.remsi", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return divides(x, y, width) ? Integer(unsignedOf(x % y)) : std::nullopt;
            }))
      .Case("arith.divui", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return y ? Integer(withoutSign(x, width) / withoutSign(y, width)) : std::nullopt;
            }))
      .Case("arith.remui", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return y ? Integer(withoutSign(x, width) % withoutSign(y, width)) : std::nullopt;
            }))
      .Case("arith.andi",
            onIntegers([](int64_t x, int64_t y, unsigned) -> Integer { return unsignedOf(x & y); }))
      .Case("arith.ori",
            onIntegers([](int64_t x, int64_t y, unsigned) -> Integer { return unsignedOf(x | y); }))
      .Case("arith.xori",
            onIntegers([](int64_t x, int64_t y, unsigned) -> Integer { return unsignedOf(x ^ y); }))
      .Case("arith.shli", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return withoutSign(y, width) < width ? Integer(unsignedOf(x) << y) : std::nullopt;
            }))
      .Case("arith.shrsi", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return withoutSign(y, width) < width ? Integer(unsignedOf(x >> y)) : std::nullopt;
            }))
      .Case("arith.shrui", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return withoutSign(y, width) < width ? Integer(withoutSign(x, width) >> y)
                                                   : std::nullopt;
            }))
      .Case("arith.maxsi", onIntegers([](int64_t x, int64_t y, unsigned) -> Integer {
              return unsignedOf(std::max(x, y));
            }))
      .Case("arith.minsi", onIntegers([](int64_t x, int64_t y, unsigned) -> Integer {
              return unsignedOf(std::min(x, y));
            }))
      .Case("arith.maxui", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return std::max(withoutSign(x, width), withoutSign(y, width));
            }))
      .Case("arith.minui", onIntegers([](int64_t x, int64_t y, unsigned width) -> Integer {
              return std::min(withoutSign(x, width), withoutSign(y, width));
            }))
      .Case("math.absi", &absoluteIntegers)
      .Default(nullptr);
}

Function floatFunction(StringRef name) {
  return llvm::StringSwitch<Function>(name)
      .Case("arith.addf", binary([](auto x, auto y) { return x + y; }))
      .Case("arith.subf", binary([](auto x, auto y) { return x - y; }))
      .Case("arith.mulf", binary([](auto x, auto y) { return x * y; }))
      .Case("arith.divf", binary([](auto x, auto y) { return x / y; }))
      .Case("arith.remf", binary([](auto x, auto y) { return std::fmod(x, y); }))
      .Case("arith.maximumf", binary([](auto x, auto y) { return maximum(x, y); }))
      .Case("arith.minimumf", binary([](auto x, auto y) { return minimum(x, y); }))
      .Case("arith.maxnumf", binary([](auto x, auto y) { return std::fmax(x, y); }))
      .Case("arith.minnumf", binary([](auto x, auto y) { return std::fmin(x, y); }))
      .Case("arith.negf", unary([](auto x) { return -x; }))
      .Case("math.absf", unary([](auto x) { return std::fabs(x); }))
      .Case("math.copysign", binary([](auto x, auto y) { return std::copysign(x, y); }))
      .Case("math.floor", unary([](auto x) { return std::floor(x); }))
      .Case("math.ceil", unary([](auto x) { return std::ceil(x); }))
      .Case("math.trunc", unary([](auto x) { return std::trunc(x); }))
      .Case("math.round", unary([](auto x) { return std::round(x); }))
      .Case("math.roundeven", unary([](auto x) { return std::nearbyint(x); }))
      .Case("math.sqrt", unary([](auto x) { return std::sqrt(x); }))
      .Case("math.powf", binary([](auto x, auto y) {
              return static_cast<decltype(x)>(
                  std::pow(static_cast<double>(x), static_cast<double>(y)));
            }))
      .Case("math.atan2", binary([](auto x, auto y) {
              return static_cast<decltype(x)>(
                  std::atan2(static_cast<double>(x), static_cast<double>(y)));
            }))
      .Default(nullptr);
}

Function libraryFunction(StringRef name) {
  return llvm::StringSwitch<Function>(name)
      .Case("math.exp", library([](double x) { return std::exp(x); }))
      .Case("math.exp2", library([](double x) { return std::exp2(x); }))
      .Case("math.expm1", library([](double x) { return std::expm1(x); }))
      .Case("math.log", library([](double x) { return std::log(x); }))
      .Case("math.log2", library([](double x) { return std::log2(x); }))
      .Case("math.log10", library([](double x) { return std::log10(x); }))
      .Case("math.log1p", library([](double x) { return std::log1p(x); }))
      .Case("math.rsqrt", library([](double x) { return 1 / std::sqrt(x); }))
      .Case("math.cbrt", library([](double x) { return std::cbrt(x); }))
      .Case("math.erf", library([](double x) { return std::erf(x); }))
      .Case("math.erfc", library([](double x) { return std::erfc(x); }))
      .Case("math.sin", library([](double x) { return std::sin(x); }))
      .Case("math.cos", library([](double x) { return std::cos(x); }))
      .Case("math.tan", library([](double x) { return std::tan(x); }))
      .Case("math.asin", library([](double x) { return std::asin(x); }))
      .Case("math.acos", library([](double x) { return std::acos(x); }))
      .Case("math.atan", library([](double x) { return std::atan(x); }))
      .Case("math.sinh", library([](double x) { return std::sinh(x); }))
      .Case("math.cosh", library([](double x) { return std::cosh(x); }))
      .Case("math.tanh", library([](double x) { return std::tanh(x); }))
      .Case("math.asinh", library([](double x) { return std::asinh(x); }))
      .Case("math.acosh", library([](double x) { return std::acosh(x); }))
      .Case("math.atanh", library([](double x) { return std::atanh(x); }))
      .Default(nullptr);
}

Function castFunction(StringRef name) {
  return llvm::StringSwitch<Function>(name)
      .Cases({"arith.extsi", "arith.trunci", "arith.index_cast"}, &resize<true>)
      .Cases({"arith.extui", "arith.index_castui"}, &resize<false>)
      .Cases({"arith.extf", "arith.truncf"}, &convertFloats)
      .Case("arith.sitofp", &toFloats<true>)
      .Case("arith.uitofp", &toFloats<false>)
      .Case("arith.fptosi", &toIntegers<true>)
      .Case("arith.fptoui", &toIntegers<false>)
      .Case("arith.cmpf", &compareFloats)
      .Case("arith.cmpi", &compareIntegers)
      .Case("arith.select", &select)
      .Default(nullptr);
}

} // namespace

void RowStep::run(std::vector<Row> &rows, size_t count) const {
  Row &to = rows[result];
  to.hasUnknown = false;
  apply(*this, rows, count);
  if (apply == &select) {
    const Row &condition = rows[arguments[0]];
    for (size_t i = 0; i < count; ++i) {
      const Row &chosen = rows[arguments[condition.integers[i] ? 1 : 2]];
      if ((condition.hasUnknown && condition.isUnknown[i]) ||
          (chosen.hasUnknown && chosen.isUnknown[i]))
        to.setUnknown(i);
    }
    return;
  }
  for (unsigned argument : arguments)
    for (size_t i = 0; rows[argument].hasUnknown && i < count; ++i)
      if (rows[argument].isUnknown[i])
        to.setUnknown(i);
}

std::optional<RowStep> rowStepOf(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumRegions() > 0)
    return std::nullopt;
  for (Value value : op->getOperands())
    if (!NumberType::of(value.getType()))
      return std::nullopt;
  if (!NumberType::of(op->getResult(0).getType()))
    return std::nullopt;
  const StringRef name = op->getName().getStringRef();
  if (name == "arith.truncf" && op->getOperand(0).getType().isF64() &&
      op->getResult(0).getType().getIntOrFloatBitWidth() == 16)
    return std::nullopt;
  RowStep step;
  for (auto table : {&integerFunction, &floatFunction, &libraryFunction, &castFunction})
    if (!step.apply)
      step.apply = table(name);
  if (!step.apply)
    return std::nullopt;
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    step.predicate = static_cast<int64_t>(compare.getPredicate());
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    step.predicate = static_cast<int64_t>(compare.getPredicate());
  return step;
}

} // namespace millrace::onnx_import
