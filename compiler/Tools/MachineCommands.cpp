// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/spec/Facts.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Notes.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace millrace::driver {

void addMachines(CLI::App &app, Action &action) {
  CLI::App *command = app.add_subcommand("machines", "Lists the machines that ship with millrace")
                          ->group(heading::Machines);
  command->footer("A machine of your own is a YAML file: docs/howto/write-a-machine.md");
  command->callback([&action] {
    action = [] {
      const std::vector<std::string> names = machineNames();
      size_t width = 10;
      for (const std::string &name : names)
        width = std::max(width, name.size());
      for (const std::string &name : names) {
        Expected<Machine> machine = loadMachine(name, {});
        std::printf("%-*s  %s\n", int(width), name.c_str(),
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
  CLI::App *command =
      app.add_subcommand("describe",
                         "Prints peak rates, bandwidths, capacity and queues of a machine")
          ->group(heading::Machines);
  command->footer("Examples:\n"
                  "  millrace describe tsp-v1 --set clock='1 GHz'\n"
                  "  millrace describe lp30 --yaml > mine.yaml");
  command->add_option("machine", *name, "machine name or YAML file")
      ->type_name("MACHINE")
      ->required();
  command->add_option("--set", *settings, "change one key, path=value; repeat for more")
      ->type_name("KEY=VALUE")
      ->group(heading::Machine);
  command->add_option("--json", *json, "write the facts as JSON")
      ->type_name("FILE")
      ->group(heading::Choice);
  command->add_flag("--yaml", *yaml, "print the resolved configuration instead")
      ->group(heading::Choice);
  command->callback([=, &action] {
    action = [=]() -> int {
      Expected<Machine> machine = loadMachine(*name, *settings);
      if (!machine)
        return fail(BadInput, machine.error());
      if (*json != kStandardOutput)
        std::fputs(*yaml ? toYaml(*machine).c_str() : toText(factsOf(*machine)).c_str(), stdout);
      if (!json->empty())
        if (Status s = writeFile(*json, jsonText(toJson(factsOf(*machine)), 2) + "\n"); !s)
          return fail(BadOutput, s.error());
      return Ok;
    };
  });
}

} // namespace millrace::driver
