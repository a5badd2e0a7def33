// SPDX-License-Identifier: BSD-3-Clause
// Axes of the process grid (data, pipeline, context and tensor parallelism), and sets of axes.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

// Default order, outermost first. A new axis must be added to both lines.
enum class Axis { data, pipeline, context, tensor };
inline constexpr std::array<std::string_view, 4> axis_names{"data", "pipeline", "context", "tensor"};
inline constexpr std::string_view name_of(Axis axis) { return axis_names[std::size_t(axis)]; }

class Axes {
 public:
  constexpr Axes(Axis axis) : bits_(1u << unsigned(axis)) {}
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= Axes(axis).bits_;
  }
  constexpr bool has(Axis axis) const { return (bits_ & Axes(axis).bits_) != 0; }
  std::string text() const;  // "world" for all axes, otherwise their names, e.g. "pipeline-tensor"
  friend constexpr Axes operator+(Axes a, Axes b) {
    a.bits_ |= b.bits_;
    return a;
  }
  friend constexpr Axes all_but(Axes axes) {
    axes.bits_ ^= (1u << axis_names.size()) - 1;
    return axes;
  }
  friend constexpr auto operator<=>(Axes, Axes) = default;

 private:
  unsigned bits_ = 0;
};
constexpr Axes all_but(Axes);
inline constexpr Axes all_axes = all_but(Axes{});

// Parses axis names. Exit::config unless each axis is named once. If context is omitted, it is placed just outside
// tensor.
std::vector<Axis> axis_order(const std::vector<std::string>& names);
// Default of deck key parallel.order.
std::vector<std::string> default_axis_order();

}  // namespace gyr
