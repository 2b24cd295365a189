// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Many models in one process: a list of runs in, a line of JSON for each out.
#include "arch/files/NewFile.h"
#include "compiler/Tools/ChildProcesses.h"
#include "compiler/Tools/CommandLine.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Notes.h"
#include "compiler/Tools/Progress.h"
#include "compiler/Tools/TemporaryFolder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace millrace::driver {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct BatchOptions {
  std::string jobs, output;
  ChildLimits limits;
  uint64_t mebibytes = 0; ///< of memory that a job may take; 0: no limit
};

/// One model: what follows `millrace run` on a command line.
struct Job {
  std::string name; ///< in the result
  std::vector<std::string> options;
};

/// A line of the list.
Expected<Job> jobOf(const std::string &line, const std::string &place) {
  const json value = json::parse(line, nullptr, false);
  if (!value.is_object() || !value.contains("options"))
    return Error{place +
                 ": write a job as {\"name\": \"any\", \"options\": [\"MODEL.onnx\", ...]}"};
  Job job;
  for (const auto &[key, entry] : value.items()) {
    if (key == "name" && entry.is_string()) {
      job.name = entry.get<std::string>();
      continue;
    }
    const bool isOptions = key == "options" && entry.is_array();
    if (!isOptions)
      return Error{place + ": '" + key + "' is none of name, a text, and options, a list of texts"};
    for (const json &option : entry) {
      if (!option.is_string())
        return Error{place + ": option " + jsonText(option) + " is no text; put it in quotes"};
      job.options.push_back(option.get<std::string>());
      if (job.options.back() == "--json" || job.options.back().starts_with("--json="))
        return Error{place + ": leave out --json; the result holds the report"};
    }
  }
  return job;
}

Expected<std::vector<Job>> readJobs(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    return Error{"cannot read '" + path + "': " + std::strerror(errno) + "; check the path"};
  std::vector<Job> jobs;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    Expected<Job> job = jobOf(line, path + ":" + std::to_string(number));
    if (!job)
      return job.takeError();
    if (job->name.empty())
      job->name = std::to_string(number);
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

/// A folder for the reports, which vanishes at the end.
class ReportFolder {
public:
  bool exists() const { return folder.exists(); }
  std::string file(size_t job) const {
    return (folder.path() / (std::to_string(job) + ".json")).string();
  }
  /// The report of a job; null if it left none.
  json take(size_t job) const {
    std::ifstream stream(file(job));
    json report = stream ? json::parse(stream, nullptr, false) : json();
    std::error_code ignored;
    fs::remove(file(job), ignored);
    return report.is_discarded() ? json() : report;
  }

private:
  TemporaryFolder folder;
};

/// In a child: does what `millrace run` does with these options.
[[noreturn]] void runJob(const Job &job, const std::string &report) {
  std::vector<std::string> words{"millrace", "run"};
  words.insert(words.end(), job.options.begin(), job.options.end());
  words.insert(words.end(), {"--json", report});
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  runCommandLine(int(words.size()), arguments.data(), addRun);
}

/// The last error of a run, without the program's name; empty if it says nothing.
std::string errorIn(const std::string &text) {
  static const std::string prefix = "millrace: error: ";
  const size_t at = text.rfind(prefix);
  if (at == std::string::npos)
    return {};
  return text.substr(at + prefix.size(), text.find('\n', at) - at - prefix.size());
}

json lineOf(const Job &job, const ChildResult &result, json report) {
  const bool exited = result.end == ChildResult::End::Exited;
  const char *outcome = result.end == ChildResult::End::TimedOut   ? "timed out"
                        : result.end == ChildResult::End::Signaled ? "crashed"
                        : result.code == Ok                        ? "done"
                                                                   : "failed";
  const std::string error = errorIn(result.errors);
  return {{"name", job.name},
          {"outcome", outcome},
          {"exit_code", exited ? json(result.code) : json()},
          {"signal", exited ? json() : json(result.code)},
          {"error", error.empty() ? json() : json(error)},
          {"seconds", result.seconds},
          {"peak_rss_bytes", result.peakBytes},
          {"report", std::move(report)}};
}

/// Counts of the outcomes, in words.
std::string summary(const std::map<std::string, size_t> &counts, size_t jobs) {
  std::string text = std::to_string(jobs) + " jobs";
  for (const auto &[outcome, count] : counts)
    text += ", " + std::to_string(count) + " " + outcome;
  return text;
}

int runBatch(const BatchOptions &options) {
  Expected<std::vector<Job>> jobs = readJobs(options.jobs);
  if (!jobs)
    return fail(BadInput, jobs.error());
  Expected<NewFile> output = NewFile::create(options.output);
  if (!output)
    return fail(BadOutput, output.error());
  const ReportFolder reports;
  if (!reports.exists())
    return fail(BadOutput, kNoTemporaryFolder);
  Progress progress;
  progress.stage("running", jobs->size());
  std::map<size_t, std::string> waiting; ///< lines whose turn has not come
  std::map<std::string, size_t> counts;
  size_t written = 0, ended = 0;
  const std::string error = runInChildren(
      jobs->size(), options.limits, [&](size_t k) -> int { runJob((*jobs)[k], reports.file(k)); },
      [&](size_t k, const ChildResult &result) {
        const json line = lineOf((*jobs)[k], result, reports.take(k));
        ++counts[line["outcome"].get<std::string>()];
        waiting[k] = jsonText(line) + "\n";
        for (; !waiting.empty() && waiting.begin()->first == written; ++written) {
          output->write(waiting.begin()->second);
          waiting.erase(waiting.begin());
        }
        progress.update(++ended);
      });
  if (!error.empty())
    return fail(BadOutput, error);
  if (Status s = output->replace(); !s)
    return fail(BadOutput, s.error());
  std::puts(summary(counts, jobs->size()).c_str());
  return Ok;
}

} // namespace

void addBatch(CLI::App &app, Action &action) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App *command = app.add_subcommand("batch", "Runs many models, each in a process of its own")
                          ->group(heading::Models);
  command->footer(
      "A crash or an endless search of one is a result and not the end. A line of the jobs' file "
      "is\n"
      "{\"name\": \"any\", \"options\": [\"MODEL.onnx\", \"--machine\", \"tsp-v1\"]}, with the "
      "options of\n`millrace run`.\n\n"
      "Example: millrace batch jobs.jsonl --json-lines results.jsonl --jobs 2");
  command->add_option("jobs-file", options->jobs, "file with a job per line, as JSON")
      ->type_name("FILE")
      ->required();
  command->add_option("--json-lines", options->output, "file for a line of JSON per job")
      ->type_name("FILE")
      ->required()
      ->group(heading::Data);
  command->add_option("--jobs,-j", options->limits.atOnce, "models that run at a time")
      ->check(CLI::Range(1, 1024))
      ->type_name("NUMBER")
      ->capture_default_str()
      ->group(heading::Simulation);
  command
      ->add_option("--job-seconds", options->limits.seconds,
                   "time that a model may take; then it is killed")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(heading::Simulation);
  command
      ->add_option("--job-mebibytes", options->mebibytes,
                   "memory that a model may take; 0: no limit")
      ->check(CLI::Range(uint64_t(0), uint64_t(1) << 40))
      ->type_name("MEBIBYTES")
      ->capture_default_str()
      ->group(heading::Simulation);
  command->callback([=, &action] {
    action = [=]() -> int {
      options->limits.bytes = options->mebibytes << 20;
      return runBatch(*options);
    };
  });
}

} // namespace millrace::driver
