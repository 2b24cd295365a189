// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/HelpText.h"

#include "arch/spec/Nearest.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/Version.h"

#include <algorithm>
#include <sstream>

namespace millrace::driver {

HelpFormatter::HelpFormatter() {
  column_width(34);
  label("Positionals", "Arguments");
  label("SUBCOMMAND", "COMMAND");
}

/// The options of a command, each under its heading.
static std::string optionsOf(const CLI::App *app, const HelpFormatter &formatter) {
  // CLI11 lists its own --help first; it stands with the messages, at the end.
  std::vector<std::string> groups = app->get_groups();
  std::stable_partition(groups.begin(), groups.end(), [](const std::string &group) {
    return group != heading::Messages && group != heading::Help;
  });
  std::string text;
  for (const std::string &group : groups) {
    std::vector<const CLI::Option *> options = app->get_options([&](const CLI::Option *option) {
      return option->get_group() == group && option->nonpositional();
    });
    if (!group.empty() && !options.empty())
      text += formatter.make_group(group, false, options);
  }
  return text;
}

std::string HelpFormatter::make_help(const CLI::App *app, std::string name,
                                     CLI::AppFormatMode mode) const {
  return make_description(app) + "\n" + make_usage(app, name) + make_positionals(app) +
         optionsOf(app, *this) + make_subcommands(app, mode) + "\n" + make_footer(app);
}

std::string HelpFormatter::make_option_opts(const CLI::Option *option) const {
  if (option->get_type_size() == 0)
    return {};
  const std::vector<std::string> choices = choicesOf(*option);
  std::string text = " ";
  for (const std::string &choice : choices)
    text += (&choice == &choices.front() ? "" : "|") + choice;
  if (choices.empty())
    text += option->get_type_name().substr(0, option->get_type_name().find(':'));
  if (!option->get_default_str().empty())
    text += " (" + option->get_default_str() + ")";
  const bool repeats = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  return text + (repeats ? " ..." : "") + (option->get_required() ? ", required" : "");
}

std::vector<std::string> choicesOf(const CLI::Option &option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  std::vector<std::string> choices;
  if (begin == type.npos || end == type.npos)
    return choices;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');)
    choices.push_back(word);
  return choices;
}

namespace {

/// Text that roff does not take for its own.
std::string roff(const std::string &text) {
  std::string result;
  bool atLineStart = true;
  for (char c : text) {
    if (atLineStart && (c == '.' || c == '\''))
      result += "\\&";
    result += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
    atLineStart = c == '\n';
  }
  return result;
}

class ManualPage {
public:
  explicit ManualPage(const std::string &version) {
    text = ".TH MILLRACE 1 \"\" \"millrace " + version + "\" \"User commands\"\n";
  }

  void section(const std::string &title) { text += ".SH " + title + "\n"; }
  void subsection(const std::string &title) { text += ".SS \"" + roff(title) + "\"\n"; }
  void paragraph(const std::string &words) { text += roff(words) + "\n.PP\n"; }
  void verbatim(const std::string &lines) { text += ".nf\n" + roff(lines) + "\n.fi\n"; }
  void item(const std::string &what, const std::string &words) {
    text += ".TP\n.B " + roff(what) + "\n" + roff(words) + "\n";
  }

  void command(const CLI::App &command, const CLI::Formatter &formatter) {
    subsection("millrace " + command.get_name());
    paragraph(command.get_description());
    for (const CLI::Option *option : command.get_options()) {
      const bool positional = option->get_positional();
      item(option->get_name(positional, !positional) + formatter.make_option_opts(option),
           option->get_description());
    }
    text += ".PP\n";
    if (!command.get_footer().empty())
      verbatim(command.get_footer());
  }

  const std::string &str() const { return text; }

private:
  std::string text;
};

/// CLI11 would give that of the command under way, which is `help`.
std::string helpOf(const CLI::App &app, const std::string &name) {
  return app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
}

int printHelp(const CLI::App &app, const std::string &name) {
  std::vector<std::string> names;
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; })) {
    names.push_back(command->get_name());
    if (command->get_name() == name) {
      std::fputs(helpOf(*command, "millrace " + name).c_str(), stdout);
      return Ok;
    }
  }
  if (!name.empty())
    return fail(Usage, "there is no command '" + name + "'" +
                           didYouMean(name, names, "`millrace help` lists them"));
  std::fputs(helpOf(app, "millrace").c_str(), stdout);
  return Ok;
}

} // namespace

std::string manualPage(const CLI::App &app, const std::string &version) {
  const HelpFormatter formatter;
  ManualPage page(version);
  page.section("NAME");
  page.paragraph("millrace - compiler and cycle-level simulator for statically scheduled "
                 "inference accelerators");
  page.section("SYNOPSIS");
  page.paragraph("millrace COMMAND [OPTIONS]");
  page.section("DESCRIPTION");
  page.paragraph(app.get_description());
  page.section("COMMANDS");
  for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; }))
    page.command(*command, formatter);
  page.section("NOTES");
  page.verbatim(app.get_footer());
  return page.str();
}

void addHelp(CLI::App &app, Action &action) {
  auto name = std::make_shared<std::string>();
  auto manual = std::make_shared<bool>(false);
  CLI::App *command =
      app.add_subcommand("help", "Prints the help of a command")->group(heading::Help);
  command->footer("Examples:\n  millrace help run\n  millrace help --man | man -l -");
  command->add_option("command", *name, "command to explain")->type_name("COMMAND");
  command->add_flag("--man", *manual, "print the manual page of all commands, as roff")
      ->group(heading::Choice);
  command->callback([=, &app, &action] {
    action = [=, &app]() -> int {
      if (!*manual)
        return printHelp(app, *name);
      std::fputs(manualPage(app, versionText()).c_str(), stdout);
      return Ok;
    };
  });
}

} // namespace millrace::driver
