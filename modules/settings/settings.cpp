// SPDX-License-Identifier: BSD-3-Clause
#include "modules/settings/settings.hpp"

#include "modules/settings/foreign_values.hpp"
#include "modules/settings/nearest.hpp"

namespace gyr {

namespace {

// True if the text needs no quotes in any YAML reader: a word or a path that is not a number, boolean or null.
bool is_word(const std::string& text) {
  static constexpr std::string_view taken[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"};
  std::string lower;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool inner = (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!letter && c != '_' && c != '/' && !(inner && !lower.empty())) return false;
    lower += char(letter ? c | 0x20 : c);
  }
  return !lower.empty() && std::find(std::begin(taken), std::end(taken), lower) == std::end(taken);
}

}  // namespace

std::string write_yaml(bool value) { return value ? "true" : "false"; }
std::string write_yaml(Index value) { return fmt::format("{}", value); }
std::string write_yaml(double value) {
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", value);  // the shortest text that reads back as the same number
  const auto e = text.find('e');
  if (e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".0");  // YAML 1.1 requires the decimal point
  return text;
}
std::string write_yaml(const std::string& value) {
  if (is_word(value)) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') text += "\\n";
    else if ((unsigned char)c < 0x20 || c == 0x7f) text += fmt::format("\\x{:02x}", (unsigned char)c);
    else text += c;
  }
  return text + '"';
}

void Declaration::rule(std::string text, bool holds) {
  if (std::find(rules.begin(), rules.end(), text) == rules.end()) rules.push_back(std::move(text));
  broken = broken || !holds;
}

void Declaration::suggest(const std::string& word, std::span<const std::string> allowed) {
  const auto is_allowed = [&](std::string_view name) { return std::find(allowed.begin(), allowed.end(), name) != allowed.end(); };
  if (is_allowed(word)) return;
  std::string lower = word;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = char(c | 0x20);
  const std::string_view here = value_here(path, word);
  hint = is_allowed(here) ? std::string(here) : nearest(lower, allowed);
}

void Declaration::confirm() const {
  if (broken) refuse("is not allowed");
}

void Declaration::refuse(std::string_view why) const {
  ensure(!where.empty(), "setting {} = {}: the default violates its own range: {}", path, value, range());
  const bool quoted = value.size() > 1 && value.starts_with('"');
  const ForeignValue* elsewhere = foreign_value(path, quoted ? value.substr(1, value.size() - 2) : value);
  const std::string advice = elsewhere && !elsewhere->advice.empty() ? fmt::format("; {}", elsewhere->advice)
                             : hint.empty()                          ? ""
                                                                     : "; did you mean `" + hint + "`?";
  fail(Exit::config, "{}: {} = {} {}{}; allowed: {}{} ({}{})", where, path, value, why, advice, range(), unit.empty() ? "" : ", in " + unit, help,
       fallback.empty() ? "" : "; default " + fallback);
}

std::string Declaration::range() const {
  std::string text;
  for (const std::string& rule : rules) text += (text.empty() ? "" : ", ") + rule;
  return rules.empty() ? type : text;
}

}  // namespace gyr
