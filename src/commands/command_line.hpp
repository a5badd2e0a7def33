// SPDX-License-Identifier: BSD-3-Clause
// Command-line parser of gyrfalcon: commands, their options and positional arguments, and the valid values of each. It
// wraps CLI11. Only command_line.cpp includes the CLI11 header, which takes longer to compile than any command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gyr {

// An option, or a positional argument such as `deck`. An invalid value throws Exit::usage with a sentence that names
// the valid ones.
class Option {
 public:
  // Variable that receives the value. A list takes every word up to the next option.
  using Target = std::variant<std::string*, std::vector<std::string>*, int*, Index*, std::uint64_t*, double*>;

  Option* required();
  Option* show_default();  // help shows the target's current value as the default
  Option* excludes(Option* other);
  Option* needs(Option* other);
  Option* from_environment(const std::string& variable);  // used if the command line does not set the option
  // For options of list type. words(): the option takes at least `least` words.
  Option* words(int least);
  // Words that help shows for this argument in place of its name and type, as in "TEXT... PREFIX".
  Option* shown_as(const std::string& words);
  Option* repeated();  // the option may be given several times, with one word each
  // Numeric options: not_negative is 0 or more, positive is 1 or more, between includes both ends
  Option* not_negative();
  Option* positive();
  Option* between(double least, double most);
  // For options of text type: the valid values.
  Option* one_of(std::vector<std::string> choices);
  // Text after the message about a value that is not one of these; empty if there is no advice.
  Option* advise(std::function<std::string(const std::string& value)> advise);

  bool given() const;
  std::string name() const;

 private:
  friend class Command;
  explicit Option(Target target) : target_(target) {}
  void store(const std::vector<std::string>& words) const;
  void store(const std::string& word, std::string& text) const;
  template <class T>
  void store(const std::string& word, T& number) const;
  Option* describe(const std::string& values);
  std::string origin(const std::string& word) const;

  CLI::Option* option_ = nullptr;
  Target target_;
  std::optional<double> least_, most_;
  std::vector<std::string> choices_;
  std::function<std::string(const std::string&)> advise_;
};

// Help text of one command in parts, for man pages and shell completion.
struct CommandHelp {
  struct Word {
    std::vector<std::string> names;  // "-h", "--help"; or the name of a positional argument
    std::string shown;               // words in place of the name of a positional argument; empty: its name
    std::string values, help;        // values: type or valid values, "TEXT" or "{fp32,bf16}", empty for a flag; help: description
    std::vector<std::string> choices;
    bool placed = false, list = false, required = false;
  };
  std::string name, help, footer;
  std::vector<Word> words;
  std::vector<CommandHelp> commands;
};

// A command, or the program itself.
class Command {
 public:
  Command(const std::string& name, const std::string& help);

  Command* add_command(const std::string& name, const std::string& help);
  // `name` as in "--limit,--sequences"; a name without dashes is a positional argument. Targets must outlive parse().
  template <class T>
  Option* add_option(const std::string& name, T& target, const std::string& help) {
    return add(name, &target, help);
  }
  void add_flag(const std::string& name, bool& target, const std::string& help);
  // Adds --version, which prints text().
  void add_version(const std::function<std::string()>& text);

  void require_command();  // the user must give one of the subcommands
  void footer(const std::string& text);
  void footer(const std::function<std::string()>& text);  // text() is called when help is printed
  void callback(const std::function<void()>& chosen);     // runs after the full command line is parsed; may throw Exit::usage
  bool given(const std::string& option) const;
  std::string chosen() const;  // words that name the command on the parsed command line, as in "gyrfalcon data build"
  CommandHelp help() const;
  // Text that --help of a command prints. `words` names the command, as in {"data", "build"}; none: the program itself.
  // Empty if there is no such command.
  std::string help_text(const std::vector<std::string>& words) const;

  // For the program only: parses the command line and runs the callbacks of the commands that it names. Returns false
  // if --help or --version was printed, so that nothing is left to do. Exit::usage: a sentence that names the mistake.
  // `advise`: describes what the user meant by an option that a command with deck keys does not have, given its name and
  // value, and the long options of the command; empty: unknown.
  using Advise = std::function<std::string(const std::string& name, const std::string& value, const std::vector<std::string>& options)>;
  bool parse(int argc, char** argv, const Advise& advise = {});

 private:
  explicit Command(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  Option* add(const std::string& name, Option::Target target, const std::string& help);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace gyr
