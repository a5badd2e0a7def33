// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/prompt_file.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/scalar.hpp"
#include "src/base/json.hpp"
#include "src/base/mapped_file.hpp"

namespace gyr {

std::vector<std::string> prompts_in(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const bool json = file.extension() == ".jsonl";
  std::vector<std::string> prompts;
  std::string_view rest = mapped.text();
  for (Index number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!json) {
      prompts.emplace_back(line);
      continue;
    }
    const Json object = json_in(line);
    require(object.is_object() && object.contains("prompt") && object["prompt"].is_string(), Exit::data,
            "{}:{}: the line must be like {{\"prompt\": \"...\"}}", file.string(), number);
    prompts.push_back(object["prompt"].get<std::string>());
  }
  require(!prompts.empty(), Exit::data, "{}: holds no prompt; write one per line", file.string());
  return prompts;
}

}  // namespace gyr
