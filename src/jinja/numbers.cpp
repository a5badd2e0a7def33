// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/numbers.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "src/jinja/characters.hpp"

namespace gyr::jinja {

namespace {

bool is_digit_of(char c, int base) {
  const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
  return value < base;
}

// End of digits that may be separated by single underscores; `at` if there is none.
std::size_t end_of_digits(std::string_view text, std::size_t at, int base = 10) {
  std::size_t end = at;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (is_digit_of(text[i], base)) end = i + 1;
    else if (text[i] != '_' || end != i || i == at) break;
  }
  return end;
}

int base_of_prefix(char letter) {
  switch (letter) {
    case 'x':
    case 'X': return 16;
    case 'o':
    case 'O': return 8;
    case 'b':
    case 'B': return 2;
    default: return 0;
  }
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  return out;
}

std::string_view without_space(std::string_view text) {
  const auto [begin, end] = stripped(text);
  return text.substr(begin, end - begin);
}

}  // namespace

std::size_t end_of_real(std::string_view text, std::size_t at) {
  const std::size_t integer_end = end_of_digits(text, at);
  if (integer_end == at) return at;
  std::size_t end = at, from = integer_end;
  if (from < text.size() && text[from] == '.') {
    const std::size_t fraction = end_of_digits(text, from + 1);
    if (fraction > from + 1) end = from = fraction;
  }
  if (from < text.size() && (text[from] == 'e' || text[from] == 'E')) {
    std::size_t digits = from + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
    if (const std::size_t exponent = end_of_digits(text, digits); exponent > digits) end = exponent;
  }
  return end;
}

std::size_t end_of_integer(std::string_view text, std::size_t at) {
  if (text[at] != '0') return end_of_digits(text, at);
  if (const int base = at + 1 < text.size() ? base_of_prefix(text[at + 1]) : 0) {
    const std::size_t digits = at + 2 + (at + 2 < text.size() && text[at + 2] == '_');
    if (const std::size_t end = end_of_digits(text, digits, base); end > digits) return end;
  }
  return end_of_digits(text, at, 1);  // zeros only
}

std::optional<std::int64_t> integer_of(std::string_view text, int base, bool* too_large) {
  text = without_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = text.size() > 1 && text[0] == '0' ? base_of_prefix(text[1]) : 0;
  if (prefix && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.starts_with('0') && text.find_first_not_of("0_") != text.npos) return std::nullopt;  // 012 is no number
  }
  if (text.empty() || end_of_digits(text, 0, base) != text.size()) return std::nullopt;
  std::string digits = without_underscores(text);
  if (negative) digits.insert(digits.begin(), '-');
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ec == std::errc()) return value;
  if (too_large) *too_large = true;
  return std::nullopt;
}

std::optional<double> real_of(std::string_view text) {
  text = without_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::string lower;
  for (const char c : text.substr(0, 9)) lower += char(c >= 'A' && c <= 'Z' ? c + 32 : c);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    // Python also takes "1.", ".5" and "1.e3", which template literals do not have.
    std::size_t at = end_of_digits(text, 0);
    bool digits = at > 0;
    if (at < text.size() && text[at] == '.') {
      const std::size_t fraction = end_of_digits(text, at + 1);
      digits = digits || fraction > at + 1;
      at = fraction;
    }
    if (!digits) return std::nullopt;
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
      std::size_t exponent = at + 1;
      if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
      at = end_of_digits(text, exponent);
      if (at == exponent) return std::nullopt;
    }
    if (at != text.size()) return std::nullopt;
    value = std::strtod(without_underscores(text).c_str(), nullptr);
  }
  return negative ? -value : value;
}

std::string shown_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

}  // namespace gyr::jinja
