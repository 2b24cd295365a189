// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether an image is well formed: by itself, and for a machine. Says nothing about schedules (S1
// to S11): those are the simulator's.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

namespace millrace {

/// Instruction::tensor and Producer::block where there is none.
constexpr uint32_t kNoTensor = 0xffffffff;

/// Every index, enumerator, count and offset of the image names something that exists in the image.
/// A provenance or region name of 0 may stand where there are no strings. Errors name table, index,
/// value and limit.
Status checkImage(const Image &image);

/// One binding within an image of `pes` PEs.
Status checkBinding(const Binding &binding, uint64_t pes);

struct VerifyOptions {
  bool anyMachine = false; ///< accept an image made for a machine of another hash
  /// Also refuse what a simulation reports as a violation: instructions out of order (S1), rounds
  /// of a burst that overlap (S2), addresses that do not exist (S10).
  bool schedule = true;
};

/// checkImage, and: the image was made for this machine; every instruction can be executed by the
/// unit of its queue; loops are legal; streams are aligned, of the right hemisphere and direction;
/// rows, lanes, planes, buffers, groups and ALUs exist; fields that an opcode does not use hold
/// their default; each PE's instructions are in (cycle, queue) order, each in one step; blocks,
/// regions and bindings lie in memory.
Status verifyImage(const Image &image, const Machine &machine, const VerifyOptions &options = {});

/// A binding lies within the machine's memory: rows, lanes, slices, for every element of its loops.
Status verifyBinding(const Binding &binding, const Machine &machine);

/// One instruction, for verifyImage and for the assembler. Its enumerators are known to exist.
Status verifyInstruction(const Instruction &instruction, const Machine &machine,
                         const VerifyOptions &options = {});

} // namespace millrace
