// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Assembler.h"

#include "arch/isa/Print.h"
#include "arch/program/AssemblerData.h"
#include "arch/program/AssemblerProgram.h"
#include "arch/program/ImageCheck.h"
#include "arch/spec/MachineFile.h"

#include <memory>

namespace millrace {
namespace {

using Problem = std::optional<LineError>;

constexpr const char *kSides[] = {"west", "east"};
constexpr const char *kRoleWords[] = {"input", "output", "hostinput", "hostoutput", "hostconstant"};

class Assembler {
public:
  Assembler(const std::string &file, const Machine *given) : file(file), given(given) {}

  Expected<Image> run(std::string_view text) {
    for (unsigned line = 1; !text.empty(); ++line) {
      const size_t end = std::min(text.find('\n'), text.size());
      if (Problem p = statement(text.substr(0, end), line))
        return at(line, *p);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!program)
      return Error{file +
                   ": the text names no machine; begin with a line like 'machine tsp-small'"};
    if (auto wrong = program->finish())
      return at(wrong->line, wrong->error);
    if (Status s = checkImage(image); !s)
      return Error{file + ": " + s.error()};
    return std::move(image);
  }

private:
  Error at(unsigned line, const LineError &e) const {
    return Error{file + ":" + std::to_string(line) + ":" + std::to_string(e.column) + ": " +
                 e.message};
  }

  Problem statement(std::string_view text, unsigned line) {
    auto split = tokensOf(text);
    if (auto *wrong = std::get_if<LineError>(&split))
      return *wrong;
    const auto &tokens = std::get<std::vector<Token>>(split);
    if (tokens.empty())
      return std::nullopt;
    const Token &first = tokens[0];
    if (first.text == "machine")
      return run(tokens, &Assembler::machine);
    if (!program)
      return LineError{first.column, "name the machine first, like 'machine tsp-small'"};
    if (first.text.starts_with('@') || (first.text.ends_with(':') && !first.quoted)) {
      if (image.steps.empty())
        return LineError{first.column, "begin a step first, like 'step grid cycles=100'"};
      if (image.steps.back().kind != Step::Kind::Grid)
        return LineError{first.column, "a host step has no instructions; begin a grid step"};
      return program->instruction(pe, tokens, line);
    }
    if (first.text == "from")
      return program->entry(pe, tokens, line);
    static constexpr struct {
      const char *name;
      void (Assembler::*parse)(Words &);
      Problem (Assembler::*tail)(std::span<const Token>);
    } kStatements[] = {
        {"yaml", &Assembler::yaml, nullptr},     {"note", &Assembler::note, nullptr},
        {"string", &Assembler::string, nullptr}, {"hostmodule", &Assembler::hostModule, nullptr},
        {"map", &Assembler::laneMap, nullptr},   {"tensor", &Assembler::tensor, nullptr},
        {"block", &Assembler::block, nullptr},   {"binding", &Assembler::binding, nullptr},
        {"place", &Assembler::place, nullptr},   {"loop", &Assembler::loop, nullptr},
        {"step", &Assembler::step, nullptr},     {"pe", &Assembler::selectPe, nullptr},
        {"data", nullptr, &Assembler::data},     {"bytes", nullptr, &Assembler::bytes},
    };
    std::string known;
    for (const auto &s : kStatements) {
      if (first.text == s.name)
        return s.parse ? run(tokens, s.parse) : (this->*s.tail)(tokens);
      known += std::string(" ") + s.name;
    }
    return LineError{first.column, "'" + first.text + "' begins no line; there are @CYCLE LABEL:" +
                                       known + " from machine"};
  }

  Problem run(std::span<const Token> tokens, void (Assembler::*parse)(Words &)) {
    Words words(tokens);
    words.next("a statement");
    (this->*parse)(words);
    if (words.ok())
      words.finish();
    return words.error();
  }

