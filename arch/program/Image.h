// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program image: everything the simulator needs besides the machine. Plain records in tables, so
// that a file can be mapped and used as it lies (ImageFile.h writes, maps and checks it).
// docs/spec/image.md is normative.
#pragma once

#include "arch/isa/Instruction.h"
#include "arch/program/Records.h"
#include "arch/spec/StepDevice.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace {

/// One PE's instructions in one grid segment: [begin, end) of Image::instructions[pe], sorted by
/// (cycle, queue). Each queue's program order is that order.
struct PeRange {
  uint32_t begin = 0, end = 0;
};

/// A step of the program: cycles of the grid, or a function on the host. Memory persists from step
/// to step.
struct Step {
  enum class Kind : uint8_t { Grid, Host };
  Kind kind = Kind::Grid;
  // Grid
  uint64_t predictedCycles = 0; ///< the scheduler's statement; only ever compared (S11)
  std::vector<PeRange> pes;     ///< one per PE
  // Host: reads `inputs`, calls `function` of the image's host module, writes `outputs` (indices
  // into bindings)
  StepDevice device = StepDevice::Host;
  std::string function;
  std::vector<uint32_t> inputs, outputs;
};

/// Rows of memory whose contents are given: weights, constants, pad rows. Row r (0 <= r < rows) of
/// the block lies at address row + r of the slice; its bytes at data[offset + r * bytes] (bytes <=
/// lanes; the rest of the row is 0).
struct Block {
  uint16_t pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  uint8_t reserved = 0;
  uint16_t slice = 0;
  uint16_t bytes =
      0; ///< per row; 0: contents come from a binding (an input), the block only names the rows
  uint32_t row = 0, rows = 0;
  uint32_t tensor = 0; ///< index into Image::tensors
  uint64_t offset = 0;
};

/// A range of rows that belongs to one tensor for a while (S10). Bytes of wide elements lie in
/// several regions.
struct Region {
  uint32_t name = 0; ///< index into Image::strings
  uint16_t pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  uint8_t reserved = 0;
  uint16_t slice = 0;
  uint16_t step0 = 0, step1 = 0; ///< lives from step0 to step1 (inclusive)
  uint32_t row = 0, rows = 0;
  uint64_t from = 0,
           to = 0; ///< cycles within step0 and step1: first write slot or 0, last read; inclusive
};

/// One loop of a binding: `count` iterations; each adds rowStep to the row, laneStep to the lane,
/// and step to index `dim` of the tensor. dim == kNoDim adds to no index (a repetition).
struct BindingLoop {
  uint32_t count = 1;
  int32_t rowStep = 0, laneStep = 0;
  uint32_t dim = 0;
  int32_t step = 0;
};
constexpr uint32_t kNoDim = 0xffffffff;
/// Addresses of a Gather have two bytes, and the row behind a table's rows has one too.
constexpr uint32_t kMostTableRows = 0xffff;

/// One place where a whole part of a tensor lies: all loops run; the element with an index outside
/// [0, shape) is `fill` (raw bits) when the host writes and is skipped when it reads. Byte b of an
/// element goes to slices[b] at the same row and lane (or, with bytesInLanes, to lane + b of
/// slices[0]).
struct Placement {
  uint16_t pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  bool bytesInLanes = false;
  uint8_t firstByte = 0; ///< slices[0] takes this byte of the element, slices[1] the next ...
  std::vector<uint16_t> slices;
  uint32_t row = 0;
  uint32_t lane = 0;
  std::vector<int64_t> start; ///< first index of each dimension
  std::vector<BindingLoop> loops;
  uint32_t fill = 0;
  /// With Binding::extent: rows [first, first + rows) of the table lie where this placement's
  /// addresses lead. An index among them is put as index - first, any other as `rows`: the row
  /// behind them.
  uint32_t first = 0, rows = 0;
};

/// A model input or output, or a host step's operand: how the host's tensor (ONNX type, row major)
/// maps to rows (R15). Writing puts every placement; reading takes the placements in order, later
/// ones win. A HostConstant lies in the image's data and in no rows: the grid never sees it.
struct Binding {
  enum class Role : uint8_t { Input, Output, HostInput, HostOutput, HostConstant };
  Role role = Role::Input;
  std::string name; ///< ONNX value name
  std::string
      hostType; ///< ONNX element type: float32 float16 bfloat16 int8 uint8 int32 int64 bool ...
  std::vector<int64_t> shape;
  ElementType gridType = ElementType::Fp16;
  double scale =
      0; ///< not 0: a float32 input goes to int8 as round(x / scale) + zero, ties to even, clamped
  int64_t zero = 0;
  int64_t extent =
      0; ///< not 0: elements are indices of a table of so many rows, negative ones count
         ///< from its end; the grid takes addresses (int32) that a Gather follows
  uint64_t offset =
      0; ///< HostConstant: its elements, in gridType and row major, begin here in data
  std::vector<Placement> placements;
};

struct Image {
  static constexpr uint32_t kVersion = 6;
  std::string machineName;
  uint64_t machineHash = 0;
  std::string machineYaml; ///< the resolved machine, for people and for `describe`
  // Of an image that was read from a file, these and `data` are views of it.
  std::vector<Records<Instruction>> instructions; ///< [pe], by step, then (cycle, queue)
  std::vector<Records<Producer>> producers;       ///< [pe], see Instruction::producers
  std::vector<Step> steps;
  std::vector<Block> blocks;
  Bytes data;
  std::vector<Region> tensors;
  std::vector<Binding> bindings;
  std::vector<std::vector<uint16_t>> laneMaps; ///< each as long as the vector
  std::vector<std::string> strings;            ///< names of tensors and provenance (ONNX nodes)
  std::string hostModule;                      ///< MLIR text of the host steps, empty if none
  std::vector<std::pair<std::string, std::string>>
      notes; ///< report facts of the compiler: key, JSON value

  /// The annotation of an instruction of `pe`. Without entries, where they would begin means
  /// nothing.
  std::span<const Producer> producersOf(size_t pe, const Instruction &i) const {
    if (!i.producerCount)
      return {};
    return {producers[pe].data() + i.producers, i.producerCount};
  }
};

} // namespace millrace
