// SPDX-License-Identifier: BSD-3-Clause
#include "src/samples/suspects.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/quantity.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_evidence = 3;  // answers

// value - mean. Values that equal their mean up to rounding have no spread that could correlate with anything.
double without(double mean, double value) { return std::abs(value - mean) <= 1e-12 * std::abs(value) ? 0 : value - mean; }

std::string percent(double fraction) { return fmt::format("{:.3g} %", 100 * fraction); }

// Course of the reward, or of the contribution of a rule to it, next to that of another rule.
struct PairedTrends {
  Trend rising, falling;
  std::int64_t first = 0, last = 0;  // iterations
  bool apart() const { return rises(rising) && falls(falling); }
  // Levels and rank correlations, as in "reward 0.57 to 1.83, `gold` 0.46 to 0.33 (rank correlations +0.97 and -0.95)".
  std::string figure(const std::string& rising_name, const std::string& falling_name) const {
    return fmt::format("{} {:.3g} to {:.3g}, {} {:.3g} to {:.3g} (rank correlations {:+.2f} and {:+.2f})", rising_name, rising.first, rising.last,
                       falling_name, falling.first, falling.last, rising.rank_correlation, falling.rank_correlation);
  }
  std::string iterations() const { return fmt::format("between iterations {} and {}", first, last); }
};

// Trends of two metrics over the iterations that have both, from the fraction `from` of these on.
PairedTrends paired(const MetricSeries& rising, double sign_rising, const MetricSeries& falling, double sign_falling, double from) {
  std::vector<double> at, a, b;
  for (std::size_t i = 0, k = 0; i < rising.at.size(); ++i) {
    while (k < falling.at.size() && falling.at[k] < rising.at[i]) ++k;
    if (k < falling.at.size() && falling.at[k] == rising.at[i])
      at.push_back(rising.at[i]), a.push_back(sign_rising * rising.value[i]), b.push_back(sign_falling * falling.value[k]);
  }
  const auto skipped = std::ptrdiff_t(from * double(at.size()));
  for (auto* values : {&at, &a, &b}) values->erase(values->begin(), values->begin() + skipped);
  PairedTrends trends{trend_of(at, a), trend_of(at, b)};
  if (!at.empty()) trends.first = std::int64_t(at.front()), trends.last = std::int64_t(at.back());
  return trends;
}

// A rule often follows the reward at first, and falls only when the policy has learnt to exploit the others. The second half of the run
// is therefore a check of its own.
PairedTrends clearest(const MetricSeries& rising, double sign_rising, const MetricSeries& falling, double sign_falling) {
  const PairedTrends full = paired(rising, sign_rising, falling, sign_falling, 0);
  const PairedTrends half = paired(rising, sign_rising, falling, sign_falling, 0.5);
  return half.apart() && !full.apart() ? half : full;
}

class SuspectSearch {
 public:
  SuspectSearch(const PolicyRun& run, const std::vector<SampledIteration>& sampled) : run_(run), sampled_(sampled) {}

  SuspectFindings search() {
    check_logged_rules();
    check_trained_rules();
    check_length();
    check_duplicates();
    check_repetition();
    return std::move(found_);
  }

 private:
  const std::string trend_threshold_ = fmt::format(
      "both move apart: a rank correlation with the iteration of {} or more, or a difference of the levels of {} times the noise between iterations",
      least_rank_correlation, least_level_noise);

  void add_check(std::string name, std::string figure, std::string threshold, bool found) {
    found_.checks.push_back({std::move(name), std::move(figure), std::move(threshold), found});
  }

  // Answers of the last sampled iterations that have a high reward and the lowest value of the rule, the latest first.
  std::vector<AnswerPlace> evidence_against(const std::string& rule) const {
    std::vector<AnswerPlace> places;
    for (std::size_t i = sampled_.size(); i-- > 0 && places.size() < most_evidence;) {
      const std::vector<std::string>& names = sampled_[i].reward_names;
      const auto k = std::size_t(std::find(names.begin(), names.end(), rule) - names.begin());
      if (k < sampled_[i].lowest.size()) places.push_back({i, sampled_[i].lowest[k]});
    }
    return places;
  }

