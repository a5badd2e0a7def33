// SPDX-License-Identifier: BSD-3-Clause
// Mixture of corpora in phases, which are found as far as samples are asked for.
#include "src/data/mixing/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/error.hpp"

namespace gyr {
namespace {

constexpr std::int64_t look_ahead = 4096;  // samples that are searched at once for a corpus that reaches its limit

std::vector<double> normalised_weights(const MixtureStage& stage, std::size_t corpora) {
  ensure(stage.weights.size() == corpora, "a stage has {} weights for {} corpora", stage.weights.size(), corpora);
  for (const double w : stage.weights)
    require(std::isfinite(w) && w >= 0, Exit::config, "a corpus has weight {}; weights are numbers of at least 0", w);
  std::vector<double> weights = stage.weights;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  require(sum > 0 && std::isfinite(sum), Exit::config, "all weights of a stage are 0; give at least one corpus a positive weight");
  for (double& w : weights) w /= sum;
  return weights;
}

}  // namespace

Mixture::Mixture(std::vector<MixtureStage> stages, std::vector<std::int64_t> limits) : stages_(std::move(stages)), limits_(std::move(limits)) {
  ensure(!stages_.empty() && stages_.front().first == 0, "the first stage of a mixture begins at sample 0");
  for (const MixtureStage& stage : stages_) normalised_.push_back(normalised_weights(stage, corpora()));
  for (std::size_t s = 1; s < stages_.size(); ++s) ensure(stages_[s - 1].first < stages_[s].first, "the stages of a mixture are in rising order");
  if (limits_.empty()) limits_.assign(corpora(), endless);
  ensure(limits_.size() == corpora(), "{} limits for {} corpora", limits_.size(), corpora());
  begin_phase(0, 0, std::vector<std::int64_t>(corpora()));
}

std::vector<std::int64_t> Mixture::Phase::taken_before(std::int64_t i) const {
  std::vector<std::int64_t> taken = before;
  if (!blend) {
    taken[std::size_t(corpora.front())] += i - first;
    return taken;
  }
  const std::vector<std::int64_t> here = blend->taken_before(i - first);
  for (std::size_t c = 0; c < here.size(); ++c) taken[std::size_t(corpora[c])] += here[c];
  return taken;
}

// First later stage with other weights; the number of stages if there is none.
std::size_t Mixture::next_stage(std::size_t stage) const {
  std::size_t next = stage + 1;
  while (next < stages_.size() && normalised_[next] == normalised_[stage]) ++next;
  return next;
}

void Mixture::begin_phase(std::int64_t first, std::size_t stage, std::vector<std::int64_t> before) const {
  auto phase = std::make_unique<Phase>(Phase{first, stage, {}, std::move(before), nullptr});
  std::vector<double> weights;
  for (std::size_t d = 0; d < corpora(); ++d)
    if (stages_[stage].weights[d] > 0 && phase->before[d] < limits_[d]) {
      phase->corpora.push_back(std::int64_t(d));
      weights.push_back(stages_[stage].weights[d]);
    }
  if (weights.empty()) {
    end_ = first;
    return;
  }
  if (weights.size() > 1) phase->blend = std::make_unique<Blend>(std::move(weights));
  phases_.push_back(std::move(phase));
}

bool Mixture::reaches_limit(const Phase& phase, std::int64_t i) const {
  const std::vector<std::int64_t> taken = phase.taken_before(i);
  return std::any_of(phase.corpora.begin(), phase.corpora.end(), [&](std::int64_t d) { return taken[std::size_t(d)] >= limits_[std::size_t(d)]; });
}

// Finds the phases of more samples, up to the first one that contains sample i. The caller holds the mutex.
void Mixture::extend(std::int64_t i) const {
  while (known_ <= i && end_ == endless) {
    const Phase& phase = *phases_.back();
    const std::size_t next = next_stage(phase.stage);
    const std::int64_t stage_end = next < stages_.size() ? stages_[next].first : endless;
    const bool limited = std::any_of(phase.corpora.begin(), phase.corpora.end(), [&](std::int64_t d) { return limits_[std::size_t(d)] < endless; });
    std::int64_t low = std::max(known_, phase.first), high = stage_end;
    if (limited) high = std::min(stage_end, std::max(low, i) + look_ahead);
    if (limited && reaches_limit(phase, high)) {
      while (high - low > 1) {  // a limit is reached with sample high - 1, but not with sample low - 1
        const std::int64_t middle = low + (high - low) / 2;
        (reaches_limit(phase, middle) ? high : low) = middle;
      }
      known_ = high;
      begin_phase(high, high == stage_end ? next : phase.stage, phase.taken_before(high));
    } else {
      known_ = high;
      if (high == stage_end && next < stages_.size()) begin_phase(high, next, phase.taken_before(high));
    }
  }
}

const Mixture::Phase* Mixture::phase_of(std::int64_t i) const {
  ensure(i >= 0, "sample number {} is out of range; it is 0 or larger", i);
  const std::lock_guard lock(mutex_);
  extend(i);
  if (i >= end_) return nullptr;
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), i, [](std::int64_t sample, const auto& phase) { return sample < phase->first; });
  return std::prev(after)->get();  // phases are never removed or changed
}

