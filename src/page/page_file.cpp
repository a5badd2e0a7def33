// SPDX-License-Identifier: BSD-3-Clause
#include "src/page/page_file.hpp"

#include <array>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/base/output_file.hpp"

namespace gyr {

namespace {

// All pages (head.html) and pictures (history_picture.cpp) contain this text, near their beginning.
constexpr std::string_view mark = "generator: gyrfalcon";
constexpr std::size_t beginning = 4096;

bool has_mark(const std::filesystem::path& name) {
  const InputFile file(name);
  std::array<char, beginning> first;
  return std::string_view(first.data(), file.read(0, first.data(), first.size())).find(mark) != std::string_view::npos;
}

}  // namespace

void check_page_file(const std::filesystem::path& name) {
  std::error_code error;
  if (name.empty() || !std::filesystem::is_regular_file(name, error)) return;
  require(has_mark(name), Exit::usage, "{}: exists, and gyrfalcon did not write it; choose another name, or remove it", name.string());
}

void write_page_file(const std::filesystem::path& name, std::string_view content) {
  check_page_file(name);
  OutputFile file(name);
  file.append(content);
  file.commit();
}

}  // namespace gyr
