// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/ImageFile.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Tools/Execute.h"
#include "compiler/Tools/FileKind.h"
#include "compiler/Tools/HelpText.h"

namespace millrace::driver {

void addSimulate(CLI::App &app, Action &action, const FindHostSteps &findHost) {
  auto execution = std::make_shared<ExecuteOptions>();
  auto path = std::make_shared<std::string>();
  auto machineName = std::make_shared<std::string>();
  auto settings = std::make_shared<std::vector<std::string>>();
  CLI::App *command =
      app.add_subcommand("simulate", "Executes a program image on the simulated machine")
          ->group(heading::Images);
  command->footer("Examples:\n"
                  "  millrace simulate model.mrp --cycles-only\n"
                  "  millrace simulate model.mrp --input x=x.npy --output-dir out --json -");
  command->add_option("image", *path, "image that `millrace compile` wrote")
      ->type_name("FILE")
      ->required();
  execution->addTo(*command);
  command
      ->add_option("--machine,-m", *machineName,
                   "machine to run on; the one in the image by default")
      ->type_name("MACHINE")
      ->group(heading::Machine);
  command
      ->add_option("--set", *settings,
                   "change one key of the machine, path=value; needs --ignore-machine-hash")
      ->type_name("KEY=VALUE")
      ->group(heading::Machine);
  command
      ->add_flag("--ignore-machine-hash", execution->ignoreMachineHash,
                 "run on a machine that the image was not made for; expect violations")
      ->group(heading::Machine);
  command
      ->add_flag("--truth", execution->truth,
                 "step every cycle and every stream register: the same result from simpler code, "
                 "some hundred times slower")
      ->group(heading::Simulation);
  addVerbosity(*command, execution->watch.verbosity);
  command->callback([=, &action] {
    action = [=]() -> int {
      if (auto failure = check(*execution))
        return fail(failure->code, failure->message);
      if (Status s = expectImage(*path); !s)
        return fail(BadInput, s.error());
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
