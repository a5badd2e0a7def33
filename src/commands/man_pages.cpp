// SPDX-License-Identifier: BSD-3-Clause
// Generates man pages in the macros of man(7).
#include "kernels/base/error.hpp"
#include "src/base/terminal.hpp"
#include "src/commands/manual.hpp"

namespace gyr {

namespace {

constexpr std::size_t page_width = 72;  // columns of man's text on a terminal of 80

// Escapes text so that roff interprets nothing in it.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
    line_begins = c == '\n';
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string sloped(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string shown_names(const CommandHelp::Word& word) {
  std::string text;
  for (const std::string& name : word.names) text += (text.empty() ? "" : ", ") + (word.placed ? sloped(name) : bold(name));
  return word.placed || word.values.empty() ? text : text + " " + sloped(word.values);
}

std::string synopsis(const CommandHelp& command, const std::string& path) {
  std::string text = bold(path) + " [options]";
  for (const CommandHelp::Word& word : command.words) {
    if (!word.placed) continue;
    const std::string name = word.shown.empty() ? sloped(word.names.front()) + (word.list ? "..." : "") : sloped(word.shown);
    text += " " + (word.required ? name : "[" + name + "]");
  }
  return command.commands.empty() ? text : text + " " + sloped("command");
}

// Text in no-fill mode, so that line breaks and columns are kept.
std::string verbatim(const std::string& text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

class Pages {
 public:
  Pages(std::string version, std::string keys) : version_(std::move(version)), keys_(std::move(keys)) {}

  void add(const CommandHelp& command, const std::string& path, const std::string& file, const std::string& above) {
    std::string text =
        title(file, "1") + ".SH NAME\n" + roff(file) + " \\- " + roff(command.help) + "\n.SH SYNOPSIS\n" + synopsis(command, path) + "\n";
    if (!command.commands.empty()) {
      text += ".SH COMMANDS\n";
      for (const CommandHelp& c : command.commands)
        text += ".TP\n" + bold(path + " " + c.name) + "\n" + roff(c.help) + "; see " + bold(file + "-" + c.name) + "(1)\n";
    }
    text += ".SH OPTIONS\n";
    for (const CommandHelp::Word& word : command.words) text += ".TP\n" + shown_names(word) + "\n" + roff(word.help) + "\n";
    if (command.footer.find_first_not_of('\n') != std::string::npos) text += ".SH NOTES\n" + verbatim(with_hanging_lines(command.footer, page_width));
    text += ".SH SEE ALSO\n" + bold(above) + "(1), " + bold("gyrfalcon-deck") + "(5)\n";
    pages.push_back({file + ".1", text});
    for (const CommandHelp& c : command.commands) add(c, path + " " + c.name, file + "-" + c.name, file);
  }
  void add_deck() {
    pages.push_back({"gyrfalcon-deck.5", title("gyrfalcon-deck", "5") +
                                             ".SH NAME\ngyrfalcon\\-deck \\- keys of Gyrfalcon's decks\n.SH DESCRIPTION\n" + verbatim(keys_) +
                                             ".SH SEE ALSO\n" + bold("gyrfalcon-train") + "(1), " + bold("gyrfalcon-plan") + "(1)\n"});
  }

  std::vector<Page> pages;

 private:
  std::string title(const std::string& file, const char* section) const {
    return ".TH \"" + roff(file) + "\" \"" + section + "\" \"\" \"Gyrfalcon " + roff(version_) + "\" \"Gyrfalcon\"\n";
  }
  const std::string version_, keys_;
};

}  // namespace

std::vector<Page> man_pages(const CommandHelp& program, const std::string& version, const std::string& keys) {
  Pages pages(version, keys);
  pages.add(program, program.name, program.name, program.name + "-train");
  pages.add_deck();
  return pages.pages;
}

}  // namespace gyr
