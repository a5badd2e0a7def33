// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/policy.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/quantity.hpp"
#include "src/report/summary.hpp"

namespace gyr {

namespace {

Decision give_up(const std::string& why) { return {false, 0, why}; }

// True if none of the last `count` attempts wrote a new checkpoint.
bool made_no_progress(const std::vector<Attempt>& attempts, std::size_t count) {
  return attempts.size() >= count &&
         std::none_of(attempts.end() - std::ptrdiff_t(count), attempts.end(), [](const Attempt& attempt) { return attempt.made_progress(); });
}

bool host_fails_again(const std::vector<Attempt>& attempts) {
  if (attempts.size() < 2) return false;
  const Attempt &last = attempts.back(), &before = attempts[attempts.size() - 2];
  return last.lost_a_rank() && before.lost_a_rank() && !last.host.empty() && last.host == before.host && last.hosts > 1 &&
         made_no_progress(attempts, 1);
}

}  // namespace

bool is_final(int code) {
  for (const Exit e : {Exit::usage, Exit::data, Exit::missing, Exit::config})
    if (code == int(e)) return true;
  return false;
}

Decision decide(const std::vector<Attempt>& attempts, const Policy& policy) {
  const Attempt& last = attempts.back();
  if (last.state == "done" || last.state == "stopped") return {};
  if (is_final(last.code)) return give_up(fmt::format("a restart would fail again ({})", meaning(Exit(last.code))));
  const auto restarts = Index(attempts.size()) - 1;
  if (restarts >= policy.max_restarts) return give_up(fmt::format("limit of {} reached (supervise.max_restarts)", counted(restarts, "restart")));

  const int now = last.ranks / policy.model_ranks;
  const auto losses = std::count_if(attempts.begin(), attempts.end(), [](const Attempt& attempt) { return attempt.lost_a_rank(); });
  const int missing = policy.spares < 0 ? 0 : int(std::max<std::ptrdiff_t>(0, losses - policy.spares));
  int data = policy.data_axis(std::max(0, policy.ranks - missing) / policy.model_ranks);
  if (data == 0)
    return give_up(fmt::format("rank {} is lost, no spare rank is left, and the batches cannot be divided over fewer than {} data-parallel ranks",
                               last.rank, now));
  std::string why = fmt::format("rank {} is lost and no spare rank is left", last.rank);
  const int fewer = host_fails_again(attempts) ? policy.data_axis(now - 1) : 0;
  if (fewer > 0 && fewer < data) data = fewer, why = fmt::format("host {} lost a rank in two attempts in a row without a new checkpoint", last.host);
  if (data >= now && made_no_progress(attempts, 2))
    return give_up(
        fmt::format("two attempts without a new checkpoint: no progress since {}", last.to == 0 ? "the start" : fmt::format("step {}", last.to)));
  if (data > now) why = fmt::format("step {} has been saved", last.to);
  if (data == now) return {true, last.ranks, ""};
  return {true, data * policy.model_ranks,
          fmt::format("{}: from {} to {} data-parallel ranks; the global batch stays the same, in {} micro-batches per rank", why, now, data,
                      data < now ? "more" : "fewer")};
}

}  // namespace gyr
