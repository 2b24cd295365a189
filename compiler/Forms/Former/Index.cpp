// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Index.h"

namespace millrace::forms {

using namespace mlir;

Linear &Linear::add(const Linear &other, int64_t factor) {
  offset += factor * other.offset;
  for (auto [loop, coefficient] : other.terms)
    if ((terms[loop] += factor * coefficient) == 0)
      terms.erase(loop);
  return *this;
}

AffineIndex Linear::affine() const { return {offset, {terms.begin(), terms.end()}}; }

Linear LoopSpace::dimension(LoopKey key, int64_t extent, LoopKind kind) {
  if (auto found = known.find(key); found != known.end())
    return found->second;
  std::vector<int64_t> factors = {extent};
  if (auto split = splits.find(key); split != splits.end())
    factors = split->second;
  Linear index;
  int64_t stride = extent;
  for (size_t i = 0; i < factors.size(); ++i) {
    stride /= factors[i];
    if (factors[i] == 1)
      continue;
    index.terms[unsigned(loops.size())] = stride;
    loops.push_back({factors[i], kind});
    origins.push_back({key, i});
  }
  return known[key] = index;
}

std::pair<int64_t, int64_t> LoopSpace::range(const Linear &index) const {
  int64_t low = index.offset, high = index.offset;
  for (auto [loop, coefficient] : index.terms)
    (coefficient < 0 ? low : high) += coefficient * (loops[loop].extent - 1);
  return {low, high};
}

std::pair<int64_t, int64_t> LoopSpace::range(const AffineIndex &index) const {
  return range(Linear{index.offset, {index.terms.begin(), index.terms.end()}});
}

/// Asks for `loop` to be cut so that its inner part has extent `inner`.
void LoopSpace::want(unsigned loop, int64_t inner) {
  if (wanted || inner <= 1 || loops[loop].extent % inner != 0 || loops[loop].extent == inner)
    return;
  Origin origin = origins[loop];
  wanted = splits;
  std::vector<int64_t> &factors = (*wanted)[origin.key];
  if (factors.empty())
    factors = {loops[loop].extent};
  factors[origin.position] = loops[loop].extent / inner;
  factors.insert(factors.begin() + ptrdiff_t(origin.position) + 1, inner);
}

static int64_t floorDivide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// Remembers the one dimension that moves `rest` if `index` moves with all of it alike.
void LoopSpace::noteRagged(const Linear &index, const Linear &rest, int64_t divisor) {
  const LoopKey key = origins[rest.terms.begin()->first].key;
  const Linear &dim = known.at(key);
  const auto innermost =
      llvm::find_if(dim.terms, [](const auto &term) { return term.second == 1; });
  if (innermost == dim.terms.end() || !rest.uses(innermost->first))
    return;
  const int64_t step = rest.terms.at(innermost->first);
  if (step <= 0 || divisor % step != 0 ||
      llvm::any_of(rest.terms, [&](const auto &term) { return origins[term.first].key != key; }))
    return;
  for (auto [loop, stride] : dim.terms)
    if (const auto term = index.terms.find(loop);
        term == index.terms.end() || term->second != stride * step)
      return;
  ragged = {key, (divisor - rest.offset + step - 1) / step, divisor / step};
}

std::optional<Linear> LoopSpace::divide(const Linear &index, int64_t divisor) {
  Linear quotient, rest;
  for (auto [loop, coefficient] : index.terms)
    (coefficient % divisor == 0 ? quotient : rest).terms[loop] = coefficient;
  for (auto &[loop, coefficient] : quotient.terms)
    coefficient /= divisor;
  quotient.offset = floorDivide(index.offset, divisor);
  rest.offset = index.offset - quotient.offset * divisor;
  auto [low, high] = range(rest);
  if (floorDivide(low, divisor) == floorDivide(high, divisor)) {
    quotient.offset += floorDivide(low, divisor);
    return quotient;
  }
  for (auto [loop, coefficient] : rest.terms)
    if (coefficient > 0 && divisor % coefficient == 0)
      want(loop, divisor / coefficient);
  if (!wanted && !ragged && !rest.terms.empty())
    noteRagged(index, rest, divisor);
  return std::nullopt;
}

std::optional<Linear> LoopSpace::modulo(const Linear &index, int64_t divisor) {
  std::optional<Linear> quotient = divide(index, divisor);
  if (!quotient)
    return std::nullopt;
  Linear rest = index;
  return rest.add(*quotient, -divisor);
}

std::optional<Linear> LoopSpace::evaluate(AffineExpr expr, ArrayRef<Linear> dims) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return Linear::constant(constant.getValue());
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<Linear> left = evaluate(binary.getLHS(), dims),
                        right = evaluate(binary.getRHS(), dims);
  if (!left || !right)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return left->add(*right);
  if (!right->terms.empty())
    return std::nullopt;
  switch (expr.getKind()) {
  case AffineExprKind::Mul:
    return Linear().add(*left, right->offset);
  case AffineExprKind::FloorDiv:
    return divide(*left, right->offset);
  case AffineExprKind::Mod:
    return modulo(*left, right->offset);
  default:
    return std::nullopt;
  }
}

bool LoopSpace::delinearize(const Linear &index, ArrayRef<int64_t> shape,
                            SmallVectorImpl<Linear> &out) {
  int64_t stride = 1;
  for (int64_t extent : shape)
    stride *= extent;
  Linear rest = index;
  for (int64_t extent : shape) {
    stride /= extent;
    if (extent == 1) {
      out.push_back(Linear());
      continue;
    }
    std::optional<Linear> quotient = divide(rest, stride);
    if (!quotient)
      return false;
    out.push_back(*quotient);
    rest.add(*quotient, -stride);
  }
  return true;
}

} // namespace millrace::forms
