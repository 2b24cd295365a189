// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a recipe's kernel graph step by step. Internal to Recipe*.cpp.
#pragma once

#include "compiler/Forms/Builders.h"
#include "tests/contract/Recipe.h"

#include <cmath>
#include <tuple>

namespace millrace::test::recipes {

using namespace forms;

class Realiser {
public:
  Realiser(const Recipe &recipe, std::vector<Value> values)
      : recipe(recipe), values(std::move(values)) {}

  Expected<KernelGraph> run();

private:
  void realise();
  void realiseContraction();
  void makeInput();
  void makeEmbedding();
  void makeLinear();
  void makeProduct();
  /// result = a w^T, scaled, over the last two dimensions; `a` and `w` may share a first one.
  void multiply(unsigned a, unsigned w, unsigned result, float scale);
  void makePartSums();
  void makeConv();
  void makeMap();
  void makePool();
  void makeReduce();
  void makeCopy(int64_t stride, int64_t from);
  void makeConcat();
  void makeReshape();
  void makeSoftmax();
  void makeLayerNorm();
  void makeParts();

  /// Parallel loops over a value, and its element there.
  Access everyPoint(KernelBuilder &build, unsigned tensor);
  unsigned randomConstant(std::vector<int64_t> shape, ElementType type, unsigned laneDim,
                          float scale, int64_t seed);
  /// w[rows, lanes]: 1 where lane = row + from.
  unsigned selection(int64_t rows, int64_t lanes, int64_t from, ElementType type);
  unsigned splat(std::vector<int64_t> shape, ElementType type, float value);
  unsigned intermediate(const char *what, std::vector<int64_t> shape, ElementType type,
                        unsigned laneDim = 1) {
    return addTensor(graph, name() + "." + what, std::move(shape), type, laneDim);
  }
  /// The contraction's sum in fp32, times `scale`.
  unsigned sum(KernelBuilder &build, float scale);
  /// int8 products grow with the square root of their number; fp16 ones are kept near 1.
  float spread(ElementType type, int64_t k) const {
    return type == ElementType::Int8 ? 1 / (64 * std::sqrt(float(k))) : 1;
  }
  float weightScale(ElementType type, int64_t k) const {
    return type == ElementType::Int8 ? 127 : 1.7f / std::sqrt(float(k));
  }
  unsigned scalar(KernelBuilder &build, unsigned v, int64_t which);

  const Step &step() const { return recipe.steps[at_]; }
  std::string name() const { return "s" + std::to_string(at_); }
  unsigned operand(size_t which) const { return tensors[step().operands[which]]; }
  const Value &valueAt(size_t which) const { return values[step().operands[which]]; }
  const Value &result() const { return values[at_]; }

  const Recipe &recipe;
  std::vector<Value> values;
  std::vector<unsigned> tensors; ///< by step
  KernelGraph graph;
  size_t at_ = 0; ///< the step that is being made
  std::map<std::tuple<std::string, std::vector<int64_t>, ElementType, unsigned, int64_t>, unsigned>
      constants;
};

} // namespace millrace::test::recipes
