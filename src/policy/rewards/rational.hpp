// SPDX-License-Identifier: BSD-3-Clause
// Numbers in texts, as exact rationals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyr {

// sign * digits * 10^exponent, with digits that neither begin nor end with a zero. Zero has no digits, no sign and the
// exponent 0, so that equal values have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;
  bool operator==(const Decimal&) const = default;
};

struct Rational {
  Decimal numerator, denominator;  // the denominator is positive
};

// The last number in a text. A number has digits with an optional sign, thousands commas (1,234), decimal point and
// exponent (1.5e-3). Two numbers joined by `/` are a fraction if the second is neither signed nor zero. A sign counts if
// no letter, digit or closing bracket is before it, as in 5-3. An exponent has at most 9 digits.
std::optional<Rational> last_number(std::string_view text);

bool equal(const Rational& a, const Rational& b);  // exact
double to_double(const Rational& x);               // may be infinite

}  // namespace gyr
