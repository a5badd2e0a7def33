// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/axis.hpp"

#include <algorithm>

#include "kernels/error.hpp"

namespace gyr {

std::string Axes::text() const {
  if (*this == all_axes) return "world";
  std::string text;
  for (std::size_t i = 0; i < axis_names.size(); ++i)
    if (has(Axis(i))) text += fmt::format("{}{}", text.empty() ? "" : "-", axis_names[i]);
  return text;
}

namespace {

template <class Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

}  // namespace

std::vector<Axis> axis_order(const std::vector<std::string>& names) {
  std::vector<Axis> order;
  bool each_once = names.size() == axis_names.size();
  for (std::size_t i = 0; each_once && i < axis_names.size(); ++i) {
    each_once = std::count(names.begin(), names.end(), axis_names[i]) == 1;
    const auto found = std::find(axis_names.begin(), axis_names.end(), names[i]);
    order.push_back(Axis(found - axis_names.begin()));
  }
  require(each_once, Exit::config, "parallel.order must name each of the axes {} once, not [{}]", listed(axis_names), listed(names));
  return order;
}

std::vector<std::string> default_axis_order() { return {axis_names.begin(), axis_names.end()}; }

}  // namespace gyr
