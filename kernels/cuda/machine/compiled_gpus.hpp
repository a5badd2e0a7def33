// SPDX-License-Identifier: BSD-3-Clause
// List of the GPUs that a program contains code for, such as "80 90a 100+". Each word is a compute capability, 10 major
// + minor. Code for 80 runs on all GPUs 8.x from 8.0 on. Code for 90a contains wgmma and runs on 9.0 only. With "+",
// later GPUs compile the last one's PTX at load time.
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
