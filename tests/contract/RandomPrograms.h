// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random kernel graphs and random machines; the same for a seed, on every machine and build.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace millrace::test {

class Draw {
public:
  explicit Draw(unsigned seed) : random(seed) {}
  int64_t below(int64_t n) { return int64_t(random() % uint64_t(n)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool coin() { return below(2); }
  /// 1, anything, or just below, at or above a multiple of `tile`; at most `most`.
  int64_t size(int64_t tile, int64_t most) {
    const int64_t kind = below(4);
    const int64_t s = kind == 0   ? 1
                      : kind == 1 ? between(1, most)
                                  : tile * between(1, 2) + between(-1, 1);
    return std::clamp<int64_t>(s, 1, most);
  }
  template <class T> T of(std::initializer_list<T> list) {
    return list.begin()[below(int64_t(list.size()))];
  }

private:
  std::mt19937 random;
};

/// Distances and capacities that a machine may have other than tsp-small, as overrides of its keys.
std::vector<std::string> randomOverrides(Draw &draw);

/// The shape of a machine: vectors, planes, memory, streams, ALUs, fabric, as further overrides.
std::vector<std::string> randomShape(Draw &draw);

/// A graph of any form; `text` says which and how large.
forms::KernelGraph randomGraph(Draw &draw, std::string &text);

} // namespace millrace::test
