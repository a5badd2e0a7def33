// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <sstream>
#include <type_traits>
#include <utility>

#include "kernels/base/error.hpp"
#include "modules/settings/nearest.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/foreign_words.hpp"

namespace gyr {

namespace {

constexpr int many = 1 << 20;  // maximum number of words in a list option
constexpr int pipe_width = 120;

// Positional argument in a usage line, as in "files..." or "TEXT... PREFIX".
std::string shown_word(const CLI::Option* option) {
  if (!option->get_option_text().empty()) return option->get_option_text();
  return option->get_name() + (option->get_items_expected_max() > 1 ? "..." : "");
}

// Help whose descriptions are broken to the width of the terminal.
class HelpText : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override { return broken(option->get_description(), column_width_); }
  std::string make_description(const CLI::App* command) const override { return broken(CLI::Formatter::make_description(command), 0) + "\n"; }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_display_name(true), broken(command->get_description(), column_width_), column_width_);
    return out.str();
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    return option->get_required() ? shown_word(option) : "[" + shown_word(option) + "]";
  }
  std::string make_footer(const CLI::App* command) const override {
    return with_hanging_lines(CLI::Formatter::make_footer(command), std::size_t(std::max(output_width(stdout, pipe_width), 20)));
  }

 private:
  // The text, each of its lines broken to the width of the terminal less an indentation.
  static std::string broken(const std::string& text, std::size_t indentation) {
    const auto width = std::size_t(std::max(output_width(stdout, pipe_width) - int(indentation), 20));
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      for (const std::string& part : broken_lines(line, width)) lines.push_back(part);
    return CLI::detail::join(lines, "\n");
  }
};

std::string type_name(const Option::Target& target) {
  struct Name {
    const char* operator()(std::string*) const { return "TEXT"; }
    const char* operator()(std::vector<std::string>*) const { return "TEXT"; }
    const char* operator()(int*) const { return "INT"; }
    const char* operator()(Index*) const { return "INT"; }
    const char* operator()(std::uint64_t*) const { return "UINT"; }
    const char* operator()(double*) const { return "FLOAT"; }
  };
  return std::visit(Name(), target);
}

// Describes the valid numbers, as in "an integer from 0 to 9". The limits of the C++ type appear only if the value
// exceeded them.
template <class T>
std::string rule(std::optional<double> least, std::optional<double> most, bool beyond) {
  const char* noun = std::is_integral_v<T> ? "an integer" : "a number";
  const std::string from = fmt::format("{}", least ? T(*least) : std::numeric_limits<T>::lowest());
  const char* const example = std::is_floating_point_v<T> && most && *most >= 1e12 ? ", as in 1e9, 300B or 1T" : "";
  if (most || beyond) return fmt::format("{} from {} to {}{}", noun, from, most ? T(*most) : std::numeric_limits<T>::max(), example);
  return least || std::is_unsigned_v<T> ? fmt::format("{}, {} or more", noun, from) : noun;
}

// Value of a prefix such as M; 1 for any other character.
double unit_prefix(char last) {
  switch (last) {
    case 'k': return 1e3;
    case 'M': return 1e6;
    case 'G':
    case 'B': return 1e9;
    case 'T': return 1e12;
    default: return 1;
  }
}

std::string listed(const std::vector<std::string>& choices) {
  std::string text = choices.front();
  for (std::size_t i = 1; i < choices.size(); ++i) text += (i + 1 < choices.size() ? ", " : " or ") + choices[i];
  return text;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest(word, names);
  return near.empty() ? "" : fmt::format("; did you mean `{}`?", near);
}

// Our name for a word of another program, as text after the message; empty if it is unknown.
std::string counterpart(const std::span<const ForeignKey> rows, const std::string& word) {
  const ForeignKey* const row = row_with(rows, normalized(word));
  if (!row) return "";
  return row->advice.empty() ? fmt::format("; it is called `{}` here", row->here) : fmt::format("; {}", row->advice);
}

std::string counterpart_of_option(const CLI::App& command, const std::string& name) {
  for (const ForeignOptions& options : foreign_options)
    if (options.command == command.get_name()) return counterpart(options.rows, name);
  return "";
}

// Error message for a word that is neither an option nor expected as an argument.
std::string unexpected_word(const CLI::App& command, const std::string& word) {
  const char* hint = "";
  if (command.get_option_no_throw("--prompt")) hint = "; a prompt is given as --prompt TEXT";
  else if (command.get_option_no_throw("--lambada")) hint = "; text files are given as --text FILE";
  else if (command.get_name() == "encode") hint = "; a text is given as --text TEXT";
  return fmt::format("the word `{}` is not expected{}", word, hint);
}

