// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/recent_metrics.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "src/base/json.hpp"

namespace gyr {

RecentMetrics recent_metrics(const std::filesystem::path& file, Index step, std::size_t most) {
  constexpr std::streamoff window = 1 << 20;
  RecentMetrics recent;
  std::ifstream in(file, std::ios::binary);
  if (!in.seekg(0, std::ios::end)) return recent;
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - window));
  std::map<Index, double> losses;
  std::set<Index> skipped;
  for (std::string line; std::getline(in, line);) {
    const Json json = json_in(line);  // the first line may be half of one
    if (!json.is_object()) continue;
    const std::string kind = json.value("kind", "");
    if (kind == "run") losses.clear(), skipped.clear(), recent.validated = false;  // what stands before is not of the run that begins here
    if (!json.contains("step") || !json["step"].is_number_integer() || json["step"] > step) continue;
    const Index at = json["step"];
    if (kind == "skip") skipped.insert(at);
    if (kind == "step") {  // of a step that was taken several times, the last counts
      losses.erase(at);
      if (skipped.erase(at) == 0 && json["loss"].is_number()) losses[at] = json["loss"];
    }
    if (kind == "validation" && at == step) recent.validated = true;
  }
  for (auto loss = losses.rbegin(); loss != losses.rend() && recent.losses.size() < most; ++loss)
    recent.losses.insert(recent.losses.begin(), loss->second);
  return recent;
}

}  // namespace gyr
