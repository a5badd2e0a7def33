// SPDX-License-Identifier: BSD-3-Clause
#include "src/policy/rewards/field.hpp"

#include "kernels/base/printable.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_shown = 100;

std::string keys_of(const Json& fields) {
  std::string keys;
  for (const auto& [key, value] : fields.items())
    if (keys.size() < most_shown) keys += (keys.empty() ? "" : ", ") + printable(key);
  return keys.empty() ? "it has none" : "its keys are " + keys;
}

std::string named(const RewardConfig& c) { return fmt::format("{} is {}", key_of_reward(c, "field"), printable(c.field)); }

}  // namespace

const Json& field_of(const Answer& a, const RewardConfig& c) {
  ensure(a.fields != nullptr, "an answer for reward {} has no fields", c.name);
  const auto found = a.fields->find(c.field);
  require(found != a.fields->end(), Exit::data, "{}, but {} has no such key ({}); name a key that all lines have", named(c), a.place,
          keys_of(*a.fields));
  return *found;
}

std::string field_text(const Answer& a, const RewardConfig& c) {
  const Json& field = field_of(a, c);
  if (field.is_string()) return field.get<std::string>();
  if (!field.is_number() && !field.is_boolean()) refuse_field(a, c, "a string, a number or a truth value");
  return json_text(field);
}

void refuse_field(const Answer& a, const RewardConfig& c, const std::string& expected) {
  std::string value = json_text(field_of(a, c));
  if (value.size() > most_shown) value = value.substr(0, most_shown) + " ...";
  fail(Exit::data, "{}, but {} has {} under it; the field must be {}", named(c), a.place, printable(value), expected);
}

}  // namespace gyr
