// SPDX-License-Identifier: BSD-3-Clause
// Quantities in terminal output: three significant digits and a unit that suits the value. Files and JSON keep raw
// numbers.
#pragma once

#include <string>
#include <string_view>

#include "kernels/base/scalar.hpp"

namespace gyr {

// Unit of a table column, chosen for the largest value of the column so that all cells have the same one.
struct Unit {
  double size = 1;  // value of one unit, in seconds or bytes
  int decimals = 0;
  std::string name = {};
  std::string operator()(double value) const;  // the value in this unit, without the unit's name; "-" if not finite
};
Unit time_unit(double largest);                           // us, ms, s or h; `largest` in seconds
Unit byte_unit(double largest);                           // B, KiB, MiB, GiB or TiB
Unit metric_unit(double largest, std::string_view unit);  // such as GFLOP/s for the unit FLOP/s

// Cells of a table column of bytes that differ by orders of magnitude: a unit in which the largest has up to six digits, and
// "< 0.1" for values above 0 that would be printed as 0.0.
class ByteColumn {
 public:
  explicit ByteColumn(double largest) : unit_(byte_unit(largest / 128)) {}
  const std::string& unit() const { return unit_.name; }
  std::string operator()(double bytes) const;

 private:
  Unit unit_;
};

std::string time_text(double seconds, int digits = 3);  // "60.5 ms"
std::string bytes_text(double bytes);                   // "3.1 GiB"
std::string mebi(double bytes);                         // the same in MiB, without the unit
// Value with a metric prefix: "4.40 PFLOP" for the unit "FLOP", "1.12 M tokens/s" for the unit " tokens/s".
std::string metric_text(double value, std::string_view unit, int digits = 3);
std::string short_count(double value);  // the same without a space, for narrow lines: "1.12M"
std::string duration(double seconds);   // "1:02:03", "4d 01:02:03", "unknown"

std::string counted(Index n, std::string_view noun);  // "1 rank", "2 ranks"
std::string counted(Index n, std::string_view singular, std::string_view plural);

}  // namespace gyr
