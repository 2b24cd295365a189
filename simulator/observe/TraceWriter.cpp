// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/observe/TraceWriter.h"

#include <nlohmann/json.hpp>

namespace millrace::sim {

std::string jsonString(const std::string &text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceWriter::TraceWriter(std::ostream &out, const Image &image, const Machine &machine)
    : out(out), image(image), machine(machine), named(size_t(machine.pes()) * machine.queues()) {
  out << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"unit\":\"1 us is 1 "
         "cycle\"},\"traceEvents\":[";
}

TraceWriter::~TraceWriter() { out << "\n]}\n"; }

void TraceWriter::beginStep(unsigned s) { step = s; }

void TraceWriter::endStep(unsigned, uint64_t cycles) { base += cycles; }

void TraceWriter::nameTrack(unsigned pe, unsigned queue) {
  if (named[size_t(pe) * machine.queues() + queue])
    return;
  named[size_t(pe) * machine.queues() + queue] = true;
  out << (first ? "\n" : ",\n") << "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" << pe
      << ",\"args\":{\"name\":\"pe " << pe
      << "\"}},\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" << pe << ",\"tid\":" << queue
      << ",\"args\":{\"name\":" << jsonString(machine.queueName(queue)) << "}},\n"
      << "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":" << pe << ",\"tid\":" << queue
      << ",\"args\":{\"sort_index\":" << queue << "}}";
  first = false;
}

void TraceWriter::dispatched(unsigned pe, unsigned queue, const Burst &burst) {
  nameTrack(pe, queue);
  const Instruction &i = *burst.instruction;
  const std::string mnemonic(info(i.opcode).mnemonic);
  const bool known = i.provenance < image.strings.size() && !image.strings[i.provenance].empty();
  out << ",\n{\"ph\":\"X\",\"pid\":" << pe << ",\"tid\":" << queue
      << ",\"ts\":" << base + uint64_t(burst.start)
      << ",\"dur\":" << burst.lastCycle() - burst.start + 1
      << ",\"name\":" << jsonString(known ? image.strings[i.provenance] : mnemonic)
      << ",\"cat\":" << jsonString(mnemonic) << ",\"args\":{\"instruction\":" << burst.index
      << ",\"elements\":" << burst.elements() << ",\"step\":" << step << "}}";
}

} // namespace millrace::sim
