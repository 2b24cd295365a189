// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C2C ports of one PE: Send samples a stream onto a link, Receive puts what arrives on a
// stream.
#pragma once

#include "simulator/base/UnitModule.h"
#include "simulator/fabric/LinkModule.h"

#include <vector>

namespace millrace::sim {

class PortUnit : public UnitModule {
public:
  /// `sends` and `receives`: the link at each port, or null where nothing is connected.
  PortUnit(const sc_core::sc_module_name &name, PeContext &context, std::vector<LinkModule *> sends,
           std::vector<LinkModule *> receives);

  void element(Burst &burst, Cycle now) override; ///< S4, S9
  void settle(Cycle now) override;                ///< S9 of vectors that nobody received
  void endStep() override;

private:
  void send(Burst &burst, Cycle now);
  void receive(Burst &burst, Cycle now);
  void dropMissed(LinkModule &link, unsigned port, Cycle arrivedBefore);

  std::vector<LinkModule *> sends, receives;
};

} // namespace millrace::sim