  void check_logged_rules() {
    bool any = false;
    for (const std::string& rule : run_.rules()) {
      if (run_.weight(rule) != 0) continue;
      any = true;
      const PairedTrends t = clearest(run_.series("reward"), 1, run_.series("rewards." + rule), 1);
      const std::string figure = t.figure("reward", fmt::format("`{}`", rule));
      add_check(fmt::format("reward against `{}`, which is only logged", rule), figure, trend_threshold_, t.apart());
      if (!t.apart()) continue;
      found_.suspects.push_back(
          {fmt::format("The reward rises while `{}` falls", rule), figure,
           fmt::format(
               "`{}` has weight 0, so that the policy is not trained on it. It fell {} while the reward rose. This is the sign of reward hacking: "
               "the policy finds answers that the trained rules value more and `{}` values less.",
               rule, t.iterations(), rule),
           evidence_against(rule)});
    }
    if (!any) add_check("reward against a rule that is only logged", "no rule has weight 0", "give a rule weight: 0 to detect reward hacking", false);
  }

  // Rules that the policy is trained on, as contributions to the reward: a rule with a negative weight counts with the opposite sign.
  void check_trained_rules() {
    std::vector<std::string> trained;
    for (const std::string& rule : run_.rules())
      if (const double w = run_.weight(rule); std::isfinite(w) && w != 0) trained.push_back(rule);
    if (trained.size() < 2) return;
    const auto sign = [&](const std::string& rule) { return run_.weight(rule) > 0 ? 1.0 : -1.0; };
    for (const std::string& falling : trained) {
      std::string rising, figure;
      for (const std::string& other : trained) {
        if (other == falling) continue;
        const PairedTrends t = clearest(run_.series("rewards." + other), sign(other), run_.series("rewards." + falling), sign(falling));
        if (rising.empty()) figure = t.figure(fmt::format("`{}`", other), fmt::format("`{}`", falling));
        if (t.apart()) rising += fmt::format("{}`{}`", rising.empty() ? "" : ", ", other);
      }
      add_check(fmt::format("trained rule `{}` against the others", falling), figure, trend_threshold_, !rising.empty());
      if (rising.empty()) continue;
      found_.suspects.push_back(
          {fmt::format("`{}` falls while other rules rise: {}", falling, rising), figure,
           fmt::format(
               "Both are part of the reward, and the figures are their contributions without the weights. The policy gives up `{}` for others; "
               "the weights decide which rule wins.",
               falling),
           evidence_against(falling)});
    }
  }

  void check_length() {
    const LengthCorrelation c = length_correlation(sampled_);
    const bool found = std::abs(c.r) >= least_length_correlation && std::abs(c.r) * std::sqrt(double(c.pairs)) >= least_standard_errors;
    add_check("reward and length of the answers to a prompt", fmt::format("r = {:+.2f} from {} independent pairs", c.r, c.pairs),
              fmt::format("|r| of at least {} and {} standard deviations", least_length_correlation, least_standard_errors), found);
    if (!found) return;
    const bool intended =
        std::ranges::any_of(run_.config.rewards, [](const RewardConfig& r) { return r.type == RewardType::length && r.weight != 0; });
    const MetricSeries length = run_.series("length");
    const Trend t = trend_of(length.at, length.value);
    const std::size_t last = sampled_.size() - 1;
    found_.suspects.push_back(
        {fmt::format("{} answers have higher rewards", c.r > 0 ? "Longer" : "Shorter"),
         fmt::format("correlation of reward and length: r = {:+.2f}", c.r),
         fmt::format("Reward and length are compared with those of the other answers to the prompt, in {} independent pairs. The mean length changed "
                     "from {:.4g} to {:.4g} tokens "
                     "over the run.{}",
                     c.pairs, t.first, t.last,
                     intended ? " A rule of type length is part of the reward, so that this may be intended."
                              : " No rule of type length is part of the reward. Look whether the rules value the content or only its amount."),
         {{last, sampled_[last].longest}, {last, sampled_[last].shortest}}});
  }

