// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/arguments.hpp"

#include <algorithm>

#include "src/jinja/problem.hpp"

namespace gyr::jinja {

Parameters::Parameters(const char* function, const Arguments& arguments, std::initializer_list<const char*> names, std::size_t required)
    : function_(function), values_(names.size()), names_(names) {
  if (arguments.positional.size() > names.size())
    refuse("{} takes at most {} arguments, but {} are given", function, names.size(), arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) refuse("{} has no argument '{}'", function, name);
    auto& slot = values_[std::size_t(place - names_.begin())];
    if (slot) refuse("the argument '{}' of {} is given twice", name, function);
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) refuse("{} needs the argument '{}'", function, names_[i]);
}

Integer Parameters::integer(std::size_t i, Integer by_default) const {
  if (!has(i)) return by_default;
  const auto value = as_integer(at(i));
  if (!value) refuse("the argument '{}' of {} must be an integer, not {}", names_[i], function_, type_name(at(i)));
  return *value;
}

bool Parameters::flag(std::size_t i, bool by_default) const { return has(i) ? truth(at(i)) : by_default; }

const Text& Parameters::text(std::size_t i) const {
  if (!at(i).string()) refuse("the argument '{}' of {} must be a string, not {}", names_[i], function_, type_name(at(i)));
  return at(i).string()->text;
}

}  // namespace gyr::jinja
