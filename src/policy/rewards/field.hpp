// SPDX-License-Identifier: BSD-3-Clause
// The field of a prompt's line that a rule compares an answer with.
#pragma once

#include "kernels/base/error.hpp"
#include "src/policy/rewards/reward.hpp"

namespace gyr {

// Value of the field. Exit::data with the keys of the line if it has no such key.
const Json& field_of(const Answer&, const RewardConfig&);
// The field as text: a string as it is, a number or a truth value as in JSON. Exit::data for other types.
std::string field_text(const Answer&, const RewardConfig&);

// Exit::data for a field that the rule cannot read. `expected`: "a number"; the message ends with it.
[[noreturn]] void refuse_field(const Answer&, const RewardConfig&, const std::string& expected);

}  // namespace gyr
