// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Damages an image's meaning in every way that the instruction table offers, and judges what the
// simulator says about it.
#pragma once

#include "arch/program/Image.h"

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace millrace::test {

struct Mutant {
  std::string kind;  ///< "read.address": opcode and field, or "image.header" and the like
  std::string where; ///< PE, instruction and what changed, for people
  Image image;
};

/// Kinds that the instruction table offers for an opcode, as "read.address": those of an
/// instruction's place, and one for each of its fields.
std::vector<std::string> mutantKinds(Opcode opcode);

/// `each` random mutants of every kind that applies to the image; the same for a seed.
void forEachMutant(const Image &image, const Machine &machine, unsigned each, unsigned seed,
                   const std::function<void(const Mutant &)> &visit);

} // namespace millrace::test
