// SPDX-License-Identifier: BSD-3-Clause
// An attribute of items that a filter works on, such as "function.name" or 0.
#pragma once

#include <vector>

#include "src/jinja/budget.hpp"
#include "src/jinja/value.hpp"

namespace gyr::jinja {

class AttributePath {
 public:
  // `path`: names and numbers joined by dots, a number, or none for the item itself.
  AttributePath(const Value& path, Budget& budget);
  // The attribute of `item`. An undefined part is replaced by `by_default`, if it is not null.
  Value of(const Value& item, Budget& budget, const Value* by_default = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// The value with its letters in lower case if it is text, for comparisons without letter case.
Value without_case(const Value& value, Budget& budget);

}  // namespace gyr::jinja
