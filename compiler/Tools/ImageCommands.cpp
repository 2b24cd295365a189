// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/files/NewFile.h"
#include "arch/program/Assembler.h"
#include "arch/program/Dump.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"
#include "arch/spec/MachineFile.h"
#include "arch/spec/Nearest.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/FileKind.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Watch.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

namespace millrace::driver {
namespace {

constexpr std::string_view kStandardInput = "-";

struct DumpOptions {
  std::string image, machine, json, cycles;
  bool noTables = false, noInstructions = false;
  DumpFilter filter;
};

/// An image, and the machine that names its queues and streams: a file or name, or its own.
struct Opened {
  Image image;
  Machine machine;
};

Expected<Opened> open(const std::string &path, const std::string &machineName) {
  if (Status s = expectImage(path); !s)
    return s.takeError();
  Expected<Image> image = readImage(path);
  if (!image)
    return image.takeError();
  Expected<Machine> machine = machineName.empty()
                                  ? parseMachine(image->machineYaml, path + " (machine)")
                                  : loadMachine(machineName);
  if (!machine)
    return machine.takeError();
  return Opened{std::move(*image), std::move(*machine)};
}

/// A filter that lets nothing through because it names what the image does not have.
Status checkFilter(const DumpFilter &filter, const Image &image, const Machine &machine) {
  const auto absent = [](const char *option, unsigned number, size_t count, const char *what) {
    return Error{std::string(option) + " " + std::to_string(number) +
                 " does not exist; the image has " + std::to_string(count) + " " + what +
                 ", from 0"};
  };
  if (filter.pe && *filter.pe >= image.instructions.size())
    return absent("--pe", *filter.pe, image.instructions.size(), "PEs");
  if (filter.step && *filter.step >= image.steps.size())
    return absent("--step", *filter.step, image.steps.size(), "steps");
  std::vector<std::string> names = {"mem", "mxm", "sxm", "alu", "send", "receive"};
  for (unsigned queue = 0; queue < machine.queues(); ++queue) {
    names.push_back(machine.queueName(queue));
    const std::string &name = names.back();
    if (name == filter.queue || name.starts_with(filter.queue + ".") || filter.queue.empty())
      return Success{};
  }
  return Error{
      "--queue '" + filter.queue + "' is no queue of '" + machine.name +
      "', nor the beginning of one" +
      didYouMean(filter.queue, names, "there are mem.w.0, alu.0, mxm.e.0.activate and the like")};
}

int dump(DumpOptions options) {
  if (!options.cycles.empty()) {
    std::optional<CycleRange> range = parseCycles(options.cycles);
    if (!range)
      return fail(Usage, "'" + options.cycles + "' is no range of cycles; write 100..200, or 100");
    options.filter.from = range->first;
    options.filter.to = range->last;
  }
  Expected<Opened> opened = open(options.image, options.machine);
  if (!opened)
    return fail(BadInput, opened.error());
  const auto &[image, machine] = *opened;
  if (Status s = checkFilter(options.filter, image, machine); !s)
    return fail(Usage, s.error());
  options.filter.tables = !options.noTables;
  options.filter.instructions = !options.noInstructions;
  if (!options.json.empty()) {
    if (Status s = writeFile(options.json, dumpJson(image, machine)); !s)
      return fail(BadOutput, s.error());
    return Ok;
  }
  const std::string text = dumpText(image, machine, options.filter);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Ok;
}

int disassembleFile(const std::string &path, const std::string &machineName,
                    const std::string &output, const DisassembleOptions &options) {
  Expected<Opened> opened = open(path, machineName);
  if (!opened)
    return fail(BadInput, opened.error());
  // Only of images that verify is the text known to assemble again.
  if (Status s = verifyImage(opened->image, opened->machine, {.anyMachine = true}); !s)
    std::fprintf(stderr, "millrace: warning: %s: %s; its text may not assemble\n", path.c_str(),
                 s.error().c_str());
  const std::string text = disassemble(opened->image, opened->machine, options);
  if (output.empty())
    std::fwrite(text.data(), 1, text.size(), stdout);
  else if (Status s = writeFile(output, text); !s)
    return fail(BadOutput, s.error());
  return Ok;
}

int assembleFile(const std::string &path, const std::string &output) {
  std::ifstream file;
  if (path != kStandardInput)
    file.open(path, std::ios::binary);
  std::istream &in = path == kStandardInput ? std::cin : file;
  if (!in)
    return fail(BadInput,
                "cannot read '" + path + "': " + std::strerror(errno) + "; check the path");
  std::ostringstream text;
  if (!(text << in.rdbuf()) && in.peek() != EOF)
    return fail(BadInput,
                "cannot read '" + path + "': it is a folder or damaged; name a text file");
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

void addMachineThatNames(CLI::App &command, std::string &machine) {
  command
      .add_option("--machine,-m", machine,
                  "machine that names queues and streams; the one in the image by default")
      ->type_name("MACHINE")
      ->group(heading::Machine);
}

} // namespace

void addDump(CLI::App &app, Action &action) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App *command =
      app.add_subcommand("dump", "Lists what is in a program image")->group(heading::Images);
  command->footer("Examples:\n"
                  "  millrace dump model.mrp --no-instructions\n"
                  "  millrace dump model.mrp --pe 0 --queue mxm --cycles 100..200");
  command->add_option("image", options->image, "image that `millrace compile` or `assemble` wrote")
      ->type_name("FILE")
      ->required();
  addMachineThatNames(*command, options->machine);
  const auto choice = [](CLI::Option *option) { option->group(heading::Choice); };
  choice(command->add_option("--pe", options->filter.pe, "only this PE")->type_name("NUMBER"));
  choice(
      command->add_option("--step", options->filter.step, "only this step")->type_name("NUMBER"));
  choice(command
             ->add_option("--queue", options->filter.queue,
                          "only this queue, or all that begin like it: alu.3, mem.w, mxm")
             ->type_name("QUEUE"));
  choice(command
             ->add_option("--cycles", options->cycles,
                          "only what runs in these cycles of its step: 100..200")
             ->type_name("CYCLES"));
  choice(command
             ->add_option("--node", options->filter.node,
                          "only instructions of nodes whose name contains this")
             ->type_name("NODE"));
  choice(command->add_flag("--producers", options->filter.producers,
                           "the producer of each operand too"));
  choice(command->add_flag("--no-tables", options->noTables, "instructions alone"));
  choice(command->add_flag("--no-instructions", options->noInstructions, "tables alone"));
  choice(command->add_option("--json", options->json, "write a summary as JSON instead")
             ->type_name("FILE"));
  command->callback([=, &action] { action = [=] { return dump(*options); }; });
}

void addAssemble(CLI::App &app, Action &action) {
  auto path = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  CLI::App *command =
      app.add_subcommand("assemble", "Makes a program image from text (docs/spec/assembly.md)")
          ->group(heading::Images);
  command->footer("Example: millrace assemble program.s -o program.mrp");
  command->add_option("text", *path, "assembly, - for the standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("--output,-o", *output, "image to write")
      ->type_name("FILE")
      ->required()
      ->group(heading::Data);
  command->callback([=, &action] { action = [=] { return assembleFile(*path, *output); }; });
}

void addDisassemble(CLI::App &app, Action &action) {
  auto path = std::make_shared<std::string>(), machine = std::make_shared<std::string>(),
       output = std::make_shared<std::string>();
  auto noData = std::make_shared<bool>(false);
  CLI::App *command =
      app.add_subcommand("disassemble",
                         "Writes a program image as text that `assemble` turns back into it")
          ->group(heading::Images);
  command->footer("Example: millrace disassemble program.mrp -o program.s");
  command->add_option("image", *path, "image that `millrace compile` or `assemble` wrote")
      ->type_name("FILE")
      ->required();
  command->add_option("--output,-o", *output, "file to write; the standard output by default")
      ->type_name("FILE")
      ->group(heading::Data);
  addMachineThatNames(*command, *machine);
  command
      ->add_flag("--no-data", *noData,
                 "leave out the contents of memory; the text does not assemble to the image")
      ->group(heading::Choice);
  command->callback([=, &action] {
    action = [=] { return disassembleFile(*path, *machine, *output, {.data = !*noData}); };
  });
}

} // namespace millrace::driver
