// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/RunRecord.h"

#include "compiler/Tools/Version.h"

#include <ctime>

namespace millrace::driver {

using nlohmann::json;

/// Now, as ISO 8601 has it, in universal time.
static std::string dateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[sizeof "0000-00-00T00:00:00Z"] = "";
  if (::gmtime_r(&now, &parts))
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

json toolRecord() {
  return {{"name", "millrace"},
          {"version", std::string(version())},
          {"commit", commit().empty() ? json() : json(std::string(commit()))},
          {"modified", isModified()}};
}

static json valueOf(const CLI::Option &option) {
  const std::vector<std::string> given = option.results();
  if (given.empty())
    return option.get_default_str().empty() ? json() : json(option.get_default_str());
  if (option.get_items_expected_max() > 1)
    return given;
  if (option.get_expected_min() == 0 && given.back() == "true")
    return true; // a flag
  return given.back();
}

json optionsOf(const CLI::App &command) {
  json options = json::object();
  for (const CLI::Option *option : command.get_options())
    if (option != command.get_help_ptr())
      if (json value = valueOf(*option); !value.is_null())
        options[option->get_single_name()] = std::move(value);
  return options;
}

json runRecordOf(const ExecuteOptions &options) {
  json record;
  record["schema_version"] = kReportSchema;
  record["tool"] = toolRecord();
  record["date"] = dateNow();
  record["model_sha256"] = options.modelSha256.empty() ? json() : json(options.modelSha256);
  record["seed"] = options.cyclesOnly ? json() : json(options.seed);
  record["options"] = options.command ? optionsOf(*options.command) : json::object();
  return record;
}

} // namespace millrace::driver
