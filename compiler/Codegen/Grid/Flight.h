// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that are scheduled together: which part of which kernel comes next.
#pragma once

#include "compiler/Codegen/Grid/Shares.h"

#include <functional>
#include <map>
#include <optional>

namespace millrace::grid {

/// A part of a kernel that is scheduled at once: shares of one worker.
struct Part {
  std::vector<Share> shares;
  std::vector<unsigned> queues; ///< activate queues that it occupies; none for the VXM alone
  std::function<Status()> schedule;
};

/// Parts of several kernels of one PE, of which the one comes next that could begin first. Kernels
/// are added in an order in which they may run one after the other; a part waits for the parts of
/// kernels before it that touch a row which it writes, or write one which it touches.
///
/// When a part could begin is estimated: once its queue is free, what it waits for is done and, as
/// long as the kernel's part before took from its begin to its epilogue, enough ALUs are free.
class Flight {
public:
  Flight(const Context &c, unsigned alus, unsigned pe) : c(c), alus(alus), pe(pe) {}

  /// `place` of the kernel in the order.
  void add(size_t place, size_t kernel, const Work &work, std::vector<Part> parts);
  /// Kernels with parts that are not scheduled yet.
  size_t kernels() const { return open.size(); }
  bool isOpen(size_t place) const { return open.count(place); }
  /// Schedules the next part; there is one. Returns the place of its kernel.
  Expected<size_t> scheduleNext();
  /// Time starts anew: what was scheduled before is done.
  void forget();

private:
  using Number = uint32_t; ///< of a part
  struct Waiting {
    size_t place = 0; ///< of its kernel
    Part part;
    std::vector<Number> before; ///< parts that it waits for
  };
  /// What is known of a kernel.
  struct Seen {
    unsigned ops = 0;                   ///< ALUs that its epilogue takes
    Cycle untilEpilogue = 0, lasts = 0; ///< of the part scheduled last
    std::vector<Number> parts;          ///< that wait, in the order of the kernel
  };
  struct Busy {
    Cycle from = 0, to = 0;
    unsigned ops = 0;
  };
  /// Who touched a row, as far as they may matter.
  struct Touched {
    std::vector<Number> readers, writers;
  };

  const Context &c;
  const unsigned alus, pe; ///< the one that computes
  std::vector<Waiting> parts;
  std::vector<Cycle> done;            ///< per part: when its results can be read; -1 while it waits
  std::map<size_t, Seen> open;        ///< per place of a kernel
  std::map<unsigned, Cycle> freeFrom; ///< per queue
  std::vector<Busy> taken, freed;     ///< ALUs: the same, by when they are taken and when freed
  std::map<std::pair<unsigned, unsigned>, std::vector<Touched>> rows; ///< per tensor, tile

  std::optional<Cycle> beginOf(Number number) const;
  Cycle whenFree(Cycle from, Cycle lasts, unsigned ops) const;
  void note(Number number, size_t firstInstruction);
};

} // namespace millrace::grid
