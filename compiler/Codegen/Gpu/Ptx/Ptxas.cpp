// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <regex>

namespace millrace::gpu {

namespace {

/// Where the wheels put it, beside the environment's programs.
std::vector<std::string> wheelPlaces() {
  const std::string library = MILLRACE_SETUP_PYTHON_BIN "/../lib";
  std::vector<std::string> places;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(library, error), end; it != end && !error;
       it.increment(error))
    for (const char *wheel : {"nvidia/cu13/bin", "nvidia/cuda_nvcc/bin"})
      places.push_back(it->path() + "/site-packages/" + wheel);
  return places;
}

/// A file that is gone when this is.
class TemporaryFile {
public:
  explicit TemporaryFile(const char *suffix) {
    llvm::SmallString<128> name;
    error = llvm::sys::fs::createTemporaryFile("millrace", suffix, name);
    path = std::string(name);
  }
  ~TemporaryFile() { llvm::sys::fs::remove(path); }
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  std::string path;
  std::error_code error;
};

unsigned numberAfter(const std::string &line, const std::string &pattern) {
  std::smatch found;
  return std::regex_search(line, found, std::regex(pattern))
             ? static_cast<unsigned>(std::stoul(found[1]))
             : 0;
}

PtxasReport parse(llvm::StringRef text) {
  static const std::regex entry("Compiling entry function '([^']+)'");
  PtxasReport report;
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n');
  for (llvm::StringRef each : lines) {
    const std::string line = each.str();
    std::smatch found;
    if (std::regex_search(line, found, std::regex("C75\\d\\d")))
      report.warnings.push_back(line);
    if (std::regex_search(line, found, entry))
      report.kernels.push_back({found[1], 0, 0, 0, 0, 0});
    if (report.kernels.empty())
      continue;
    KernelResources &kernel = report.kernels.back();
    if (each.contains("bytes stack frame")) {
      kernel.stackBytes = numberAfter(line, "(\\d+) bytes stack frame");
      kernel.spillBytes = numberAfter(line, "(\\d+) bytes spill stores") +
                          numberAfter(line, "(\\d+) bytes spill loads");
    }
    if (each.contains("Used ")) {
      kernel.registers = numberAfter(line, "Used (\\d+) registers");
      kernel.barriers = numberAfter(line, "used (\\d+) barriers");
      kernel.sharedBytes = numberAfter(line, "(\\d+) bytes smem");
    }
  }
  return report;
}

} // namespace

std::optional<std::string> findPtxas() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  std::vector<std::string> places = wheelPlaces();
  places.insert(places.begin(), "/usr/local/cuda/bin");
  for (const char *variable : {"CUDA_PATH", "CUDA_HOME"})
    if (const char *value = std::getenv(variable))
      places.insert(places.begin(), std::string(value) + "/bin");
  for (const std::string &place : places)
    if (llvm::sys::fs::can_execute(place + "/ptxas"))
      return place + "/ptxas";
  return std::nullopt;
}

Expected<PtxasReport> runPtxas(const std::string &ptxas, const std::string &ptx,
                               const std::string &chip) {
  TemporaryFile source("ptx"), object("cubin"), log("log");
  for (const TemporaryFile *file : {&source, &object, &log})
    if (file->error)
      return Error{"cannot make a temporary file: " + file->error.message()};
  {
    std::error_code error;
    llvm::raw_fd_ostream out(source.path, error);
    out << ptx;
    out.close();
    if (error || out.has_error()) {
      out.clear_error();
      return Error{"cannot write " + source.path};
    }
  }
  const std::string target = "-arch=" + chip;
  const llvm::StringRef arguments[] = {ptxas, target, "-v", "-O3", source.path, "-o", object.path};
  std::string failure;
  // ptxas reports on either stream.
  const std::optional<llvm::StringRef> redirects[] = {std::nullopt, llvm::StringRef(log.path),
                                                      llvm::StringRef(log.path)};
  const int code = llvm::sys::ExecuteAndWait(ptxas, arguments, std::nullopt, redirects,
                                             /*SecondsToWait=*/120, /*MemoryLimit=*/0, &failure);
  auto text = llvm::MemoryBuffer::getFile(log.path);
  const llvm::StringRef said = text ? (*text)->getBuffer() : llvm::StringRef();
  if (code)
    return Error{"ptxas refuses the kernel: " +
                 (failure.empty() ? said.substr(0, 800).str() : failure)};
  return parse(said);
}

Status checkPtxasReport(const PtxasReport &report) {
  if (report.kernels.empty())
    return Error{"ptxas found no kernel; give it PTX with an entry"};
  if (!report.warnings.empty())
    return Error{"ptxas changed the order of wgmma: " + report.warnings.front()};
  for (const KernelResources &kernel : report.kernels) {
    if (kernel.spillBytes)
      return Error{"kernel '" + kernel.kernel + "' spills " + std::to_string(kernel.spillBytes) +
                   " bytes of registers; take a smaller tile or more consumer warpgroups"};
    if (kernel.stackBytes)
      return Error{"kernel '" + kernel.kernel + "' has " + std::to_string(kernel.stackBytes) +
                   " bytes of stack; index its arrays by constants"};
  }
  return Success{};
}

} // namespace millrace::gpu
