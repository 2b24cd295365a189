// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives test_onnxruntime.py the ALU operations.
//
// usage: SemanticsProbe MNEMONIC < operands > results
// Lanes are 32-bit words in the machine's byte order: all of operand a, then of b, then of c.

#include "arch/isa/semantics/Alu.h"
#include <cstdio>
#include <string>
#include <vector>

using namespace millrace;

int main(int argc, char **argv) {
  auto op = argc == 2 ? aluOpFromMnemonic(argv[1]) : std::nullopt;
  if (!op) {
    std::fprintf(stderr, "usage: SemanticsProbe MNEMONIC < operands > results\n");
    return 2;
  }
  std::vector<uint32_t> words;
  uint32_t word;
  while (std::fread(&word, sizeof(word), 1, stdin) == 1)
    words.push_back(word);
  size_t operands = aluOpInfo(*op).operands, lanes = words.size() / operands;
  std::vector<uint32_t> out(lanes);
  const uint32_t *a = words.data();
  semantics::applyAlu(*op, a, operands > 1 ? a + lanes : nullptr,
                      operands > 2 ? a + 2 * lanes : nullptr, out.data(), lanes);
  return std::fwrite(out.data(), sizeof(word), lanes, stdout) == lanes ? 0 : 1;
}
