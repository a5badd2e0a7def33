// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/text_format.hpp"

#include <algorithm>
#include <cmath>

#include "src/jinja/characters.hpp"
#include "src/jinja/numbers.hpp"
#include "src/jinja/show.hpp"

namespace gyr::jinja {

namespace {

constexpr std::size_t max_width = 1000;  // of a padded number or text

// A conversion of a printf format: %(name)-08.3f
struct Conversion {
  std::string name;
  bool named = false, left = false, zero = false;
  char sign = 0;  // '+', ' ' or 0
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char letter = 0;
};

class PrintfWriter {
 public:
  PrintfWriter(const Text& format, const Value& values, Budget& budget) : format_(format), bytes_(format.bytes()), values_(values), budget_(budget) {
    if (const List* list = values.list(); list && list->kind == List::Kind::tuple) tuple_ = list;
  }

  Text write() {
    budget_.bytes(format_.memory());
    while (at_ < bytes_.size()) {
      const std::size_t percent = std::min(bytes_.find('%', at_), bytes_.size());
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes_.size()) write_conversion();
    }
    const bool all = tuple_ ? taken_ == tuple_->items.size() : taken_ > 0 || named_ || values_.dict() || (values_.list() && !tuple_);
    if (!all) refuse("a format uses fewer values than are given");
    return std::move(out_);
  }

 private:
  char next() {
    if (at_ >= bytes_.size()) refuse("a format ends within a conversion");
    return bytes_[at_++];
  }

  std::size_t read_number(char first) {
    std::size_t number = std::size_t(first - '0');
    while (at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9' && number <= max_width) number = 10 * number + std::size_t(next() - '0');
    if (number > max_width) refuse("a width of more than {} in a format is not supported", max_width);
    return number;
  }

  Conversion read_conversion() {
    Conversion c;
    char letter = next();
    if (letter == '(') {
      const std::size_t close = bytes_.find(')', at_);
      if (close == std::string::npos) refuse("a format has a name without )");
      c.name = bytes_.substr(at_, close - at_), c.named = true;
      at_ = close + 1;
      letter = next();
    }
    for (; letter == '-' || letter == '0' || letter == '+' || letter == ' '; letter = next()) {
      if (letter == '-') c.left = true;
      else if (letter == '0') c.zero = true;
      else if (c.sign != '+') c.sign = letter;
    }
    if (letter >= '1' && letter <= '9') c.width = read_number(letter), letter = next();
    if (letter == '.') {
      letter = next();
      c.precision = 0;
      if (letter >= '0' && letter <= '9') c.precision = read_number(letter), letter = next();
    }
    c.letter = letter;
    return c;
  }

  Value argument(const Conversion& c) {
    if (c.named) {
      if (!values_.dict()) refuse("a format with names needs a dict");
      named_ = true;
      const Value* value = values_.dict()->find(c.name);
      if (!value) refuse("the format needs the key '{}'", c.name);
      return *value;
    }
    if (tuple_ ? taken_ == tuple_->items.size() : taken_ > 0) refuse("a format uses more values than are given");
    return tuple_ ? tuple_->items[taken_++] : (++taken_, values_);
  }

  void write_conversion() {
    ++at_;  // the percent sign
    const Conversion c = read_conversion();
    if (c.letter == '%') return out_.append("%");
    const Value value = argument(c);
    switch (c.letter) {
      case 's': return write_text(c, shown_text(value, budget_));
      case 'r': return write_text(c, repr_of(value, budget_));
      case 'd':
      case 'i':
      case 'u': return write_number(c, integer_of_value(value), 10);
      case 'x':
      case 'X': return write_number(c, exact_integer(value), 16);
      case 'o': return write_number(c, exact_integer(value), 8);
      case 'f':
      case 'F': return write_real(c, value);
      default: refuse("the conversion %{} of a format is not supported", c.letter);
    }
  }

  void write_text(const Conversion& c, Text text) {
    if (c.precision) text = text.part(0, byte_of(text.bytes(), *c.precision));
    const std::size_t length = length_of(text.bytes()), blanks = c.width > length ? c.width - length : 0;
    budget_.bytes(text.memory() + blanks);
    if (!c.left) out_.append(std::string(blanks, ' '));
    out_.append(text);
    if (c.left) out_.append(std::string(blanks, ' '));
  }

  Integer integer_of_value(const Value& value) {
    if (const double* d = value.real()) {
      if (!(std::abs(*d) < 9e18)) refuse("a real number cannot be formatted as an integer of 64 bits");
      return Integer(*d);
    }
    return exact_integer(value);
  }
  Integer exact_integer(const Value& value) {
    const auto integer = as_integer(value);
    if (!integer) refuse("a number is required in a format, not {}", type_name(value));
    return *integer;
  }

  void write_number(const Conversion& c, Integer value, int base) {
    const std::uint64_t size = value < 0 ? -std::uint64_t(value) : std::uint64_t(value);
    std::string digits = base == 10 ? fmt::format("{}", size) : base == 8 ? fmt::format("{:o}", size) : fmt::format("{:x}", size);
    if (c.letter == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), [](char d) { return char(d >= 'a' ? d - 32 : d); });
    if (c.precision && digits.size() < *c.precision) digits.insert(0, *c.precision - digits.size(), '0');
    pad(c, value < 0, std::move(digits));
  }

