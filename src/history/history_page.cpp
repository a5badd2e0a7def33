// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/history_page.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/history_page_html.hpp"
#include "src/page/page.hpp"

namespace gyr {

namespace {

// Limits of points per curve: of all runs together, and of each run.
constexpr std::size_t points_of_runs = 5000, least_points = 200, most_points = 1000;
constexpr std::size_t most_checkpoints = 300, least_checkpoints = 20;
constexpr Index most_events = 4000;

// Limits for each of several runs, so that a page of many runs stays small.
struct Limits {
  explicit Limits(std::size_t runs)
      : points(std::clamp(points_of_runs / runs, least_points, most_points)),
        checkpoints(Index(std::max(most_checkpoints / runs, least_checkpoints))) {}
  std::size_t points;
  Index checkpoints;
};

struct Series {
  std::vector<double> step, tokens, time, value;
  std::vector<double> part;  // for a curve of several parts: index of the part

  void add(double of_step, double of_tokens, double of_time, double of_part, double v) {
    if (!std::isfinite(v) || !std::isfinite(of_tokens) || !std::isfinite(of_time)) return;
    step.push_back(of_step), tokens.push_back(of_tokens), time.push_back(of_time), part.push_back(of_part), value.push_back(v);
  }
};

// Curves of a run. Curves with the same points share their x axes: `axes` holds the step, tokens and seconds of each point.
class Curves {
 public:
  enum class Band { no, yes };
  explicit Curves(std::size_t most) : most_(most) {}

  // Points are grouped into the same steps for every x axis.
  void add(const char* name, const Series& s, Band band) {
    const Thinned thin = thinned(s.step, s.value, most_);
    curves_[name] = nullptr;
    if (thin.mean.empty()) return;
    const auto last_of = [&](const std::vector<double>& at) { return rounded(thinned(at, s.value, most_).at); };
    Json curve{{"axis", axis({{"step", rounded(thin.at)}, {"tokens", last_of(s.tokens)}, {"time", last_of(s.time)}})}, {"value", rounded(thin.mean)}};
    if (s.part.back() > 0) curve["part"] = last_of(s.part);
    else if (band == Band::yes && s.value.size() > most_) curve["least"] = rounded(thin.least), curve["most"] = rounded(thin.most);
    curves_[name] = std::move(curve);
  }
  void move_to(Json& run) { run["axes"] = std::move(axes_), run["curves"] = std::move(curves_); }

 private:
  std::size_t axis(Json&& of_curve) {
    const auto same = std::find(axes_.begin(), axes_.end(), of_curve);
    if (same != axes_.end()) return std::size_t(same - axes_.begin());
    axes_.push_back(std::move(of_curve));
    return axes_.size() - 1;
  }
  std::size_t most_;
  Json axes_ = Json::array(), curves_ = Json::object();
};

// Curve over the steps that count, or (overtaken) over those that were repeated later. Each stretch of repeated steps
// is a part of its own, numbered from 1.
template <class Steps, class F>
Series series(const Steps& steps, double begin, bool overtaken, const F& of) {
  Series s;
  double part = 0;
  bool inside = false;
  Index before = 0;
  for (const auto& at : steps) {
    if (overtaken && at.overtaken && (!inside || at.step <= before)) ++part;
    inside = at.overtaken, before = at.step;
    if (at.overtaken == overtaken) s.add(double(at.step), at.tokens, at.time - begin, part, of(at));
  }
  return s;
}

// Ratio of MFU in % to tokens per second: minimum and maximum over the steps. It is constant on unchanged ranks, but each start
// measures the peak rate again.
struct MfuPerRate {
  double least = NAN, most = NAN;

