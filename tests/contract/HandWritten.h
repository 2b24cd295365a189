// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs in tests/contract/programs: assembly with the expected outcome in its comments.
//
//   ; set: latency.read_after_write=3          a key of the machine, for this program
//   ; expect: cycles 47                        nothing is violated, and this is measured
//   ; expect: mem.w.4 row 0 lane 3 = 7 8 9     bytes of memory afterwards, of pe 0
//   ; expect: pe 1 mem.w.4 row 0 lane 3 = 7    ... or of another
//   ; expect: S4 at pe 0 mem.w.3 cycle 21      the first violation
//   ; expect: S4 in step 1 at pe 0 mem.w.3 cycle 21   ... in a step that is not the first
//   ; expect: S11 cycle 60                     ... which of S11 has no place
//   ; expect: refused: WORDS                   no image is made of it; the error has these words
//   ; values only                              what a run without values cannot tell
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Machine.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace::test {

struct HandWritten {
  struct Bytes {
    unsigned pe = 0;
    std::string slice; ///< its queue, "mem.w.4"
    uint32_t row = 0, lane = 0;
    std::vector<uint8_t> values;
  };
  std::string name; ///< of the file, without folder and ending
  Machine machine;
  Image image;
  std::optional<uint64_t> cycles;
  std::vector<Bytes> bytes;
  bool valuesOnly = false;
  std::string violation; ///< "S4 at pe 0 mem.w.3 cycle 21"; empty: none is expected
  std::string refusal;   ///< words of the error; empty: it is assembled
  std::string error;     ///< that the program gave, where one was expected
};

/// Names of the programs, sorted. Paths count from the root of the source tree.
std::vector<std::string> handWrittenNames();

/// Reads, assembles, and understands the comments. Errors name file and line.
Expected<HandWritten> readHandWritten(const std::string &name);

} // namespace millrace::test