  void write_real(const Conversion& c, const Value& value) {
    const auto real = number(value);
    if (!real) refuse("%f in a format needs a number, not a value of type '{}'", type_name(value));
    pad(c, std::signbit(*real), std::isnan(*real) ? "nan" : fmt::format("{:.{}f}", std::abs(*real), c.precision.value_or(6)));
  }

  void pad(const Conversion& c, bool negative, std::string digits) {
    const std::string sign = negative ? "-" : c.sign ? std::string(1, c.sign) : "";
    const std::size_t length = sign.size() + digits.size(), blanks = c.width > length ? c.width - length : 0;
    budget_.bytes(length + blanks);
    const bool zeros = c.zero && !c.left;
    out_.append(std::string(c.left || zeros ? 0 : blanks, ' ') + sign + std::string(zeros ? blanks : 0, '0') + digits +
                std::string(c.left ? blanks : 0, ' '));
  }

  const Text& format_;
  const std::string& bytes_;
  const Value& values_;
  Budget& budget_;
  const List* tuple_ = nullptr;
  Text out_;
  std::size_t at_ = 0, taken_ = 0;
  bool named_ = false;
};

// Value of the field `name` of str.format. `next`: number of the next field without a name.
Value field_value(const std::string& name, const Arguments& arguments, std::size_t& next) {
  const bool numbered = name.empty() || std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (numbered) {
    const auto index = name.empty() ? std::optional(Integer(next++)) : integer_of(name, 10);
    if (!index || std::size_t(*index) >= arguments.positional.size()) refuse("a field of format has no argument");
    return arguments.positional[std::size_t(*index)];
  }
  const auto place = std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == name; });
  if (place == arguments.named.end()) refuse("format has no argument '{}'", name);
  return place->second;
}

}  // namespace

Text printf_text(const Text& format, const Value& values, Budget& budget) { return PrintfWriter(format, values, budget).write(); }

Text formatted_text(const Text& format, const Arguments& arguments, Budget& budget) {
  const std::string& bytes = format.bytes();
  budget.bytes(format.memory());
  Text out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    at = brace;
    if (at == bytes.size()) break;
    if (bytes.compare(at, 2, "{{") == 0 || bytes.compare(at, 2, "}}") == 0) {
      out.append(format, at, at + 1);
      at += 2;
      continue;
    }
    const std::size_t close = bytes.find('}', at);
    if (bytes[at] == '}' || close == std::string::npos) refuse("a single brace in a format");
    std::string name = bytes.substr(at + 1, close - at - 1);
    const bool repr = name.ends_with("!r");
    if (repr || name.ends_with("!s")) name.resize(name.size() - 2);
    if (name.find_first_of(".[]:!{") != std::string::npos) refuse("the field '{}' of format is not supported", name.substr(0, 40));
    const Value value = field_value(name, arguments, next);
    out.append(repr ? repr_of(value, budget) : shown_text(value, budget));
    at = close + 1;
  }
  return out;
}

}  // namespace gyr::jinja
