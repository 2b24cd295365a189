// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a report says of the run itself: which Millrace, when, of which model, with which options.
// Images hold none of it, as equal models are to make equal images.
#pragma once

#include "compiler/Tools/Execute.h"

#include <nlohmann/json.hpp>

namespace millrace::driver {

/// Of docs/spec/report.schema.json. One more whenever a key changes its meaning or goes away.
constexpr int kReportSchema = 1;

/// The keys schema_version, tool, date, model_sha256, seed and options.
nlohmann::json runRecordOf(const ExecuteOptions &options);

/// name, version, commit (null if Millrace was built from no checkout) and whether files of the
/// checkout differed from it.
nlohmann::json toolRecord();

/// Every option of the command by its long name, as given or by its default: true for flags, else
/// text or a list of texts. Those that were not given and have no default are left out.
nlohmann::json optionsOf(const CLI::App &command);

} // namespace millrace::driver
