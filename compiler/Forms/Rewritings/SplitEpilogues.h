// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"
#include "compiler/Forms/Room.h"

#include "arch/spec/Machine.h"

#include <optional>

namespace millrace::forms {

/// Cuts epilogues of more than `most` operations where a single value crosses: the first part
/// stores it in fp32, a map does the rest. Returns how many kernels it cut; an epilogue with no
/// such place stays whole.
unsigned splitEpilogues(KernelGraph &graph, unsigned most);
/// Cuts also those that need more ALUs or streams than the machine has, since values wait for
/// others or many operands come at once, and those that read one tensor at more than five places:
/// three (two of fp32) where copies of it would take more than a quarter of what constants leave,
/// or room is spared, two where memory is least. A window is cut into parts of which two rows find
/// ALUs at once, each with a few copies in either hemisphere, if that takes no more cycles.
/// Before a window is cut, a bias that is added to its sum is added to the first product
/// where that leaves fewer parts.
unsigned splitEpilogues(KernelGraph &graph, unsigned most, const Machine &machine,
                        Room room = Room::Ample);

/// Places of one tensor that a part of a map reads at most, where memory is no matter.
unsigned mostReadsAtOnce(ElementType type);

/// Cycles of the VXM that a map takes once splitEpilogues has cut it: for each part a row in each,
/// or two where both hemispheres' rows find ALUs, and until the next part can read.
double cyclesOfMap(const KernelGraph &graph, const Kernel &kernel, unsigned most,
                   const Machine &machine, Room room);

/// Where the value of node `cut` lies between two kernels: as the first result does, a dimension
/// per parallel loop of its access; before a reduction there is a value for every step of the
/// running loops. Nothing where the result's lanes are more than a loop, or a loop moves two
/// dimensions.
std::optional<Access> addBetween(KernelGraph &graph, const Kernel &kernel, unsigned cut);
/// What stays in the kernel if it ends with node `cut`.
Kernel upTo(const Kernel &kernel, unsigned cut, const Access &result);

} // namespace millrace::forms
