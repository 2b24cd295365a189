// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers with units, as people write them: "900 MHz", "1.25 MiB", "216 cycles", "350 ns", "44".
#pragma once

#include "arch/spec/Expected.h"

#include <string>
#include <string_view>

namespace millrace {

/// What conversions between dimensions need to know of the machine: ns to cycles, bytes to rows.
struct UnitContext {
  double clockHz = 0;
  unsigned bytesPerRow = 0;
};

/// Reads `text` as a number of `unit` (the base unit of a key: Hz, s, B/s, pJ, cycles, rows, or a
/// plain noun such as slices). Known multiples are converted; where that leaves a fraction of a
/// cycle or row, it is an error that names the exact value. Hz, s, B/s and pJ must be written with
/// a unit; counts may be bare. Errors do not name the key; the caller puts it in front.
Expected<double> parseQuantity(std::string_view text, std::string_view unit,
                               const UnitContext &context);

/// Whether reading needs the clock or the row length first.
bool needsContext(std::string_view text, std::string_view unit);

/// The shortest text that parseQuantity reads back as exactly this number.
std::string printQuantity(double number, std::string_view unit);

/// The units that a key of base unit `unit` accepts, for documentation: "Hz, kHz, MHz, GHz".
std::string acceptedUnits(std::string_view unit);

} // namespace millrace
