// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What two targets hold a program to that verifies: its bytes and its
// text give the same bytes again.
#pragma once

#include "tests/fuzz/Target.h"

#include "arch/program/Assembler.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"
#include "arch/program/ImageLayout.h"

#include <span>
#include <vector>

namespace millrace::fuzz {

/// The bytes of an image, which it must be readable from and stay the same.
inline std::vector<uint8_t> requireSameFromBytes(const Image &image) {
  require(bool(checkImage(image)), "what assembles or loads is well formed");
  const std::vector<uint8_t> bytes = encodeImage(image);
  const Expected<Image> again = decodeImage(bytes, "again.mrp");
  require(bool(again), "it can be written and read", again ? "" : again.error());
  require(encodeImage(*again) == bytes, "and stays the same bytes");
  return bytes;
}

/// `text` is the disassembly of an image for `machine` that encodes to `bytes`.
inline void requireSameFromText(const std::string &text, const Machine &machine,
                                const std::vector<uint8_t> &bytes) {
  const Expected<Image> again = assemble(text, "again.mas", &machine);
  require(bool(again), "the text of a program that verifies assembles",
          (again ? "" : again.error()) + "\n" + text);
  const std::vector<uint8_t> same = encodeImage(*again);
  // Past the header, where the checksum differs first.
  const auto behind = [](const std::vector<uint8_t> &all) {
    return std::span(all).subspan(sizeof(layout::Header));
  };
  require(same == bytes, "to the same bytes", differenceOf(behind(same), behind(bytes)) + text);
}

} // namespace millrace::fuzz
