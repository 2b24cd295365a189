// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/spec/Facts.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/Notes.h"

#include <nlohmann/json.hpp>

namespace millrace::driver {

void addMachines(CLI::App &app, Action &action) {
  CLI::App *command = app.add_subcommand("machines", "Lists the machines that ship with millrace.");
  command->callback([&action] {
    action = [] {
      for (const std::string &name : machineNames()) {
        Expected<Machine> machine = loadMachine(name, {});
        std::printf("%-12s %s\n", name.c_str(),
                    machine ? machine->description.c_str() : machine.error().c_str());
      }
      return int(Ok);
    };
  });
}

void addDescribe(CLI::App &app, Action &action) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<std::string>();
  auto settings = std::make_shared<std::vector<std::string>>();
  auto yaml = std::make_shared<bool>(false);
  CLI::App *command = app.add_subcommand(
      "describe", "Prints peak rates, bandwidths, capacity and queues of a machine.\n\n"
                  "Example: millrace describe tsp-v1 --set clock='1 GHz'");
  command->add_option("machine", *name, "machine name or YAML file")->required();
  command->add_option("--set", *settings, "change one key, path=value; repeat for more");
  command->add_option("--json", *json, "file for the facts as JSON");
  command->add_flag("--yaml", *yaml, "print the resolved configuration instead");
  command->callback([=, &action] {
    action = [=]() -> int {
      Expected<Machine> machine = loadMachine(*name, *settings);
      if (!machine)
        return fail(BadInput, machine.error());
      std::fputs(*yaml ? toYaml(*machine).c_str() : toText(factsOf(*machine)).c_str(), stdout);
      if (!json->empty())
        if (Status s = writeFile(*json, jsonText(toJson(factsOf(*machine)), 2) + "\n"); !s)
          return fail(BadOutput, s.error());
      return Ok;
    };
  });
}

} // namespace millrace::driver
