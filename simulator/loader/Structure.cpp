// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/loader/Loader.h"

#include "arch/program/ImageCheck.h"

namespace millrace::sim {

Status checkStructure(const Image &image, const Machine &machine) {
  if (Status s = machine.verify(); !s)
    return s;
  // A wrong schedule is a result, not an error. Whether an image may run on another machine than
  // its own is for whoever asks to say.
  return verifyImage(image, machine, {.anyMachine = true, .schedule = false});
}

} // namespace millrace::sim