  void check_duplicates() {
    if (sampled_.empty()) return;
    const SampledIteration &first = sampled_.front(), &last = sampled_.back();
    const bool found = last.duplicated() >= least_duplicated;
    add_check("identical answers to a prompt", fmt::format("{} in iteration {}", percent(last.duplicated()), last.iteration),
              "at least " + percent(least_duplicated), found);
    if (!found) return;
    found_.suspects.push_back(
        {"Many answers to a prompt are identical",
         fmt::format("{} of the answers equal an earlier answer to their prompt (iteration {}: {})", percent(last.duplicated()), first.iteration,
                     percent(first.duplicated())),
         "Identical answers have the same reward, so that a prompt teaches little. The policy has lost its variety: look at the entropy. A "
         "converged run with short answers looks the same.",
         {{sampled_.size() - 1, last.most_copied}}});
  }

  void check_repetition() {
    if (sampled_.empty()) return;
    const SampledIteration &first = sampled_.front(), &last = sampled_.back();
    const auto variance_of_mean = [](const SampledIteration& s) {
      double sum = 0;
      for (const AnswerFacts& f : s.facts) sum += (f.repeated - s.repeated()) * (f.repeated - s.repeated());
      return sum / std::max(1.0, double(s.facts.size() - 1)) / double(std::max<std::size_t>(1, s.facts.size()));
    };
    const double rise = last.repeated() - first.repeated(), error = std::sqrt(variance_of_mean(first) + variance_of_mean(last));
    const bool found = rise >= least_repetition_rise && rise >= least_standard_errors * error;
    const std::string figure = fmt::format("{} to {}", percent(first.repeated()), percent(last.repeated()));
    add_check(fmt::format("repeated {}-grams of an answer", repeated_ngram), figure,
              fmt::format("a rise of at least {} and {} standard errors", percent(least_repetition_rise), least_standard_errors), found);
    if (!found) return;
    found_.suspects.push_back(
        {"Answers repeat themselves more and more",
         fmt::format("repeated {}-grams: {}", repeated_ngram, figure),
         fmt::format(
             "The figure is the fraction of the {}-grams of tokens of an answer that occurred before in it, from iteration {} to iteration {}. "
             "A rule of type repetition subtracts it from the reward.",
             repeated_ngram, first.iteration, last.iteration),
         {{sampled_.size() - 1, last.most_repeated}}});
  }

  const PolicyRun& run_;
  const std::vector<SampledIteration>& sampled_;
  SuspectFindings found_;
};

}  // namespace

LengthCorrelation length_correlation(const std::vector<SampledIteration>& sampled) {
  std::vector<double> reward, length;
  Index groups = 0;
  for (const SampledIteration& s : sampled)
    for (std::size_t first = 0; first < s.facts.size(); first += std::size_t(s.group)) {
      std::vector<double> rewards, lengths;
      for (std::size_t i = first; i < first + std::size_t(s.group); ++i)
        if (s.facts[i].reward) rewards.push_back(*s.facts[i].reward), lengths.push_back(double(s.facts[i].length));
      if (rewards.empty()) continue;
      ++groups;
      for (const double r : rewards) reward.push_back(without(mean_of(rewards), r));
      for (const double n : lengths) length.push_back(without(mean_of(lengths), n));
    }
  const double r = pearson(reward, length);
  return {std::isfinite(r) ? r : 0, Index(reward.size()) - groups};
}

SuspectFindings suspects_of(const PolicyRun& run, const std::vector<SampledIteration>& sampled) { return SuspectSearch(run, sampled).search(); }

}  // namespace gyr
