// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/ImageFile.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Tools/Execute.h"

namespace millrace::driver {

void addSimulate(CLI::App &app, Action &action, const FindHostSteps &findHost) {
  auto execution = std::make_shared<ExecuteOptions>();
  auto path = std::make_shared<std::string>();
  auto machineName = std::make_shared<std::string>();
  auto settings = std::make_shared<std::vector<std::string>>();
  CLI::App *command = app.add_subcommand(
      "simulate", "Executes a program image on the simulated machine.\n\n"
                  "Example: millrace simulate model.mrp --cycles-only --json r.json");
  command->add_option("image", *path, "image that `millrace compile` wrote")->required();
  command->add_option("--machine,-m", *machineName,
                      "machine to run on; the one in the image by default");
  command->add_option("--set", *settings,
                      "change one key of the machine, path=value; needs --ignore-machine-hash");
  command->add_flag("--ignore-machine-hash", execution->ignoreMachineHash,
                    "run on a machine that the image was not made for; expect violations");
  command->add_flag("--truth", execution->truth,
                    "step every cycle and every stream register: the same result from simpler "
                    "code, some hundred times slower");
  execution->addTo(*command);
  command->callback([=, &action] {
    action = [=]() -> int {
      if (auto failure = check(*execution))
        return fail(failure->code, failure->message);
      Expected<OpenedImage> opened = openImage(*path);
      if (!opened)
        return fail(BadInput, opened.error());
      const Image &image = opened->image;
      Expected<Machine> machine =
          machineName->empty() ? parseMachine(image.machineYaml, *path + " (machine)", *settings)
                               : loadMachine(*machineName, *settings);
      if (!machine)
        return fail(BadInput, machine.error());
      if (execution->cyclesOnly)
        return execute(image, *machine, *execution, nullptr);
      const MakeHostSteps makeHost = hasHostSteps(image) ? findHost(image) : nullptr;
      if (Status s = opened->readData(); !s)
        return fail(BadInput, s.error());
      return execute(image, *machine, *execution, makeHost);
    };
  });
}

} // namespace millrace::driver
