// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Assembler.h"
#include "arch/program/Dump.h"
#include "arch/program/ImageFile.h"
#include "arch/spec/MachineFile.h"
#include "compiler/Tools/Execute.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace millrace::driver {
namespace {

struct DumpOptions {
  std::string image, machine, json, cycles;
  bool assembly = false, noTables = false, noInstructions = false;
  DumpFilter filter;
};

/// "A..B" or "A" as an inclusive range of cycles.
bool parseCycles(const std::string &text, DumpFilter &filter) {
  char *end = nullptr;
  filter.from = filter.to = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || text[0] == '-')
    return false;
  if (std::string_view rest = end; rest.starts_with("..") && rest.size() > 2)
    filter.to = std::strtoull(rest.data() + 2, &end, 10);
  return *end == '\0' && filter.from <= filter.to;
}

int dump(DumpOptions options) {
  if (!options.cycles.empty() && !parseCycles(options.cycles, options.filter))
    return fail(Usage, "'" + options.cycles + "' is no range of cycles; write 100..200, or 100");
  Expected<Image> image = readImage(options.image);
  if (!image)
    return fail(BadInput, image.error());
  Expected<Machine> machine = options.machine.empty()
                                  ? parseMachine(image->machineYaml, options.image + " (machine)")
                                  : loadMachine(options.machine);
  if (!machine)
    return fail(BadInput, machine.error());
  options.filter.tables = !options.noTables;
  options.filter.instructions = !options.noInstructions;
  if (!options.json.empty()) {
    if (Status s = writeText(options.json, dumpJson(*image, *machine)); !s)
      return fail(BadOutput, s.error());
    return Ok;
  }
  const std::string text =
      options.assembly ? disassemble(*image, *machine) : dumpText(*image, *machine, options.filter);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout))
    return fail(BadOutput, "the listing cannot be written to the standard output");
  return Ok;
}

int assembleFile(const std::string &path, const std::string &output) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return fail(BadInput, "cannot read '" + path + "'");
  Expected<Image> image = assemble(text.str(), path);
  if (!image)
    return fail(BadInput, image.error());
  // Images carry their machine, so that `simulate` and `dump` need no other file.
  if (image->machineYaml.empty())
    if (Expected<Machine> machine = loadMachine(image->machineName))
      image->machineYaml = toYaml(*machine);
  if (Status s = writeImage(*image, output); !s)
    return fail(BadOutput, s.error());
  return Ok;
}

} // namespace

void addDump(CLI::App &app, Action &action) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App *command = app.add_subcommand(
      "dump", "Lists what is in a program image.\n\n"
              "Example: millrace dump model.mrp --pe 0 --queue mxm --cycles 100..200");
  command->add_option("image", options->image, "image that `millrace compile` or `assemble` wrote")
      ->required();
  command->add_option("--machine,-m", options->machine,
                      "machine that names queues and streams; the one in the image by default");
  command->add_option("--pe", options->filter.pe, "only this PE");
  command->add_option("--step", options->filter.step, "only this step");
  command->add_option("--queue", options->filter.queue,
                      "only this queue, or all that begin like it: alu.3, mem.w, mxm");
  command->add_option("--cycles", options->cycles,
                      "only what runs in these cycles of its step: 100..200");
  command->add_option("--node", options->filter.node,
                      "only instructions of nodes whose name contains this");
  command->add_flag("--producers", options->filter.producers, "the producer of each operand too");
  command->add_flag("--no-tables", options->noTables, "instructions alone");
  command->add_flag("--no-instructions", options->noInstructions, "tables alone");
  command->add_option("--json", options->json, "write a summary as JSON to this file instead");
  command->add_flag("--assembly", options->assembly,
                    "print text that `millrace assemble` turns back into the image");
  command->callback([=, &action] { action = [=] { return dump(*options); }; });
}

void addAssemble(CLI::App &app, Action &action) {
  auto path = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  CLI::App *command =
      app.add_subcommand("assemble", "Makes a program image from text (docs/spec/assembly.md).\n\n"
                                     "Example: millrace assemble program.s -o program.mrp");
  command->add_option("text", *path, "assembly")->required();
  command->add_option("--output,-o", *output, "image to write")->required();
  command->callback([=, &action] { action = [=] { return assembleFile(*path, *output); }; });
}

} // namespace millrace::driver
