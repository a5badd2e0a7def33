// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/attribute_path.hpp"

#include <algorithm>

#include "src/jinja/attributes.hpp"
#include "src/jinja/characters.hpp"
#include "src/jinja/numbers.hpp"

namespace gyr::jinja {

AttributePath::AttributePath(const Value& path, Budget& budget) {
  if (path.none()) return;
  if (!path.string()) {
    parts_.push_back(path);
    return;
  }
  const std::string& bytes = path.string()->text.bytes();
  for (std::size_t begin = 0; begin <= bytes.size();) {
    const std::size_t end = std::min(bytes.find('.', begin), bytes.size());
    const std::string part = bytes.substr(begin, end - begin);
    budget.bytes(Budget::value_size + part.size());
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const auto integer = number ? integer_of(part, 10) : std::nullopt;
    parts_.push_back(integer ? Value{*integer} : text_value(part));
    begin = end + 1;
  }
}

Value AttributePath::of(const Value& item, Budget& budget, const Value* by_default) const {
  Value value = item;
  for (const Value& part : parts_) {
    budget.step();
    value = item_of(value, part, budget);
    if (by_default && value.undefined()) value = *by_default;
  }
  return value;
}

Value without_case(const Value& value, Budget& budget) {
  return value.string() ? text_value(with_letters(value.string()->text, Letters::lower, budget)) : value;
}

}  // namespace gyr::jinja
