// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/history_page.hpp"

#include <cmath>
#include <functional>

#include "src/history/history_text.hpp"
#include "src/history_page_html.hpp"
#include "src/page/page.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_points = 1000;  // limit of points per curve
constexpr Index most_checkpoints = 300, most_events = 4000;

struct Series {
  std::vector<double> step, tokens, time, value;
  std::vector<double> part;  // for a curve of several parts: index of the part

  void add(double of_step, double of_tokens, double of_time, double of_part, double v) {
    if (!std::isfinite(v) || !std::isfinite(of_tokens) || !std::isfinite(of_time)) return;
    step.push_back(of_step), tokens.push_back(of_tokens), time.push_back(of_time), part.push_back(of_part), value.push_back(v);
  }
};

// Points are grouped into the same steps for every x axis.
Json json_of(const Series& s) {
  const Thinned thin = thinned(s.step, s.value, most_points);
  if (thin.mean.empty()) return nullptr;
  const auto last_of = [&](const std::vector<double>& at) { return thinned(at, s.value, most_points).at; };
  Json json = {{"step", thin.at}, {"tokens", last_of(s.tokens)}, {"time", last_of(s.time)}, {"value", thin.mean}};
  if (s.part.back() > 0) json["part"] = last_of(s.part);
  else if (s.value.size() > most_points) json["least"] = thin.least, json["most"] = thin.most;
  return json;
}

// Curve over the steps that count, or (overtaken) over those that were repeated later. Each stretch of repeated steps
// is a part of its own, numbered from 1.
template <class Steps, class F>
Json series(const Steps& steps, double begin, bool overtaken, const F& of) {
  Series s;
  double part = 0;
  bool inside = false;
  Index before = 0;
  for (const auto& at : steps) {
    if (overtaken && at.overtaken && (!inside || at.step <= before)) ++part;
    inside = at.overtaken, before = at.step;
    if (at.overtaken == overtaken) s.add(double(at.step), at.tokens, at.time - begin, part, of(at));
  }
  return json_of(s);
}

// Selects as many events as a page can show: the last ones, and one of every few checkpoints.
Json events_of(const RunHistory& run, double begin) {
  Json events = Json::array();
  Index checkpoints = run.count(RunEvent::Kind::checkpoint), other_events = Index(run.events.size()) - checkpoints;
  const Index every = 1 + checkpoints / (most_checkpoints + 1);
  for (const RunEvent& e : run.events)
    if (e.kind == RunEvent::Kind::checkpoint ? --checkpoints % every == 0 : --other_events < most_events)
      events.push_back({{"kind", name_of(e.kind)}, {"time", e.time - begin}, {"step", e.step}, {"text", e.text}});
  return events;
}

Json json_of(const RunHistory& run) {
  const double begin = run.begin();
  const Index checkpoints = run.count(RunEvent::Kind::checkpoint);
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
          {"happened", {{"checkpoints", checkpoints}, {"others", Index(run.events.size()) - checkpoints}}},
          {"end", run.end() - begin},
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
