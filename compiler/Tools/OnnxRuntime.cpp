// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX Runtime in a Python process of its own; files in a temporary folder go between.
#include "compiler/Tools/Judges.h"

#include "arch/files/NewFile.h"
#include "compiler/Support/Npy.h"
#include "compiler/Tools/TemporaryFolder.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::driver {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char *kProgram =
#include "compiler/Tools/OnnxRuntimeValues.inc"
    ;

std::string pythonProgram() {
  if (const char *named = std::getenv("MILLRACE_PYTHON"); named && *named)
    return named;
  std::error_code ignored;
  return fs::exists(MILLRACE_SETUP_PYTHON, ignored) ? MILLRACE_SETUP_PYTHON : "python3";
}

std::string lastLineOf(const fs::path &file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      last = line;
  return last;
}

/// Runs it on the folder; what went wrong is the last line that it wrote.
Status runPython(const fs::path &folder) {
  const std::string python = pythonProgram(), directory = folder.string(),
                    errors = (folder / "errors").string();
  std::string name = python, flag = "-c", text = kProgram, argument = directory;
  char *arguments[] = {name.data(), flag.data(), text.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  const std::string remedy =
      "; name a Python with onnx, onnxruntime and numpy in MILLRACE_PYTHON, or use "
      "--check=reference";
  if (failed)
    return Error{"cannot start '" + python + "' for ONNX Runtime" + remedy};
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0)
    return Success{};
  const std::string line = lastLineOf(errors);
  if (line.ends_with(" is missing"))
    return Error{"'" + python + "' cannot run ONNX Runtime: " + line + remedy};
  return Error{"ONNX Runtime does not run the model (" +
               (line.empty() ? "it crashed" : line.substr(0, 1000)) +
               "); use --check=reference instead"};
}

} // namespace

Expected<Values> onnxRuntimeValues(const std::string &model, const Values &inputs,
                                   const std::vector<std::string> &wanted) {
  const TemporaryFolder folder;
  if (!folder.exists())
    return Error{kNoTemporaryFolder};
  json job = {
      {"model", fs::absolute(model).string()}, {"inputs", json::object()}, {"values", wanted}};
  for (const auto &[name, tensor] : inputs) {
    const std::string file = "input" + std::to_string(job["inputs"].size()) + ".npy";
    if (Status s = writeNpy(folder.path() / file, tensor); !s)
      return s.takeError();
    job["inputs"][name] = file;
  }
  if (Status s = writeFile((folder.path() / "job.json").string(), job.dump()); !s)
    return s.takeError();
  if (Status s = runPython(folder.path()); !s)
    return s.takeError();
  std::ifstream in(folder.path() / "names.json");
  const json names = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!names.is_object())
    return Error{"ONNX Runtime left no values in " + folder.path().string()};
  Values values;
  for (const auto &[name, file] : names.items()) {
    Expected<HostTensor> tensor = readNpy(folder.path() / file.get<std::string>());
    if (!tensor)
      return tensor.takeError();
    values[name] = std::move(*tensor);
  }
  return values;
}

} // namespace millrace::driver
