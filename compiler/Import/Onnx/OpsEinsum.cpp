// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Einsum of one or two tensors: its letters are the loops, its terms the maps.
#include "compiler/Import/Onnx/Handlers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// An equation such as "bij,bjk->bik"; the result's letters first, then those that are summed.
struct Equation {
  std::vector<std::string> terms;
  std::string result, letters;
};

/// Without "->" the result has the letters that occur once, in alphabetical order.
std::string implicitResult(const std::vector<std::string> &terms) {
  std::map<char, int> counts;
  for (const std::string &term : terms)
    for (char letter : term)
      ++counts[letter];
  std::string result;
  for (auto [letter, count] : counts)
    if (count == 1)
      result += letter;
  return result;
}

Expected<Equation> parseEquation(NodeImporter &node) {
  std::string text = node.getString("equation", "");
  llvm::erase(text, ' ');
  if (text.find('.') != std::string::npos)
    return node.error("an ellipsis in its equation is not supported; name the dimensions");
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
  equation.letters = equation.result;
  for (const std::string &term : equation.terms)
    for (char letter : term)
      if (equation.letters.find(letter) == std::string::npos)
        equation.letters += letter;
  return equation;
}

Expected<std::map<char, int64_t>> readExtents(NodeImporter &node, const Equation &equation) {
  std::map<char, int64_t> extents;
  for (auto [i, term] : llvm::enumerate(equation.terms)) {
    if (static_cast<int64_t>(term.size()) != node.rank(i))
      return node.error("its term '" + term + "' does not fit a tensor of rank " +
                        std::to_string(node.rank(i)));
    for (auto [letter, extent] : llvm::zip_equal(term, node.shape(i)))
      if (!extents.try_emplace(letter, extent).second && extents[letter] != extent)
        return node.error("a letter of its term '" + term + "' stands for " +
                          std::to_string(extents[letter]) + " and " + std::to_string(extent));
  }
  for (char letter : equation.result) {
    if (!extents.contains(letter))
      return node.error("a letter of its result '" + equation.result + "' occurs in no input");
    if (llvm::count(equation.result, letter) > 1)
      return node.error("a letter of its result '" + equation.result + "' occurs twice");
  }
  return extents;
}

Status importEinsum(NodeImporter &node) {
  Expected<Equation> equation = parseEquation(node);
  if (!equation)
    return equation.takeError();
  if (equation->terms.size() != node.inputCount() || node.inputCount() > 2)
    return node.error(std::to_string(equation->terms.size()) + " terms for " +
                      std::to_string(node.inputCount()) + " inputs; one or two are supported");
  Expected<std::map<char, int64_t>> extents = readExtents(node, *equation);
  if (!extents)
    return extents.takeError();
  auto loops = static_cast<unsigned>(equation->letters.size());
  auto mapOf = [&](const std::string &term) {
    SmallVector<unsigned> dims;
    for (char letter : term)
      dims.push_back(static_cast<unsigned>(equation->letters.find(letter)));
    return node.t.select(loops, dims);
  };
  Shape shape;
  for (char letter : equation->result)
    shape.push_back((*extents)[letter]);
  SmallVector<unsigned> summed;
  for (unsigned i = static_cast<unsigned>(shape.size()); i < loops; ++i)
    summed.push_back(i);
  if (node.inputCount() == 1) { // its dimensions in the order of the loops, then a sum
    Shape all(shape), axes(summed.begin(), summed.end());
    for (unsigned i : summed)
      all.push_back((*extents)[equation->letters[i]]);
    Value ordered =
        node.t.map(all, {node.in(0)}, {mapOf(equation->terms[0])}, elementTypeOf(node.in(0)),
                   [](Scalars &, ValueRange x) { return x[0]; });
    return node.done(axes.empty() ? ordered : node.t.reduceSum(ordered, axes));
  }
  return node.done(node.t.contract(
      node.in(0), node.in(1), shape,
      {mapOf(equation->terms[0]), mapOf(equation->terms[1]), mapOf(equation->result)}, summed));
}

} // namespace

void addEinsumOps(HandlerTable &table) { table[":Einsum"] = importEinsum; }

} // namespace millrace::onnx_import
