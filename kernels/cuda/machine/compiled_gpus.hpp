// SPDX-License-Identifier: BSD-3-Clause
// Which GPUs a program has code for, in words such as "80 90a 100+", each a capability, 10 major + minor: code of 80 is for all of 8.x from 8.0 on;
// of 90a, which has the instructions of warpgroups, for 9.0 alone; with a + later GPUs compile the last one for themselves when they load it.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace gyr::cuda {

inline bool has_code_for(const std::string& compiled, int capability) {
  std::istringstream words(compiled);
  for (std::string word; words >> word;) {
    const int known = std::atoi(word.c_str());
    const bool exact = word.find('a') != std::string::npos, later = word.back() == '+';
    if (known == capability || (!exact && known < capability && (later || known / 10 == capability / 10))) return true;
  }
  return false;
}

}  // namespace gyr::cuda
