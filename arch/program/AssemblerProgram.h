// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instructions of an assembly text: labels, order, and who produces what.
#pragma once

#include "arch/program/Image.h"
#include "arch/program/Words.h"

#include <iterator>
#include <map>
#include <string>

namespace millrace {

/// Names of ProducerOf, in order.
constexpr const char *kProducerOfNames[] = {"a",       "b",    "c",       "memory",
                                            "weights", "link", "product", "sum"};
static_assert(std::size(kProducerOfNames) == kProducerOfs);

/// What an entry says of its consumer when the text leaves it out: all elements, in the producer's
/// order; of a latch, all from the one that loaded it.
Producer defaultProducer(const Instruction &consumer, ProducerOf of);

/// An error with the number of its line, from 1.
struct TextError {
  unsigned line;
  LineError error;
};

class AssemblerProgram {
public:
  AssemblerProgram(Image &image, const Machine &machine) : image(image), machine(machine) {
    for (unsigned q = 0; q < machine.queues(); ++q)
      queues[machine.queueName(q)] = q;
    parts.resize(machine.pes());
  }
  /// Tensors by the names that the text gave them.
  std::map<std::string, uint32_t> tensors;
  /// The number of a text in the image's table, added if it is new.
  uint32_t nameNumber(const std::string &text);

  void beginStep() { ++step; }
  /// `[LABEL:] @CYCLE QUEUE MNEMONIC slot=value... [from ...]... [node=...] [producers=...]`
  std::optional<LineError> instruction(unsigned pe, std::span<const Token> tokens, unsigned line);
  /// `from ...` on a line of its own: an entry of the PE's producer table and nothing else.
  std::optional<LineError> entry(unsigned pe, std::span<const Token> tokens, unsigned line);
  /// Sorts, resolves labels, fills the image's instructions, producers and ranges of steps.
  std::optional<TextError> finish();

private:
  struct Source {
    Producer producer;
    std::string reference; ///< who: a label, #index, a tensor or block.NUMBER, with [first]
    unsigned line, column;
  };
  struct Line {
    Instruction instruction;
    std::vector<Source> sources;
    bool givesProducers = false;
    size_t step = 0;
    size_t number = 0; ///< in the PE, as written
  };
  struct Part {
    std::vector<Line> lines;
    std::vector<Source> entries;
    std::vector<uint32_t> index; ///< of a line, once sorted
  };

  void operands(Words &words, Instruction &i, std::span<const Token> tokens);
  std::optional<LineError> source(std::span<const Token> tokens, unsigned line,
                                  const Instruction &consumer, Source &result);
  std::optional<LineError> resolve(unsigned pe, Source &source);
  std::optional<TextError> addProducers(unsigned pe, std::vector<Source> &sources);
  void sort(unsigned pe);

  Image &image;
  const Machine &machine;
  std::map<std::string, unsigned> queues;
  std::vector<Part> parts;
  std::map<std::string, std::pair<unsigned, size_t>> labels; ///< PE, number of the line
  std::map<std::string, uint32_t> names;
  size_t step = 0;
};

} // namespace millrace
