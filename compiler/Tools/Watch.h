// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may be recorded of a simulation: a trace, a waveform.
#pragma once

#include "arch/files/NewFile.h"
#include "compiler/Tools/Progress.h"
#include "simulator/observe/TraceWriter.h"
#include "simulator/observe/VcdWriter.h"

#include <CLI/CLI.hpp>

#include <optional>

namespace millrace::driver {

/// Cycles `first` to `last`, inclusive.
struct CycleRange {
  uint64_t first = 0, last = UINT64_MAX;
};

/// "100..200" or "100".
std::optional<CycleRange> parseCycles(const std::string &text);

struct WatchOptions {
  std::string trace, traceCycles, vcd, vcdCycles;
  bool traceFlows = false;
  uint64_t vcdLimit = 100000; ///< instructions
  Verbosity verbosity = Verbosity::Normal;
  std::vector<sim::IdleSlice> idle; ///< for the trace
  void addTo(CLI::App &command);
  /// Errors of the command line, before anything is done.
  Status check() const;
  /// Whether a waveform of the whole program is small enough, if one is wanted.
  Status checkSize(const Image &image) const;
};

/// Hands the bursts of a range of cycles to the waveform, at most `limit` of them: a waveform is
/// made for eyes and kept in memory.
class VcdPart : public sim::Observer {
public:
  VcdPart(std::ostream &out, const Machine &machine, CycleRange range, uint64_t limit)
      : writer(std::in_place, out, machine), range(range), limit(limit) {}
  void beginStep(unsigned step) override { writer->beginStep(step); }
  void dispatched(unsigned pe, unsigned queue, const sim::Burst &burst) override;
  void endStep(unsigned step, uint64_t cycles) override;
  /// Instructions in the range; the waveform is whole if they are no more than the limit.
  uint64_t count() const { return seen; }
  /// Ends the text.
  void finish() { writer.reset(); }

private:
  std::optional<sim::VcdWriter> writer;
  CycleRange range;
  uint64_t limit, seen = 0, base = 0;
};

/// All that watches one simulation.
class Watch {
public:
  /// Opens the files; an error names the one that cannot be made.
  static Expected<std::unique_ptr<Watch>> create(const WatchOptions &options, const Image &image,
                                                 const Machine &machine);
  sim::Observer *observer() { return &all; }
  /// After the simulation: whether the waveform holds all that its cycles have.
  Status checkCount() const;
  /// Ends the files and gives them their names.
  Status finish();

private:
  explicit Watch(const WatchOptions &options) : options(options), progress(options.verbosity) {}
  const WatchOptions &options;
  Progress progress;
  std::optional<SimulationProgress> counter;
  std::optional<NewFile> traceFile, vcdFile;
  std::optional<sim::TraceWriter> trace;
  std::optional<VcdPart> vcd;
  sim::Observers all;
};

/// Instructions of all PEs.
uint64_t instructionsOf(const Image &image);

} // namespace millrace::driver
