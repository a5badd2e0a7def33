// SPDX-License-Identifier: BSD-3-Clause
#include "regression/mutants/mutants.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace gyr::testing {

namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Position of the only occurrence of `part` in [begin, end) of `text`. Throws an error with the number of occurrences
// if there is not exactly one.
std::size_t only_place(const std::string& text, const std::string& part, std::size_t begin, std::size_t end, const std::string& who) {
  std::vector<std::size_t> places;
  for (auto at = text.find(part, begin); at != std::string::npos && at + part.size() <= end; at = text.find(part, at + 1)) places.push_back(at);
  if (places.size() != 1) throw std::runtime_error(who + " occurs " + std::to_string(places.size()) + " times instead of once: " + part);
  return places.front();
}

// True if brackets are balanced and, in an expression, no comma or semicolon is outside of brackets. This suffices to
// recognize an incomplete snippet.
bool complete(const std::string& code, bool statement) {
  std::string open;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '\'' || c == '"') {  // brackets in quoted text do not count
      for (++i; i < code.size() && code[i] != c; ++i) i += code[i] == '\\';
      continue;
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) return false;
      open.pop_back();
    }
    if ((c == ',' || c == ';') && open.empty() && !statement) return false;
  }
  return open.empty();
}

// True if a complete snippet can be placed in a switch: not half of an if, not a declaration that later code uses, not
// a condition without its else part.
bool is_delimited(const std::string& code, bool statement) {
  static const std::regex half("(else|case)\\b.*"), control("(if|for|while|return)\\b.*"),
      declaration("(const|auto|static)\\b.*|[A-Za-z_][A-Za-z_0-9:<>, *&]*[ >*&][A-Za-z_][A-Za-z_0-9]*( =[^=].*|\\{.*)");
  if (std::regex_match(code, half)) return false;
  if (statement) return code.starts_with("return ") || !std::regex_match(code, declaration);
  std::string outside = code;
  for (std::size_t at = outside.find("::"); at != std::string::npos; at = outside.find("::")) outside.erase(at, 2);
  return !std::regex_match(code, control) && std::count(outside.begin(), outside.end(), '?') <= std::count(outside.begin(), outside.end(), ':');
}

struct Change {
  std::size_t at, length;
  const Mutant* mutant;
};

Change change_of(const std::string& source, const Mutant& m) {
  const std::string who = "mutant " + m.name + ": snippet in " + m.file;
  std::size_t begin = 0, end = source.size();
  if (!m.in.empty()) {
    const std::size_t at = only_place(source, m.in, 0, source.size(), who + " (field `in`)");
    const std::size_t before = source.rfind('\n', at), after = source.find('\n', at + m.in.size());
    begin = before == std::string::npos ? 0 : before + 1;
    end = after == std::string::npos ? source.size() : after;
  }
  return {only_place(source, m.was, begin, end, who), m.was.size(), &m};
}

std::string switch_of(const Mutant& m) {
  const std::string on = "GYR_MUTANT(\"" + m.name + "\")";
  if (m.was.ends_with(';')) return "{ if (" + on + ") { " + m.now + " } else { " + m.was + " } }";
  return "(" + on + " ? (" + m.now + ") : (" + m.was + "))";
}

}  // namespace

std::vector<Mutant> parse_mutants(const std::string& text, const std::string& origin) {
  std::vector<Mutant> mutants;
  std::set<std::string> names;
  std::istringstream lines(text);
  std::string line;
  int number = 0;
  const auto wrong = [&](const std::string& what) { throw std::runtime_error(origin + ":" + std::to_string(number) + ": " + what); };
  const auto close = [&] {
    if (mutants.empty()) return;
    const Mutant& m = mutants.back();
    if (m.file.empty() || m.was.empty() || m.why.empty() || (m.now.empty() && !m.was.ends_with(';')))
      wrong("mutant " + m.name + " lacks file, was, now or why");
    if (!complete(m.was, m.was.ends_with(';')) || !complete(m.now, m.was.ends_with(';')))
      wrong("mutant " + m.name + " is not a complete expression or statement");
    if (!is_delimited(m.was, m.was.ends_with(';')) || !is_delimited(m.now, m.was.ends_with(';')))
      wrong("mutant " + m.name + " is an incomplete statement, or declares a name that later code uses; use an expression inside it instead");
    if (m.was == m.now) wrong("mutant " + m.name + " changes nothing");
    if (!m.file.ends_with(".cpp")) wrong("mutant " + m.name + ": only .cpp files can be switched");
  };
  while (std::getline(lines, line)) {
    ++number;
    if (trimmed(line).empty() || line[0] == '#') continue;
    const std::string key = line.substr(0, line.find(' ')), rest = trimmed(line.substr(std::min(line.size(), key.size())));
    if (key == "mutant") {
      close();
      if (!names.insert(rest).second) wrong("mutant " + rest + " occurs twice");
      mutants.push_back({rest, "", "", "", "", "", {}});
      continue;
    }
    if (mutants.empty()) wrong("a mutant must start with its name: mutant NAME");
    Mutant& m = mutants.back();
    if (key == "try") {
      const auto space = rest.find(' ');
      m.tries.push_back({rest.substr(0, space), space == std::string::npos ? "" : trimmed(rest.substr(space))});
      const std::string& kind = m.tries.back().kind;
      if ((kind != "unit" && kind != "grid" && kind != "commands") || m.tries.back().filter.empty()) wrong("expected: try unit|grid|commands FILTER");
      continue;
    }
    const std::map<std::string, std::string*> fields{{"file", &m.file}, {"in", &m.in}, {"was", &m.was}, {"now", &m.now}, {"why", &m.why}};
    const auto field = fields.find(key);
    if (field == fields.end()) wrong("unknown word " + key);
    if (!field->second->empty()) wrong(key + " occurs twice in mutant " + m.name);
    *field->second = rest;
  }
  close();
  return mutants;
}

std::vector<Mutant> read_mutants(const std::filesystem::path& list) {
  std::ifstream in(list, std::ios::binary);
  if (!in) throw std::runtime_error(list.string() + ": cannot be read");
  return parse_mutants({std::istreambuf_iterator<char>(in), {}}, list.string());
}

std::string switched(const std::string& source, const std::string& file, const std::vector<Mutant>& mutants) {
  std::vector<Change> changes;
  for (const Mutant& m : mutants)
    if (m.file == file) changes.push_back(change_of(source, m));
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
  const std::size_t first_line = source.find('\n') + 1;
  std::string text = source.substr(0, first_line) + "#include \"regression/mutants/mutant.hpp\"\n";
  std::size_t done = first_line;
  for (const Change& c : changes) {
    if (c.at < done) throw std::runtime_error("mutant " + c.mutant->name + " overlaps another one in " + file);
    text += source.substr(done, c.at - done) + switch_of(*c.mutant);
    done = c.at + c.length;
  }
  return text + source.substr(done);
}

}  // namespace gyr::testing
