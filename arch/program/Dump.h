// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is in an image, for people (text) and for scripts (JSON).
#pragma once

#include "arch/program/Image.h"

#include <optional>
#include <string>

namespace millrace {

/// Which instructions to list. An instruction is within [from, to] when any of its elements may act
/// there: from its dispatch to its last element's cycle, latencies aside.
struct DumpFilter {
  std::optional<unsigned> pe, step;
  std::string queue; ///< a queue or the beginning of its name up to a dot: "alu.3", "mem.w", "mxm"
  uint64_t from = 0, to = UINT64_MAX; ///< cycles within the step, inclusive
  std::string node;                   ///< a part of the name of the node (provenance)
  bool instructions = true, tables = true;
  bool producers = false; ///< the checked annotations of each instruction too
};

/// Header and tables (steps, tensors, blocks, bindings, notes), then the instructions that the
/// filter lets through, with the nodes that they belong to. The image passed checkImage; the
/// machine may be another than the image's.
std::string dumpText(const Image &image, const Machine &machine, const DumpFilter &filter = {});

/// A summary as JSON: machine, machine_hash, pes, predicted_cycles, instructions, elements (of all
/// bursts), producers, per_opcode, per_unit, steps, tensor_rows, data_bytes, bindings, notes.
std::string dumpJson(const Image &image, const Machine &machine);

} // namespace millrace
