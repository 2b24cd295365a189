// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/observe/TraceWriter.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace millrace::sim {

// Viewers take process 0 and thread 0 for the operating system's, and a thread that is called like
// its process for the one to show first.
static constexpr unsigned kProgram = 1, kFirstPe = 2, kSteps = 99999, kFirstThread = 100000;

std::string jsonString(const std::string &text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Ports are numbered 2 queue + (1 for the write port of a MEM slice).
static unsigned portOf(unsigned queue, bool isWrite) { return 2 * queue + isWrite; }

/// MXM and VXM first: they are why the rest moves.
static unsigned rankOf(UnitKind kind) {
  switch (kind) {
  case UnitKind::MxmInstall:
  case UnitKind::MxmActivate:
  case UnitKind::MxmAccumulate:
    return 0;
  case UnitKind::Alu:
    return 1;
  case UnitKind::Send:
  case UnitKind::Receive:
    return 3;
  case UnitKind::Mem:
    return 4;
  default:
    return 2; // SXM
  }
}

/// [port]: its place among the tracks of a PE.
static std::vector<unsigned> orderOf(const Machine &machine) {
  std::vector<unsigned> ports(2 * size_t(machine.queues())), order(ports.size());
  std::iota(ports.begin(), ports.end(), 0);
  std::stable_sort(ports.begin(), ports.end(), [&](unsigned a, unsigned b) {
    return rankOf(machine.unit(a / 2).kind) < rankOf(machine.unit(b / 2).kind);
  });
  for (unsigned place = 0; place < ports.size(); ++place)
    order[ports[place]] = place;
  return order;
}

TraceWriter::TraceWriter(std::ostream &out, const Image &image, const Machine &machine,
                         TraceOptions given)
    : out(out), image(image), machine(machine), options(std::move(given)), order(orderOf(machine)),
      ends(machine.pes(), std::vector<std::vector<uint64_t>>(order.size())), isNamed(machine.pes()),
      totals(machine.pes()), places(machine.pes()) {
  out.precision(15);
  out << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"unit\":\"1 us is 1 cycle\"";
  for (const auto &[key, value] : options.metadata)
    out << "," << jsonString(key) << ":" << value;
  out << "},\"traceEvents\":[";
  nameProcess(kProgram, "program");
  nameThread(kProgram, kSteps, "grid steps", 0);
  writeIdle();
}

TraceWriter::~TraceWriter() {
  flush(); // of a step that a violation ended
  out << "\n]}\n";
}

std::ostream &TraceWriter::event(const char *phase, unsigned process) {
  out << (first ? "\n" : ",\n") << "{\"ph\":\"" << phase << "\",\"pid\":" << process;
  first = false;
  return out;
}

void TraceWriter::nameProcess(unsigned process, const std::string &name) {
  event("M", process) << ",\"name\":\"process_name\",\"args\":{\"name\":" << jsonString(name)
                      << "}}";
  event("M", process) << ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":" << process
                      << "}}";
}

void TraceWriter::nameThread(unsigned process, unsigned thread, const std::string &name,
                             unsigned place) {
  event("M", process) << ",\"tid\":" << thread
                      << ",\"name\":\"thread_name\",\"args\":{\"name\":" << jsonString(name)
                      << "}}";
  event("M", process) << ",\"tid\":" << thread
                      << ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" << place
                      << "}}";
}

void TraceWriter::slice(unsigned process, unsigned thread, uint64_t start, uint64_t duration,
                        const std::string &name) {
  event("X", process) << ",\"tid\":" << thread << ",\"ts\":" << start << ",\"dur\":" << duration
                      << ",\"name\":" << jsonString(name);
}

void TraceWriter::beginStep(unsigned s) { step = s; }

void TraceWriter::endStep(unsigned s, uint64_t cycles) {
  flush();
  if (cycles && base <= options.last && base + cycles > options.first) {
    slice(kProgram, kSteps, base, cycles, "step " + std::to_string(s));
    out << ",\"args\":{\"step\":" << s << "}}";
  }
  base += cycles;
}

/// The first track of the port that is free from `start` on, until `end`.
unsigned TraceWriter::threadOf(unsigned pe, unsigned queue, bool isWrite, uint64_t start,
                               uint64_t end) {
  const unsigned port = portOf(queue, isWrite);
  std::vector<uint64_t> &tracks = ends[pe][port];
  const size_t track = size_t(
      std::find_if(tracks.begin(), tracks.end(), [&](uint64_t free) { return free <= start; }) -
      tracks.begin());
  const unsigned thread = kFirstThread + unsigned(track * order.size()) + order[port];
  if (track == tracks.size()) {
    tracks.push_back(0);
    std::string name = machine.queueName(queue);
    if (machine.unit(queue).kind == UnitKind::Mem)
      name += isWrite ? ".write" : ".read";
    if (track)
      name += " (" + std::to_string(track + 1) + ")";
    nameThread(kFirstPe + pe, thread, name, order[port]);
  }
  tracks[track] = end;
  return thread;
}

void TraceWriter::dispatched(unsigned pe, unsigned queue, const Burst &burst) {
  const uint64_t start = base + uint64_t(burst.start), end = base + uint64_t(burst.lastCycle()) + 1;
  if (start > options.last || end <= options.first)
    return;
  if (!isNamed[pe])
    nameProcess(kFirstPe + pe, "pe " + std::to_string(pe));
  isNamed[pe] = true;
  const Instruction &i = *burst.instruction;
  const bool isWrite = i.opcode == Opcode::Write || i.opcode == Opcode::Scatter;
  const Place place{threadOf(pe, queue, isWrite, start, end), start, end};
  const std::string mnemonic(info(i.opcode).mnemonic);
  const bool known = i.provenance < image.strings.size() && !image.strings[i.provenance].empty();
  slice(kFirstPe + pe, place.thread, start, end - start,
        known ? image.strings[i.provenance] : mnemonic);
  out << ",\"cat\":" << jsonString(mnemonic) << ",\"args\":{\"instruction\":" << burst.index
      << ",\"elements\":" << burst.elements() << ",\"step\":" << step << "}}";
  if (known)
    active[i.provenance].emplace_back(start, end);
  const uint64_t behind = options.last == UINT64_MAX ? end : std::min(end, options.last + 1);
  totals[pe].add(burst, machine, std::max(start, options.first), behind);
  if (options.flows)
    addArrows(pe, burst, place);
}

void TraceWriter::addArrows(unsigned pe, const Burst &burst, Place place) {
  std::vector<Place> &own = places[pe];
  if (own.size() <= burst.index)
    own.resize(std::max(size_t(burst.index) + 1, image.instructions[pe].size()));
  own[burst.index] = place;
  std::vector<std::pair<uint16_t, uint32_t>> producers;
  for (const Producer &p : burst.producers)
    if (p.instruction != kInitialContents && p.pe < places.size())
      producers.emplace_back(p.pe, p.instruction);
  std::sort(producers.begin(), producers.end());
  producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
  for (const auto &[from, instruction] : producers)
    arrows.push_back({from, pe, instruction, place});
}

void TraceWriter::flush() {
  writeNodes();
  writeCounters();
  writeArrows();
}

void TraceWriter::writeIdle() {
  std::map<std::pair<unsigned, std::string>, unsigned> threads; ///< by PE and unit
  std::vector<bool> isKnown(machine.pes(), false);
  for (const IdleSlice &idle : options.idle) {
    if (idle.from > options.last || idle.to <= options.first)
      continue;
    const unsigned process = kFirstPe + machine.pes() + idle.pe;
    if (!isKnown[idle.pe])
      nameProcess(process, "idle of pe " + std::to_string(idle.pe));
    isKnown[idle.pe] = true;
    const auto [entry, isNew] =
        threads.emplace(std::pair(idle.pe, idle.unit), unsigned(kFirstThread + threads.size()));
    if (isNew)
      nameThread(process, entry->second, idle.unit, entry->second);
    slice(process, entry->second, idle.from, idle.to - idle.from, idle.cause);
    out << ",\"cat\":\"idle\",\"args\":{\"before\":" << jsonString(idle.before)
        << ",\"held_by\":" << jsonString(idle.heldBy) << "}}";
  }
}

void TraceWriter::writeNodes() {
  std::vector<uint32_t> nodes;
  for (auto &[node, spans] : active) {
    std::sort(spans.begin(), spans.end());
    nodes.push_back(node);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](uint32_t a, uint32_t b) { return active[a][0] < active[b][0]; });
  for (uint32_t node : nodes) {
    const auto &spans = active[node];
    const auto [entry, isNew] =
        nodeThreads.emplace(node, unsigned(kFirstThread + nodeThreads.size()));
    const unsigned thread = entry->second;
    if (isNew)
      nameThread(kProgram, thread, image.strings[node], thread - kFirstThread + 1);
    for (size_t at = 0; at < spans.size();) {
      auto [from, to] = spans[at];
      size_t bursts = 0;
      for (; at < spans.size() && spans[at].first <= to; ++at, ++bursts)
        to = std::max(to, spans[at].second);
      slice(kProgram, thread, from, to - from, image.strings[node]);
      out << ",\"args\":{\"bursts\":" << bursts << ",\"step\":" << step << "}}";
    }
  }
  active.clear();
}

