// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a machine is: plain numbers, read from YAML (arch/machines), shared by compiler and
// simulator. Only numbers and names live here. The formulas that turn them into arrival times are
// written twice, once in the scheduler and once in the simulator, so that each checks the other
// (docs/spec/machine.md).
#pragma once

#include "arch/spec/Expected.h"
#include "arch/spec/Types.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace {

/// The two sides of the VXM.
enum class Hemisphere : uint8_t { West = 0, East = 1 };
constexpr unsigned kHemispheres = 2;

/// Along a hemisphere's line: Outward from the VXM (position 0) to the MXM (last position), Inward
/// back.
enum class Direction : uint8_t { Outward = 0, Inward = 1 };

/// MEM slices of one hemisphere. Address of a row: bank * rowsPerBank + row in the bank.
struct MemorySpec {
  unsigned slices = 0;            ///< per hemisphere
  unsigned slicesPerRegister = 0; ///< MEM slices that share one stream register (one position)
  unsigned banks = 0;             ///< per slice
  unsigned rowsPerBank = 0;       ///< rows of one vector
};

/// One number format of the MXM. A 16-bit format uses `planes` = 2 adjacent planes, one per byte.
struct MxmFormatSpec {
  ElementType type;
  unsigned planes = 1;       ///< planes that work as one
  unsigned lanesPerPass = 0; ///< lanes of an activation that multiply in one cycle, K
};

struct MxmSpec {
  unsigned planes = 0;  ///< per hemisphere
  unsigned rows = 0;    ///< K of a plane; equals the vector length
  unsigned columns = 0; ///< N of a plane
  unsigned columnsPerInstall =
      16;               ///< columns one install vector group fills in a cycle (streams of an SG16)
  unsigned buffers = 2; ///< weight buffers per plane (R6)
  unsigned accumulatorRows = 0; ///< per plane, or per plane pair for 16-bit formats (R3)
  std::vector<MxmFormatSpec> formats;
  const MxmFormatSpec *format(ElementType type) const;
};

struct VxmSpec {
  unsigned alus = 0;
  unsigned runningAccumulators = 3; ///< interleaved accumulators of the running form (R9)
};

/// SXM units per hemisphere.
struct SxmSpec {
  unsigned transposers = 0, permutors = 0, distributors = 0, shifters = 0, selectors = 0,
           rotators = 0;
  unsigned units() const {
    return transposers + permutors + distributors + shifters + selectors + rotators;
  }
};

/// Latencies and distances, all in cycles; see docs/spec/machine.md for what each means.
struct LatencySpec {
  unsigned hop = 1;            ///< one stream register to the next
  unsigned memRead = 1;        ///< Read dispatch to sampling at the slice's own position
  unsigned memGather = 1;      ///< Gather samples its map to its data being sampled
  unsigned memWrite = 2;       ///< Write samples its position to its bank slot
  unsigned readAfterWrite = 1; ///< bank slot of a write to a read of that row
  unsigned aluEntry = 4, aluOp = 3, aluChain = 0, aluExit = 0;
  std::map<std::string, unsigned>
      aluOps; ///< operations (mnemonic) whose latency differs from aluOp
  unsigned sxmEntry = 4, transposer = 4, transposerExit = 1, distributor = 2, permutor = 56,
           shifter = 4, selector = 4, rotator = 4;
  unsigned mxmEntry = 8, mxmExit = 4, mxmMultiply = 13, mxmAccumulate = 34;
  unsigned installToActivate =
      3; ///< first column group installed to the first activation that uses it (S7)
  unsigned accumulateInterval = 34; ///< between two operations on one accumulator row (S8)
  unsigned startBarrier = 35, superlaneStagger = 20;
  unsigned aluLatency(const std::string &mnemonic) const;
};

/// One directed link between two PEs.
struct Link {
  unsigned from = 0, to = 0; ///< PE ids
  unsigned port = 0;         ///< C2C port (queue) index at the sender
  unsigned toPort = 0;       ///< C2C port (queue) index at the receiver
  unsigned latency = 0;      ///< cycles from Send dispatch to Receive dispatch (S9)
  unsigned slot = 1;         ///< cycles per vector on the wire
};

