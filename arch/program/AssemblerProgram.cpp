// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/AssemblerProgram.h"

#include "arch/isa/Fields.h"
#include "arch/isa/Print.h"
#include "arch/program/ImageCheck.h"

#include <algorithm>

namespace millrace {

using Problem = std::optional<LineError>;

Producer defaultProducer(const Instruction &consumer, ProducerOf of) {
  Producer p;
  p.of = of, p.byte = kAllBytes;
  p.step0 = 1, p.step1 = consumer.n0;
  p.count0 = consumer.n0, p.count1 = consumer.n1;
  if (of == ProducerOf::Weights) { // i0 counts column groups
    p.count0 = uint16_t(consumer.g1 - consumer.g0);
    p.count1 = 1;
  }
  const Operand *operands[] = {&consumer.a, &consumer.b, &consumer.c};
  if (of <= ProducerOf::C && operands[unsigned(of)]->kind == OperandKind::Latch)
    p.step0 = p.step1 = 0;
  return p;
}

uint32_t AssemblerProgram::nameNumber(const std::string &text) {
  if (image.strings.empty())
    image.strings.emplace_back(); // number 0, which instructions without a node have
  for (size_t k = names.size(); k < image.strings.size(); ++k)
    names.emplace(image.strings[k], uint32_t(k));
  const auto [it, isNew] = names.emplace(text, uint32_t(image.strings.size()));
  if (isNew)
    image.strings.push_back(text);
  return it->second;
}

/// The number in an `@12` token.
static int64_t cycleOf(Words &words, const Token &token) {
  if (!token.text.starts_with('@'))
    words.fail(token.column, "'" + token.text + "' should be the dispatch cycle, like @12");
  return words.numberIn(token, token.column + 1,
                        token.text.substr(std::min<size_t>(1, token.text.size())), 0,
                        (int64_t(1) << 48) - 1);
}

static std::optional<Opcode> opcodeNamed(const std::string &mnemonic) {
  for (const OpcodeInfo &opcode : opcodes())
    if (opcode.mnemonic == mnemonic)
      return opcode.opcode;
  return std::nullopt;
}

void AssemblerProgram::operands(Words &words, Instruction &i, std::span<const Token> tokens) {
  const std::vector<const Slot *> slots = slotsOf(i.opcode);
  for (const Token &token : tokens) {
    if (token.key.empty() || token.key == "node" || token.key == "producers")
      continue;
    std::string known;
    const Slot *slot = nullptr;
    for (const Slot *s : slots) {
      known += " " + std::string(s->name);
      if (s->name == token.key)
        slot = s;
    }
    if (!slot)
      return words.fail(token.column, std::string(info(i.opcode).mnemonic) + " has no '" +
                                          token.key + "'; it has" + known + " and node");
    words.find(slot->name.data());
    const auto tensor = tensors.find(token.value);
    if (slot->kind == SlotKind::Tensor && tensor != tensors.end()) {
      slot->set(i, tensor->second);
      continue;
    }
    Expected<int64_t> value = parseSlot(machine, *slot, token.value);
    if (!value)
      return words.fail(token.valueColumn,
                        slot->kind == SlotKind::Tensor && !parseInteger(token.value)
                            ? "there is no tensor '" + token.value + "' above this line"
                            : value.error());
    slot->set(i, *value);
  }
}

Problem AssemblerProgram::instruction(unsigned pe, std::span<const Token> tokens, unsigned line) {
  const auto isFrom = [](const Token &t) { return t.text == "from" && !t.quoted; };
  const auto firstFrom = std::find_if(tokens.begin(), tokens.end(), isFrom);
  std::span<const Token> head(tokens.begin(), firstFrom);
  std::vector<std::span<const Token>> froms;
  for (auto at = firstFrom; at != tokens.end();) {
    const auto end = std::find_if(at + 1, tokens.end(), isFrom);
    froms.emplace_back(at, end);
    at = end;
  }
  Words words(head);
  Line parsed;
  parsed.step = step, parsed.number = parts[pe].lines.size();
  Instruction &i = parsed.instruction;
  if (head[0].text.ends_with(':')) {
    const std::string label = words.next("a label").text;
    if (!labels.emplace(label.substr(0, label.size() - 1), std::pair(pe, parsed.number)).second)
      return LineError{head[0].column, "label '" + label + "' is already taken"};
  }
  i.cycle = uint64_t(cycleOf(words, words.next("the dispatch cycle, like @12,")));
  const Token &queue = words.next("the queue, like mem.w.3,");
  if (const auto it = queues.find(queue.text); it != queues.end())
    i.queue = uint16_t(it->second);
  else
    words.fail(queue.column, "'" + queue.text + "' is no queue of " + machine.name +
                                 "; there are mem.w.0, alu.0, mxm.e.0.activate and the like");
  const Token &mnemonic = words.next("the instruction");
  const std::optional<Opcode> opcode = opcodeNamed(mnemonic.text);
  if (!opcode)
    words.fail(mnemonic.column,
               "'" + mnemonic.text + "' is no instruction; docs/spec/isa.md lists them");
  if (!words.ok())
    return words.error();
  i.opcode = *opcode;
  operands(words, i, head);
  if (const Token *node = words.find("node")) {
    i.provenance =
        node->valueQuoted ? nameNumber(node->value) : uint32_t(words.number("node", 0, UINT32_MAX));
  }
  if (words.has("producers")) {
    const Stretch given = words.stretch("producers", {});
    i.producers = uint32_t(given.first), i.producerCount = uint16_t(given.count);
    parsed.givesProducers = true;
  }
  words.finish();
  if (!words.ok())
    return words.error();
  VerifyOptions structure; // programs that break a rule on purpose are what people write tests with
  structure.schedule = false;
  if (Status s = verifyInstruction(i, machine, structure); !s)
    return LineError{head[0].column, s.error()};
  for (std::span<const Token> from : froms)
    if (Problem p = source(from, line, i, parsed.sources.emplace_back()))
      return p;
  parts[pe].lines.push_back(std::move(parsed));
  return std::nullopt;
}

Problem AssemblerProgram::entry(unsigned pe, std::span<const Token> tokens, unsigned line) {
  return source(tokens, line, Instruction(), parts[pe].entries.emplace_back());
}

/// `from OF[.BYTE]: REFERENCE [i0=3+5] [i1=0+1] [step0=1] [step1=0] [block=2]`
Problem AssemblerProgram::source(std::span<const Token> tokens, unsigned line,
                                 const Instruction &consumer, Source &result) {
  Words words(tokens);
  words.next("from");
  const Token &of = words.next("the operand, like a:,");
  const size_t end = of.text.find_first_of(".:");
  const std::string name = of.text.substr(0, end);
  const auto known = std::find(std::begin(kProducerOfNames), std::end(kProducerOfNames), name);
  if (known == std::end(kProducerOfNames) || !of.text.ends_with(':'))
    words.fail(of.column,
               "'" + of.text +
                   "' should be one of a: b: c: memory: weights: link: product: sum:, with "
                   ".BYTE before the colon for one byte of a wide operand");
  if (!words.ok())
    return words.error();
  result.producer = defaultProducer(consumer, ProducerOf(known - std::begin(kProducerOfNames)));
  Producer &p = result.producer;
  if (of.text[end] == '.')
    p.byte = uint8_t(words.numberIn(of, of.column + unsigned(end) + 1,
                                    of.text.substr(end + 1, of.text.size() - end - 2), 0, 255));
  const Token &reference = words.next("the producer");
  result.reference = reference.text, result.line = line, result.column = reference.column;
  const Stretch i0 = words.stretch("i0", {p.from0, p.count0}),
                i1 = words.stretch("i1", {p.from1, p.count1});
  for (const Stretch &s : {i0, i1})
    if (s.first > 0xffff || s.count > 0xffff)
      words.fail(reference.column, "a range of elements goes beyond 65535");
  p.from0 = uint16_t(i0.first), p.count0 = uint16_t(i0.count);
  p.from1 = uint16_t(i1.first), p.count1 = uint16_t(i1.count);
  p.step0 = int32_t(words.number("step0", INT32_MIN, INT32_MAX, p.step0));
  p.step1 = int32_t(words.number("step1", INT32_MIN, INT32_MAX, p.step1));
  p.block = uint32_t(words.number("block", 0, UINT32_MAX, 0));
  words.finish();
  return words.error();
}

/// `[peN/]WHO[first]`, WHO being #INDEX, block.INDEX, a label or a tensor.
Problem AssemblerProgram::resolve(unsigned pe, Source &s) {
  Producer &p = s.producer;
  std::string who = s.reference;
  Words words({});
  Token token;
  token.text = who, token.column = s.column;
  const auto number = [&](const std::string &text, int64_t most) {
    return uint32_t(words.numberIn(token, s.column, text, 0, most));
  };
  if (who.ends_with(']') && who.find('[') != who.npos) {
    const size_t open = who.find('[');
    p.first = number(who.substr(open + 1, who.size() - open - 2), UINT32_MAX);
    who.resize(open);
  }
  p.pe = uint16_t(pe);
  if (const size_t slash = who.find('/'); who.starts_with("pe") && slash != who.npos) {
    p.pe = uint16_t(number(who.substr(2, slash - 2), int64_t(parts.size()) - 1));
    who = who.substr(slash + 1);
  }
  if (!words.ok())
    return words.error();
  if (who.starts_with('#')) {
    p.instruction = number(who.substr(1), UINT32_MAX - 1);
  } else if (who.starts_with("block.")) {
    p.instruction = kInitialContents;
    p.block = number(who.substr(6), UINT32_MAX);
  } else if (const auto label = labels.find(who); label != labels.end()) {
    p.pe = uint16_t(label->second.first);
    p.instruction = parts[p.pe].index[label->second.second];
  } else if (const auto tensor = tensors.find(who); tensor != tensors.end()) {
    p.instruction = kInitialContents;
    const auto block = std::find_if(image.blocks.begin(), image.blocks.end(),
                                    [&](const Block &b) { return b.tensor == tensor->second; });
    if (block == image.blocks.end())
      return LineError{s.column, "tensor '" + who + "' has no data that could be a producer"};
    p.block = uint32_t(block - image.blocks.begin());
    p.pe = block->pe;
  } else {
    return LineError{s.column, "'" + who + "' is no label and no tensor"};
  }
  return words.error();
}

void AssemblerProgram::sort(unsigned pe) {
  Part &part = parts[pe];
  const auto key = [](const Line &l) {
    return std::tuple(l.step, l.instruction.cycle, l.instruction.queue);
  };
  std::stable_sort(part.lines.begin(), part.lines.end(),
                   [&](const Line &a, const Line &b) { return key(a) < key(b); });
  part.index.resize(part.lines.size());
  for (uint32_t k = 0; k < part.lines.size(); ++k)
    part.index[part.lines[k].number] = k;
}

std::optional<TextError> AssemblerProgram::addProducers(unsigned pe, std::vector<Source> &sources) {
  for (Source &s : sources) {
    if (Problem p = resolve(pe, s))
      return TextError{s.line, *p};
    image.producers[pe].edit().push_back(s.producer);
  }
  return std::nullopt;
}

std::optional<TextError> AssemblerProgram::finish() {
  image.instructions.resize(parts.size());
  image.producers.resize(parts.size());
  for (unsigned pe = 0; pe < parts.size(); ++pe)
    sort(pe);
  for (unsigned pe = 0; pe < parts.size(); ++pe) {
    for (Line &line : parts[pe].lines) {
      Instruction &i = line.instruction;
      if (!line.givesProducers && !line.sources.empty()) {
        i.producers = uint32_t(image.producers[pe].size());
        i.producerCount = uint16_t(line.sources.size());
      }
      if (auto wrong = addProducers(pe, line.sources))
        return wrong;
      image.instructions[pe].edit().push_back(i);
    }
    if (auto wrong = addProducers(pe, parts[pe].entries))
      return wrong;
    // Step s of the image is the (s + 1)th that the text began; before it there may be none.
    auto at = parts[pe].lines.begin();
    for (size_t s = 0; s < image.steps.size(); ++s) {
      const auto begin = at;
      at = std::find_if(at, parts[pe].lines.end(), [&](const Line &l) { return l.step > s + 1; });
      if (image.steps[s].kind == Step::Kind::Grid)
        image.steps[s].pes.push_back(
            {uint32_t(begin - parts[pe].lines.begin()), uint32_t(at - parts[pe].lines.begin())});
    }
  }
  return std::nullopt;
}

} // namespace millrace