void TraceWriter::writeCounters() {
  for (unsigned pe = 0; pe < totals.size(); ++pe)
    totals[pe].take([&](uint64_t cycle, TraceTotals::Counter counter, double value) {
      event("C", kFirstPe + pe) << ",\"ts\":" << cycle << ",\"name\":\""
                                << TraceTotals::nameOf(counter)
                                << "\",\"args\":{\"per cycle\":" << value << "}}";
    });
}

void TraceWriter::writeArrows() {
  for (const Arrow &arrow : arrows) {
    if (arrow.from >= places[arrow.fromPe].size() || !places[arrow.fromPe][arrow.from].thread)
      continue; // it acts outside the cycles that are shown
    const Place &from = places[arrow.fromPe][arrow.from];
    // What a burst takes later than first may be made after it has begun.
    const uint64_t taken = std::min(std::max(from.start, arrow.to.start), arrow.to.end - 1);
    ++arrowCount;
    const auto end = [&](const char *phase, unsigned pe, const Place &place, uint64_t cycle) {
      event(phase, kFirstPe + pe) << ",\"tid\":" << place.thread << ",\"ts\":" << cycle
                                  << ",\"id\":" << arrowCount
                                  << ",\"cat\":\"data\",\"name\":\"data\"";
    };
    end("s", arrow.fromPe, from, from.start);
    out << "}";
    end("f", arrow.toPe, arrow.to, taken);
    out << ",\"bp\":\"e\"}";
  }
  arrows.clear();
}

} // namespace millrace::sim
