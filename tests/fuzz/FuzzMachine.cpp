// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machine files. Lines `#set KEY=VALUE` are overrides, as --set gives them. A machine that loads
// holds together: its text loads again as the same machine, its facts can be told, its queues and
// streams have numbers and names.
#include "tests/fuzz/Target.h"

#include "arch/spec/Facts.h"
#include "arch/spec/MachineFile.h"

#include <nlohmann/json.hpp>
#include <set>

using namespace millrace;
using namespace millrace::fuzz;

static std::vector<std::string> overridesIn(const std::string &text) {
  static const std::string mark = "#set ";
  std::vector<std::string> overrides;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, mark.size(), mark) == 0)
      overrides.push_back(text.substr(at + mark.size(), end - at - mark.size()));
    at = end + 1;
  }
  return overrides;
}

static void checkQueues(const Machine &machine) {
  std::set<std::string> names;
  for (unsigned queue = 0; queue < machine.queues(); ++queue) {
    require(machine.queue(machine.unit(queue)) == queue, "a queue's unit has that queue",
            std::to_string(queue));
    require(names.insert(machine.queueName(queue)).second, "queues have names of their own",
            machine.queueName(queue));
  }
  for (unsigned stream = 0; stream < machine.streamCount(); ++stream) {
    const StreamId id = StreamId(stream);
    require(machine.stream(machine.hemisphereOf(id), machine.directionOf(id),
                           machine.indexOf(id)) == id,
            "a stream's parts make that stream", std::to_string(stream));
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string text(textOf(data, size));
  const Expected<Machine> machine = parseMachine(text, "machine.yaml", overridesIn(text));
  accepted = bool(machine);
  if (!machine) {
    requireError(machine.error());
    return 0;
  }
  require(bool(machine->verify()), "a machine that loads verifies");
  const std::string yaml = toYaml(*machine);
  const Expected<Machine> again = parseMachine(yaml, "resolved.yaml");
  require(bool(again), "the resolved configuration loads again", again ? "" : again.error());
  require(again->hash() == machine->hash(), "and is the same machine", yaml);
  require(toYaml(*again) == yaml, "and resolves to the same text", yaml);
  const Facts facts = factsOf(*machine);
  require(!toText(facts).empty(), "a machine has facts");
  toJson(facts).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  constexpr unsigned mostQueues = 4096; // the rest is alike and only takes time
  if (machine->queues() <= mostQueues)
    checkQueues(*machine);
  return 0;
}
