// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Completion.h"

#include "compiler/Tools/HelpText.h"

#include <algorithm>

namespace millrace::driver {
namespace {

constexpr const char *kMachines = "millrace machines 2>/dev/null | cut -d' ' -f1";

std::vector<const CLI::App *> commandsOf(const CLI::App &app) {
  return app.get_subcommands([](const CLI::App *) { return true; });
}

std::vector<const CLI::Option *> optionsOf(const CLI::App &command) {
  return command.get_options([](const CLI::Option *option) { return option->nonpositional(); });
}

/// "--machine -m", the long ones first.
std::string namesOf(const CLI::Option &option, const char *between) {
  std::string names;
  for (const std::string &name : option.get_lnames())
    names += (names.empty() ? "--" : std::string(between) + "--") + name;
  for (const std::string &name : option.get_snames())
    names += (names.empty() ? "-" : std::string(between) + "-") + name;
  return names;
}

bool takesValue(const CLI::Option &option) { return option.get_type_size() != 0; }

/// What a value may be, by the type that the help shows.
enum class Kind { Choice, Machine, Command, File, Folder, Other };
Kind kindOf(const CLI::Option &option) {
  const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  return !choicesOf(option).empty() ? Kind::Choice
         : type == "MACHINE"        ? Kind::Machine
         : type == "COMMAND"        ? Kind::Command
         : type == "FOLDER"         ? Kind::Folder
         : type.ends_with("FILE")   ? Kind::File
                                    : Kind::Other;
}

std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string commandNames(const CLI::App &app) {
  std::vector<std::string> names;
  for (const CLI::App *command : commandsOf(app))
    names.push_back(command->get_name());
  return joined(names);
}

/// Within single quotes of a shell.
std::string shellQuoted(const std::string &text) {
  std::string result = "'";
  for (char c : text)
    result += c == '\'' ? std::string("'\\''") : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

// ---- bash ---------------------------------------------------------------------------------------

/// What `compgen` is given for the values of an option or argument.
std::string bashWords(const CLI::App &app, const CLI::Option &option) {
  switch (kindOf(option)) {
  case Kind::Choice:
    return "-W '" + joined(choicesOf(option)) + "'";
  case Kind::Machine:
    return std::string("-f -W \"$(") + kMachines + ")\"";
  case Kind::Command:
    return "-W '" + commandNames(app) + "'";
  case Kind::Folder:
    return "-d";
  default:
    return "-f";
  }
}

std::string bash(const CLI::App &app) {
  std::string text = "# bash completion for millrace; `millrace completion bash` wrote it\n"
                     "_millrace() {\n"
                     "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "  local command=${COMP_WORDS[1]} options=\n"
                     "  COMPREPLY=()\n"
                     "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
                     "    COMPREPLY=($(compgen -W '" +
                     commandNames(app);
  for (const CLI::Option *option : optionsOf(app))
    text += " " + namesOf(*option, " ");
  text += "' -- \"$word\"))\n    return\n  fi\n  case $command in\n";
  for (const CLI::App *command : commandsOf(app)) {
    text += "  " + command->get_name() + ")\n    case $before in\n";
    std::string all, argument = "-f";
    for (const CLI::Option *option : command->get_options()) {
      if (option->get_positional()) {
        argument = bashWords(app, *option);
        continue;
      }
      all += (all.empty() ? "" : " ") + namesOf(*option, " ");
      if (takesValue(*option))
        text += "    " + namesOf(*option, "|") + ") COMPREPLY=($(compgen " +
                bashWords(app, *option) + " -- \"$word\")); return ;;\n";
    }
    text += "    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W '" + all +
            "' -- \"$word\")) ;;\n    *) COMPREPLY=($(compgen " + argument +
            " -- \"$word\")) ;;\n    esac ;;\n";
  }
  return text + "  esac\n}\ncomplete -o filenames -F _millrace millrace\n";
}

// ---- zsh ----------------------------------------------------------------------------------------

/// The action of `_arguments` for a value.
std::string zshAction(const CLI::App &app, const CLI::Option &option) {
  switch (kindOf(option)) {
  case Kind::Choice:
    return "(" + joined(choicesOf(option)) + ")";
  case Kind::Machine:
    return "_millrace_machines";
  case Kind::Command:
    return "(" + commandNames(app) + ")";
  case Kind::Folder:
    return "_files -/";
  case Kind::File:
    return "_files";
  default:
    return " ";
  }
}

/// A description between brackets; colons and brackets mean something there.
std::string zshText(const std::string &text) {
  std::string result;
  for (char c : text)
    if (c == '[' || c == ']' || c == ':')
      result += std::string("\\") + c;
    else
      result += c;
  return result;
}

std::string zsh(const CLI::App &app) {
  std::string text =
      std::string("#compdef millrace\n# zsh completion for millrace; `millrace completion zsh` "
                  "wrote it\n_millrace_machines() {\n  compadd -- $(") +
      kMachines +
      ")\n  _files -g '*.yaml'\n}\n_millrace() {\n  if (( CURRENT == 2 )); then\n"
      "    local -a commands=(\n";
  for (const CLI::App *command : commandsOf(app))
    text += "      " +
            shellQuoted(command->get_name() + ":" + zshText(command->get_description())) + "\n";
  text += "    )\n    _describe command commands\n    _arguments";
  for (const CLI::Option *option : optionsOf(app))
    text += " " + shellQuoted(namesOf(*option, " ").substr(0, namesOf(*option, " ").find(' ')) +
                              "[" + zshText(option->get_description()) + "]");
  text += "\n    return\n  fi\n  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
          "  case $command in\n";
  for (const CLI::App *command : commandsOf(app)) {
    text += "  " + command->get_name() + ")\n    _arguments";
    for (const CLI::Option *option : command->get_options()) {
      const std::string about = zshText(option->get_description());
      const std::string value =
          takesValue(*option)
              ? ":" + zshText(option->get_positional() ? option->get_name() : "value") + ":" +
                    zshAction(app, *option)
              : "";
      if (option->get_positional()) {
        text += " \\\n      " + shellQuoted(value);
        continue;
      }
      std::vector<std::string> names;
      for (const std::string &name : option->get_lnames())
        names.push_back("--" + name);
      for (const std::string &name : option->get_snames())
        names.push_back("-" + name);
      for (const std::string &name : names)
        text += " \\\n      " + shellQuoted((option->get_expected_max() > 1 ? "*" : "") + name +
                                            "[" + about + "]" + value);
    }
    text += " ;;\n";
  }
  return text + "  esac\n}\ncompdef _millrace millrace\n";
}

// ---- fish ---------------------------------------------------------------------------------------

std::string fishValues(const CLI::App &app, const CLI::Option &option) {
  switch (kindOf(option)) {
  case Kind::Choice:
    return " -x -a " + shellQuoted(joined(choicesOf(option)));
  case Kind::Machine:
    return std::string(" -r -a \"(") + kMachines + ")\"";
  case Kind::Command:
    return " -x -a " + shellQuoted(commandNames(app));
  default:
    return " -r";
  }
}

std::string fish(const CLI::App &app) {
  std::string text = "# fish completion for millrace; `millrace completion fish` wrote it\n";
  for (const CLI::App *command : commandsOf(app))
    text += "complete -c millrace -n __fish_use_subcommand -f -a " + command->get_name() + " -d " +
            shellQuoted(command->get_description()) + "\n";
  const auto line = [&](const std::string &when, const CLI::Option &option) {
    text += "complete -c millrace -n '" + when + "'";
    if (option.get_positional()) {
      text += (kindOf(option) == Kind::File ? " -F" : " -f" + fishValues(app, option)) + "\n";
      return;
    }
    for (const std::string &name : option.get_lnames())
      text += " -l " + name;
    for (const std::string &name : option.get_snames())
      text += " -s " + name;
    text += takesValue(option) ? fishValues(app, option) : "";
    text += " -d " + shellQuoted(option.get_description()) + "\n";
  };
  for (const CLI::Option *option : optionsOf(app))
    line("__fish_use_subcommand", *option);
  for (const CLI::App *command : commandsOf(app))
    for (const CLI::Option *option : command->get_options())
      line("__fish_seen_subcommand_from " + command->get_name(), *option);
  return text;
}

} // namespace

std::string completionScript(const CLI::App &app, const std::string &shell) {
  return shell == "bash" ? bash(app) : shell == "zsh" ? zsh(app) : fish(app);
}

void addCompletion(CLI::App &app, Action &action) {
  auto shell = std::make_shared<std::string>();
  CLI::App *command =
      app.add_subcommand("completion", "Prints a script that completes millrace's command line")
          ->group(heading::Help);
  command->footer("Examples:\n"
                  "  source <(millrace completion bash)\n"
                  "  millrace completion fish > ~/.config/fish/completions/millrace.fish");
  command->add_option("shell", *shell, "shell to write it for")
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  command->callback([=, &app, &action] {
    action = [=, &app]() -> int {
      std::fputs(completionScript(app, *shell).c_str(), stdout);
      return Ok;
    };
  });
}

} // namespace millrace::driver
