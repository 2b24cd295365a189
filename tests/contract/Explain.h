// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Why a mutant that nothing noticed is no hole: a reason that this program found and checked.
#pragma once

#include "tests/contract/Judge.h"
#include "tests/contract/Mutants.h"

namespace millrace::test {

struct Explanation {
  /// What the reason rests on. Graph, Table and Zeros hold for every input; Input and Rounding say
  /// that the damage is real and that the three inputs could not show it. Measured: found in
  /// runs (zeros that add nothing, operations that agree), not derived.
  enum class Proof { Graph, Table, Zeros, Input, Rounding, Measured, None };
  Proof proof = Proof::None;
  std::string reason;
};
const char *nameOf(Explanation::Proof proof);

Explanation explain(const Image &right, const Machine &machine, const Mutant &mutant,
                    const Judge &judge);

} // namespace millrace::test
