// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MXM planes of one PE. An activation passes the column groups one a cycle; each group is
// multiplied in the cycle in which it is passed, with the weights that stand there then.
#pragma once

#include "simulator/truth/Core.h"

#include <map>

namespace millrace::sim::truth {

class Matrices {
public:
  explicit Matrices(Core &core);

  /// The element to come of an Install, Clear, Activate or Accumulate acts.
  void element(const Work &work, Cycle now);
  /// The end of a cycle: every activation passes a group, sums follow.
  void endCycle(Cycle now);
  bool busy() const { return !activations.empty() || !sums.empty(); }
  void clear();

private:
  /// A column group of a weight buffer.
  struct Group {
    Tag tag;
    Cycle at = 0; ///< when it was filled
    std::vector<Lanes> columns;
  };
  struct Activation {
    Cycle at;
    unsigned plane; ///< by queue of its activate port
    Work work;
    Bytes bytes[2];
    std::vector<uint32_t> products; ///< per column
  };
  /// An Accumulate on its way over the column groups.
  struct Sum {
    Cycle at;
    std::pair<unsigned, uint32_t> row; ///< plane and accumulator row
    uint8_t mode;
    ElementType format;
    std::shared_ptr<Activation> activation; ///< null: there was none (S4)
    Bytes result[4];                        ///< filled group by group, if it emits
  };
  /// The last Accumulate of an accumulator row.
  struct LastUse {
    Cycle at;
    Tag by;
    bool isInteger; ///< int32, else fp32 (R3)
  };
  void fill(const Work &work, Cycle now, unsigned group);
  void install(const Work &work, Cycle now);
  void activate(const Work &work, Cycle now);
  void accumulate(const Work &work, Cycle now);
  void checkRow(const Work &work, std::pair<unsigned, uint32_t> row, Cycle now) const;
  std::shared_ptr<Activation> activationOf(const Work &work, Cycle now) const;
  void pass(Activation &activation, unsigned group);
  void checkGroup(const Activation &activation, unsigned group, unsigned byte);
  uint32_t product(const Activation &activation, unsigned column) const;
  void add(Sum &sum, unsigned group);
  Group &groupOf(unsigned plane, unsigned buffer, unsigned group) {
    return weights[{plane, buffer, group}];
  }
  /// Planes are numbered over both hemispheres.
  unsigned planeOf(const Work &work) const;

  Core &core;
  const unsigned groups, width; ///< column groups, columns of each
  std::map<std::tuple<unsigned, unsigned, unsigned>, Group> weights; ///< plane, buffer, group
  std::vector<std::shared_ptr<Activation>> activations;              ///< not yet over all groups
  std::map<std::pair<unsigned, Cycle>, std::shared_ptr<Activation>> products; ///< plane, dispatch
  std::vector<Sum> sums;
  std::map<std::pair<unsigned, uint32_t>, LastUse> lastUse; ///< plane, accumulator row
  std::map<std::pair<unsigned, uint32_t>, std::vector<uint32_t>> accumulators;
};

} // namespace millrace::sim::truth