  void machine(Words &words) {
    const Token &name = words.next("the machine's name");
    if (program)
      return words.fail(name.column, "the machine is already named");
    if (!words.ok())
      return;
    if (!given) {
      Expected<Machine> found = loadMachine(name.text);
      if (!found)
        return words.fail(name.column, found.error());
      loaded = std::move(*found);
      given = &loaded;
    }
    image.machineName = name.text;
    image.machineHash = given->hash();
    if (const Token *hash = words.find("hash")) {
      // All 64 bits may be used, more than a signed number holds.
      image.machineHash = std::strtoull(hash->value.c_str(), nullptr, 16);
      if (hash->value.size() != 16 ||
          hash->value.find_first_not_of("0123456789abcdef") != std::string::npos)
        words.fail(hash->valueColumn, "a hash has 16 hex digits");
    }
    program = std::make_unique<AssemblerProgram>(image, *given);
  }
  void yaml(Words &words) { image.machineYaml = words.next("the machine's text").text; }
  void note(Words &words) {
    const std::string key = words.next("the key").text;
    image.notes.emplace_back(key, words.next("the value").text);
  }
  void string(Words &words) { image.strings.push_back(words.next("the text").text); }
  void hostModule(Words &words) { image.hostModule = words.next("the module's text").text; }
  void laneMap(Words &words) {
    auto &map = image.laneMaps.emplace_back();
    while (words.hasNext()) {
      const Token &lane = words.next("a lane");
      map.push_back(lane.text == "-"
                        ? 0xffff
                        : uint16_t(words.numberIn(lane, lane.column, lane.text, 0, 0xffff)));
    }
  }
  void selectPe(Words &words) {
    const Token &number = words.next("the PE's number");
    pe = unsigned(words.numberIn(number, number.column, number.text, 0, int64_t(given->pes()) - 1));
  }

  /// `tensor NAME west|east slice=3 rows=0..9 [pe=0] [name=K|"text"] [step0=0] [step1=1]
  /// [from=0] [to=99]`
  void tensor(Words &words) {
    const Token &id = words.next("the tensor's name");
    Region r;
    r.hemisphere = Hemisphere(words.choice("hemisphere", kSides));
    r.slice = uint16_t(words.number("slice", 0, 0xffff));
    if (!words.has("rows"))
      words.fail(id.column, "rows= is missing");
    const Stretch rows = rowsIn(words, id);
    r.row = uint32_t(rows.first), r.rows = uint32_t(rows.count);
    r.pe = uint16_t(words.number("pe", 0, 0xffff, pe));
    r.step0 = uint16_t(words.number("step0", 0, 0xffff, 0));
    r.step1 = uint16_t(words.number("step1", 0, 0xffff, 0xffff));
    r.from = words.unsignedNumber("from", 0);
    r.to = words.unsignedNumber("to", UINT64_MAX);
    const Token *name = words.find("name");
    r.name = name && !name->valueQuoted ? uint32_t(words.number("name", 0, UINT32_MAX))
                                        : program->nameNumber(name ? name->value : id.text);
    if (!program->tensors.emplace(id.text, uint32_t(image.tensors.size())).second)
      words.fail(id.column, "tensor '" + id.text + "' is already there");
    image.tensors.push_back(r);
  }

  static Stretch rowsIn(Words &words, const Token &name) {
    const Stretch rows = words.stretch("rows", {});
    if (rows.first > UINT32_MAX || rows.count > UINT32_MAX)
      words.fail(name.column, "its rows go beyond 32 bits");
    return rows;
  }

  uint32_t tensorNamed(Words &words, const Token &token) {
    const auto it = program->tensors.find(token.text);
    if (it != program->tensors.end())
      return it->second;
    words.fail(token.column, "there is no tensor '" + token.text + "' above this line");
    return 0;
  }

  /// Data beyond what the machine holds are taken for a slip of the pen, before they take memory.
  Problem checkRoom(uint64_t more, unsigned column) const {
    const double capacity = double(given->pes()) * kHemispheres * given->memory.slices *
                            double(given->rowsPerSlice()) * given->lanes();
    if (double(image.data.size()) + double(more) <= capacity)
      return std::nullopt;
    return LineError{column, std::to_string(more) + " bytes of data, with the " +
                                 std::to_string(image.data.size()) + " above, are more than " +
                                 given->name + " holds"};
  }

