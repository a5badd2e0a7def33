// SPDX-License-Identifier: BSD-3-Clause
// What another program says when it is asked something.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gyr {

struct Answer {
  int code = 0;  // exit code, 128 + signal where one ended it
  std::string out, err;
};

// Runs a program of PATH without input. Nothing where there is none of this name, or it has not ended within `seconds`: then it is killed, with
// what it has started. Of what it says the first 64 KiB count.
std::optional<Answer> reply_of(const std::vector<std::string>& command, double seconds);

}  // namespace gyr
