// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Waits.h"

#include <utility>

namespace millrace::schedule {

namespace {

/// By Cause: text and key.
constexpr std::pair<std::string_view, std::string_view> kNames[kCauses] = {
    {"data dependence", "dependence"},
    {"install", "install"},
    {"accumulate interval", "accumulate_interval"},
    {"accumulator row", "accumulator_row"},
    {"weight buffer", "buffer_reuse"},
    {"memory reuse", "memory_reuse"},
    {"order of passes", "order"},
    {"begin of the step", "step_begin"},
    {"host barrier", "host_barrier"},
    {"read port", "read_port"},
    {"write port", "write_port"},
    {"bank", "bank"},
    {"MEM queue", "dispatch"},
    {"MXM port", "mxm_port"},
    {"link port", "link_port"},
    {"ALU", "alu"},
    {"stream", "stream"},
    {"dropped work", "dropped"},
    {"pace within a piece", "pace"},
    {"nothing left", "nothing_left"},
};

} // namespace

std::string_view textOf(Cause cause) { return kNames[unsigned(cause)].first; }
std::string_view keyOf(Cause cause) { return kNames[unsigned(cause)].second; }

} // namespace millrace::schedule
