// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A graph as a short list of steps: what the random generator draws, what a failure is reduced in,
// and what is kept of it as text. Sizes stand in the steps, so that they can be made smaller.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Forms/Kernel.h"

#include <map>

namespace millrace::test {

/// One operation on earlier steps; docs: graphRanges() names the operations.
struct Step {
  std::string operation;
  std::vector<unsigned> operands;
  std::map<std::string, int64_t> numbers; ///< by name: "rows", "lanes", "type" (of ElementType)
  /// The number of that name, or what it is if the step does not say.
  int64_t operator()(const char *name, int64_t otherwise = 1) const {
    auto it = numbers.find(name);
    return it == numbers.end() ? otherwise : it->second;
  }
  bool operator==(const Step &) const = default;
};

struct Recipe {
  std::vector<Step> steps;
  std::vector<unsigned> outputs; ///< further than the steps that nobody reads, which are all
  bool simplified = false;       ///< maps merge into the kernels that write what they read
  bool operator==(const Recipe &) const = default;
};

/// What a step makes: matrices [rows, lanes], images [1, lanes, height, width], batches
/// [batch, rows, lanes].
struct Value {
  ElementType type = ElementType::Fp16;
  std::vector<int64_t> shape;
  unsigned laneDim() const { return shape.size() == 3 ? 2 : 1; }
  int64_t lanes() const { return shape[laneDim()]; }
  int64_t elements() const;
  bool operator==(const Value &) const = default;
};

/// What the step makes of these operands; nothing if it cannot be, or has more than `most`
/// elements. `macs`: of its contractions.
std::optional<Value> valueOf(const Step &step, const std::vector<Value> &operands, int64_t *macs);

/// The values of all steps. Errors: a step that cannot be.
Expected<std::vector<Value>> valuesOf(const Recipe &recipe);

/// The kernel graph. Errors: a step that cannot be, or a graph that does not verify.
Expected<forms::KernelGraph> realise(const Recipe &recipe);

/// "2 linear 1 lanes=40 relu=1" a line, "out 1" and "simplify".
std::string print(const Recipe &recipe);
/// Reads one line of that. Errors: a line that is none.
Status parseLine(const std::string &line, Recipe &recipe);

/// Largest numbers of elements and MACs of a step.
constexpr int64_t kMostElements = 40000, kMostMacs = 4000000;

} // namespace millrace::test