  /// `data NAME [rows=2+3] [byte=0] FORM...`: rows of the tensor (all of them), whole vectors.
  Problem data(std::span<const Token> tokens) {
    size_t keys = std::min<size_t>(2, tokens.size());
    while (keys < tokens.size() && !tokens[keys].key.empty())
      ++keys;
    Words words(tokens.subspan(0, keys));
    words.next("data");
    const Token &name = words.next("the tensor's name");
    const uint32_t tensor = words.ok() ? tensorNamed(words, name) : 0;
    if (!words.ok())
      return words.error();
    const Region &r = image.tensors[tensor];
    const Stretch rows = words.stretch("rows", {0, r.rows});
    if (rows.first > r.rows || rows.count > r.rows - rows.first)
      words.fail(name.column, "tensor '" + name.text + "' has " + std::to_string(r.rows) + " rows");
    std::optional<unsigned> byte;
    if (words.has("byte"))
      byte = unsigned(words.number("byte", 0, 3));
    words.finish();
    if (keys == tokens.size())
      words.fail(name.column, "contents are missing, like 'iota' or 'int8 1 2 3'");
    if (!words.ok())
      return words.error();
    Block b;
    b.pe = r.pe, b.hemisphere = r.hemisphere, b.slice = r.slice, b.tensor = tensor;
    b.row = uint32_t(r.row + rows.first), b.rows = uint32_t(rows.count);
    if (tokens[keys].text == "host") { // contents come from a binding
      image.blocks.push_back(b);
      return std::nullopt;
    }
    b.bytes = uint16_t(given->lanes()), b.offset = image.data.size();
    if (Problem p = checkRoom(uint64_t(b.rows) * b.bytes, name.column))
      return p;
    std::vector<uint8_t> contents(size_t(b.rows) * b.bytes);
    if (Problem p = fillData(tokens.subspan(keys), byte, contents))
      return p;
    image.data.append(contents.begin(), contents.end());
    image.blocks.push_back(b);
    return std::nullopt;
  }

  /// `block TENSOR pe=0 west slice=3 rows=0+5 bytes=320 offset=0`: as it stands in the image.
  void block(Words &words) {
    Block b;
    const Token &name = words.next("the tensor's name");
    b.tensor = tensorNamed(words, name);
    b.hemisphere = Hemisphere(words.choice("hemisphere", kSides));
    b.pe = uint16_t(words.number("pe", 0, 0xffff, pe));
    b.slice = uint16_t(words.number("slice", 0, 0xffff));
    const Stretch rows = rowsIn(words, name);
    b.row = uint32_t(rows.first), b.rows = uint32_t(rows.count);
    b.bytes = uint16_t(words.number("bytes", 0, 0xffff));
    b.offset = words.unsignedNumber("offset", 0);
    image.blocks.push_back(b);
  }
  /// `bytes hex 00ff` or `bytes zero 100`, at the end of the image's data.
  Problem bytes(std::span<const Token> tokens) {
    if (tokens.size() < 3)
      return LineError{tokens[0].column, "write 'bytes hex 00ff...' or 'bytes zero 100'"};
    std::vector<uint8_t> contents;
    if (tokens[1].text == "zero") {
      Words words(tokens);
      const uint64_t zeros =
          uint64_t(words.numberIn(tokens[2], tokens[2].column, tokens[2].text, 0, INT64_MAX));
      if (!words.ok())
        return words.error();
      if (Problem p = checkRoom(zeros, tokens[2].column))
        return p;
      contents.resize(zeros);
    } else {
      size_t digits = 0;
      for (const Token &t : tokens.subspan(2))
        digits += t.text.size();
      contents.resize((digits + 1) / 2);
      if (Problem p = fillData(tokens.subspan(1), std::nullopt, contents))
        return p;
    }
    image.data.append(contents.begin(), contents.end());
    return std::nullopt;
  }

