// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Assembly. A program that assembles becomes bytes which read back; where it verifies against its
// machine, its text assembles to the same bytes again.
#include "tests/fuzz/Machines.h"
#include "tests/fuzz/RoundTrip.h"
#include "tests/fuzz/Target.h"

#include "arch/program/Assembler.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"

using namespace millrace;
using namespace millrace::fuzz;

/// The machine that the text names, if it is an installed one: kept, not loaded every time.
static const Machine *namedIn(std::string_view text) {
  static constexpr std::string_view mark = "machine ";
  const size_t at = text.starts_with(mark) ? 0 : text.find("\nmachine ");
  if (at == text.npos)
    return nullptr;
  std::string_view rest = text.substr(at + mark.size() + (at ? 1 : 0));
  return installedMachine(std::string(rest.substr(0, rest.find_first_of(" \t\r\n;"))));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text = textOf(data, size);
  const Machine *machine = namedIn(text);
  const Expected<Image> image = assemble(text, "program.mas", machine);
  accepted = bool(image);
  if (!image) {
    requireError(image.error());
    return 0;
  }
  const std::vector<uint8_t> bytes = requireSameFromBytes(*image);
  constexpr size_t mostData = 1 << 20; // more takes only time
  if (!machine || image->data.size() > mostData)
    return 0;
  const std::string again = disassemble(*image, *machine); // also of what does not verify
  if (verifyImage(*image, *machine, {.anyMachine = true}))
    requireSameFromText(again, *machine, bytes);
  return 0;
}
