// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Waits.h"

namespace millrace::schedule {

namespace {

constexpr std::string_view kNames[kCauses] = {"data_dependence",
                                              "install",
                                              "partial_sum",
                                              "accumulate_interval",
                                              "accumulator_row",
                                              "weight_buffer",
                                              "memory_reuse",
                                              "order_of_passes",
                                              "given_start",
                                              "begin_of_step",
                                              "host_barrier",
                                              "read_port",
                                              "write_port",
                                              "bank",
                                              "mem_queue",
                                              "mxm_port",
                                              "sxm_port",
                                              "link_port",
                                              "alu",
                                              "stream",
                                              "dropped_work",
                                              "pace",
                                              "nothing_left"};

} // namespace

std::optional<Cause> Resources::causeOf(uint32_t resource) const {
  if (resource < writePort(Hemisphere::West, 0))
    return Cause::ReadPort;
  if (resource < bank(Hemisphere::West, 0, 0))
    return Cause::WritePort;
  if (resource < unit(0))
    return Cause::Bank;
  switch (machine.unit(resource - unit(0)).kind) {
  case UnitKind::Alu:
    return std::nullopt;
  case UnitKind::Send:
  case UnitKind::Receive:
    return Cause::LinkPort;
  case UnitKind::MxmInstall:
  case UnitKind::MxmActivate:
  case UnitKind::MxmAccumulate:
    return Cause::MxmPort;
  default:
    return Cause::SxmPort;
  }
}

std::string_view nameOf(Cause cause) { return kNames[unsigned(cause)]; }

} // namespace millrace::schedule
