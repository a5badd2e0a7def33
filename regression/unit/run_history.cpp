// SPDX-License-Identifier: BSD-3-Clause
#include "src/history/run_history.hpp"

#include <cmath>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "regression/folder.hpp"
#include "regression/seed.hpp"
#include "regression/testing.hpp"
#include "src/base/json.hpp"
#include "src/history/history_page.hpp"
#include "src/history/history_picture.hpp"
#include "src/history/history_text.hpp"
#include "src/watch/outcome.hpp"

namespace gyr::testing {
namespace {

std::string step_line(Index step, double time, double loss) {
  return json_text(
             {{"kind", "step"}, {"time", time}, {"step", step}, {"steps", 1000}, {"consumed_tokens", step * 10}, {"seconds", 0.5}, {"loss", loss}}) +
         "\n";
}

// A run that is killed, rolled back or ends at random moments, as its metrics tell of it and as plain bookkeeping does.
struct Drawn {
  std::string metrics;
  std::map<Index, double> counts;  // loss of each step the last time it was taken
  Index taken = 0, starts = 0, kills = 0, ends = 0, broken = 0;
};
Drawn drawn(std::mt19937& random) {
  const auto upto = [&](int most) { return int(random() % unsigned(most + 1)); };
  Drawn d;
  double time = 1e9;
  Index step = 0;
  bool running = false;
  const auto start = [&] {
    if (running) ++d.kills;
    running = true, ++d.starts;
    d.metrics += json_text({{"kind", "start"}, {"time", time += 1}, {"step", step}, {"ranks", 4}, {"grid", "g"}}) + "\n";
  };
  if (upto(1) > 0) d.metrics += step_line(500, 1, 7) + "{\"kind\":\"run\",\"run\":\"0123\"}\n";  // another run before this one
  start();
  for (int i = 0; i < 60; ++i) {
    const int what = upto(19);
    if (what == 0) step = upto(int(step)), d.counts.erase(d.counts.upper_bound(step), d.counts.end()), start();
    else if (what == 1) {
      d.metrics += json_text({{"kind", "end"}, {"time", time += 1}, {"state", "stopped"}, {"code", 75}, {"message", ""}}) + "\n";
      running = false, ++d.ends;
      start();
    } else if (what == 2) {
      const Index back = upto(int(step));
      d.metrics += json_text({{"kind", "rollback"}, {"time", time += 1}, {"step", step}, {"to", back}, {"why", "nan"}}) + "\n";
      step = back, d.counts.erase(d.counts.upper_bound(step), d.counts.end());
    } else if (what == 3) d.metrics += "{\"kind\":\"step\",\"ste\n", ++d.broken;
    else {
      const double loss = upto(1000) / 100.0;
      d.metrics += step_line(++step, time += 1, loss);
      d.counts[step] = loss, ++d.taken;
    }
  }
  d.metrics += step_line(++step, time += 1, 1), d.counts[step] = 1, ++d.taken;
  return d;
}

TEST(run_history, counts_every_step_once_whatever_ended_in_between) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const Drawn d = drawn(random);
    const Folder folder;
    folder.write("metrics.jsonl", d.metrics);
    write_outcome(folder.path(), {"running", 0, 0, -1, ""});
    const RunHistory history = read_history(trial % 2 > 0 ? folder.path() : folder / "metrics.jsonl");
    std::map<Index, double> counted;
    for (const TakenStep* s : history.counted()) EXPECT_TRUE(counted.emplace(s->step, s->loss).second) << "step " << s->step << " counts twice";
    EXPECT_EQ(counted, d.counts) << d.metrics;
    EXPECT_EQ(Index(history.steps.size()), d.taken);
    EXPECT_EQ(history.starts(), d.starts);
    EXPECT_EQ(history.broken_lines, d.broken);
    const auto events = [&](RunEvent::Kind kind) {
      return std::count_if(history.events.begin(), history.events.end(), [&](const RunEvent& e) { return e.kind == kind; });
    };
    EXPECT_EQ(events(RunEvent::Kind::killed), d.kills);
    EXPECT_EQ(events(RunEvent::Kind::stopped), d.ends);
  }
}

TEST(run_history, a_run_that_is_gone_and_has_not_said_so_was_killed) {
  const Folder folder;
  folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 1}, {"step", 0}}) + "\n" + step_line(1, 2, 3));
  EXPECT_EQ(read_history(folder.path()).events.back().kind, RunEvent::Kind::killed);
  write_outcome(folder.path(), {"done", 0, 1, -1, ""});
  const RunHistory history = read_history(folder.path());
  EXPECT_EQ(history.events.back().kind, RunEvent::Kind::done);
  EXPECT_EQ(history.events.size(), 2U);
  EXPECT_EQ(history.state, "done");
}

