// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What --help and the manual page say. Both come from the commands themselves.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace millrace::driver {

/// Headings of the options and commands.
namespace heading {
constexpr const char *Models = "Models", *Images = "Program images", *Machines = "Machines",
                     *Help = "Help";
constexpr const char *Model = "The model", *Machine = "The machine", *Compiler = "The compiler",
                     *Data = "Inputs and outputs", *Simulation = "The simulation",
                     *Recording = "Recording", *Choice = "What to show", *Messages = "Messages";
} // namespace heading

/// Options under their headings, messages and help last.
class HelpFormatter : public CLI::Formatter {
public:
  HelpFormatter();
  std::string make_help(const CLI::App *app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option_opts(const CLI::Option *option) const override;
};

/// The words in braces of an option that takes one of them: "fp16", "bf16" ...; empty for others.
std::vector<std::string> choicesOf(const CLI::Option &option);

/// The manual page of `app` and its commands, as roff.
std::string manualPage(const CLI::App &app, const std::string &version);

/// Adds `help`, which prints the help of a command, or the manual page of all.
void addHelp(CLI::App &app, std::function<int()> &action);

} // namespace millrace::driver
