// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rewards/rational.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace gyr {

namespace {

constexpr std::size_t most_exponent_digits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool ends_operand(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ')' || c == ']' || c == '}'; }

Decimal decimal_of(bool negative, std::string digits, std::int64_t exponent) {
  const auto first = digits.find_first_not_of('0');
  if (first == digits.npos) return {};
  const auto last = digits.find_last_not_of('0');
  exponent += std::int64_t(digits.size() - 1 - last);
  return {negative, digits.substr(first, last + 1 - first), exponent};
}

// Reads numbers from left to right.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // The next number; empty at the end of the text.
  std::optional<Rational> next() {
    for (; at_ < text_.size(); ++at_) {
      if (!is_digit(at(0)) && !(at(0) == '.' && is_digit(at(1)))) continue;
      const std::size_t begin = at_;
      const bool negative = begin > 0 && text_[begin - 1] == '-' && (begin == 1 || !ends_operand(text_[begin - 2]));
      Rational number{unsigned_number(), {false, "1", 0}};
      number.numerator.negative = negative && !number.numerator.digits.empty();
      if (const auto below = denominator()) number.denominator = *below;
      return number;
    }
    return {};
  }

 private:
  char at(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  std::string digits() {
    std::string found;
    for (; is_digit(at(0)); ++at_) found += at(0);
    return found;
  }
  bool thousands() const { return at(0) == ',' && is_digit(at(1)) && is_digit(at(2)) && is_digit(at(3)) && !is_digit(at(4)); }

  // Digits up to the exponent, at a digit or a point.
  Decimal unsigned_number() {
    std::string all = digits();
    if (all.size() <= 3 && !all.empty())
      while (thousands()) ++at_, all += digits();
    std::int64_t exponent = 0;
    if (at(0) == '.' && is_digit(at(1))) {
      ++at_;
      const std::string fraction = digits();
      all += fraction, exponent -= std::int64_t(fraction.size());
    }
    return decimal_of(false, std::move(all), exponent + written_exponent());
  }

  std::int64_t written_exponent() {
    if (at(0) != 'e' && at(0) != 'E') return 0;
    const bool sign = at(1) == '+' || at(1) == '-', negative = at(1) == '-';
    const std::size_t begin = at_ + 1 + sign;
    std::size_t end = begin;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end == begin || end - begin > most_exponent_digits) return 0;
    std::int64_t value = 0;
    std::from_chars(text_.data() + begin, text_.data() + end, value);
    at_ = end;
    return negative ? -value : value;
  }

  // The number after `/`, if there is one that is not zero.
  std::optional<Decimal> denominator() {
    const std::size_t begin = at_;
    if (at(0) == '/' && (is_digit(at(1)) || (at(1) == '.' && is_digit(at(2))))) {
      ++at_;
      if (const Decimal below = unsigned_number(); !below.digits.empty()) return below;
    }
    at_ = begin;
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// Product of the digits, as limbs of 9 digits, the lowest first.
std::vector<std::uint32_t> limbs_of(const std::string& digits) {
  std::vector<std::uint32_t> limbs;
  for (std::size_t end = digits.size(); end > 0;) {
    const std::size_t begin = end > 9 ? end - 9 : 0;
    std::uint32_t value = 0;
    std::from_chars(digits.data() + begin, digits.data() + end, value);
    limbs.push_back(value);
    end = begin;
  }
  return limbs;
}

Decimal product(const Decimal& a, const Decimal& b) {
  constexpr std::uint64_t base = 1'000'000'000;
  const auto x = limbs_of(a.digits), y = limbs_of(b.digits);
  std::vector<std::uint64_t> limbs(x.size() + y.size() + 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < y.size() || carry > 0; ++j) {
      const std::uint64_t sum = limbs[i + j] + carry + (j < y.size() ? std::uint64_t(x[i]) * y[j] : 0);
      limbs[i + j] = sum % base, carry = sum / base;
    }
  }
  std::string digits;
  for (auto limb = limbs.rbegin(); limb != limbs.rend(); ++limb) digits += fmt::format("{:09}", *limb);
  return decimal_of(a.negative != b.negative, std::move(digits), a.exponent + b.exponent);
}

double to_double(const Decimal& x) {
  if (x.digits.empty()) return 0;
  const double size = std::strtod(fmt::format("{}e{}", x.digits, x.exponent).c_str(), nullptr);
  return x.negative ? -size : size;
}

}  // namespace

std::optional<Rational> last_number(std::string_view text) {
  Scanner scanner(text);
  std::optional<Rational> last;
  while (auto number = scanner.next()) last = std::move(number);
  return last;
}

bool equal(const Rational& a, const Rational& b) { return product(a.numerator, b.denominator) == product(b.numerator, a.denominator); }

double to_double(const Rational& x) { return to_double(x.numerator) / to_double(x.denominator); }

}  // namespace gyr
