// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace gyr {

namespace {

struct Prefix {
  double size;
  const char* name;
};
constexpr std::array<Prefix, 4> time_prefixes{{{1e-6, "us"}, {1e-3, "ms"}, {1, "s"}, {3600, "h"}}};
constexpr std::array<Prefix, 5> byte_prefixes{{{1, "B"}, {1024, "KiB"}, {1 << 20, "MiB"}, {1 << 30, "GiB"}, {1024.0 * (1 << 30), "TiB"}}};
constexpr std::array<Prefix, 7> metric_prefixes{{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}, {1e15, "P"}, {1e18, "E"}}};

// Number of decimals with which `value` has `digits` significant digits.
int decimals_of(double value, int digits) {
  int decimals = digits - 1;
  for (double limit = 10; decimals > 0 && std::abs(value) >= limit - 0.5 * std::pow(10, -decimals); limit *= 10) --decimals;
  return decimals;
}

// Largest prefix of which `value` has at least one, after rounding to `digits` digits.
Prefix prefix_of(double value, std::span<const Prefix> prefixes, int digits) {
  Prefix best = prefixes.front();
  const double rounded = std::abs(value) * (1 + 0.5 * std::pow(10, -digits));
  for (const Prefix& prefix : prefixes)
    if (rounded >= prefix.size) best = prefix;
  return best;
}

Prefix time_prefix(double seconds, int digits) {
  return seconds == 0 ? time_prefixes[2] : prefix_of(seconds, std::span(time_prefixes).first(std::abs(seconds) < 36000 ? 3 : 4), digits);
}

}  // namespace

std::string Unit::operator()(double value) const { return std::isfinite(value) ? fmt::format("{:.{}f}", value / size, decimals) : "-"; }

Unit time_unit(double largest) {
  const Prefix prefix = time_prefix(largest, 3);
  return {prefix.size, decimals_of(largest / prefix.size, 3), prefix.name};
}

Unit byte_unit(double largest) {
  const Prefix prefix = prefix_of(largest, byte_prefixes, 4);
  return {prefix.size, prefix.size == 1 ? 0 : 1, prefix.name};
}

Unit metric_unit(double largest, std::string_view unit) {
  const Prefix prefix = prefix_of(largest, metric_prefixes, 3);
  return {prefix.size, decimals_of(largest / prefix.size, 3), prefix.name + std::string(unit)};
}

std::string ByteColumn::operator()(double bytes) const { return bytes > 0 && bytes < 0.05 * unit_.size ? "< 0.1" : unit_(bytes); }

std::string time_text(double seconds, int digits) {
  if (!std::isfinite(seconds)) return "-";
  const Prefix prefix = time_prefix(seconds, digits);
  return fmt::format("{:.{}f} {}", seconds / prefix.size, decimals_of(seconds / prefix.size, digits), prefix.name);
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  const Unit unit = byte_unit(bytes);
  return fmt::format("{} {}", unit(bytes), unit.name);
}

std::string mebi(double bytes) { return fmt::format("{:.1f}", bytes / (1 << 20)); }

std::string metric_text(double value, std::string_view unit, int digits) {
  if (!std::isfinite(value)) return "-";
  const Prefix prefix = prefix_of(value, metric_prefixes, digits);
  const bool exact = prefix.size == 1 && value == std::round(value);
  const std::string number = fmt::format("{:.{}f}", value / prefix.size, exact ? 0 : decimals_of(value / prefix.size, digits));
  return number + (prefix.size == 1 && (unit.empty() || unit.front() == ' ') ? "" : " ") + prefix.name + std::string(unit);
}

std::string short_count(double value) {
  std::string text = metric_text(value, "");
  std::erase(text, ' ');
  return text;
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "unknown";
  const Index s = Index(std::llround(seconds)), days = s / 86400;
  const std::string hours = fmt::format("{}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
  return days > 0 ? fmt::format("{}d {:0>8}", days, hours) : hours;
}

std::string counted(Index n, std::string_view noun) { return counted(n, noun, std::string(noun) + "s"); }

std::string counted(Index n, std::string_view singular, std::string_view plural) { return fmt::format("{} {}", n, n == 1 ? singular : plural); }

}  // namespace gyr
