// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory for tests: every row that is touched, and bounds that are checked.
#pragma once

#include "arch/program/HostStep.h"

#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace millrace::test {

class Rows : public RowAccess {
public:
  explicit Rows(unsigned lanes) : width(lanes) {}
  unsigned lanes() const override { return width; }
  void read(unsigned pe, Hemisphere h, unsigned slice, uint32_t row,
            std::span<uint8_t> bytes) override {
    if (bytes.size() != width)
      throw std::logic_error("a read of another width than the machine's");
    auto it = rows.find({pe, h, slice, row});
    for (unsigned k = 0; k < width; ++k)
      bytes[k] = it == rows.end() ? 0 : it->second[k];
  }
  std::span<uint8_t> write(unsigned pe, Hemisphere h, unsigned slice, uint32_t row) override {
    auto &bytes = rows[{pe, h, slice, row}];
    bytes.resize(width);
    return bytes;
  }

  std::map<std::tuple<unsigned, Hemisphere, unsigned, uint32_t>, std::vector<uint8_t>> rows;

private:
  unsigned width;
};

} // namespace millrace::test
