// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace millrace::gpu {

/// Where there is a ptxas: it takes the text, without spills and whatever else the check refuses.
inline void expectAssembles(const std::optional<std::string> &ptxas, const std::string &ptx,
                            const std::string &chip) {
  if (!ptxas)
    return;
  const Expected<PtxasReport> report = runPtxas(*ptxas, ptx, chip);
  ASSERT_TRUE(report) << report.error();
  const Status checked = checkPtxasReport(*report);
  EXPECT_TRUE(checked) << checked.error();
}

} // namespace millrace::gpu
