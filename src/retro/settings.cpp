// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/settings.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr::retro {

std::string hash_of(const NamedValues& values) {
  Checksum sum;
  for (const auto& [name, value] : values) {
    const std::string line = fmt::format("{}:{}={}\n", value.size(), name, value);  // the size separates values that contain line feeds
    sum.add(line.data(), Index(line.size()));
  }
  return hex(sum.value());
}

void require_same(const NamedValues& stored, const NamedValues& asked, const std::filesystem::path& file, const std::string& remedy) {
  const auto value_of = [](const NamedValues& values, const std::string& name) -> std::string {
    const auto at = std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == name; });
    return at == values.end() ? "not set" : at->second.empty() ? "none" : printable_line(at->second);
  };
  for (const NamedValues* list : {&stored, &asked})
    for (const auto& entry : *list) {
      const std::string before = value_of(stored, entry.first), now = value_of(asked, entry.first);
      require(before == now, Exit::config, "{}: was made with {} = {}, but this command has {}; {}", file.string(), entry.first, before, now, remedy);
    }
}

}  // namespace gyr::retro
