// SPDX-License-Identifier: BSD-3-Clause
// What lies where a file of a model should: the stand-ins and formats that people meet when they fetch models.
#pragma once

#include <string_view>

namespace gyr {

// As the end of a sentence, with the way out, told by the first bytes; empty where they are of none of these.
std::string_view foreign_file(std::string_view first_bytes);

}  // namespace gyr