TEST(run_history, buckets_keep_sum_least_and_most) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t n = 1 + random() % 300, buckets = 1 + random() % 100;
    std::vector<double> at(n), value(n), finite;
    for (std::size_t i = 0; i < n; ++i) {
      at[i] = double(i), value[i] = random() % 10 == 0 ? NAN : std::ldexp(double(random()), -32);
      if (std::isfinite(value[i])) finite.push_back(value[i]);
    }
    const Thinned thin = thinned(at, value, buckets);
    ASSERT_EQ(thin.mean.size(), std::min(buckets, finite.size()));
    if (finite.empty()) continue;
    EXPECT_EQ(*std::min_element(thin.least.begin(), thin.least.end()), *std::min_element(finite.begin(), finite.end()));
    EXPECT_EQ(*std::max_element(thin.most.begin(), thin.most.end()), *std::max_element(finite.begin(), finite.end()));
    EXPECT_TRUE(std::is_sorted(thin.at.begin(), thin.at.end()));
    if (finite.size() <= buckets) {
      EXPECT_EQ(thin.mean, finite);
    }
    std::sort(finite.begin(), finite.end());
    EXPECT_EQ(median(value), finite[finite.size() / 2]);
  }
}

TEST(run_history, the_page_has_the_numbers_and_no_name_ends_its_script) {
  const Folder folder;
  std::filesystem::create_directory(folder / "a<b");
  std::string metrics;
  for (Index step = 1; step <= 3000; ++step) metrics += step_line(step, double(step), double(step % 7));
  folder.write("a<b/metrics.jsonl", metrics + json_text({{"kind", "skip"}, {"time", 3001}, {"step", 3000}, {"why", "</script><b>"}}) + "\n");
  folder.write("a<b/deck.yaml", "data: {tokenizer: \"</script>\"}\ntrain: {steps: 5}\n");
  RunHistory one = read_history(folder / "a<b"), two = one;
  two.deck["train.steps"] = "6";
  const std::string page = page_of({one, two});
  const std::string begin = "<script type=\"application/json\" id=\"numbers\">";
  const std::size_t from = page.find(begin) + begin.size();
  const Json json = json_in(page.substr(from, page.find("</script>", from) - from));
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][0]["name"], "a<b");
  EXPECT_EQ(json["runs"][0]["curves"]["loss"]["value"].size(), 1000U);
  EXPECT_EQ(json["runs"][0]["curves"]["loss"]["most"][0], 3.0);  // of 1, 2, 3 modulo 7: the first bucket
  EXPECT_EQ(json["runs"][0]["events"][0]["text"], "</script><b>");
  EXPECT_EQ(json["differences"], Json::parse(R"([["train.steps", ["5", "6"]]])"));
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg"));  // the name of a format, and nothing that is fetched
}

// Elements of a document in XML that is well-formed: every element ends, in its order, and no text has a bare < or &.
std::multiset<std::string> elements_of(const std::string& xml) {
  std::multiset<std::string> all;
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      EXPECT_TRUE(std::regex_search(xml.begin() + std::ptrdiff_t(i), xml.end(), std::regex("^&(amp|lt|gt|quot);"))) << xml.substr(i, 20);
    }
    if (xml[i] != '<') continue;
    const std::size_t end = xml.find('>', i);
    EXPECT_NE(end, xml.npos);
    const std::string tag = xml.substr(i + 1, end - i - 1), name = tag.substr(0, tag.find_first_of(" \n/", 1));
    EXPECT_EQ(tag.find('<'), tag.npos) << tag;
    if (tag.starts_with('/')) {
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (all.insert(name), !tag.ends_with('/')) open.push_back(name);
    i = end;
  }
  EXPECT_TRUE(open.empty());
  return all;
}

// x and y of every point of the path whose element says this.
std::vector<std::pair<double, double>> points_of(const std::string& svg, const std::string& element) {
  const std::size_t from = svg.find("d=\"", svg.find(element)) + 3;
  const std::string d = svg.substr(from, svg.find('"', from) - from);
  std::vector<std::pair<double, double>> points;
  static const std::regex point("[ML](-?[0-9.]+) (-?[0-9.]+)");
  for (std::sregex_iterator at(d.begin(), d.end(), point), end; at != end; ++at) points.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return points;
}

