// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a program computes, as a graph: every element of every burst gets a number made of its
// operation and the numbers of its operands, which the image's producers name. The simulator holds
// the producers to what flows, so two programs that it accepts and whose outputs have equal numbers
// give equal outputs on every input. Cycles, queues, rows and streams are not part of a number.
#pragma once

#include "arch/program/Image.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace millrace::test {

class Dataflow {
public:
  using Number = uint64_t;
  Dataflow(const Image &image, const Machine &machine);

  /// Why this program has no numbers (an opcode that is not modelled, host steps); empty if it has.
  std::string error;
  /// The numbers of the rows that the output bindings read, in their order.
  std::vector<Number> outputs();
  /// Whether the outputs, once asked for, needed any element of the instruction.
  bool reached(unsigned pe, uint32_t instruction) const;
  /// Whether a row of the block with a lane that multiplies can be all zero: the bytes at `lane` of
  /// every weight that the Activate uses, where they come straight from the image.
  bool weightsAreZero(unsigned pe, uint32_t activate, unsigned lane) const;

private:
  struct Made { ///< what made something: an instruction's element, or a row of a block
    unsigned pe = 0;
    uint32_t instruction = 0, element = 0, block = 0;
  };
  struct Use { ///< an element of an instruction in time
    uint64_t step = 0, cycle = 0;
    uint32_t instruction = 0, element = 0;
    bool operator<(const Use &o) const {
      return std::pair(step, cycle) < std::pair(o.step, o.cycle);
    }
  };

  void index(unsigned pe);
  void readInputs();
  bool producerOf(unsigned pe, uint32_t k, ProducerOf of, unsigned byte, uint32_t e,
                  Made &made) const;
  Number element(unsigned pe, uint32_t k, uint32_t e);
  Number compute(unsigned pe, uint32_t k, uint32_t e);
  Number alu(unsigned pe, uint32_t k, uint32_t e);
  Number product(unsigned pe, uint32_t k, uint32_t e);
  Number accumulate(unsigned pe, uint32_t k, uint32_t e);
  Number operand(unsigned pe, uint32_t k, uint32_t e, const Operand &o, ProducerOf of);
  Number streamByte(unsigned pe, uint32_t k, uint32_t e, StreamId stream, ProducerOf of,
                    unsigned byte);
  Number contents(uint32_t block, uint32_t row) const;
  Number rowAtEnd(unsigned pe, Hemisphere hemisphere, unsigned slice, uint32_t row);
  Number unknown(); ///< equal to nothing

  static uint64_t rowKey(unsigned pe, Hemisphere h, unsigned slice, uint32_t row) {
    return (uint64_t(pe) * 2 + unsigned(h)) << 48 | uint64_t(slice) << 32 | row;
  }

  const Image &image;
  const Machine &machine;
  std::vector<std::vector<std::vector<Number>>> numbers; ///< [pe][instruction][element]
  std::vector<std::vector<Number>> weights;              ///< [pe][activate]
  std::vector<std::vector<uint32_t>> stepOf;             ///< [pe][instruction]
  std::unordered_map<uint64_t, Number> inputRows;
  std::unordered_map<uint64_t, std::pair<Use, unsigned>> lastWrite; ///< by row; and its PE
  Number lastUnknown = 0;
};

} // namespace millrace::test
