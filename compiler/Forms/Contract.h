// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sums of a kernel's contraction, for Evaluate: operands gathered into packed doubles, then a
// plain GEMM. Products of fp16, bf16, fp8 and int8 are exact in double and their sums nearly so.
#pragma once

#include "compiler/Forms/Evaluate.h"

namespace millrace::forms {

/// Columns of one GEMM panel.
constexpr int64_t kPanel = 8;

/// Computes accumulators of one kernel, rows of the vector loop at a time.
class Contraction {
public:
  /// `vectorLoop`: the loop of the columns; it must not index any term's a. No value: one column.
  Contraction(const KernelGraph &graph, const Kernel &kernel,
              const std::vector<TensorBytes> &tensors, std::vector<Pass> passes, int vectorLoop);

  /// Do weights, or the lanes of a that a pass multiplies, differ from step to step of the loop?
  bool packsForEach(unsigned loop) const;
  /// Gathers w at `point` (the values of all loops that packsForEach names, the vector loop aside).
  void packWeights(const std::vector<int64_t> &point, unsigned threads);
  /// The accumulators of rows `points`, `columns()` each: fp32 or int32 bits. Thread safe.
  void run(const std::vector<std::vector<int64_t>> &points, uint32_t *accumulators) const;
  int64_t columns() const { return width; }

private:
  struct Step { ///< one contracted point of one term
    unsigned term;
    std::vector<int64_t> values; ///< of the contracted loops, by loop number
  };
  struct Gather { ///< an access split into a part of the row and a part of the step
    std::vector<int64_t> stepIndex;  ///< steps x rank
    std::vector<int64_t> stepLinear; ///< steps; linear offset of the step's part
    std::vector<int64_t> low, high;  ///< per dimension: bounds of the step's part
  };
  struct Section { ///< steps [from, to) of one pass
    int64_t from, to;
    unsigned term;
    unsigned half = 0; ///< Pass::half
  };
  void setSections(const std::vector<int64_t> &point);
  void addTerm(unsigned term);
  void addPass(const Pass &pass, const std::vector<int64_t> &point);
  Gather prepare(const Access &access, int64_t from, int64_t to) const;
  void gather(const Access &access, const Gather &gather, const std::vector<int64_t> &point,
              double *out, int64_t stride) const;
  double read(const Access &access, int64_t offset) const;

  const KernelGraph &graph;
  const Kernel &kernel;
  const std::vector<TensorBytes> &tensors;
  int vectorLoop;
  int64_t width, panels;
  bool integer;
  std::vector<Pass> passes; ///< none: one per term
  std::vector<Section> sections;
  std::vector<std::vector<int64_t>> steps;
  std::vector<Gather> gathersA, gathersW; ///< by section
  std::vector<double> weights;            ///< panels x steps x kPanel
};

} // namespace millrace::forms
