// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/recent_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "src/base/json.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr {

namespace {

// Collects losses and validations up to `step` from the lines of metrics.jsonl, in their order.
class MetricsReader {
 public:
  MetricsReader(RecentMetrics& recent, Index step) : recent_(recent), step_(step) {}

  void read(const Json& line) {
    const std::string kind = text_in(line, "kind");
    if (kind == "run") losses_.clear(), skipped_.clear(), recent_.validated = false;  // lines before it belong to another run
    const auto at = integer_in(line, "step");
    if (!at || *at > step_) return;
    if (kind == "skip") skipped_.insert(*at);
    if (kind == "step") {  // of a step that was taken several times, the last counts
      losses_.erase(*at);
      if (const double loss = number_in(line, "loss"); skipped_.erase(*at) == 0 && std::isfinite(loss)) losses_[*at] = loss;
    }
    if (kind == "validation" && *at == step_) recent_.validated = true;
  }
  void finish(std::size_t most) {
    for (auto loss = losses_.rbegin(); loss != losses_.rend() && recent_.losses.size() < most; ++loss)
      recent_.losses.insert(recent_.losses.begin(), loss->second);
  }

 private:
  RecentMetrics& recent_;
  Index step_;
  std::map<Index, double> losses_;
  std::set<Index> skipped_;
};

}  // namespace

RecentMetrics recent_metrics(const std::filesystem::path& file, Index step, std::size_t most) {
  constexpr std::int64_t window = 1 << 20;
  RecentMetrics recent;
  MetricsReader reader(recent, step);
  try {
    visit_json_lines(
        file, [&](const Json& line) { reader.read(line); }, window);
  } catch (const Error&) {  // users may have changed the folder: the run then resumes without these losses
  }
  reader.finish(most);
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