// Error message for an option that `command` does not have. `next`: the word after it on the command line.
std::string unknown_option(const CLI::App& command, const std::string& word, const std::string& next, const Command::Advise& advise) {
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const bool has_keys = command.get_option_no_throw("overrides") != nullptr;
  const std::string value = equals != word.npos ? word.substr(equals + 1) : next.starts_with("--") || next.find('=') != next.npos ? "" : next;
  if (const std::string ours = counterpart_of_option(command, name); !ours.empty()) return fmt::format("there is no option `{}`{}", name, ours);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options({}))
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  if (const std::string advice = has_keys && advise ? advise(name, value, names) : ""; !advice.empty())
    return fmt::format("there is no option `{}`; {}", name, advice);
  return fmt::format("there is no option `{}`{}", name, suggestion(name, names));
}

// Error message for a value of an option that takes none, as in --resume=x; empty if no word has one.
std::string value_of_flag(const CLI::App* command, const std::vector<std::string>& line) {
  for (const std::string& word : line) {
    const auto equals = word.find('=');
    if (!word.starts_with("-") || equals == word.npos) continue;
    const CLI::Option* const option = command->get_option_no_throw(word.substr(0, equals));
    if (option && option->get_items_expected_max() == 0) return fmt::format("{}: this option takes no value; write {}", word, word.substr(0, equals));
  }
  return "";
}

// The command with the words that it requires, as in "gyrfalcon generate CHECKPOINT".
std::string usage_of(const CLI::App& program, const CLI::App* command) {
  std::string words;
  for (const CLI::App* at = command; at && at != &program; at = at->get_parent()) words = " " + at->get_name() + words;
  words = program.get_name() + words;
  for (const CLI::Option* option : command->get_options({}))
    if (option->get_positional() && option->get_required())
      for (const char c : " " + shown_word(option)) words += char(std::toupper(c));
  for (const CLI::Option* option : command->get_options({}))
    if (!option->get_positional() && option->get_required())
      words += " " + option->get_name() + " " + option->get_type_name().substr(0, option->get_type_name().find(' '));
  return words;
}

// Error message for a command line that CLI11 rejected, as one sentence.
std::string complaint(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& line, const Command::Advise& advise) {
  if (app.get_subcommands().empty()) {
    const std::vector<std::string> left = app.remaining();  // words that no command has accepted; CLI11 would report a missing command first
    if (left.empty()) return error.what();
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
    const std::string ours = counterpart(foreign_commands, left.front());
    return fmt::format("there is no command `{}`{}", left.front(), ours.empty() ? suggestion(left.front(), names) : ours);
  }
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (const std::string text = value_of_flag(command, line); !text.empty()) return text;
  if (dynamic_cast<const CLI::RequiredError*>(&error)) return fmt::format("{}: write `{}`", error.what(), usage_of(app, command));
  const std::vector<std::string> left = app.remaining(true);
  if (!dynamic_cast<const CLI::ExtrasError*>(&error)) return error.what();
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  const bool options = std::any_of(left.begin(), left.end(), is_option);
  std::string lines;
  for (const std::string& word : line) {
    if (std::find(left.begin(), left.end(), word) == left.end() || is_option(word) != options) continue;
    const auto at = std::find(line.begin(), line.end(), word);
    const std::string next = at + 1 == line.end() ? "" : at[1];
    lines += (lines.empty() ? "" : "\n") + (options ? unknown_option(*command, word, next, advise) : unexpected_word(*command, word));
  }
  return lines.empty() ? error.what() : lines;
}

}  // namespace

Option* Option::required() { return option_->required(), this; }
Option* Option::excludes(Option* other) { return option_->excludes(other->option_), this; }
Option* Option::needs(Option* other) { return option_->needs(other->option_), this; }
Option* Option::from_environment(const std::string& variable) { return option_->envname(variable), this; }
Option* Option::words(int least) { return option_->expected(least, many), this; }
Option* Option::shown_as(const std::string& words) { return option_->option_text(words), this; }
Option* Option::repeated() { return option_->take_all()->expected(1), this; }
bool Option::given() const { return option_->count() > 0; }
std::string Option::name() const { return option_->get_name(); }

Option* Option::show_default() {
  std::visit(
      [&](const auto* target) {
        if constexpr (!std::is_same_v<decltype(target), const std::vector<std::string>*>) option_->default_str(fmt::format("{}", *target));
      },
      target_);
  return this;
}

Option* Option::describe(const std::string& values) { return option_->type_name(type_name(target_) + " " + values), this; }

Option* Option::not_negative() {
  least_ = 0;
  return describe("NONNEGATIVE");
}

Option* Option::positive() {
  least_ = 1;
  return describe("POSITIVE");
}

Option* Option::between(double least, double most) {
  least_ = least, most_ = most;
  return describe(fmt::format("in [{} - {}]", least, most));
}

Option* Option::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return describe("{" + CLI::detail::join(choices_, ",") + "}");
}

// Name of the option and its value, or of the environment variable that the value was taken from.
std::string Option::origin(const std::string& word) const {
  const std::string variable = option_->get_envname();
  const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (value && word == value) return fmt::format("the environment variable {}={}", variable, word);
  return fmt::format("{} {}", name(), word);
}

Option* Option::advise(std::function<std::string(const std::string&)> advise) {
  advise_ = std::move(advise);
  return this;
}

