// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/loader/Loader.h"

#include "arch/program/ImageCheck.h"

namespace millrace::sim {

/// What this simulator asks of a machine beyond Machine::verify.
static Status checkMachine(const Machine &m) {
  if (!m.latency.hop || !m.latency.memGather)
    return Error{"the simulator needs latency hop and gather of at least 1"};
  if (m.mxm.planes && (m.mxm.columnsPerInstall % 16 || !m.mxm.columnsPerInstall ||
                       m.mxm.columns % m.mxm.columnsPerInstall))
    return Error{
        "the simulator needs column groups that are multiples of 16 and divide the columns"};
  const LatencySpec &l = m.latency;
  if (m.mxm.planes && l.mxmEntry + l.mxmMultiply + l.mxmAccumulate + l.mxmExit <
                          m.mxm.columns / m.mxm.columnsPerInstall)
    return Error{"the simulator needs latencies mxm_entry + mxm_multiply + mxm_accumulate + "
                 "mxm_exit of at least " +
                 std::to_string(m.mxm.columns / m.mxm.columnsPerInstall) +
                 ", the number of column groups: a result leaves when the last one is used"};
  return Success{};
}

Status checkStructure(const Image &image, const Machine &machine) {
  if (Status s = checkMachine(machine); !s)
    return s;
  // A wrong schedule is a result, not an error. Whether an image may run on another machine than
  // its own is for whoever asks to say.
  return verifyImage(image, machine, {.anyMachine = true, .schedule = false});
}

} // namespace millrace::sim
