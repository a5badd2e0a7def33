// SPDX-License-Identifier: BSD-3-Clause
// Generates completion scripts for bash, zsh and fish. A command is one or two words after the program's name.
#include <functional>

#include "kernels/base/error.hpp"
#include "src/commands/manual.hpp"

namespace gyr {

namespace {

// Calls see(words, command) for each command that runs, with the words that name it, as in "data build".
void each_command(const CommandHelp& above, const std::string& path, const std::function<void(const std::string&, const CommandHelp&)>& see) {
  for (const CommandHelp& c : above.commands) {
    const std::string words = path.empty() ? c.name : path + " " + c.name;
    if (c.commands.empty()) see(words, c);
    else each_command(c, words, see);
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> names_of(const std::vector<CommandHelp>& commands) {
  std::vector<std::string> names;
  for (const CommandHelp& c : commands) names.push_back(c.name);
  return names;
}

std::vector<std::string> options_of(const CommandHelp& command) {
  std::vector<std::string> names;
  for (const CommandHelp::Word& word : command.words)
    if (!word.placed) names.insert(names.end(), word.names.begin(), word.names.end());
  return names;
}

// Quotes text for a shell in '...'.
std::string in_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + out + "'";
}

// Escapes text for a description '...[...]:...' of zsh's _arguments.
std::string zsh_help(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

bool takes_deck(const CommandHelp& command) {
  for (const CommandHelp::Word& word : command.words)
    if (word.placed && word.names.front() == "overrides") return true;
  return false;
}

std::string bash_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys) {
  std::string options, choices, decks;
  each_command(program, "", [&](const std::string& words, const CommandHelp& c) {
    options += fmt::format("    {}) options={} ;;\n", in_quotes(words), in_quotes(joined(options_of(c))));
    if (takes_deck(c)) decks += (decks.empty() ? "" : "|") + in_quotes(words);
    for (const CommandHelp::Word& word : c.words)
      if (!word.choices.empty())
        for (const std::string& name : word.names)
          choices += fmt::format("    {}) choices={} ;;\n", in_quotes(words + " " + name), in_quotes(joined(word.choices)));
  });
  std::string groups;
  for (const CommandHelp& c : program.commands)
    if (!c.commands.empty()) groups += fmt::format("    {}) inner={} ;;\n", c.name, in_quotes(joined(names_of(c.commands))));
  std::string keys;
  for (const std::string& key : deck_keys) keys += (keys.empty() ? "" : " ") + key + "=";
  return "# SPDX-License-Identifier: BSD-3-Clause\n# Made by `gyrfalcon manual` from the program's own help.\n_gyrfalcon() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=${COMP_WORDS[1]} inner= options= choices= first=2\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W " +
         in_quotes(joined(names_of(program.commands)) + " --help --version") +
         " -- \"$cur\")); return; fi\n"
         "  case $words in\n" +
         groups +
         "  esac\n"
         "  if [ -n \"$inner\" ]; then\n"
         "    if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W \"$inner --help\" -- \"$cur\")); return; fi\n"
         "    words=\"$words ${COMP_WORDS[2]}\" first=3\n"
         "  fi\n"
         "  case $words in\n" +
         options +
         "  esac\n"
         "  case \"$words $prev\" in\n" +
         choices +
         "  esac\n"
         "  if [ -n \"$choices\" ]; then COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\")); return; fi\n"
         "  case $cur in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return ;;\n"
         "  esac\n"
         "  case $words in\n"
         "    " +
         decks +
         ")\n"
         "      if [ \"$COMP_CWORD\" -gt \"$first\" ] && [ \"$cur\" != = ] && [ \"$prev\" != = ] && [[ \"$prev\" != -* ]]; then\n"
         "        COMPREPLY=($(compgen -W " +
         in_quotes(keys) +
         " -- \"$cur\"))\n"
         "        [ \"${#COMPREPLY[@]}\" -eq 0 ] || { compopt -o nospace; return; }\n"
         "      fi ;;\n"
         "  esac\n"
         "  [ \"$cur\" = = ] && cur=\n"
         "  compopt -o filenames\n"
         "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "}\n"
         "complete -F _gyrfalcon gyrfalcon\n";
}

std::string zsh_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys) {
  std::string cases;
  const auto described = [](const CommandHelp& above) {
    std::string list;
    for (const CommandHelp& c : above.commands) list += " " + in_quotes(zsh_help(c.name) + ":" + zsh_help(c.help));
    return list;
  };
  each_command(program, "", [&](const std::string& words, const CommandHelp& c) {
    std::string arguments;
    for (const CommandHelp::Word& word : c.words) {
      if (word.placed) continue;
      const std::string action = word.values.empty()    ? ""
                                 : word.choices.empty() ? ":" + zsh_help(word.values) + ":_files"
                                                        : ":value:(" + joined(word.choices) + ")";
      for (const std::string& name : word.names)
        arguments += " \\\n      " + in_quotes((word.list ? "*" : "") + name + "[" + zsh_help(word.help) + "]" + action);
    }
    cases += fmt::format("    {})\n      _arguments{} \\\n      {} ;;\n", in_quotes(words), arguments,
                         takes_deck(c) ? "'1:deck:_files' '*:key of the deck:_gyrfalcon_keys'" : "'*:file:_files'");
  });
  std::string groups;
  for (const CommandHelp& c : program.commands)
    if (!c.commands.empty())
      groups += fmt::format(
          "    {}) commands=({}); if (( CURRENT == 2 )); then _describe command commands; return; fi; words[1]=\"{} $words[2]\"; words[2]=(); (( "
          "CURRENT-- )) ;;\n",
          c.name, described(c), c.name);
  return "#compdef gyrfalcon\n# SPDX-License-Identifier: BSD-3-Clause\n# Made by `gyrfalcon manual` from the program's own help.\n"
         "_gyrfalcon_keys() {\n  local -a keys\n  keys=(" +
         joined(deck_keys) +
         ")\n  compadd -S = -a keys\n  _files\n}\n"
         "_gyrfalcon() {\n"
         "  local -a commands\n"
         "  commands=(" +
         described(program) +
         ")\n"
         "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
         "  shift words; (( CURRENT-- ))\n"
         "  case $words[1] in\n" +
         groups +
         "  esac\n"
         "  case $words[1] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_gyrfalcon \"$@\"\n";
}

std::string fish_completion(const CommandHelp& program, const std::vector<std::string>& deck_keys) {
  std::string text = "# SPDX-License-Identifier: BSD-3-Clause\n# Made by `gyrfalcon manual` from the program's own help.\n";
  const auto seen = [](const std::string& words) {
    std::string condition = "__fish_seen_subcommand_from " + words.substr(0, words.find(' '));
    if (const std::size_t at = words.find(' '); at != words.npos) condition += "; and __fish_seen_subcommand_from " + words.substr(at + 1);
    return in_quotes(condition);
  };
  for (const CommandHelp& c : program.commands) {
    text += fmt::format("complete -c gyrfalcon -f -n __fish_use_subcommand -a {} -d {}\n", c.name, in_quotes(c.help));
    for (const CommandHelp& inner : c.commands)
      text +=
          fmt::format("complete -c gyrfalcon -f -n {} -a {} -d {}\n",
                      in_quotes("__fish_seen_subcommand_from " + c.name + "; and not __fish_seen_subcommand_from " + joined(names_of(c.commands))),
                      inner.name, in_quotes(inner.help));
  }
  std::string decks;
  each_command(program, "", [&](const std::string& words, const CommandHelp& c) {
    if (takes_deck(c)) decks += (decks.empty() ? "" : " ") + words;
    for (const CommandHelp::Word& word : c.words) {
      if (word.placed) continue;
      text += "complete -c gyrfalcon -n " + seen(words);
      for (const std::string& name : word.names) text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!word.values.empty()) text += word.choices.empty() ? " -r" : " -x -a " + in_quotes(joined(word.choices));
      text += " -d " + in_quotes(word.help) + "\n";
    }
  });
  std::string keys;
  for (const std::string& key : deck_keys) keys += (keys.empty() ? "" : " ") + key + "=";
  return text + fmt::format("complete -c gyrfalcon -n {} -a {}\n", in_quotes("__fish_seen_subcommand_from " + decks), in_quotes(keys));
}

}  // namespace gyr
