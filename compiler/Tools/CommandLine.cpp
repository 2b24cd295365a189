// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/CommandLine.h"

#include "arch/spec/Nearest.h"
#include "compiler/Tools/HelpText.h"
#include "compiler/Tools/Version.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sstream>
#include <unistd.h>

namespace millrace::driver {

namespace {

std::string quoted(const std::string &word) { return "'" + word + "'"; }

/// A file opened in place of a closed standard stream would take what is printed.
void openStandardStreams() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0)
      (void)!::open("/dev/null", O_RDWR); // takes the lowest free number: this one
}

/// The subcommand on the line, or the program itself.
const CLI::App &chosenOf(const CLI::App &app) {
  const std::vector<CLI::App *> chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

/// How the program is called with this command: "millrace run".
std::string callOf(const CLI::App &command) {
  return command.get_parent() ? "millrace " + command.get_name() : "millrace";
}

/// The remedy for whoever does not know the options.
std::string seeHelp(const CLI::App &command) { return "see `" + callOf(command) + " --help`"; }

/// An option that does not exist, with the nearest one if that is near; empty if all exist.
std::string unknownOption(const CLI::App &command, int argc, char **argv) {
  std::vector<std::string> known;
  for (const CLI::Option *option : command.get_options())
    for (const std::string &name : option->get_lnames())
      known.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (name == "--")
      return {};
    if (name.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end())
      return "unknown option " + quoted(name) + didYouMean(name, known, seeHelp(command));
    if (name.size() > 1 && name[0] == '-' && name[1] != '-' &&
        std::isalpha(static_cast<unsigned char>(name[1])) &&
        !command.get_option_no_throw(name.substr(0, 2)))
      return "unknown option " + quoted(name.substr(0, 2)) + "; " + seeHelp(command);
  }
  return {};
}

constexpr const char *kFooter =
    R"(Examples:
  millrace check model.onnx                        is it a model that can be compiled?
  millrace run model.onnx --machine tsp-v1         compile, simulate, report
  millrace compile model.onnx -o model.mrp         the program image alone
  millrace simulate model.mrp --cycles-only        and what it takes
  millrace describe lp30 --set mxm.planes=4        peak rates of a changed machine
  millrace help run                                every option of a command

- as the name of a file is the standard output, or input.

Exit codes:
  0  done
  1  the simulator found a violation, another count of cycles than predicted,
     or a judge other values
  2  bad command line
  3  bad input file, or unsupported operator
  4  the model does not fit the machine
  5  an output cannot be written)";

/// What is wrong with the command line, in one line.
std::string describe(const CLI::App &app, const CLI::ParseError &error, int argc, char **argv) {
  std::vector<std::string> commands;
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; }))
    commands.push_back(command->get_name());
  if (app.get_subcommands().empty()) {
    if (argc > 1 && argv[1][0] != '-')
      return "unknown command " + quoted(argv[1]) +
             didYouMean(argv[1], commands, "`millrace --help` lists them");
    if (argc < 2)
      return "no command given; `millrace --help` lists them";
  }
  const CLI::App &command = chosenOf(app);
  if (std::string text = unknownOption(command, argc, argv); !text.empty())
    return text;
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error))
    return quoted(std::string(error.what()).substr(0, std::string(error.what()).find(':'))) +
           " needs a value; " + seeHelp(command);
  std::string text = error.what();
  text[0] = char(std::tolower(static_cast<unsigned char>(text[0])));
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n'))
    text.replace(at, 1, " ");
  return text + "; " + seeHelp(command);
}

} // namespace

void warn(const std::string &text) {
  std::fprintf(stderr, "millrace: warning: %s\n", text.c_str());
}

int fail(Exit code, const std::string &text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    std::fprintf(stderr, "millrace: error: %s\n", line.c_str());
  return code;
}

void addVerbosity(CLI::App &command, Verbosity &verbosity) {
  CLI::Option *quiet = command.add_flag_callback(
      "-q,--quiet", [&verbosity] { verbosity = Verbosity::Quiet; }, "print errors only");
  command
      .add_flag_callback(
          "-v,--verbose", [&verbosity] { verbosity = Verbosity::Verbose; },
          "print each stage and its time on the standard error")
      ->excludes(quiet)
      ->group(heading::Messages);
  quiet->group(heading::Messages);
}

void addImageCommands(CLI::App &app, Action &action, const FindHostSteps &findHost) {
  addSimulate(app, action, findHost);
  addDump(app, action);
  addAssemble(app, action);
  addDisassemble(app, action);
  addMachines(app, action);
  addDescribe(app, action);
}

void runCommandLine(int argc, char **argv,
                    const std::function<void(CLI::App &, Action &)> &addCommands) {
  openStandardStreams();
  CLI::App app("Compiles ONNX models to static schedules for spatial dataflow accelerators and "
               "executes\nthem on a cycle-level SystemC model.",
               "millrace");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_help_ptr()->group(heading::Messages);
  app.set_version_flag("--version", [] { return "millrace " + versionText(); })
      ->group(heading::Messages);
  Action action;
  addCommands(app, action);
  app.footer(kFooter);
  // A closed pipe and a file that grows too large are errors of write(), not ends of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  int code = Usage;
  try {
    app.parse(argc, argv);
    code = action();
  } catch (const CLI::ParseError &error) {
    code = error.get_exit_code() == 0 ? app.exit(error)
                                      : fail(Usage, describe(app, error, argc, argv));
  } catch (const std::bad_alloc &) {
    code = fail(TooLarge, "there is not enough memory on this computer for it");
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == Ok)
    code = fail(BadOutput,
                std::string("cannot write to the standard output: ") + std::strerror(errno));
  // SystemC's own exit handlers destroy objects of simulations that are over; leave before them.
  std::fflush(stderr);
  _exit(code);
}

} // namespace millrace::driver