  explicit MfuPerRate(const RunHistory& run) {
    for (const TakenStep& s : run.steps) {
      const double ratio = 100 * s.mfu / s.tokens_per_second;
      least = std::fmin(least, ratio), most = std::fmax(most, ratio);
    }
  }
  bool exact() const { return most <= 1.01 * least; }
  bool constant() const { return most <= 1.1 * least; }  // then the curve of MFU is that of the throughput
};

void add_curves(Json& json, const RunHistory& run, std::size_t points) {
  const double begin = run.begin();
  Curves curves(points);
  using Band = Curves::Band;
  const auto add = [&](const char* name, Band band, bool overtaken, const std::function<double(const TakenStep&)>& of) {
    curves.add(name, series(run.steps, begin, overtaken, of), band);
  };
  const auto validated = [&](const char* name, const std::function<double(const ValidatedStep&)>& of) {
    curves.add(name, series(run.validations, begin, false, of), Band::no);
  };
  add("loss", Band::yes, false, [](const TakenStep& s) { return s.loss; });
  add("loss_overtaken", Band::no, true, [](const TakenStep& s) { return s.loss; });
  validated("validation", [](const ValidatedStep& v) { return v.loss; });
  validated("accuracy", [](const ValidatedStep& v) { return 100 * v.accuracy; });
  validated("order_accuracy", [](const ValidatedStep& v) { return 100 * v.order_accuracy; });
  validated("margin", [](const ValidatedStep& v) { return v.margin; });
  const auto rewarded = [&](const char* name, const std::function<double(const RewardedIteration&)>& of) {
    curves.add(name, series(run.iterations, begin, false, of), Band::no);
  };
  rewarded("reward", [](const RewardedIteration& i) { return i.reward; });
  rewarded("answer_length", [](const RewardedIteration& i) { return i.length; });
  add("learning_rate", Band::no, false, [](const TakenStep& s) { return s.learning_rate; });
  add("grad_norm", Band::yes, false, [](const TakenStep& s) { return s.grad_norm; });
  add("tokens_per_second", Band::yes, false, [](const TakenStep& s) { return s.tokens_per_second; });
  add("seconds", Band::yes, false, [](const TakenStep& s) { return s.seconds; });
  add("expert_load", Band::no, false, [](const TakenStep& s) { return s.expert_load; });
  const MfuPerRate mfu(run);
  json["mfu_exact"] = mfu.exact();
  json["mfu_per_rate"] = mfu.constant() ? (mfu.least + mfu.most) / 2 : NAN;
  if (!mfu.constant()) add("mfu", Band::yes, false, [](const TakenStep& s) { return 100 * s.mfu; });
  curves.move_to(json);
}

// Selects as many events as a page can show: the last ones, and one of every few checkpoints.
Json events_of(const RunHistory& run, double begin, Index most_checkpoints_of_run) {
  Json events = Json::array();
  Index checkpoints = run.count(RunEvent::Kind::checkpoint), other_events = Index(run.events.size()) - checkpoints;
  const Index every = 1 + checkpoints / (most_checkpoints_of_run + 1);
  for (const RunEvent& e : run.events)
    if (e.kind == RunEvent::Kind::checkpoint ? --checkpoints % every == 0 : --other_events < most_events)
      events.push_back({{"kind", name_of(e.kind)}, {"time", e.time - begin}, {"step", e.step}, {"text", e.text}});
  return events;
}

// Numbers for the header and for the table of runs.
Json summary_json(const RunHistory& run) {
  const RunSummary s = summary_of(run);
  return {{"step", run.reached()},
          {"steps", run.steps_wanted},
          {"tokens", s.tokens},
          {"loss", s.loss},
          {"best_validation", s.best_validation},
          {"tokens_per_second", s.tokens_per_second},
          {"mfu", 100 * s.mfu},
          {"memory", s.memory_bytes},
          {"parameters", run.parameters},
          {"ranks", run.ranks},
          {"starts", run.count(RunEvent::Kind::start)},
          {"kills", run.count(RunEvent::Kind::killed)},
          {"seconds", s.step_seconds},
          {"useful", run.useful.ratio()},
          {"elapsed", run.useful.elapsed()}};
}

Json json_of(const RunHistory& run, const Limits& limits) {
  const double begin = run.begin();
  const Index checkpoints = run.count(RunEvent::Kind::checkpoint);
  std::error_code ignored;
  Json memory = Json::array(), sections = Json::array(), deck = Json::array();
  for (const auto& [category, bytes] : run.memory) memory.push_back({category, bytes});
  for (const SectionTime& s : run.sections) sections.push_back({s.name, s.mean, s.most, s.slowest_rank});
  for (const auto& [key, value] : run.deck) deck.push_back({key, value});
  Json json{{"name", run.name},
            {"state", run.state},
            {"path", std::filesystem::absolute(run.folder, ignored).string()},
            {"host", run.host},
            {"version", run.version},
            {"git", run.git},
            {"command", run.command},
            {"run", run.run},
            {"grid", run.grid},
            {"precision", run.precision},
            {"begin", begin},
            {"end", run.end() - begin},
            {"summary", summary_json(run)},
            {"events", events_of(run, begin, limits.checkpoints)},
            {"happened", {{"checkpoints", checkpoints}, {"others", Index(run.events.size()) - checkpoints}}},
            {"memory", memory},
            {"sections", sections},
            {"deck", deck}};
  add_curves(json, run, limits.points);
  return json;
}

}  // namespace

std::string page_of(const std::vector<RunHistory>& runs) {
  Json all = {{"runs", Json::array()}, {"differences", Json::array()}};
  for (const RunHistory& run : runs) all["runs"].push_back(json_of(run, Limits(runs.size())));
  if (runs.size() > 1)
    for (const auto& [key, values] : deck_differences(runs)) all["differences"].push_back({key, values});
  return page_of(history_page_html, all);
}

}  // namespace gyr
