// SPDX-License-Identifier: BSD-3-Clause
// The words behind `gyrfalcon`: commands, their options, and what an option may hold. The library that reads them is known to
// command_line.cpp alone: its header takes longer to compile than any command.
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

// An option, or a word with a place such as `deck`. A value it may not hold is Exit::usage with a sentence that says what it may.
class Option {
 public:
  // Where the value goes; a list takes every word up to the next option.
  using Target = std::variant<std::string*, std::vector<std::string>*, int*, Index*, std::uint64_t*, double*>;

  Option* required();
  Option* show_default();  // help names the value the target has now
  Option* excludes(Option* other);
  Option* needs(Option* other);
  Option* from_environment(const std::string& variable);  // where the words do not give it
  // Lists
  Option* words(int least);
  Option* repeated();  // one word each time the option is given
  // Numbers: 0 or more; 1 or more; within both ends
  Option* not_negative();
  Option* positive();
  Option* between(double least, double most);
  // Text
  Option* one_of(std::vector<std::string> choices);

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

  CLI::Option* option_ = nullptr;
  Target target_;
  std::optional<double> least_, most_;
  std::vector<std::string> choices_;
};

// What help says of a command, in parts.
struct CommandHelp {
  struct Word {
    std::vector<std::string> names;  // "-h", "--help"; of a word with a place its name
    std::string values, help;        // "TEXT", "{fp32,bf16}", empty where it takes none
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
  // `name` as in "--limit,--sequences"; a name without dashes is a word with a place. Targets must outlive parse().
  template <class T>
  Option* add_option(const std::string& name, T& target, const std::string& help) {
    return add(name, &target, help);
  }
  void add_flag(const std::string& name, bool& target, const std::string& help);
  // --version, which prints this.
  void add_version(const std::function<std::string()>& text);

  void require_command();  // one of those added has to follow
  void footer(const std::string& text);
  void footer(const std::function<std::string()>& text);  // made where help is asked for
  void callback(const std::function<void()>& chosen);     // called when all words are read; may refuse them with Exit::usage
  bool given(const std::string& option) const;
  CommandHelp help() const;

  // Of the program: reads the words and calls back the commands they name. False where there is nothing more to do: help and version
  // are printed here. Exit::usage: a sentence that says what is wrong.
  bool parse(int argc, char** argv);

 private:
  explicit Command(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  Option* add(const std::string& name, Option::Target target, const std::string& help);

  std::shared_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace gyr