/// A class of links: one level of the fabric.
struct LinkClass {
  std::string name;
  unsigned latency = 0;
  unsigned slot = 1;
};

struct FabricSpec {
  std::string topology = "single"; ///< single | mesh | torus | ring | full
  unsigned rows = 1, columns = 1;
  LinkClass link;
  unsigned pes() const { return rows * columns; }
};

/// C2C ports of a PE and the stream position at which Send samples and Receive injects.
struct C2cSpec {
  unsigned ports = 0;    ///< each port has a Send queue and a Receive queue
  unsigned position = 1; ///< on either hemisphere's line
};

struct HostSpec {
  double bytesPerSecond = 0;
  double latencySeconds = 0; ///< each way
};

/// picojoules per event; zero where nothing is known
struct EnergySpec {
  double macInt8 = 0, macFloat = 0, aluLane = 0, sramByte = 0, streamByteHop = 0, linkByte = 0;
};

/// Where a number comes from.
enum class Trust : uint8_t { Published, Quoted, Public, Derived, Inferred };

/// What a queue drives.
enum class UnitKind : uint8_t {
  Mem, ///< one per slice
  MxmInstall,
  MxmActivate,
  MxmAccumulate, ///< one each per plane
  Alu,
  Transposer,
  Permutor,
  Distributor,
  Shifter,
  Selector,
  Rotator,
  Send,
  Receive
};
constexpr unsigned kUnitKinds = 13;

/// One instruction queue of a PE: what it drives and where that stands. `hemisphere` means nothing
/// for Alu, Send and Receive. `index` counts within (kind, hemisphere): slice, plane, ALU, SXM unit
/// or C2C port.
struct Unit {
  UnitKind kind;
  Hemisphere hemisphere = Hemisphere::West;
  unsigned index = 0;
};

/// A machine: every PE is alike.
struct Machine {
  std::string name, description;
  double clockHz = 0;
  unsigned superlanes = 0, lanesPerSuperlane = 16;
  unsigned streams = 32; ///< byte streams in each direction of each hemisphere
  MemorySpec memory;
  MxmSpec mxm;
  VxmSpec vxm;
  SxmSpec sxm;
  C2cSpec c2c;
  LatencySpec latency;
  FabricSpec fabric;
  HostSpec host;
  EnergySpec energy;
  std::vector<Link> links;                   ///< derived from the fabric, or given one by one
  std::map<std::string, Trust> trust;        ///< YAML path of a number to its source
  std::map<std::string, std::string> source; ///< YAML path to the words that name the source

  unsigned lanes() const { return superlanes * lanesPerSuperlane; } ///< vector length in bytes
  unsigned pes() const { return fabric.pes(); }
  unsigned groups() const { return memory.slices / memory.slicesPerRegister; }
  unsigned lastPosition() const { return groups(); } ///< of SXM and MXM; the VXM is position 0
  unsigned position(unsigned slice) const { return slice / memory.slicesPerRegister + 1; }
  unsigned rowsPerSlice() const { return memory.banks * memory.rowsPerBank; }

  /// Queues of one PE, in this order: MEM W, MEM E, MXM (hemisphere, plane,
  /// install/activate/accumulate), SXM (hemisphere, kind, index), ALUs, Send ports, Receive ports.
  unsigned queues() const;
  unsigned queue(Unit unit) const;
  Unit unit(unsigned queue) const;
  std::string queueName(
      unsigned queue) const; ///< for people: "mem.e.12", "mxm.w.0.activate", "alu.3", "send.1"

  /// Streams are numbered over (hemisphere, direction, index).
  StreamId stream(Hemisphere h, Direction d, unsigned index) const {
    return StreamId((unsigned(h) * 2 + unsigned(d)) * streams + index);
  }
  unsigned streamCount() const { return kHemispheres * 2 * streams; }
  Hemisphere hemisphereOf(StreamId s) const { return Hemisphere(s / (2 * streams)); }
  Direction directionOf(StreamId s) const { return Direction(s / streams % 2); }
  unsigned indexOf(StreamId s) const { return s % streams; }

  /// FNV-1a over every number that changes timing or values (not names, sources or energy).
  uint64_t hash() const;
  /// A machine that contradicts itself is an error that names the keys.
  Status verify() const;
};

} // namespace millrace
