// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of the host into the machine's rows and back, as a Binding says. docs/spec/image.md gives
// the rules; HostNumbers.h converts the elements.
#pragma once

#include "arch/program/HostStep.h"
#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

#include <cstdint>

namespace millrace {

/// The elements of a host tensor in binding.gridType, little endian and row major: what writeTensor
/// puts. Errors as there.
Expected<std::vector<uint8_t>> gridElements(const Binding &binding, const void *host);

/// Writes every placement of the binding, in order. `host`: the tensor in binding.hostType, row
/// major in binding.shape, aligned to its elements; bool is one byte each. A binding with a scale
/// quantises float32 to int8. A place whose index lies outside the shape gets the placement's fill
/// bits. The binding's PEs, slices and rows exist in the machine (ImageCheck.h). Errors name the
/// binding and the element or placement; a wrong element is found before anything is written.
Status writeTensor(const Binding &binding, const void *host, RowAccess &memory);

/// Reads the placements in order, later ones win, into `host` (as above, of hostBytes). An element
/// that no placement holds is an error.
Status readTensor(const Binding &binding, void *host, RowAccess &memory);

/// Whether the host's elements of this binding are, bit for bit, those of the grid.
bool hostHasGridBits(const Binding &binding);

/// A HostConstant of an image whose data these are, into `host` (as above, of hostBytes). The image
/// passed checkImage.
Status readConstant(const Binding &binding, const uint8_t *data, void *host);

/// Elements that all placements put: an element counts once per copy, and so does a fill.
uint64_t elementsWritten(const Binding &binding);

/// Bytes of the host's tensor, what crosses the host's link; 0 if hostType or shape is not valid.
uint64_t hostBytes(const Binding &binding);

} // namespace millrace
