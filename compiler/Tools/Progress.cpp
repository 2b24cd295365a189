// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Progress.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <unistd.h>

namespace millrace::driver {

using namespace std::chrono_literals;

namespace {

/// Of all threads since the program began.
double processorSeconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

} // namespace

Progress::Progress(Verbosity verbosity) : verbosity(verbosity), terminal(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  endLine();
  endStage();
}

void Progress::endStage() {
  if (verbosity == Verbosity::Verbose && !name.empty())
    std::fprintf(stderr, "millrace: %s took %.3f s, %.3f s of processor time\n", name.c_str(),
                 std::chrono::duration<double>(Clock::now() - began).count(),
                 processorSeconds() - processorBegan);
}

void Progress::endLine() {
  if (lineOpen)
    std::fputs("\r\x1b[K", stderr); // the bar makes room for what is printed next
  lineOpen = false;
}

void Progress::stage(const std::string &stageName, uint64_t stageTotal) {
  if (verbosity == Verbosity::Verbose)
    endLine();
  endStage();
  name = stageName;
  total = stageTotal;
  began = Clock::now();
  processorBegan = processorSeconds();
  if (next == Clock::time_point())
    next = Clock::now() + (terminal ? 200ms : 5s);
  update(0);
}

void Progress::update(uint64_t done) {
  const Clock::time_point now = Clock::now();
  if (now < next || verbosity == Verbosity::Quiet)
    return;
  next = now + (terminal ? 100ms : 5s);
  show(done);
}

void Progress::note(const std::string &text) {
  if (verbosity != Verbosity::Verbose)
    return;
  endLine();
  std::fprintf(stderr, "millrace: %s: %s\n", name.c_str(), text.c_str());
}

unsigned percentOf(uint64_t done, uint64_t total) {
  return unsigned(100.0 * double(std::min(done, total)) / double(total));
}

void Progress::show(uint64_t done) {
  if (!terminal) {
    if (total)
      std::fprintf(stderr, "millrace: %s: %llu of %llu (%u %%)\n", name.c_str(),
                   static_cast<unsigned long long>(std::min(done, total)),
                   static_cast<unsigned long long>(total), percentOf(done, total));
    else
      std::fprintf(stderr, "millrace: %s\n", name.c_str());
    return;
  }
  constexpr size_t kWidth = 40;
  const size_t filled = total ? kWidth * percentOf(done, total) / 100 : 0;
  std::fprintf(stderr, "\r%-11s [%s%s]", name.c_str(), std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str());
  if (total)
    std::fprintf(stderr, " %3u %%", percentOf(done, total));
  std::fputs("\x1b[K", stderr);
  lineOpen = true;
}

SimulationProgress::SimulationProgress(Progress &progress, uint64_t instructions)
    : progress(progress) {
  progress.stage("simulating", instructions);
}

} // namespace millrace::driver
