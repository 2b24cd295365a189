// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Gemm/GemmSchedule.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include <algorithm>
#include <string>

namespace millrace::gpu {

namespace {

using hopper::Limits;

/// What a consumer needs beside its accumulators: addresses, descriptors, the ring's state and the
/// epilogue's packed values. ptxas is the judge; this keeps hopeless schedules from it.
constexpr unsigned kOtherRegisters = 32;

std::string text(unsigned number) { return std::to_string(number); }

Status checkTiles(const GemmSchedule &schedule) {
  if (schedule.consumers < 1 || schedule.consumers > 3)
    return Error{"a schedule with " + text(schedule.consumers) +
                 " consumer warpgroups; use 1 to 3"};
  if (!schedule.tileM || schedule.tileM % (64 * schedule.consumers) ||
      schedule.tileM > Limits::kBox)
    return Error{"tile_m " + text(schedule.tileM) + " is no multiple of 64 rows for each of " +
                 text(schedule.consumers) + " consumers up to 256; use " +
                 text(64 * schedule.consumers)};
  if (!schedule.tileN || schedule.tileN % 64 || schedule.tileN > Limits::kBox)
    return Error{"tile_n " + text(schedule.tileN) + " is no multiple of 64 up to 256"};
  if (!schedule.tileK || schedule.tileK % 64 || schedule.tileK > 256)
    return Error{"tile_k " + text(schedule.tileK) +
                 " is no multiple of 64 (128 bytes, the swizzle's span) up to 256"};
  if (schedule.stages < 2 || schedule.stages > 16)
    return Error{text(schedule.stages) +
                 " stages; use 2 to 16, so that loads and products overlap"};
  if (schedule.cluster != 1 && schedule.cluster != 2 && schedule.cluster != 4)
    return Error{"clusters of " + text(schedule.cluster) + " CTAs; use 1, 2 or 4"};
  // Each CTA loads its share of B, which is swizzled by groups of eight rows.
  if (schedule.tileN / schedule.cluster % 8)
    return Error{"tile_n " + text(schedule.tileN) + " in shares of a cluster of " +
                 text(schedule.cluster) + " is no multiple of 8 rows"};
  return Success{};
}

Status checkRegisters(const GemmSchedule &schedule) {
  const unsigned launched = schedule.launchRegisters();
  for (unsigned registers : {schedule.producerRegisters, schedule.consumerRegisters})
    if (registers < 24 || registers > 256 || registers % 8)
      return Error{"a budget of " + text(registers) +
                   " registers; setmaxnreg takes multiples of 8 from 24 to 256"};
  if (schedule.producerRegisters > launched || schedule.consumerRegisters < launched)
    return Error{"budgets of " + text(schedule.producerRegisters) + " and " +
                 text(schedule.consumerRegisters) + " registers around the launch's " +
                 text(launched) + "; the producer gives registers and consumers take them"};
  const unsigned wanted =
      128 * (schedule.producerRegisters + schedule.consumers * schedule.consumerRegisters);
  if (wanted > launched * schedule.threads())
    return Error{"budgets of " + text(wanted) + " registers together, and the launch has " +
                 text(launched * schedule.threads()) + "; lower the consumers' to " +
                 text((launched * schedule.threads() / 128 - schedule.producerRegisters) /
                      schedule.consumers / 8 * 8)};
  const unsigned accumulators = schedule.blocks() * schedule.tileN / 2;
  if (accumulators + kOtherRegisters > schedule.consumerRegisters)
    return Error{"accumulators of " + text(accumulators) + " registers and " +
                 text(kOtherRegisters) + " others in a budget of " +
                 text(schedule.consumerRegisters) + "; lower tile_m or tile_n, or add consumers"};
  return Success{};
}

} // namespace

GemmSchedule GemmSchedule::make(unsigned tileM, unsigned tileN, unsigned tileK, unsigned stages,
                                unsigned consumers, unsigned cluster) {
  GemmSchedule made;
  made.tileM = tileM;
  made.tileN = tileN;
  made.tileK = tileK;
  made.stages = stages;
  made.consumers = consumers;
  made.cluster = cluster;
  const unsigned all = made.launchRegisters() * made.threads() / 128;
  const unsigned each = (all - made.producerRegisters) / std::max(consumers, 1u) / 8 * 8;
  made.consumerRegisters = std::min(each, 240u);
  return made;
}

unsigned GemmSchedule::launchRegisters() const {
  return std::min(Limits::kRegisters / threads() / 8 * 8, 240u);
}

Expected<GemmLayout> planGemm(const GemmSchedule &schedule) {
  if (Status ok = checkTiles(schedule); !ok)
    return ok.takeError();
  if (Status ok = checkRegisters(schedule); !ok)
    return ok.takeError();
  GemmLayout layout;
  layout.bytesA = schedule.tileM * schedule.tileK * kGemmElementBytes;
  layout.bytesB = schedule.tileN * schedule.tileK * kGemmElementBytes;
  layout.c = schedule.stages * layout.stageBytes();
  layout.barriers = layout.c + schedule.tileM * schedule.tileN * kGemmElementBytes;
  layout.total = layout.barriers + 2 * 8 * schedule.stages;
  if (layout.total <= Limits::kSharedMemory)
    return layout;
  const unsigned fixed = layout.total - schedule.stages * (layout.stageBytes() + 16);
  const unsigned room = fixed < Limits::kSharedMemory
                            ? (Limits::kSharedMemory - fixed) / (layout.stageBytes() + 16)
                            : 0;
  return Error{text(schedule.stages) + " stages of " + text(layout.stageBytes()) +
               " bytes and a tile of C take " + text(layout.total) +
               " bytes of shared memory, and a CTA may use 232448; use " +
               (room >= 2 ? "at most " + text(room) + " stages" : "smaller tiles")};
}

} // namespace millrace::gpu
