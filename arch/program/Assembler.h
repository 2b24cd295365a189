// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Images as text that people write and read. docs/spec/assembly.md has the grammar and an example.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

#include <string>
#include <string_view>

namespace millrace {

/// The image that the text describes. `machine` null: the text's `machine NAME` loads it; otherwise
/// the text may name any, and `machine` counts. Instructions may stand in any order within a step;
/// they are sorted by cycle and queue, as images want them. Every instruction is checked by
/// verifyInstruction and the whole by checkImage. Errors begin with `file:line:column: `.
Expected<Image> assemble(std::string_view text, const std::string &file,
                         const Machine *machine = nullptr);

struct DisassembleOptions {
  bool data =
      true; ///< the contents of memory; without them the text does not assemble to the image
};

/// Text that assembles to an identical image, for any image that verifyImage accepts.
std::string disassemble(const Image &image, const Machine &machine,
                        const DisassembleOptions &options = {});

} // namespace millrace
