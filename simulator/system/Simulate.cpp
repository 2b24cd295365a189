// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/system/Simulate.h"

#include "simulator/loader/Loader.h"
#include "simulator/system/System.h"

#include <utility>

namespace millrace::sim {

/// The kernel's context is global and cannot run twice; every simulation gets a fresh one. The
/// library's own events belong to the first context until the process ends, so that one is never
/// deleted.
static void freshKernel() {
  using namespace sc_core;
  static sc_simcontext *ours = nullptr;
  static bool used = false;
  if (!std::exchange(used, true))
    return;
  delete ours;
  sc_curr_simcontext = ours = new sc_simcontext;
}

static Status runSteps(System &system, const Image &image, const SimulationOptions &options,
                       HostStepRunner *host, SimulationResult &result) {
  if (options.values && options.writeInputs)
    if (Status s = options.writeInputs(system); !s)
      return s;
  for (unsigned k = 0; k < image.steps.size(); ++k) {
    const Step &step = image.steps[k];
    if (k > 0)
      system.loadBlocks(k);
    StepResult r{step.kind, step.predictedCycles, 0};
    if (step.kind == Step::Kind::Grid) {
      r.measuredCycles = system.runStep(k);
      result.measuredCycles += r.measuredCycles;
    } else if (options.values) {
      if (Status s = host->run(image, step, system); !s)
        return s;
    }
    result.steps.push_back(r);
    if (system.violations().decided(k))
      return Success{};
  }
  if (options.values && options.readOutputs)
    return options.readOutputs(system);
  return Success{};
}

Expected<SimulationResult> simulate(const Image &image, const Machine &machine,
                                    const SimulationOptions &options, HostStepRunner *host) {
  if (image.machineHash != machine.hash() && !options.ignoreMachineHash)
    return Error{"the image was compiled for machine '" + image.machineName + "', not for " +
                 (image.machineName == machine.name ? "one of that name with other numbers"
                                                    : "'" + machine.name + "'") +
                 "; compile it again"};
  if (Status s = checkStructure(image, machine); !s)
    return s.takeError();
  for (const Step &step : image.steps)
    if (step.kind == Step::Kind::Host && options.values && !host)
      return Error{"step '" + step.function +
                   "' runs on the host, but no host runner is given; simulate cycles only"};
  freshKernel();
  SimulationResult result;
  System system(image, machine, options);
  checkTensors(image, machine, system.violations());
  system.loadBlocks(0);
  if (Status s = runSteps(system, image, options, host, result); !s)
    return s.takeError();
  system.finishCounters();
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    result.pes.push_back(system.counters(pe));
    result.total.add(result.pes.back());
  }
  result.violation = system.violations().first();
  return result;
}

} // namespace millrace::sim

/// The kernel's library refers to it; simulations start in simulate().
int sc_main(int, char **) { return 0; }
