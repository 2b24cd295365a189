// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One instruction (a burst) as it stands in the image: plain, fixed size, mmap-able. Meaning:
// Opcodes.def and docs/spec/machine.md. Timing rules live in compiler/Schedule and simulator, never
// here.
#pragma once

#include "arch/spec/Machine.h"
#include "arch/spec/Types.h"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace millrace {

enum class Opcode : uint8_t {
#define MILLRACE_OPCODE(Name, ...) Name,
#include "arch/isa/Opcodes.def"
};

/// What an opcode may use of Instruction; drives codec, printer, assembler and mutants.
enum class Field : uint8_t {
  Count,     ///< n0, as a number of cycles or repeats
  Interval,  ///< c0, as cycles between repeats
  Map,       ///< address, as an index into the image's lane maps
  Loops,     ///< n0 n1 c0 c1
  Address,   ///< address
  Strides,   ///< s0 s1
  StreamA,   ///< a, always a stream operand
  StreamB,   ///< b, always a stream operand
  OutStream, ///< out[0]
  Tensor,   ///< tensor, as an index into the image's tensor table (checked, never drives execution)
  Buffer,   ///< buffer
  Format,   ///< format
  Lanes,    ///< k0 k1
  Groups,   ///< g0 g1
  Mode,     ///< function, as AccumulateMode bits
  Function, ///< function, as AluOp
  OperandA,
  OperandB,
  OperandC,  ///< a b c
  Immediate, ///< immediate, 32 bits
  OutWest,
  OutEast,  ///< out[0] out[1]: outward streams of the west and the east hemisphere, or none
  OutWidth, ///< outWidth, bytes per lane: 1, 2 or 4 adjacent streams
  Flags,    ///< flags, as AluFlag bits
};

struct FieldSet {
  uint32_t bits = 0;
  constexpr FieldSet(std::initializer_list<Field> fields) {
    for (Field f : fields)
      bits |= 1u << unsigned(f);
  }
  constexpr bool has(Field f) const { return bits >> unsigned(f) & 1; }
};

enum class OperandKind : uint8_t {
  None = 0,
  Stream = 1, ///< `index` is the first StreamId of an aligned group of `width` streams (1, 2 or 4);
              ///< zero-extended
  Alu = 2,    ///< `index` is an ALU; chained, sampled at its exit
  Latch = 3,  ///< this ALU's own latch
  Immediate = 4, ///< the instruction's immediate in every lane
};

struct Operand {
  OperandKind kind = OperandKind::None;
  uint8_t width = 0; ///< bytes per lane, for Stream
  uint16_t index = 0;
  bool operator==(const Operand &) const = default;
};

namespace AccumulateMode {
constexpr uint8_t Add = 1, Emit = 2;
}
namespace AluFlag {
/// Running form (R9): element (i1, i0) works on accumulator i0 (n0 <= runningAccumulators): at i1 =
/// 0 it takes operand a, later op(accumulator, a). Only i1 = n1 - 1 emits and can be chained from.
/// An accumulator's elements lie at least the operation's latency apart.
constexpr uint8_t Running = 1;
} // namespace AluFlag

/// Element (i1, i0), i0 fastest, acts at cycle + i1 c1 + i0 c0. c1 >= (n0 - 1) c0 + 1 when n1 > 1;
/// c0, c1 >= 1. A port runs one burst at a time, from its first element to its last.
struct Instruction {
  uint64_t cycle = 0; ///< dispatch cycle, within the segment
  uint16_t queue = 0; ///< Machine::queue
  Opcode opcode = Opcode::Nop;
  uint8_t function = 0; ///< AluOp or AccumulateMode bits
  uint16_t n0 = 1, n1 = 1;
  uint32_t c0 = 1, c1 = 1;
  int32_t s0 = 0, s1 = 0;
  uint32_t address = 0; ///< MEM row, accumulator row, first column group, lane map
  Operand a, b, c;
  StreamId out[2] = {kNoStream, kNoStream};
  uint8_t outWidth = 0;
  uint8_t buffer = 0;
  ElementType format = ElementType::Int8;
  uint8_t flags = 0;
  uint16_t k0 = 0, k1 = 0;
  uint16_t g0 = 0, g1 = 0;
  uint32_t immediate = 0;
  // Checked annotation (docs/spec/image.md, 5): never drives execution.
  uint32_t tensor = 0;    ///< index into the image's tensor table, for MEM
  uint32_t producers = 0; ///< first of `producerCount` entries in the PE's producer table
  uint16_t producerCount = 0;
  uint16_t reserved = 0;
  uint32_t provenance = 0; ///< index into the image's provenance table (an ONNX node)

  uint32_t elements() const { return uint32_t(n0) * n1; }
  uint64_t lastCycle() const { return cycle + uint64_t(n1 - 1) * c1 + uint64_t(n0 - 1) * c0; }
};
static_assert(sizeof(Instruction) == 88 && alignof(Instruction) == 8);

/// Which operand of the consumer a Producer entry speaks of.
enum class ProducerOf : uint8_t {
  A = 0,
  B = 1,
  C = 2,
  Memory = 3,
  Weights = 4,
  Link = 5,
  Product = 6,
  Sum = 7 ///< what the accumulator row held, of an Accumulate that adds
};
constexpr unsigned kProducerOfs = 8;

/// "Elements (i1, i0) with i0 in [from0, from0 + count0), i1 in [from1, from1 + count1) of this
/// operand come from element first + (i0 - from0) step0 + (i1 - from1) step1 of `instruction` on PE
/// `pe`." For Weights, i0 counts column groups (from g0) and the producer is an Install or Clear.
/// For Product (of an Accumulate) the producer is the Activate; for Sum, the Accumulate that left
/// the partial sum in the row. For an operand from the ALU's latch it is the Latch. A wide operand
/// (a group of streams) has entries per byte stream; an entry with byte = kAllBytes speaks of all
/// of them, when one instruction produced the whole group. instruction == kInitialContents: memory
/// as loaded; `first` is then the row's number within the image's block `block`.
struct Producer {
  ProducerOf of = ProducerOf::A;
  uint8_t byte =
      0; ///< which byte of the operand (stream index within the group) this entry speaks of
  uint16_t pe = 0;
  uint32_t instruction =
      0; ///< index in that PE's instruction list (all segments of the PE, in image order)
  uint32_t block = 0;
  uint32_t first = 0;
  uint16_t from0 = 0, count0 = 0, from1 = 0, count1 = 0;
  int32_t step0 = 0, step1 = 0;
};
static_assert(sizeof(Producer) == 32);
constexpr uint8_t kAllBytes = 0xff;
constexpr uint32_t kInitialContents = 0xffffffff;

struct OpcodeInfo {
  Opcode opcode;
  std::string_view name;     ///< enumerator
  std::string_view mnemonic; ///< assembler
  bool anyUnit;              ///< ICU instruction
  UnitKind unit;
  FieldSet fields;
  std::string_view summary;
};
const OpcodeInfo &info(Opcode opcode);
std::span<const OpcodeInfo> opcodes();

} // namespace millrace