void Option::store(const std::string& word, std::string& text) const {
  if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), word) == choices_.end()) {
    const std::string advice = advise_ ? advise_(word) : "";
    fail(Exit::usage, "{}: must be {}{}", origin(word), listed(choices_), advice.empty() ? "" : "; " + advice);
  }
  text = word;
}

// Numbers may end with a unit prefix, as in 300B tokens; integers may not.
template <class T>
void Option::store(const std::string& word, T& number) const {
  T value{};
  const char* end = word.data() + word.size();
  const double scale = std::is_floating_point_v<T> && word.size() > 1 ? unit_prefix(word.back()) : 1;
  if (scale > 1) --end;
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  value = T(value * T(scale));
  const bool within = std::isfinite(double(value)) && !(least_ && double(value) < *least_) && !(most_ && double(value) > *most_);
  require(error == std::errc() && rest == end && within, Exit::usage, "{}: must be {}", origin(word),
          rule<T>(least_, most_, error == std::errc::result_out_of_range));
  number = value;
}

void Option::store(const std::vector<std::string>& words) const {
  std::visit(
      [&](auto* target) {
        if constexpr (std::is_same_v<decltype(target), std::vector<std::string>*>) *target = words;
        else store(words.front(), *target);
      },
      target_);
}

Command::Command(const std::string& name, const std::string& help) : app_(std::make_shared<CLI::App>(help, name)) {
  app_->formatter(std::make_shared<HelpText>());
}

Command* Command::add_command(const std::string& name, const std::string& help) {
  const auto made = app_->get_subcommand_ptr(app_->add_subcommand(name, help));  // CLI11 copies the parent's footer to the subcommand
  return commands_.emplace_back(new Command(made)).get();
}

Option* Command::add(const std::string& name, Option::Target target, const std::string& help) {
  Option* option = options_.emplace_back(new Option(target)).get();
  const auto store = [option](const std::vector<std::string>& words) {
    option->store(words);
    return true;
  };
  option->option_ = app_->add_option(name, store, help)->type_name(type_name(target));
  if (std::holds_alternative<std::vector<std::string>*>(target)) option->option_->expected(CLI::detail::expected_max_vector_size);
  return option;
}

void Command::add_flag(const std::string& name, bool& target, const std::string& help) {
  const auto set = [&target](std::int64_t count) { target = count > 0; };
  app_->add_flag_function(name, set, help)->disable_flag_override();
}

void Command::add_version(const std::function<std::string()>& text) {
  app_->set_version_flag("--version", text, "Print version, compiler and libraries");
}
void Command::require_command() { app_->require_subcommand(1); }
void Command::footer(const std::string& text) { app_->footer(text); }
void Command::footer(const std::function<std::string()>& text) { app_->footer(text); }
void Command::callback(const std::function<void()>& chosen) { app_->callback(chosen); }
bool Command::given(const std::string& option) const { return app_->count(option) > 0; }

std::string Command::chosen() const {
  std::string words = app_->get_name();
  for (const CLI::App* command = app_.get(); !command->get_subcommands().empty();)
    words += " " + (command = command->get_subcommands().front())->get_name();
  return words;
}

CommandHelp Command::help() const {
  CommandHelp help{app_->get_name(), app_->get_description(), app_->get_footer(), {}, {}};
  for (const CLI::Option* option : app_->get_options({})) {
    CommandHelp::Word word{
        {}, option->get_option_text(), option->get_items_expected_max() > 0 ? option->get_type_name() : "", option->get_description(), {}};
    for (const std::string& name : option->get_snames()) word.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) word.names.push_back("--" + name);
    word.placed = word.names.empty();
    if (word.placed) word.names.push_back(option->get_name());
    if (!option->get_default_str().empty()) word.help += fmt::format(" [{}]", option->get_default_str());
    word.list = option->get_items_expected_max() > 1, word.required = option->get_required();
    for (const auto& known : options_)
      if (known->option_ == option) word.choices = known->choices_;
    help.words.push_back(word);
  }
  for (const auto& command : commands_) help.commands.push_back(command->help());
  return help;
}

std::string Command::help_text(const std::vector<std::string>& words) const {
  const Command* command = this;
  std::string path = app_->get_name();
  for (const std::string& word : words) {
    const auto found = std::find_if(command->commands_.begin(), command->commands_.end(), [&](const auto& c) { return c->app_->get_name() == word; });
    if (found == command->commands_.end()) return "";
    command = found->get();
    path += " " + word;
  }
  return command->app_->get_formatter()->make_help(command->app_.get(), path, CLI::AppFormatMode::Normal);
}

bool Command::parse(int argc, char** argv, const Advise& advise) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::Success& asked) {  // CLI11 throws this for --help and --version
    app_->exit(asked);
    return false;
  } catch (const CLI::ParseError& error) {
    fail(Exit::usage, "{}", complaint(*app_, error, {argv, argv + argc}, advise));
  }
}

}  // namespace gyr
