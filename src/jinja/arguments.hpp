// SPDX-License-Identifier: BSD-3-Clause
// Arguments of a built-in function, filter, test or method, matched with its parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "src/jinja/value.hpp"

namespace gyr::jinja {

class Parameters {
 public:
  // `names`: parameters in their order; the first `required` ones have no default. Problem for missing, unknown or too
  // many arguments.
  Parameters(const char* function, const Arguments& arguments, std::initializer_list<const char*> names, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  bool has_value(std::size_t i) const { return has(i) && !values_[i]->none(); }  // given, and not none
  const Value& at(std::size_t i) const { return *values_[i]; }
  Value value(std::size_t i, Value by_default) const { return has(i) ? *values_[i] : std::move(by_default); }
  // The argument as this type. Problem for another type.
  Integer integer(std::size_t i, Integer by_default = 0) const;
  bool flag(std::size_t i, bool by_default = false) const;  // the truth of any value
  const Text& text(std::size_t i) const;                    // the argument is given

 private:
  const char* function_;
  std::vector<std::optional<Value>> values_;
  std::vector<const char*> names_;
};

}  // namespace gyr::jinja
