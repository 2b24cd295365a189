// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bursts of one piece that meet in a slice: the rows of one of them take another way. What it reads
// is copied to rows where nothing else of the piece happens before it; what it writes goes there
// and is copied to its place afterwards. A copy is a piece of its own through the VXM.
#pragma once

#include "compiler/Codegen/Grid/Bursts.h"

namespace millrace::grid {

/// Places the piece at the earliest start >= `from`; with `Context::detours` after its bursts have
/// been led around each other. The rows that this takes are free again afterwards. Errors: those of
/// Piece::place, also if no rows are left where the bursts would not meet.
/// `attempt`: which way of building it this is.
Expected<Cycle> place(Context &c, Piece &piece, Cycle from, unsigned attempt = 0);

/// A kernel's piece is built with results that leave 0, 1 ... passes late until no two bursts leave
/// one queue in one cycle; if that fails, with `Context::detours`, as at first.
constexpr unsigned kMostPasses = 3;
constexpr unsigned passesOf(unsigned attempt) { return attempt > kMostPasses ? 0 : attempt; }
bool triesAgain(const Context &c, Piece &piece, unsigned attempt);

} // namespace millrace::grid
