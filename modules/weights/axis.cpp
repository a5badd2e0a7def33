// SPDX-License-Identifier: BSD-3-Clause
#include "modules/weights/axis.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

template <class Names>
std::string joined(const Names& names, const char* between) {
  std::string text;
  for (const auto& name : names) (text += text.empty() ? "" : between) += name;
  return text;
}

}  // namespace

std::string Axes::text() const {
  if (*this == all_axes) return "world";
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < axis_names.size(); ++i)
    if (has(Axis(i))) names.push_back(axis_names[i]);
  return joined(names, "-");
}

std::vector<Axis> axis_order(const std::vector<std::string>& given) {
  std::vector<std::string> names = given;
  const std::string context(name_of(Axis::context));
  if (std::find(names.begin(), names.end(), context) == names.end())
    names.insert(std::find(names.begin(), names.end(), name_of(Axis::tensor)), context);
  require(std::is_permutation(names.begin(), names.end(), axis_names.begin(), axis_names.end()), Exit::config,
          "parallel.order must name each of the axes {} once, not [{}]", joined(axis_names, ", "), joined(given, ", "));
  std::vector<Axis> order;
  for (const std::string& name : names) order.push_back(Axis(std::find(axis_names.begin(), axis_names.end(), name) - axis_names.begin()));
  return order;
}

std::vector<std::string> default_axis_order() { return {axis_names.begin(), axis_names.end()}; }

}  // namespace gyr
