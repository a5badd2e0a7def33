// SPDX-License-Identifier: BSD-3-Clause
// Files of pages and pictures. A report is written again and again while its run goes on, so that a page of this program
// may be replaced, and nothing else.
#pragma once

#include <filesystem>
#include <string_view>

namespace gyr {

// Exit::usage if the file exists and is no page or picture of this program. An empty name is accepted.
void check_page_file(const std::filesystem::path&);
// Checks, and writes the file completely or not at all. Exit::usage, Exit::missing, Exit::io.
void write_page_file(const std::filesystem::path&, std::string_view content);

}  // namespace gyr
