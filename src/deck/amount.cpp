// SPDX-License-Identifier: BSD-3-Clause
#include "src/deck/amount.hpp"

#include <charconv>
#include <cmath>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

struct AmountUnit {
  std::string_view name;
  double value;
};
constexpr AmountUnit byte_units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                                     {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
constexpr AmountUnit step_units[] = {{"k", 1e3}, {"M", 1e6}};

// A number and the letters after it; no value if the text does not begin with a number.
struct AmountParts {
  std::optional<double> number;
  std::string_view unit;
};

AmountParts amount_parts(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return {};
  std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  return {number, unit};
}

bool takes_bytes(std::string_view path) { return path.ends_with("_bytes"); }
bool takes_steps(std::string_view path) { return path.ends_with("steps") || path.ends_with("every"); }

template <std::size_t N>
std::optional<Index> amount_value(const AmountParts& parts, const AmountUnit (&units)[N]) {
  for (const AmountUnit& unit : units)
    if (unit.name == parts.unit)
      if (const double value = *parts.number * unit.value; value == std::floor(value) && std::abs(value) <= 0x1p53) return Index(value);
  return {};
}

}  // namespace

std::optional<Index> amount_in(std::string_view text, std::string_view path) {
  const AmountParts parts = amount_parts(text);
  if (!parts.number) return {};
  if (takes_bytes(path)) return amount_value(parts, byte_units);
  if (takes_steps(path)) return amount_value(parts, step_units);
  return {};
}

std::string advice_on_amount(std::string_view text, std::string_view path) {
  const AmountParts parts = amount_parts(text);
  if (!parts.number || parts.unit.empty()) return "";
  if (takes_bytes(path)) return "; the units of bytes are kB, MB, GB, TB, KiB, MiB, GiB and TiB";
  const bool integer = *parts.number == std::floor(*parts.number) && std::abs(*parts.number) < 1e9;
  if (integer && (parts.unit == "k" || parts.unit == "K"))
    return takes_steps(path) ? fmt::format("; write {}", Index(*parts.number * 1000))
                             : fmt::format("; write {} or {}", Index(*parts.number * 1000), Index(*parts.number * 1024));
  if (parts.unit == "%") return "; write the number itself, not a percentage";
  return "";
}

}  // namespace gyr
