// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Einsum of one or two tensors: its letters are the loops, its terms the maps.
#include "compiler/Import/Onnx/Einsum.h"
#include "compiler/Import/Onnx/Handlers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

constexpr char kEllipsis[] = "...";

/// Without "->" the result has the dimensions of the ellipsis, then the letters that occur once, in
/// alphabetical order.
std::string implicitResult(const std::vector<std::string> &terms) {
  std::map<char, int> counts;
  bool hasEllipsis = false;
  for (const std::string &term : terms)
    for (char letter : term)
      (letter == '.' ? hasEllipsis = true : ++counts[letter]);
  std::string result = hasEllipsis ? kEllipsis : "";
  for (auto [letter, count] : counts)
    if (count == 1)
      result += letter;
  return result;
}

/// Digits for the dimensions of a term's ellipsis, as many as a tensor of that rank has. Errors
/// name the term.
Expected<std::string> expandEllipsis(const NodeImporter &node, std::string term, int64_t rank) {
  const size_t at = term.find(kEllipsis);
  if (at != std::string::npos) {
    const int64_t count = rank - static_cast<int64_t>(term.size() - 3);
    if (count < 0 || count > 10)
      return node.error("its term '" + term + "' does not fit a tensor of rank " +
                        std::to_string(rank));
    std::string digits;
    for (int64_t digit = count; digit-- > 0;)
      digits += static_cast<char>('0' + digit);
    term.replace(at, 3, digits);
  }
  if (!llvm::all_of(term, llvm::isAlnum) ||
      (at == std::string::npos && llvm::any_of(term, llvm::isDigit)))
    return node.error("'" + term + "' in its equation is no term of letters and one ellipsis");
  return term;
}

Expected<Equation> parseEquation(const NodeImporter &node) {
  std::string text = node.getString("equation", "");
  llvm::erase(text, ' ');
  size_t arrow = text.find("->");
  Equation equation;
  std::string inputs = text.substr(0, arrow);
  for (size_t begin = 0; begin <= inputs.size();) {
    size_t comma = std::min(inputs.find(',', begin), inputs.size());
    equation.terms.push_back(inputs.substr(begin, comma - begin));
    begin = comma + 1;
  }
  equation.result =
      arrow == std::string::npos ? implicitResult(equation.terms) : text.substr(arrow + 2);
  int64_t longest = 0; // ellipsis
  for (auto [i, term] : llvm::enumerate(equation.terms)) {
    if (i >= node.inputCount())
      break; // told by the caller
    const bool hasEllipsis = term.find(kEllipsis) != std::string::npos;
    Expected<std::string> expanded = expandEllipsis(node, term, node.rank(i));
    if (!expanded)
      return expanded.takeError();
    if (hasEllipsis)
      longest = std::max(longest, node.rank(i) - static_cast<int64_t>(term.size() - 3));
    term = std::move(*expanded);
  }
  const bool hasEllipsis = equation.result.find(kEllipsis) != std::string::npos;
  Expected<std::string> result =
      expandEllipsis(node, equation.result,
                     hasEllipsis ? static_cast<int64_t>(equation.result.size() - 3) + longest : 0);
  if (!result)
    return result.takeError();
  equation.result = std::move(*result);
  equation.letters = equation.result;
  for (const std::string &term : equation.terms)
    for (char letter : term)
      if (equation.letters.find(letter) == std::string::npos)
        equation.letters += letter;
  return equation;
}

Status readExtents(const NodeImporter &node, Equation &equation) {
  for (auto [i, term] : llvm::enumerate(equation.terms)) {
    if (static_cast<int64_t>(term.size()) != node.rank(i))
      return node.error("its term '" + term + "' does not fit a tensor of rank " +
                        std::to_string(node.rank(i)));
    for (auto [letter, extent] : llvm::zip_equal(term, node.shape(i))) {
      int64_t &known = equation.extents.try_emplace(letter, extent).first->second;
      if (known != extent && known != 1 && extent != 1)
        return node.error("a letter of its term '" + term + "' stands for " +
                          std::to_string(known) + " and " + std::to_string(extent));
      known = known == 1 ? extent : known;
    }
  }
  for (char letter : equation.result) {
    if (!equation.extents.contains(letter))
      return node.error("a letter of its result '" + equation.result + "' occurs in no input");
    if (llvm::count(equation.result, letter) > 1)
      return node.error("a letter of its result '" + equation.result + "' occurs twice");
  }
  return Success{};
}

/// An input without the dimensions of 1 that another repeats along, which leave its term, too.
Value withoutRepeated(NodeImporter &node, size_t input, Equation &equation) {
  std::string &term = equation.terms[input];
  std::string kept;
  Shape shape;
  for (auto [letter, extent] : llvm::zip_equal(term, node.shape(input)))
    if (extent == equation.extents[letter]) {
      kept += letter;
      shape.push_back(extent);
    }
  const bool isWhole = kept == term;
  term = kept;
  return isWhole ? node.in(input) : node.t.reshape(node.in(input), shape);
}

Status importEinsum(NodeImporter &node) {
  Expected<Equation> equation = readEquation(node);
  if (!equation)
    return equation.takeError();
  SmallVector<Value, 2> operands;
  for (size_t i = 0; i < node.inputCount(); ++i)
    operands.push_back(withoutRepeated(node, i, *equation));
  auto loops = static_cast<unsigned>(equation->letters.size());
  auto mapOf = [&](const std::string &term) {
    SmallVector<unsigned> dims;
    for (char letter : term)
      dims.push_back(static_cast<unsigned>(equation->letters.find(letter)));
    return node.t.select(loops, dims);
  };
  Shape shape;
  for (char letter : equation->result)
    shape.push_back(equation->extents[letter]);
  SmallVector<unsigned> summed;
  for (unsigned i = static_cast<unsigned>(shape.size()); i < loops; ++i)
    summed.push_back(i);
  if (node.inputCount() == 1) { // its dimensions in the order of the loops, then a sum
    Shape all(shape), axes(summed.begin(), summed.end());
    for (unsigned i : summed)
      all.push_back(equation->extents[equation->letters[i]]);
    Value ordered =
        node.t.map(all, {operands[0]}, {mapOf(equation->terms[0])}, elementTypeOf(operands[0]),
                   [](Scalars &, ValueRange x) { return x[0]; });
    return node.done(axes.empty() ? ordered : node.t.reduceSum(ordered, axes));
  }
  return node.done(node.t.contract(
      operands[0], operands[1], shape,
      {mapOf(equation->terms[0]), mapOf(equation->terms[1]), mapOf(equation->result)}, summed));
}

} // namespace

Expected<Equation> readEquation(const NodeImporter &node) {
  Expected<Equation> equation = parseEquation(node);
  if (!equation)
    return equation.takeError();
  if (equation->terms.size() != node.inputCount() || node.inputCount() > 2)
    return node.error(std::to_string(equation->terms.size()) + " terms for " +
                      std::to_string(node.inputCount()) + " inputs; one or two are supported");
  if (Status s = readExtents(node, *equation); !s)
    return s.takeError();
  return equation;
}

void addEinsumOps(HandlerTable &table) { table[":Einsum"] = importEinsum; }

} // namespace millrace::onnx_import