Blend::Pick Mixture::at(std::int64_t i) const {
  const Phase* const phase = phase_of(i);
  require(phase, Exit::config,
          "data.max_epochs: sample {} does not exist, because every corpus of its stage has been read as often as allowed after sample {}; raise "
          "data.max_epochs, or lower train.steps",
          i, end_ - 1);
  Blend::Pick pick{0, i - phase->first};
  if (phase->blend) pick = phase->blend->at(i - phase->first);
  const std::int64_t corpus = phase->corpora[std::size_t(pick.corpus)];
  return {corpus, phase->before[std::size_t(corpus)] + pick.number};
}

std::vector<std::int64_t> Mixture::taken_before(std::int64_t i) const {
  if (i == 0) return std::vector<std::int64_t>(corpora());
  const std::int64_t last = size_up_to(i);
  if (last == 0) return std::vector<std::int64_t>(corpora());
  return phase_of(last - 1)->taken_before(last);
}

std::int64_t Mixture::size_up_to(std::int64_t most) const {
  if (most <= 0 || phase_of(most - 1)) return most;
  const std::lock_guard lock(mutex_);
  return end_;
}

bool Mixture::is_limited() const {
  return std::any_of(limits_.begin(), limits_.end(), [](std::int64_t limit) { return limit < endless; });
}

std::vector<double> Mixture::shares_of(const Phase& phase) const {
  std::vector<double> shares(corpora());
  for (std::size_t c = 0; c < phase.corpora.size(); ++c) shares[std::size_t(phase.corpora[c])] = phase.blend ? phase.blend->weights()[c] : 1;
  return shares;
}

std::vector<MixtureChange> Mixture::changes(std::int64_t first, std::int64_t last) const {
  std::vector<MixtureChange> changes;
  if (first >= last) return changes;
  phase_of(last - 1);
  const std::lock_guard lock(mutex_);
  const auto add = [&](std::int64_t sample, std::size_t stage_before, const std::vector<double>& shares, const std::vector<std::int64_t>& taken,
                       const std::vector<std::int64_t>& earlier) {
    if (sample < first || sample >= last) return;
    MixtureChange change{sample, {}, shares, {}};
    for (std::size_t d = 0; d < corpora(); ++d)
      if (taken[d] >= limits_[d] && (sample == 0 || earlier[d] < limits_[d])) change.left.push_back(std::int64_t(d));
    const std::size_t next = next_stage(stage_before);
    if (next < stages_.size() && stages_[next].first == sample) change.stage = next;
    changes.push_back(std::move(change));
  };
  for (std::size_t p = 1; p < phases_.size(); ++p)
    add(phases_[p]->first, phases_[p - 1]->stage, shares_of(*phases_[p]), phases_[p]->before, phases_[p - 1]->before);
  if (end_ < endless && !phases_.empty()) add(end_, phases_.back()->stage, {}, phases_.back()->taken_before(end_), phases_.back()->before);
  return changes;
}

}  // namespace gyr
