// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What must hold between the numbers of a machine. The range of a single number is the schema's
// business (Schema.h); here are the rules that need two of them.

#include "arch/spec/Machine.h"

#include <set>

namespace millrace {
namespace {

/// "key = number", as every message below names a value.
std::string value(const char *key, uint64_t number) {
  return std::string(key) + " = " + std::to_string(number);
}

Error contradiction(const std::string &text) { return Error{text}; }

Status verifyShape(const Machine &m) {
  if (!m.superlanes || !m.lanesPerSuperlane)
    return contradiction(
        "a vector has no lanes: set 'superlanes' and 'lanes_per_superlane' to at least 1");
  if (m.clockHz <= 0)
    return contradiction("the clock stands still: set 'clock' to more than 0 Hz");
  if (!m.memory.slices || !m.memory.slicesPerRegister || !m.memory.banks || !m.memory.rowsPerBank)
    return contradiction(
        "memory is empty: set 'memory.slices', 'memory.slices_per_register', 'memory.banks' and "
        "'memory.rows_per_bank' to at least 1");
  if (m.memory.slices % m.memory.slicesPerRegister)
    return contradiction(value("memory.slices", m.memory.slices) + " is no multiple of " +
                         value("memory.slices_per_register", m.memory.slicesPerRegister) +
                         ": the last stream register would be partly empty; change one of them");
  if (m.streamCount() >= kNoStream)
    return contradiction(value("streams", m.streams) +
                         " leaves no number for 'no stream' in 16 bits; use at most " +
                         std::to_string((kNoStream - 1) / (2 * kHemispheres)));
  if (m.queues() > 0xffff)
    return contradiction(
        "a PE would have " + std::to_string(m.queues()) +
        " queues; instructions name at most 65535: lower 'memory.slices' or 'c2c.ports'");
  return Success{};
}

Status verifyMxm(const Machine &m) {
  const MxmSpec &mxm = m.mxm;
  if (!mxm.planes)
    return mxm.formats.empty() ? Status(Success{})
                               : contradiction("'mxm.planes' is 0 but 'mxm.formats' lists formats; "
                                               "remove them or add planes");
  if (mxm.rows != m.lanes())
    return contradiction(value("mxm.rows", mxm.rows) + " differs from the vector length " +
                         std::to_string(m.lanes()) +
                         " = superlanes x lanes_per_superlane; an activation feeds one row per "
                         "lane: make them equal");
  if (!mxm.columnsPerInstall || mxm.columns % mxm.columnsPerInstall)
    return contradiction(value("mxm.columns", mxm.columns) + " is no multiple of " +
                         value("mxm.columns_per_install", mxm.columnsPerInstall) +
                         "; change one of them");
  if (m.streams % mxm.columnsPerInstall)
    return contradiction(
        value("streams", m.streams) + " is no multiple of " +
        value("mxm.columns_per_install", mxm.columnsPerInstall) +
        ": an install needs an aligned group of that many streams; change one of them");
  if (m.lanes() < mxm.columns)
    return contradiction(value("mxm.columns", mxm.columns) + " exceeds the vector length " +
                         std::to_string(m.lanes()) +
                         ": a result would not fit into one vector; lower it");
  std::set<ElementType> seen;
  for (const MxmFormatSpec &format : mxm.formats) {
    const std::string name = std::string("mxm.formats.") + nameOf(format.type);
    if (!seen.insert(format.type).second)
      return contradiction("'" + name + "' is listed twice; keep one");
    if (!format.planes || mxm.planes % format.planes)
      return contradiction("'" + name + "' works on " + std::to_string(format.planes) +
                           " planes at once, but " + value("mxm.planes", mxm.planes) +
                           " (per hemisphere) is no multiple of that; change one");
    if (format.planes != byteWidth(format.type))
      return contradiction("'" + name + "' has " + std::to_string(byteWidth(format.type)) +
                           " bytes per weight and needs that many planes, not " +
                           std::to_string(format.planes));
    if (!format.lanesPerPass || mxm.rows % format.lanesPerPass)
      return contradiction(
          "'" + name + ".lanes_per_pass' = " + std::to_string(format.lanesPerPass) +
          " does not divide " + value("mxm.rows", mxm.rows) + "; choose a divisor");
  }
  return Success{};
}

Status verifyFabric(const Machine &m) {
  if (!m.pes())
    return contradiction(
        "the fabric has no PE: set 'fabric.rows' and 'fabric.columns' to at least 1");
  if (m.pes() > 0xffff)
    return contradiction("the fabric has " + std::to_string(m.pes()) +
                         " PEs; images name at most 65535");
  if (m.c2c.ports && m.c2c.position > m.lastPosition())
    return contradiction(value("c2c.position", m.c2c.position) +
                         " lies beyond the last stream position " +
                         std::to_string(m.lastPosition()) +
                         " = memory.slices / memory.slices_per_register; lower it");
  std::set<std::pair<unsigned, unsigned>> senders, receivers;
  for (const Link &link : m.links) {
    const std::string name = "link from PE " + std::to_string(link.from) + " port " +
                             std::to_string(link.port) + " to PE " + std::to_string(link.to) +
                             " port " + std::to_string(link.toPort);
    if (link.from >= m.pes() || link.to >= m.pes() || link.from == link.to)
      return contradiction(name + ": need two different PEs below " + std::to_string(m.pes()));
    if (link.port >= m.c2c.ports || link.toPort >= m.c2c.ports)
      return contradiction(name + ": a PE has " + value("c2c.ports", m.c2c.ports) +
                           "; raise it or lower the port");
    if (!senders.insert({link.from, link.port}).second)
      return contradiction(name +
                           ": this port already sends to another PE; one port feeds one link");
    if (!receivers.insert({link.to, link.toPort}).second)
      return contradiction(name +
                           ": this port already receives from another PE; one port ends one link");
    if (!link.latency || !link.slot)
      return contradiction(name + ": latency " + std::to_string(link.latency) + " and slot " +
                           std::to_string(link.slot) + " must be at least 1 cycle");
  }
  return Success{};
}

} // namespace

Status Machine::verify() const {
  for (Status (*check)(const Machine &) : {verifyShape, verifyMxm, verifyFabric})
    if (Status status = check(*this); !status)
      return status;
  if (vxm.alus && !vxm.runningAccumulators)
    return contradiction("'vxm.running_accumulators' is 0: an ALU holds at least one running "
                         "value; set it to 1 or more");
  return Success{};
}

} // namespace millrace
