// SPDX-License-Identifier: BSD-3-Clause
#include "src/deck/amount.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

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
constexpr AmountUnit length_units[] = {{"k", 0x1p10}, {"K", 0x1p10}};  // a context of 32k has 32768 tokens

// A number and the letters after it; no value if the text does not begin with a number.
struct AmountParts {
  std::optional<double> number;
  std::string_view unit;
};

AmountParts amount_parts(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return {};
  std::string_view unit(end, std::size_t(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  return {number, unit};
}

// Units of keys of cluster descriptions, as src/planner/machine/cluster.cpp declares them.
struct KeyUnit {
  std::string_view path, unit;
};
constexpr KeyUnit key_units[] = {{"device.memory", "GiB"},
                                 {"device.reserve", "GiB"},
                                 {"host.memory", "GiB"},
                                 {"device.memory_bandwidth", "GB/s"},
                                 {"host.bandwidth", "GB/s"},
                                 {"storage.bandwidth", "GB/s"},
                                 {"links.node.bandwidth", "GB/s"},
                                 {"links.network.bandwidth", "GB/s"},
                                 {"links.islands.bandwidth", "GB/s"},
                                 {"links.node.latency", "us"},
                                 {"links.network.latency", "us"},
                                 {"links.islands.latency", "us"},
                                 {"fit.step", "ms"},
                                 {"device.bf16", "TFLOP/s"},
                                 {"device.fp32", "TFLOP/s"},
                                 {"device.fp64", "TFLOP/s"},
                                 {"device.watts", "W"},
                                 {"errors.published", "%"},
                                 {"errors.measured", "%"}};

// Units of one kind, with their values in the same base unit (byte, byte/s, second, FLOP/s, watt, percent). The first two
// are the examples of messages.
using UnitKind = std::vector<AmountUnit>;
const std::vector<UnitKind>& unit_kinds() {
  static const std::vector<UnitKind> kinds{
      {{"GiB", 0x1p30}, {"GB", 1e9}, {"MB", 1e6}, {"TB", 1e12}, {"MiB", 0x1p20}, {"TiB", 0x1p40}},
      {{"GB/s", 1e9},
       {"Gb/s", 1e9 / 8},
       {"MB/s", 1e6},
       {"TB/s", 1e12},
       {"GiB/s", 0x1p30},
       {"Mb/s", 1e6 / 8},
       {"Tb/s", 1e12 / 8},
       {"GBps", 1e9},
       {"Gbps", 1e9 / 8},
       {"Mbit/s", 1e6 / 8},
       {"Gbit/s", 1e9 / 8},
       {"Tbit/s", 1e12 / 8}},
      {{"us", 1e-6}, {"ms", 1e-3}, {"ns", 1e-9}, {"s", 1}, {"µs", 1e-6}},
      {{"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"GFLOP/s", 1e9}, {"TFLOPS", 1e12}, {"PFLOPS", 1e15}, {"GFLOPS", 1e9}},
      {{"W", 1}, {"kW", 1e3}},
      {{"%", 1}}};
  return kinds;
}

const AmountUnit* find_unit(const UnitKind& kind, std::string_view name) {
  const auto at = std::find_if(kind.begin(), kind.end(), [&](const AmountUnit& unit) { return unit.name == name; });
  return at == kind.end() ? nullptr : &*at;
}

const UnitKind* kind_of(std::string_view unit) {
  for (const UnitKind& kind : unit_kinds())
    if (find_unit(kind, unit)) return &kind;
  return nullptr;
}

bool takes_bytes(std::string_view path) { return path.ends_with("_bytes"); }
bool takes_steps(std::string_view path) { return path.ends_with("steps") || path.ends_with("every"); }

bool takes_lengths(std::string_view path) { return path.ends_with("seq_length"); }

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
  if (takes_lengths(path)) return amount_value(parts, length_units);
  return {};
}

std::string_view unit_of_key(std::string_view path) {
  const auto at = std::find_if(std::begin(key_units), std::end(key_units), [&](const KeyUnit& key) { return key.path == path; });
  return at == std::end(key_units) ? std::string_view() : at->unit;
}

std::optional<double> quantity_in(std::string_view text, std::string_view path) {
  const AmountParts parts = amount_parts(text);
  const UnitKind* kind = kind_of(unit_of_key(path));
  if (!parts.number || !std::isfinite(*parts.number) || !kind) return {};
  const AmountUnit* written = find_unit(*kind, parts.unit);
  if (!written) return {};
  return *parts.number * (written->value / find_unit(*kind, unit_of_key(path))->value);
}

std::string advice_on_quantity(std::string_view text, std::string_view path) {
  const AmountParts parts = amount_parts(text);
  const std::string_view unit = unit_of_key(path);
  const UnitKind* kind = kind_of(unit);
  if (!kind) return "";
  if (!parts.number || parts.unit.empty()) return fmt::format("; write a number in {}", unit);
  std::string others;
  for (const AmountUnit& other : *kind) others += fmt::format("{}{}", others.empty() ? "" : ", ", other.name);
  return fmt::format("; {} is in {}, and `{}` is no unit of it: write a number with one of {}", path, unit, parts.unit, others);
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
