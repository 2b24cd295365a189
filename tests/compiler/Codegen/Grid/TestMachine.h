// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arch/spec/Machine.h"

namespace millrace::test {

/// The numbers of tsp-v1 (or, with 2 superlanes, of tsp-small) that schedules depend on, without a
/// machine file.
inline Machine testMachine(unsigned superlanes = 20) {
  Machine m;
  m.name = superlanes == 20 ? "tsp-v1" : "tsp-small";
  m.clockHz = 900e6;
  m.superlanes = superlanes;
  m.memory = {44, 4, 2, 4096};
  m.mxm.planes = 2;
  m.mxm.rows = m.mxm.columns = superlanes * 16;
  m.mxm.accumulatorRows = 1024;
  m.mxm.formats = {{ElementType::Int8, 1, superlanes * 16},
                   {ElementType::Fp16, 2, superlanes * 8},
                   {ElementType::Bf16, 2, superlanes * 8}};
  m.vxm.alus = 16;
  m.sxm = {2, 1, 4, 2, 4, 1};
  return m;
}

} // namespace millrace::test
