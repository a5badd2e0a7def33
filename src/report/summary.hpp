// SPDX-License-Identifier: BSD-3-Clause
// The first and the last lines of a log.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.hpp"

namespace gyr {

// "Gyrfalcon 0.1.0", and below it an aligned table of facts: {{"git", "1a2b3c4"}, {"MPI", "MPICH 4.0.2"}, ...}.
std::string banner(std::string_view version, std::span<const std::pair<std::string, std::string>> facts);

// Last line of every run: "RUN OK"; "RUN STOPPED 75 (...)" if it must be submitted again to continue; otherwise "RUN
// FAILED <code> (<meaning of the code>)".
std::string last_line(Exit code);

std::string_view meaning(Exit code);

// All exit codes with their meanings, for help texts, in lines of at most 120 columns.
std::string exit_codes();

}  // namespace gyr
