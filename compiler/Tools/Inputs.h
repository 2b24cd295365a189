// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host tensors for a program's inputs: files, or seeded random values.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"
#include "compiler/Support/HostTensor.h"
#include "compiler/Tools/Commands.h"

#include <map>
#include <random>
#include <string>
#include <vector>

namespace millrace::driver {

/// Whether each of `files` is name=path.npy, with a path that can be read and a name given once.
std::optional<Failure> checkInputFiles(const std::vector<std::string> &files);

/// Floats standard normal, integers from 0 to `bound` less one; one byte holds at most 127.
HostTensor randomTensor(HostType type, const std::vector<int64_t> &shape, std::mt19937_64 &random,
                        int64_t bound);

/// One tensor per Input binding, by name: `files` as name=path.npy, the rest drawn with `seed`
/// (floats standard normal; integers below their bound, or 0 or 1 without one), or left out without
/// a seed. Errors name the input, and what the file holds instead.
Expected<std::map<std::string, HostTensor>>
makeInputs(const Image &image, const std::vector<std::string> &files, std::optional<uint64_t> seed);

} // namespace millrace::driver