TEST(run_history, a_picture_has_a_point_of_every_step_that_counts_where_its_loss_is) {
  std::mt19937 random(seed_of_run());
  for (int trial = 0; trial < 100; ++trial) {
    const Drawn d = drawn(random);
    const Folder folder;
    std::string metrics = d.metrics;
    const Index validations = Index(random() % 4);
    for (Index v = 0; v < validations; ++v)
      metrics += json_text({{"kind", "validation"}, {"time", 2e9}, {"step", d.counts.rbegin()->first + v}, {"loss", 3}}) + "\n";
    folder.write("metrics.jsonl", metrics);
    RunHistory run = read_history(folder.path());
    run.name = "a<\"b\"&amp;>";
    const std::string svg = picture_of({run});
    const auto elements = elements_of(svg);
    EXPECT_EQ(Index(elements.count("circle")), validations);
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_EQ(svg.find("inf"), svg.npos);
    const std::string drawing = svg.substr(svg.find(">step</text>"));
    const auto points = points_of(drawing, "<path class=\"line\"");
    ASSERT_EQ(points.size(), d.counts.size());
    // Right where a step is later, and below where a loss is less.
    auto before = d.counts.begin();
    for (std::size_t i = 1; i < points.size(); ++i) {
      const auto now = std::next(before);
      EXPECT_GT(points[i].first, points[i - 1].first - 0.05);
      EXPECT_GE((points[i - 1].second - points[i].second) * (now->second - before->second), -0.1 * std::abs(now->second - before->second));
      before = now;
    }
    for (const auto& [x, y] : points) EXPECT_TRUE(x >= 0 && x <= 760 && y >= 0 && y <= 300) << x << " " << y;
  }
}

TEST(run_history, a_picture_of_a_long_run_is_small_and_one_of_strange_numbers_is_drawn) {
  const Folder folder;
  std::string metrics;
  for (Index step = 1; step <= 100000; ++step) metrics += step_line(step, double(step), 2 + 100.0 / double(step) + double(step % 7) / 10);
  folder.write("metrics.jsonl", metrics);
  const RunHistory run = read_history(folder.path());
  const std::string svg = picture_of({run, run});
  EXPECT_LT(svg.size(), 32768U);
  EXPECT_EQ(elements_of(svg).count("path") - elements_of(svg).count("circle"),
            elements_of(picture_of({run})).count("path") + 3);  // a name, a band, a line
  EXPECT_EQ(points_of(svg, "<path class=\"band\"").size(), 2 * points_of(svg.substr(svg.find("class=\"band\"")), "<path class=\"line\"").size());

  std::vector<RunHistory> many(12, run);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].steps.resize(1 + i), many[i].name = std::string(1 + i * 5, 'n');
  std::set<std::string> places;
  const std::string sweep = picture_of(many);
  static const std::regex name("<text x=\"([0-9.]+)\" y=\"([0-9]+)\">(n+)(\\.\\.\\.)?</text>");
  for (std::sregex_iterator at(sweep.begin(), sweep.end(), name), end; at != end; ++at) {
    places.insert((*at)[1].str() + " " + (*at)[2].str());
    EXPECT_LE(std::stod((*at)[1]) + 7 * double((*at)[3].length()), 760);
    EXPECT_LE((*at)[3].length(), 40);
  }
  EXPECT_EQ(places.size(), many.size());  // none upon another

  for (const std::vector<double>& losses :
       {std::vector<double>{5}, {0, 0}, {-1e308, 1e308}, {1e-300, 2e-300}, {3, NAN, INFINITY, 3}, {1e15, 1e15 + 1}}) {
    RunHistory strange = run;
    strange.steps.assign(losses.size(), run.steps[0]);
    for (std::size_t i = 0; i < losses.size(); ++i) strange.steps[i].step = Index(i), strange.steps[i].loss = losses[i];
    const std::string picture = picture_of({strange});
    elements_of(picture);
    EXPECT_EQ(picture.find("nan"), picture.npos) << picture;
    EXPECT_EQ(picture.find("inf"), picture.npos) << picture;
    EXPECT_LT(picture.size(), 8192U);
  }
  RunHistory none = run;
  for (TakenStep& s : none.steps) s.loss = NAN;
  EXPECT_EQ(error_of([&] { picture_of({none}); }).code, Exit::data);
}

TEST(run_history, an_end_that_several_ranks_tell_is_one_and_times_that_are_none_are_shown_as_such) {
  const Folder folder;
  const std::string end = json_text({{"kind", "end"}, {"state", "hung"}, {"code", 75}, {"message", "rank 3"}}) + "\n";
  folder.write("metrics.jsonl", json_text({{"kind", "start"}, {"time", 1}, {"step", 0}}) + "\n" + step_line(1, 2, 3) + end + end + end);
  const RunHistory history = read_history(folder.path());
  EXPECT_EQ(history.events.size(), 2U);
  EXPECT_EQ(history.state, "failed");
  EXPECT_NE(text_of(std::vector<RunHistory>{history}).find("rank 3"), std::string::npos);
  EXPECT_EQ(sparkline({-1e308, 1e308}), "▁█");
}

TEST(run_history, folders_without_steps_are_told) {
  const Folder folder;
  EXPECT_EQ(error_of([&] { read_history(folder.path()); }).code, Exit::missing);
  folder.write("metrics.jsonl", "{\"kind\":\"run\"}\nnonsense\n");
  EXPECT_EQ(error_of([&] { read_history(folder.path()); }).code, Exit::data);
}

TEST(run_history, bars_rise_with_numbers) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({5, NAN, 5}), "▁ ▁");
}

}  // namespace
}  // namespace gyr::testing
