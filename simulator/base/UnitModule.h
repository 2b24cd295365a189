// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract between a PE's calendar and a unit behind a port. A user who swaps a unit implements
// this.
#pragma once

#include "simulator/base/PeContext.h"

#include <systemc>

namespace millrace::sim {

/// A unit drives one or more ports. In each cycle the PE first advances the streams, then calls
/// element() for every port that acts in that cycle, in port order; what one element does is seen
/// by others only in later cycles, or through the streams.
struct UnitInterface : virtual sc_core::sc_interface {
  /// A burst enters a port in its dispatch cycle. Checks that concern the burst as a whole.
  virtual void dispatch(Burst &burst) = 0;
  /// The burst's current element acts in cycle `now`.
  virtual void element(Burst &burst, Cycle now) = 0;
  /// Everything before cycle `now` has happened; checks that were waiting for it are made.
  virtual void settle(Cycle now) = 0;
  /// True for a unit with SystemC processes of its own: its PE then advances the kernel's time
  /// cycle by cycle, so that they see the cycle in which they are called.
  virtual bool hasProcesses() const { return false; }
  /// A step ends: nothing is under way. Only memory keeps its contents.
  virtual void endStep() = 0;
};

/// A module with an export of the contract, and helpers.
class UnitModule : public sc_core::sc_module, public UnitInterface {
public:
  UnitModule(const sc_core::sc_module_name &name, PeContext &context)
      : sc_core::sc_module(name), in("in"), context(context) {
    in.bind(*this);
  }
  sc_core::sc_export<UnitInterface> in;
  void dispatch(Burst &) override {}
  void settle(Cycle) override {}
  void endStep() override {}

protected:
  PeContext &context;
};

} // namespace millrace::sim
