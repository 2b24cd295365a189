// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Program images, with the checksum put right (what lies behind it is to be reached). An image that
// loads can be written, listed, disassembled and assembled; small ones are simulated, by cycles and
// with values, and the two simulators agree.
#include "tests/fuzz/ImageMutator.h"
#include "tests/fuzz/Machines.h"
#include "tests/fuzz/RoundTrip.h"
#include "tests/fuzz/Simulation.h"
#include "tests/fuzz/Target.h"

#include "arch/program/Assembler.h"
#include "arch/program/Dump.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <cstring>
#include <memory>

using namespace millrace;
using namespace millrace::fuzz;

/// The bytes as they lie or, where that fails, of the current version and sealed anew: a corpus
/// outlives versions that keep the layout. The image views exactly these bytes.
static Expected<Image> load(const uint8_t *data, size_t size) {
  const auto bytes = std::make_shared<std::vector<uint8_t>>(data, data + size);
  Expected<Image> image = decodeImage(*bytes, "fuzz.mrp", bytes);
  if (image || !canSeal(*bytes))
    return image;
  requireError(image.error());
  const uint32_t version = Image::kVersion;
  std::memcpy(bytes->data() + offsetof(layout::Header, version), &version, sizeof(version));
  sealImage(*bytes);
  return decodeImage(*bytes, "fuzz.mrp", bytes);
}

static void checkText(const Image &image, const Machine &machine,
                      const std::vector<uint8_t> &bytes) {
  DumpFilter filter;
  filter.producers = true;
  require(!dumpText(image, machine, filter).empty(), "an image can be listed");
  require(!dumpJson(image, machine).empty(), "and summarised");
  const std::string text = disassemble(image, machine);
  if (verifyImage(image, machine, {.anyMachine = true}))
    requireSameFromText(text, machine, bytes);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const Expected<Image> image = load(data, size);
  accepted = bool(image);
  if (!image) {
    requireError(image.error());
    return 0;
  }
  const std::vector<uint8_t> bytes = requireSameFromBytes(*image);
  // An image of a machine that cannot be read is listed with another one.
  const Machine *own = machineOf(image->machineYaml);
  const Machine *machine = own ? own : installedMachine("tsp-small");
  require(machine, "tsp-small is installed");
  checkText(*image, *machine, bytes);
  if (own)
    checkSimulation(*image, *own);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                                          unsigned int seed) {
  return mutateImage(data, size, most, seed);
}
