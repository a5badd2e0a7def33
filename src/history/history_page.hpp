// SPDX-License-Identifier: BSD-3-Clause
// Runs as one HTML page that needs no network: page.html with the data inserted.
#pragma once

#include <string>
#include <vector>

#include "src/history/run_history.hpp"

namespace gyr {

std::string page_of(const std::vector<RunHistory>&);

}  // namespace gyr
