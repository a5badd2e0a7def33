// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon help [COMMAND | KEY ...], gyrfalcon keys [SECTION ...], gyrfalcon version: descriptions on standard output.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <regex>
#include <sstream>

#include "modules/settings/nearest.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/command.hpp"
#include "src/commands/deck_arguments.hpp"
#include "src/commands/foreign_words.hpp"
#include "src/commands/guard.hpp"
#include "src/deck/renamed_keys.hpp"
#include "src/environment_page.hpp"
#include "src/planner/machine/cluster.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/summary.hpp"

namespace gyr {

namespace {

using Words = std::vector<std::string>;

// Keys of a section and of the sections below it.
std::vector<Declaration> keys_below(const std::string& section) {
  std::vector<Declaration> found;
  for (const Declaration& key : deck_keys())
    if (key.path.starts_with(section + ".")) found.push_back(key);
  return found;
}

// True if the path is that of the key, in which a free name stands for any: models.NAME.ranks.
bool is_path_of(const std::string& path, const Declaration& key) {
  const auto begin = key.path.find(std::string(".") + free_name + ".");
  if (begin == key.path.npos) return path == key.path;
  const auto end = path.find('.', begin + 1);
  return end != path.npos && path.compare(0, begin + 1, key.path, 0, begin + 1) == 0 &&
         path.substr(end) == key.path.substr(begin + 1 + std::string_view(free_name).size());
}

// Keys with this path, or with this name in any section.
std::vector<Declaration> keys_called(const std::string& name) {
  std::vector<Declaration> found;
  for (const Declaration& key : deck_keys())
    if (is_path_of(name, key) || key.path.ends_with("." + name)) found.push_back(key);
  return found;
}

Words sections() {
  Words names;
  for (const Declaration& key : deck_keys())
    for (auto dot = key.path.find('.'); dot != key.path.npos; dot = key.path.find('.', dot + 1))
      if (const std::string section = key.path.substr(0, dot); std::find(names.begin(), names.end(), section) == names.end())
        names.push_back(section);
  return names;
}

std::string listed_words(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string effect_text(const Declaration& key) {
  const Effect effect = key.effect;
  if (key.path.starts_with("fault.")) return "a fault is injected into the run, to test how it recovers";
  if (is_of_start(key.path)) return "a new run starts from another state; a resumed run does not read this key";
  if (effect == Effect::function) return "the model computes a different function; --resume needs --accept-changes";
  if (effect == Effect::course) return "the training takes a different course";
  return effect == Effect::operation ? "none on the values of the training" : "results change by rounding at most";
}

// One line of YAML that sets the key, as in "model: {mamba: {heads: 24}}".
std::string in_flow_style(const std::string& path, const std::string& value) {
  const auto dot = path.find('.');
  if (dot == path.npos) return fmt::format("{}: {}", path, value);
  return fmt::format("{}: {{{}}}", path.substr(0, dot), in_flow_style(path.substr(dot + 1), value));
}

std::string key_text(const Declaration& key, int width) {
  Table table({{"", false, 18}, {"", false, std::size_t(std::max(width, 40) - 20)}});
  table.row({"meaning", key.help});
  table.row({"default", key.fallback.empty() ? "(required)" : key.fallback});
  if (!key.unit.empty()) table.row({"unit", key.unit});
  table.row({"range", key.range()});
  table.row({"effect of a change", effect_text(key)});
  const std::string value = key.fallback.empty() ? "VALUE" : key.fallback;
  table.row({"in a deck", in_flow_style(key.path, value)});
  table.row({"command line", fmt::format("{}={}", key.path, value.find_first_of(" []\"*") == value.npos ? value : "'" + value + "'")});
  return key.path + "\n" + table.str(false);
}

// Our keys for a name in another framework, with their descriptions; empty if there is none.
std::string text_of_foreign_name(const std::string& name, int width) {
  const std::string advice = deck_key_advice(name, "");
  const std::string_view here = key_called(name);
  if (advice.empty() && here.empty()) return "";
  std::string text = fmt::format("`{}` is not a key of a deck: {}\n", name, advice.empty() ? fmt::format("it is called {} here", here) : advice);
  for (const Declaration& key : deck_keys())
    if (key.path == here) text += "\n" + key_text(key, width);
  return text;
}

// A line of a page without Markdown's marks.
std::string plain(std::string line) {
  static const std::regex link(R"re(\[([^\]]*)\]\([^)]*\))re");
  line = std::regex_replace(line, link, "$1");
  std::erase(line, '`');
  return line;
}

// The tables of src/environment.md; if a variable is named, the rows about it.
std::string environment_text(int width, const std::string& variable = "") {
  Table table({{"", false, 28}, {"", false, std::size_t(std::max(width, 60) - 30)}});
  std::istringstream page{std::string(environment_page)};
  bool found = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ") && variable.empty()) table.heading(line.substr(3) + ":");
    const auto middle = line.find(" | ");
    if (!line.starts_with("| `") || (!variable.empty() && line.substr(0, middle).find('`' + variable + '`') == line.npos)) continue;
    table.row({plain(line.substr(2, middle - 2)), plain(line.substr(middle + 3, line.size() - middle - 5))});
    found = true;
  }
  return found ? table.str(false) : "";
}

// Keys of cluster files with this path, or in this section, or (Match::name) with this name; empty if there are none.
std::string cluster_text(const std::string& word, int width, Match match) {
  std::vector<Declaration> keys;
  for (const Declaration& key : cluster_settings())
    if (key.path == word || key.path.starts_with(word + ".") || (match == Match::name && key.path.ends_with("." + word))) keys.push_back(key);
  if (keys.empty()) return "";
  return "Keys of a cluster file (plan --cluster FILE); input/clusters/README.md describes all of them\n" + key_table(keys, width);
}

// A topic of help, a command of another program, an environment variable, or a key of a cluster file; empty if it is none.
std::string text_of_topic(const std::string& word, int width) {
  std::string text;
  if (const ForeignKey* topic = row_with(help_topics, normalized(word))) text = prose(std::string(topic->advice) + "\n");
  else if (const ForeignKey* command = row_with(foreign_commands, normalized(word)))
    text = command->advice.empty() ? fmt::format("It is called `{}` here.\n", command->here) : prose(fmt::format("{}\n", command->advice));
  for (const std::string& section : sections())
    if (section.ends_with("." + word)) text += (text.empty() ? "" : "\n") + key_table(keys_below(section), width);
  if (!text.empty()) return text;
  text = environment_text(width, word);
  return text.empty() ? cluster_text(word, width, Match::name) : text;
}

// Descriptions of the keys with this path or name, or with this name in another framework; empty if there are none.
std::string text_of_key(const std::string& word, int width) {
  std::string text;
  for (const Declaration& key : keys_called(word)) text += (text.empty() ? "" : "\n") + key_text(key, width);
  return text.empty() ? text_of_foreign_name(word, width) : text;
}

// Text about a command, a key, a section, or a key's name in another framework.
std::string help_on(const Command& program, const Words& words) {
  if (const std::string text = program.help_text(words); !text.empty()) return text;
  require(words.size() == 1, Exit::usage, "help: there is no command `{}`; gyrfalcon --help lists the commands", listed_words(words));
  const std::string& word = words.front();
  const int width = output_width(stdout);
  if (const auto keys = keys_below(word); !keys.empty()) return key_table(keys, width);
  if (const std::string text = keys_called(word).empty() ? cluster_text(word, width, Match::path) : ""; !text.empty()) return text;
  if (word == "environment") return environment_text(width);
  for (const auto& text_of : {text_of_key, text_of_topic})
    if (const std::string text = text_of(word, width); !text.empty()) return text;
  Words names;
  for (const CommandHelp& command : program.help().commands) names.push_back(command.name);
  for (const Declaration& key : deck_keys()) names.push_back(key.path);
  const std::string near = nearest(word, names);
  fail(Exit::usage, "help: `{}` is neither a command nor a key{}; gyrfalcon --help lists the commands, gyrfalcon keys the keys", word,
       near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
}

// Table of the keys of a section, which may be named without the section above it; otherwise the text about a key.
std::string keys_in(const std::string& section) {
  const Words names = sections();
  const int width = output_width(stdout);
  for (const std::string& name : names)
    if (name == section || name.ends_with("." + section)) return key_table(keys_below(name), width);
  if (const std::string text = text_of_key(section, width); !text.empty()) return text;
  const std::string near = nearest(section, names);
  fail(Exit::usage, "keys: there is no section `{}`{}; the sections are {}", section, near.empty() ? "" : fmt::format("; did you mean `{}`?", near),
       listed_words(names));
}

std::string keys_of(const Words& asked) {
  if (asked.empty()) return key_table(deck_keys(), output_width(stdout));
  std::string text;
  for (const std::string& section : asked) text += (text.empty() ? "" : "\n") + keys_in(section);
  return text;
}

// Adds a command that prints the text of its words.
void add_text(Command& app, Action& action, const std::string& name, const std::string& help, const std::string& values,
              const std::string& values_help, const std::function<std::string(const Words&)>& text) {
  auto words = std::make_shared<Words>();
  Command* command = app.add_command(name, help);
  if (!values.empty()) command->add_option(values, *words, values_help);
  command->callback([=, &action] { action = [=] { return guarded([&] { std::printf("%s", text(*words).c_str()); }); }; });
}

}  // namespace

void add_help(Command& app, Action& action) {
  add_text(app, action, "help", "Print the help of the program, of a command or of a deck key", "topic",
           "A command, as in data build; or a deck key, as in optimizer.lr or lr; or a section, as in model.mamba; or environment, or "
           "one of its variables; or a key of cluster files, as in device.watts",
           [&app](const Words& words) { return help_on(app, words); });
}

void add_keys(Command& app, Action& action) {
  add_text(app, action, "keys", "List the keys of decks, with defaults and ranges, within the width of the terminal", "section",
           "Sections to list, as in optimizer or model.mamba; default: all", keys_of);
}

void add_version(Command& app, Action& action) {
  add_text(app, action, "version", "Print version, compiler and libraries (--version)", "", "",
           [](const Words&) { return banner(version(), build_facts()) + "\n"; });
}

}  // namespace gyr
