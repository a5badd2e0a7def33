// SPDX-License-Identifier: BSD-3-Clause
#include "src/deck/bundled_files.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "modules/settings/nearest.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

namespace {

std::vector<std::filesystem::path> bundled_files(const std::string& folder) {
  std::error_code no;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", no).parent_path();
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& place : {std::filesystem::path(), program / "../../..", program / "../share/gyrfalcon"})
    if (files.empty())
      for (const auto& entry : std::filesystem::directory_iterator(place / folder, no))
        if (entry.path().extension() == ".yaml") files.push_back(entry.path().lexically_normal());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> bundled_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : bundled_files(folder)) names.push_back(file.stem().string());
  return names;
}

std::string similar_bundled_file(const std::string& file, const std::string& folder) {
  std::error_code no;
  if (std::filesystem::is_regular_file(file + ".yaml", no)) return fmt::format("did you mean {}?", shown(file + ".yaml"));
  const std::filesystem::path path(file);
  const std::vector<std::string> names = bundled_names(folder);
  std::string asked = (path.extension() == ".yaml" || path.extension() == ".yml" ? path.stem() : path.filename()).string();
  for (char& c : asked) c = c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
  const std::string near = std::find(names.begin(), names.end(), asked) != names.end() ? asked : nearest(asked, names);
  if (near.empty() || near[0] != asked[0]) return "";  // b200 is not h200 with a typing mistake
  for (const std::filesystem::path& bundled : bundled_files(folder))
    if (bundled.stem() == near) return fmt::format("did you mean {}?", shown(bundled.string()));
  return "";
}

}  // namespace gyr
