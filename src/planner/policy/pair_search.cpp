// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/policy/pair_search.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "src/planner/policy/part_of_calls.hpp"

namespace gyr {

namespace {

class PairVisits {
 public:
  PairVisits(const PairSpace& space, std::size_t most) : space_(space), most_(most) {}

  PairResult result() {
    std::vector<LayoutPair> pairs = pairs_by_bound();
    result_.pairs = Index(pairs.size());
    for (LayoutPair& pair : pairs) {
      if (is_too_slow(pair.seconds)) break;
      if (!is_left_out(pair)) visit(pair);
      else if (result_.left_out++ == 0) result_.least_left_out = pair.seconds;  // bounds ascend
    }
    return std::move(result_);
  }

 private:
  static auto order(const LayoutPair& pair) { return std::tuple(pair.seconds, pair.training, pair.copy ? *pair.copy + 1 : 0); }

  const PlanPart& generation(const LayoutPair& pair) const { return pair.copy ? space_.copies[*pair.copy] : *space_.borrowed[pair.training]; }

  std::vector<LayoutPair> pairs_by_bound() const {
    std::vector<LayoutPair> pairs;
    const auto add = [&](LayoutPair pair) {
      pair.seconds = space_.training[pair.training].seconds + generation(pair).seconds;
      pairs.push_back(pair);
    };
    for (std::size_t t = 0; t < space_.training.size(); ++t) {
      if (space_.borrowed[t]) add({t, {}});
      for (std::size_t c = 0; c < space_.copies.size(); ++c)
        if (!space_.borrowed[t] || !space_.is_needless || !space_.is_needless(t, c)) add({t, c});
    }
    std::sort(pairs.begin(), pairs.end(), [](const LayoutPair& a, const LayoutPair& b) { return order(a) < order(b); });
    return pairs;
  }

  // A pair that is as slow as the last one may still come before it by its indices.
  bool is_too_slow(double seconds) const { return result_.best.size() == most_ && seconds > result_.best.back().seconds; }

  bool is_left_out(const LayoutPair& pair) const {
    return !result_.best.empty() && space_.is_left_out && space_.is_left_out(pair.training, pair.copy);
  }

  const PlanPart& others(std::size_t training) {
    auto found = others_.find(training);
    if (found == others_.end()) found = others_.emplace(training, space_.others(training)).first;
    return found->second;
  }

  void visit(LayoutPair pair) {
    const PlanPart& others_here = others(pair.training);
    pair.seconds += others_here.seconds;
    if (is_too_slow(pair.seconds)) return;
    const std::optional<double> bytes = bytes_that_fit({&space_.training[pair.training], &generation(pair), &others_here}, space_.usable);
    if (!bytes) return void(++result_.too_large);
    pair.bytes = *bytes, ++result_.moves;
    if (pair.copy) pair.seconds += space_.move_seconds(pair.training, *pair.copy);
    std::vector<LayoutPair>& best = result_.best;
    const auto before = [](const LayoutPair& a, const LayoutPair& b) { return order(a) < order(b); };
    best.insert(std::upper_bound(best.begin(), best.end(), pair, before), pair);
    if (best.size() > most_) best.pop_back();
  }

  const PairSpace& space_;
  std::size_t most_;
  PairResult result_;
  std::map<std::size_t, PlanPart> others_;
};

}  // namespace

PairResult fastest_pairs(const PairSpace& space, std::size_t most) { return PairVisits(space, most).result(); }

}  // namespace gyr
