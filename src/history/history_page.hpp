// SPDX-License-Identifier: BSD-3-Clause
// Runs as one page that a browser shows without any network: page.html with the numbers in it.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

std::string page_of(const std::vector<RunHistory>&);

}  // namespace gyr