  /// `binding input "x" host=float grid=fp16 shape=1,3 [scale=0.5 zero=3] [extent=100]
  /// [offset=64]`
  void binding(Words &words) {
    Binding b;
    b.role = Binding::Role(words.choice("role", kRoleWords));
    b.name = words.next("the value's name").text;
    b.hostType = words.text("host", "float");
    if (const Token *grid = words.find("grid")) {
      Expected<ElementType> type = parseElementType(grid->value);
      if (!type)
        return words.fail(grid->valueColumn, type.error());
      b.gridType = *type;
    }
    b.shape = words.numbers("shape", INT64_MIN, INT64_MAX);
    b.scale = words.real("scale", 0);
    b.zero = words.number("zero", INT64_MIN, INT64_MAX, 0);
    b.extent = words.number("extent", 0, INT64_MAX, 0);
    b.offset = uint64_t(words.number("offset", 0, INT64_MAX, 0));
    image.bindings.push_back(b);
  }
  /// `place west slices=1,2 [pe=0] [first=0] [inlanes=1] row=4 lane=0 start=0,0 [fill=0x0]
  /// [from=0 rows=100]`
  void place(Words &words) {
    if (image.bindings.empty())
      return words.fail(1, "a place belongs to a binding, which must stand above");
    Placement p;
    p.hemisphere = Hemisphere(words.choice("hemisphere", kSides));
    p.pe = uint16_t(words.number("pe", 0, 0xffff, pe));
    p.bytesInLanes = words.number("inlanes", 0, 1, 0);
    p.firstByte = uint8_t(words.number("first", 0, 255, 0));
    for (int64_t slice : words.numbers("slices", 0, 0xffff))
      p.slices.push_back(uint16_t(slice));
    p.row = uint32_t(words.number("row", 0, UINT32_MAX, 0));
    p.lane = uint32_t(words.number("lane", 0, UINT32_MAX, 0));
    p.start = words.numbers("start", INT64_MIN, INT64_MAX);
    p.fill = uint32_t(words.number("fill", 0, UINT32_MAX, 0));
    p.first = uint32_t(words.number("from", 0, UINT32_MAX, 0));
    p.rows = uint32_t(words.number("rows", 0, UINT32_MAX, 0));
    image.bindings.back().placements.push_back(p);
  }
  /// `loop count=3 [row=1] [lane=0] [dim=0 step=1]`
  void loop(Words &words) {
    if (image.bindings.empty() || image.bindings.back().placements.empty())
      return words.fail(1, "a loop belongs to a place, which must stand above");
    BindingLoop l;
    l.count = uint32_t(words.number("count", 0, UINT32_MAX));
    l.rowStep = int32_t(words.number("row", INT32_MIN, INT32_MAX, 0));
    l.laneStep = int32_t(words.number("lane", INT32_MIN, INT32_MAX, 0));
    l.dim = uint32_t(words.number("dim", 0, UINT32_MAX, kNoDim));
    l.step = int32_t(words.number("step", INT32_MIN, INT32_MAX, 0));
    image.bindings.back().placements.back().loops.push_back(l);
  }

  /// `step grid [cycles=123]` or `step host|cpu|gpu "function" [inputs=0,1] [outputs=2]`
  void step(Words &words) {
    constexpr const char *kinds[] = {"grid", nameOf(StepDevice::Host), nameOf(StepDevice::Cpu),
                                     nameOf(StepDevice::Gpu)};
    Step s;
    if (const unsigned kind = words.choice("kind of step", kinds)) {
      s.kind = Step::Kind::Host;
      s.device = StepDevice(kind - 1);
    }
    if (s.kind == Step::Kind::Host)
      s.function = words.next("the function's name").text;
    s.predictedCycles = words.unsignedNumber("cycles", 0);
    for (int64_t binding : words.numbers("inputs", 0, UINT32_MAX))
      s.inputs.push_back(uint32_t(binding));
    for (int64_t binding : words.numbers("outputs", 0, UINT32_MAX))
      s.outputs.push_back(uint32_t(binding));
    image.steps.push_back(s);
    program->beginStep();
  }

  const std::string &file;
  const Machine *given;
  Machine loaded;
  Image image;
  std::unique_ptr<AssemblerProgram> program;
  unsigned pe = 0;
};

} // namespace

Expected<Image> assemble(std::string_view text, const std::string &file, const Machine *machine) {
  return Assembler(file, machine).run(text);
}

} // namespace millrace
