// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Watch.h"

#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Notes.h"
#include "compiler/Tools/RunRecord.h"

#include <cstdlib>

namespace millrace::driver {

std::optional<CycleRange> parseCycles(const std::string &text) {
  CycleRange range;
  char *end = nullptr;
  range.first = range.last = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || text[0] == '-')
    return std::nullopt;
  if (std::string_view rest = end; rest.starts_with("..") && rest.size() > 2 && rest[2] != '-')
    range.last = std::strtoull(rest.data() + 2, &end, 10);
  if (*end || range.first > range.last)
    return std::nullopt;
  return range;
}

uint64_t instructionsOf(const Image &image) {
  uint64_t sum = 0;
  for (const Records<Instruction> &pe : image.instructions)
    sum += pe.size();
  return sum;
}

void WatchOptions::addTo(CLI::App &command) {
  command.add_option("--trace", trace, "write a trace that ui.perfetto.dev opens")
      ->type_name("FILE")
      ->group(heading::Recording);
  command
      .add_option("--trace-cycles", traceCycles,
                  "only what acts in these cycles of the program in the trace: 100..200")
      ->type_name("CYCLES")
      ->group(heading::Recording);
  command
      .add_flag("--trace-flows", traceFlows,
                "arrows from producers to consumers in the trace, which grows threefold")
      ->group(heading::Recording);
  command
      .add_option("--vcd", vcd,
                  "write a waveform (value change dump): per queue the instruction under way; for "
                  "small programs")
      ->type_name("FILE")
      ->group(heading::Recording);
  command
      .add_option("--vcd-cycles", vcdCycles,
                  "only these cycles of the program in the waveform: 100..200")
      ->type_name("CYCLES")
      ->group(heading::Recording);
  command
      .add_option("--vcd-limit", vcdLimit,
                  "most instructions in the waveform; memory and file grow by about 150 B each")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->group(heading::Recording);
}

Status WatchOptions::check() const {
  if (!traceCycles.empty() && !parseCycles(traceCycles))
    return Error{"--trace-cycles '" + traceCycles +
                 "' is no range of cycles; write 100..200, or 100"};
  if (trace.empty() && (traceFlows || !traceCycles.empty()))
    return Error{std::string(traceFlows ? "--trace-flows" : "--trace-cycles") +
                 " without --trace; name the file for the trace"};
  if (!vcdCycles.empty() && !parseCycles(vcdCycles))
    return Error{"--vcd-cycles '" + vcdCycles + "' is no range of cycles; write 100..200, or 100"};
  if (!vcdCycles.empty() && vcd.empty())
    return Error{"--vcd-cycles without --vcd; name the file for the waveform"};
  return Success{};
}

Status WatchOptions::checkSize(const Image &image) const {
  const uint64_t instructions = instructionsOf(image);
  if (!vcd.empty() && vcdCycles.empty() && instructions > vcdLimit)
    return Error{"--vcd: the program has " + std::to_string(instructions) +
                 " instructions, a waveform holds at most " + std::to_string(vcdLimit) +
                 "; choose a part with --vcd-cycles, raise --vcd-limit, or use --trace"};
  return Success{};
}

void VcdPart::dispatched(unsigned pe, unsigned queue, const sim::Burst &burst) {
  if (base + uint64_t(burst.start) <= range.last &&
      base + uint64_t(burst.lastCycle()) >= range.first)
    if (++seen <= limit)
      writer->dispatched(pe, queue, burst);
}

void VcdPart::endStep(unsigned step, uint64_t cycles) {
  base += cycles;
  writer->endStep(step, cycles);
}

static sim::TraceOptions traceOptions(const WatchOptions &options, const Image &image,
                                      const Machine &machine) {
  const CycleRange range = parseCycles(options.traceCycles).value_or(CycleRange());
  sim::TraceOptions trace;
  trace.first = range.first;
  trace.last = range.last;
  trace.flows = options.traceFlows;
  trace.idle = options.idle;
  trace.metadata = {{"tool", jsonText(toolRecord())},
                    {"machine", jsonText(machine.name)},
                    {"clock_hertz", jsonText(machine.clockHz)}};
  for (const char *key : {"model", "precision"})
    trace.metadata.emplace_back(key, jsonText(jsonNote(image, key)));
  if (!options.traceCycles.empty())
    trace.metadata.emplace_back("cycles", jsonText(options.traceCycles));
  return trace;
}

Expected<std::unique_ptr<Watch>> Watch::create(const WatchOptions &options, const Image &image,
                                               const Machine &machine) {
  std::unique_ptr<Watch> watch(new Watch(options));
  watch->counter.emplace(watch->progress, instructionsOf(image));
  watch->all.all.push_back(&*watch->counter);
  if (!options.trace.empty()) {
    Expected<NewFile> file = NewFile::create(options.trace);
    if (!file)
      return file.takeError();
    watch->traceFile = std::move(*file);
    watch->trace.emplace(watch->traceFile->stream(), image, machine,
                         traceOptions(options, image, machine));
    watch->all.all.push_back(&*watch->trace);
  }
  if (!options.vcd.empty()) {
    Expected<NewFile> file = NewFile::create(options.vcd);
    if (!file)
      return file.takeError();
    watch->vcdFile = std::move(*file);
    watch->vcd.emplace(watch->vcdFile->stream(), machine,
                       parseCycles(options.vcdCycles).value_or(CycleRange()), options.vcdLimit);
    watch->all.all.push_back(&*watch->vcd);
  }
  return watch;
}

Status Watch::checkCount() const {
  if (vcd && vcd->count() > options.vcdLimit)
    return Error{"--vcd: " + std::to_string(vcd->count()) + " instructions run in cycles " +
                 options.vcdCycles + ", a waveform holds at most " +
                 std::to_string(options.vcdLimit) + "; choose fewer cycles or raise --vcd-limit"};
  return Success{};
}

Status Watch::finish() {
  if (trace) {
    trace.reset();
    if (Status s = traceFile->replace(); !s)
      return s;
  }
  if (vcd) {
    vcd->finish();
    if (Status s = vcdFile->replace(); !s)
      return s;
  }
  return Success{};
}

} // namespace millrace::driver
