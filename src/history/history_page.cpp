// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/history_page.hpp"

#include <cmath>
#include <functional>

#include "src/history/history_text.hpp"
#include "src/history_page_html.hpp"
#include "src/page/page.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_points = 1000;  // of a curve
constexpr std::size_t most_events = 5000;

struct Series {
  std::vector<double> step, tokens, time, value;
};

// Buckets hold the same steps whatever the axis.
Json json_of(const Series& s) {
  std::vector<double> step, tokens, time, value;
  for (std::size_t i = 0; i < s.value.size(); ++i)
    if (std::isfinite(s.value[i]) && std::isfinite(s.tokens[i]) && std::isfinite(s.time[i])) {
      step.push_back(s.step[i]), tokens.push_back(s.tokens[i]), time.push_back(s.time[i]), value.push_back(s.value[i]);
    }
  const Thinned thin = thinned(step, value, most_points);
  if (thin.mean.empty()) return nullptr;
  Json json = {
      {"step", thin.at}, {"tokens", thinned(tokens, value, most_points).at}, {"time", thinned(time, value, most_points).at}, {"value", thin.mean}};
  if (value.size() > most_points) json["least"] = thin.least, json["most"] = thin.most;
  return json;
}

template <class Steps, class F>
Json series(const Steps& steps, double begin, bool overtaken, const F& of) {
  Series s;
  for (const auto& at : steps) {
    if (at.overtaken != overtaken) continue;
    s.step.push_back(double(at.step)), s.tokens.push_back(at.tokens), s.time.push_back(at.time - begin), s.value.push_back(of(at));
  }
  return json_of(s);
}

Json events_of(const RunHistory& run, double begin) {
  Json events = Json::array();
  for (const RunEvent& e : run.events) {
    if (events.size() == most_events) break;
    events.push_back({{"kind", name_of(e.kind)}, {"time", e.time - begin}, {"step", e.step}, {"text", e.text}});
  }
  return events;
}

Json json_of(const RunHistory& run) {
  const double begin =
      run.events.empty() ? run.steps.front().time - run.steps.front().seconds : std::min(run.events.front().time, run.steps.front().time);
  Json curves = Json::object();
  const auto add = [&](const char* name, const std::function<double(const TakenStep&)>& of) { curves[name] = series(run.steps, begin, false, of); };
  add("loss", [](const TakenStep& s) { return s.loss; });
  curves["loss_overtaken"] = series(run.steps, begin, true, [](const TakenStep& s) { return s.loss; });
  curves["validation"] = series(run.validations, begin, false, [](const ValidatedStep& v) { return v.loss; });
  curves["accuracy"] = series(run.validations, begin, false, [](const ValidatedStep& v) { return 100 * v.accuracy; });
  curves["order_accuracy"] = series(run.validations, begin, false, [](const ValidatedStep& v) { return 100 * v.order_accuracy; });
  curves["margin"] = series(run.validations, begin, false, [](const ValidatedStep& v) { return v.margin; });
  add("learning_rate", [](const TakenStep& s) { return s.learning_rate; });
  add("grad_norm", [](const TakenStep& s) { return s.grad_norm; });
  add("tokens_per_second", [](const TakenStep& s) { return s.tokens_per_second; });
  add("mfu", [](const TakenStep& s) { return 100 * s.mfu; });
  add("expert_load", [](const TakenStep& s) { return s.expert_load; });
  Json facts = Json::array(), memory = Json::array(), sections = Json::array(), deck = Json::array();
  for (const auto& [name, value] : facts_of(run)) facts.push_back({name, value});
  for (const auto& [category, bytes] : run.memory) memory.push_back({category, bytes});
  for (const SectionTime& s : run.sections) sections.push_back({s.name, s.mean, s.most, s.slowest_rank});
  for (const auto& [key, value] : run.deck) deck.push_back({key, value});
  return {{"name", run.name},
          {"grid", run.grid},
          {"precision", run.precision},
          {"version", run.version},
          {"parameters", run.parameters},
          {"begin", begin},
          {"facts", facts},
          {"curves", curves},
          {"events", events_of(run, begin)},
          {"end", run.steps.back().time - begin},
          {"memory", memory},
          {"sections", sections},
          {"deck", deck}};
}

}  // namespace

std::string page_of(const std::vector<RunHistory>& runs) {
  Json all = {{"runs", Json::array()}, {"differences", Json::array()}};
  for (const RunHistory& run : runs) all["runs"].push_back(json_of(run));
  if (runs.size() > 1)
    for (const auto& [key, values] : deck_differences(runs)) all["differences"].push_back({key, values});
  return page_of(history_page_html, all);
}

}  // namespace gyr
