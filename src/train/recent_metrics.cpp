// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/recent_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "src/base/json.hpp"
#include "src/checkpoint/checksum.hpp"

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
    const Json json = json_in(line);  // the first line may be incomplete
    if (!json.is_object()) continue;
    const std::string kind = json.value("kind", "");
    if (kind == "run") losses.clear(), skipped.clear(), recent.validated = false;  // lines before it belong to another run
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

// The run id is sent as two halves, which a double holds exactly; losses that do not exist are sent as NaN.
Past past_of(Communicator& world, const std::string& run, const std::filesystem::path& file, Index step, std::size_t most) {
  constexpr std::size_t before_losses = 3;
  std::vector<double> found(before_losses + most, std::numeric_limits<double>::quiet_NaN());
  if (world.rank() == 0) {
    const std::uint64_t id = sum_of_hex(run, file.string());
    const RecentMetrics recent = step > 0 ? recent_metrics(file, step, most) : RecentMetrics();
    found[0] = double(id >> 32), found[1] = double(id & 0xffffffffu), found[2] = recent.validated;
    std::copy(recent.losses.begin(), recent.losses.end(), found.begin() + before_losses);
  }
  const std::vector<double> gathered = world.gather(found);
  Past past{hex(std::uint64_t(gathered[0]) << 32 | std::uint64_t(gathered[1])), {{}, gathered[2] == 1}};
  for (std::size_t i = before_losses; i < found.size(); ++i)
    if (!std::isnan(gathered[i])) past.metrics.losses.push_back(gathered[i]);
  return past;
}

}  // namespace gyr
