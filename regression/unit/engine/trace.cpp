// SPDX-License-Identifier: BSD-3-Clause
// Traces of a step: records, clock differences of machines, trace files and reports about them, compared with known
// results and plain counting.
#include <random>

#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/base/json.hpp"
#include "src/trace/clock.hpp"
#include "src/trace/trace_summary.hpp"
#include "src/trace/trace_text.hpp"

namespace gyr::testing::trace_suite {
namespace {

namespace fs = std::filesystem;

std::mt19937& random_engine() {
  static std::mt19937 random = [] {
    const char* given = std::getenv("GYR_SEED");
    const unsigned seed = given ? unsigned(std::atoi(given)) : 1;
    std::printf("seed %u\n", seed);
    return std::mt19937(seed);
  }();
  return random;
}
int draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_engine()); }

// ---- Intervals, compared with cells of one microsecond

constexpr int cells = 60;
using Cells = std::vector<bool>;

std::vector<Interval> drawn_intervals(int most) {
  std::vector<Interval> all;
  for (int n = draw(0, most); n > 0; --n) {
    const int begin = draw(0, cells), end = draw(begin, cells);
    all.push_back({double(begin), double(end)});
  }
  return all;
}

Cells cells_of(const std::vector<Interval>& all) {
  Cells covered(cells, false);
  for (const Interval& i : all)
    for (int c = int(i.begin); c < int(i.end); ++c) covered[c] = true;
  return covered;
}

template <class Wanted>
int count(Wanted&& wanted) {
  int sum = 0;
  for (int c = 0; c < cells; ++c) sum += wanted(c);
  return sum;
}

TEST(trace, interval_sums_match_cell_counts) {
  for (int trial = 0; trial < 500; ++trial) {
    const auto some = drawn_intervals(6), second = drawn_intervals(6);
    const Cells a = cells_of(some), b = cells_of(second);
    const int first = draw(0, cells), last = draw(0, cells);
    const Intervals x(some), y(second);
    EXPECT_EQ(x.total(), count([&](int c) { return a[c]; }));
    EXPECT_EQ(x.in(y).total(), count([&](int c) { return a[c] && b[c]; }));
    EXPECT_EQ(x.total_in({double(first), double(last)}), count([&](int c) { return a[c] && c >= first && c < last; }));
  }
}

// ---- Clocks

// Ranks arrive at each meeting at random times. Each rank leaves a meeting after the last one has arrived.
TEST(trace, clock_difference_is_within_its_uncertainty) {
  double tightest = 1e9;
  for (int trial = 0; trial < 300; ++trial) {
    const double ahead = draw(-1000000, 1000000);
    std::vector<ClockSync> mine, first;
    double now = 0;
    for (int m = draw(1, 12); m > 0; --m) {
      const double a = now + draw(0, 500), b = now + draw(0, 500), all = std::max(a, b);
      const double left = all + draw(1, 300), left_first = all + draw(1, 300);
      mine.push_back({a + ahead, left + ahead}), first.push_back({b, left_first});
      now = std::max(left, left_first);
    }
    const ClockDifference d = clock_difference(mine, first);
    EXPECT_LE(std::abs(d.ahead - ahead), d.uncertainty);
    EXPECT_LE(d.uncertainty, 800);
    tightest = std::min(tightest, d.uncertainty);
  }
  EXPECT_LT(tightest, 20);
}

// ---- Records

TEST(trace, records_are_bounded_and_counted) {
  Recorder recorder(10);
  for (int i = 0; i < 25; ++i) const Recorder::Span span(&recorder, "work", {.micro = i});
  EXPECT_EQ(recorder.work().size(), 10u);
  EXPECT_EQ(recorder.left_out(), 15);
  for (int i = 0; i < 12; ++i) recorder.transfer(recorder.channel("data"), "send", 8, true).done();
  EXPECT_EQ(recorder.left_out(), 17);
  EXPECT_EQ(recorder.channels().size(), 1u);
  recorder.clear();
  EXPECT_EQ(recorder.left_out(), 0);
  EXPECT_TRUE(recorder.work().empty() && recorder.transfers().empty());
  const Recorder::Span none(nullptr, "work");
  const Recorder::Handle nothing;
  nothing.done();
}

TEST(trace, channels_keep_their_ids) {
  Recorder recorder(1);
  for (int again = 0; again < 2; ++again)
    for (int i = 0; i < 40; ++i) EXPECT_EQ(recorder.channel(fmt::format("channel {}", i)), i);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(recorder.channels()[i], fmt::format("channel {}", i));
}

// A transfer that ends in a later step is still recorded. The handle of a transfer that has been cleared writes
// nothing.
TEST(trace, transfers_in_progress_outlast_a_step) {
  Recorder recorder(100);
  std::vector<Recorder::Handle> handles;
  for (int i = 0; i < 20; ++i) handles.push_back(recorder.transfer(0, "send", i, true));
  for (int i = 0; i < 20; i += 2) handles[i].done();
  recorder.clear();
  ASSERT_EQ(recorder.transfers().size(), 10u);
  const Recorder::Handle later = recorder.transfer(0, "send", 100, true);
  handles[4].done();
  { const Recorder::Waiting waiting(handles[7]); }
  later.done();
  for (const Recorder::Transfer& t : recorder.transfers()) {
    EXPECT_EQ(t.end != 0, t.bytes == 100);
    EXPECT_EQ(t.wait_end != 0, t.bytes == 7);
    EXPECT_TRUE(t.bytes == 100 || t.bytes % 2 == 1);
  }
}

// ---- Files

Json complete(int rank, const char* category, const std::string& name, double begin, double end, Json args = Json::object()) {
  return {{"ph", "X"}, {"pid", rank}, {"tid", 0}, {"cat", category}, {"name", name}, {"ts", begin}, {"dur", end - begin}, {"args", args}};
}
Json task(int rank, const std::string& name, double begin, double end, int micro = 0, int chunk = 0) {
  return complete(rank, "task", name, begin, end, {{"chunk", chunk}, {"micro", micro}});
}
Json wait(int rank, const std::string& communicator, const std::string& operation, double begin, double end) {
  return complete(rank, "wait", "wait", begin, end, {{"communicator", communicator}, {"operation", operation}});
}
Json process(int rank, int stage) {
  return {{"ph", "M"},
          {"pid", rank},
          {"name", "process_name"},
          {"args", {{"name", fmt::format("rank {}: data {}", rank, rank)}, {"stage", stage}, {"host", "node1"}}}};
}
std::vector<Json> transfer(int rank, int id, double begin, double end) {
  const Json number{{"local", fmt::format("{:#x}", id)}};
  return {{{"ph", "b"}, {"pid", rank}, {"cat", "transfer"}, {"id2", number}, {"ts", begin}},
          {{"ph", "e"}, {"pid", rank}, {"cat", "transfer"}, {"id2", number}, {"ts", end}}};
}
Json file_of(const std::vector<Json>& events, int step = 2) {
  return {{"otherData", {{"program", "gyrfalcon"}, {"step", step}, {"records_left_out", 0}}}, {"traceEvents", events}};
}

TraceFile read(const Json& json) {
  const Folder folder;
  return read_trace_file(folder.write("trace.json", json.dump()));
}

// Hand-written trace of two pipeline ranks, in microseconds. Rank 0: data 0 to 100; forward 100 to 400, of which 50 is
// waiting for tensor parallel; a pipeline receive 450 to 650 outside all tasks; backward 700 to 900, which overlaps 150
// of a transfer; a pipeline all-gather 950 to 1000.
std::vector<Json> by_hand() {
  std::vector<Json> events{process(0, 0),
                           task(0, "step", 0, 1000),
                           task(0, "data", 0, 100),
                           task(0, "forward", 100, 400),
                           wait(0, "tensor", "all_reduce", 200, 250),
                           wait(0, "pipeline", "receive", 450, 650),
                           task(0, "backward", 700, 900),
                           wait(0, "pipeline", "all_gather", 950, 1000),
                           process(1, 1),
                           task(1, "step", 0, 1000),
                           task(1, "forward", 0, 200, 0),
                           task(1, "forward", 200, 250, 1),
                           task(1, "forward", 250, 300, 1),
                           task(1, "backward input", 300, 500, 0),
                           task(1, "backward weights", 500, 600, 0),
                           task(1, "backward", 600, 1000, 1)};
  for (const Json& e : transfer(0, 7, 200, 250)) events.push_back(e);
  for (const Json& e : transfer(0, 8, 750, 900)) events.push_back(e);
  return events;
}

TEST(trace, summary_of_hand_written_trace_is_correct) {
  const std::vector<RankSummary> ranks = summary_of({read(file_of(by_hand()))});
  ASSERT_EQ(ranks.size(), 2u);
  const RankSummary &a = ranks[0], &b = ranks[1];
  const double us = 1e-6, exact = 1e-12;
  EXPECT_NEAR(a.step, 1000 * us, exact);
  EXPECT_NEAR(a.busy, 550 * us, exact);
  EXPECT_NEAR(a.exposed.at("tensor"), 50 * us, exact);
  EXPECT_NEAR(a.exposed.at("pipeline"), 50 * us, exact) << "a collective over the stages is no bubble";
  EXPECT_NEAR(a.bubble, 200 * us, exact);
  EXPECT_NEAR(a.rest, 150 * us, exact);
  EXPECT_NEAR(a.hidden, 150 * us, exact);
  EXPECT_NEAR(a.forward.at(0), 250 * us, exact) << "forward time excludes waits";
  EXPECT_NEAR(a.backward.at(0), 200 * us, exact);
  EXPECT_NEAR(b.busy, 1000 * us, exact);
  EXPECT_TRUE(b.exposed.empty());
  EXPECT_NEAR(b.forward.at(0), 100 * us, exact) << "lower of the times 200 and 50 + 50 of two micro-batches";
  EXPECT_NEAR(b.backward.at(0), 300 * us, exact) << "lower of the times 200 + 100 and 400 of two micro-batches";
  EXPECT_EQ(a.name, "rank 0: data 0");
  EXPECT_EQ(b.stage, 1);
}

// Tasks and waits at random times, overlapping each other and beyond the step. The parts of the step time must equal
// counted cells, and no time is counted twice.
TEST(trace, parts_of_a_step_add_up) {
  for (int trial = 0; trial < 300; ++trial) {
    const int begin = draw(0, 20), end = draw(begin + 1, cells);
    std::vector<Json> events{process(0, 0), task(0, "step", begin, end)};
    const auto tasks = drawn_intervals(6), waits = drawn_intervals(6);
    for (const Interval& t : tasks) events.push_back(task(0, "forward", t.begin, t.end));
    for (const Interval& w : waits)
      events.push_back(wait(0, draw(0, 1) ? "data" : "pipeline", draw(0, 1) ? "receive" : "all_reduce", w.begin, w.end));
    const RankSummary r = summary_of({read(file_of(events))})[0];
    const Cells busy = cells_of(tasks), waiting = cells_of(waits);
    const auto within = [&](int c) { return c >= begin && c < end; };
    double waited = r.bubble;
    for (const auto& [name, seconds] : r.exposed) waited += seconds;
    const double us = 1e-6, exact = 1e-12;
    EXPECT_NEAR(r.step, us * (end - begin), exact);
    EXPECT_NEAR(r.busy, us * count([&](int c) { return within(c) && busy[c] && !waiting[c]; }), exact);
    EXPECT_NEAR(waited, us * count([&](int c) { return within(c) && waiting[c]; }), exact);
    EXPECT_NEAR(r.rest, us * count([&](int c) { return within(c) && !busy[c] && !waiting[c]; }), exact);
    EXPECT_NEAR(r.busy + waited + r.rest, r.step, exact);
  }
}

// A trace file must hold the records of the recorder to the nanosecond, also with names that JSON must escape.
TEST(trace, written_trace_is_read_back_exactly) {
  Recorder recorder(100);
  std::optional<Recorder::Handle> open;
  {
    const Recorder::Span step(&recorder, step_span);
    const int channel = recorder.channel("a \"name\"\n");
    for (int micro = 0; micro < 3; ++micro) {
      const Recorder::Span work(&recorder, "forward", {.chunk = 1, .micro = micro, .first_part = 2, .last_part = 4});
      const Recorder::Handle sum = recorder.transfer(channel, "all_reduce", 100, true);
      const Recorder::Waiting waiting(sum);
      sum.done();
    }
    open = recorder.transfer(channel, "send", 5, true);
    recorder.kernel("gemm", moment_now(), moment_now());
  }
  const Recorder::Work& step = recorder.work()[0];
  const TraceClock clock = [&](Moment m) { return m - step.begin + 5000; };
  const std::string events = trace_events(recorder, {3, 2, 1, 1, "rank 3\x1b", "host"}, clock, step.begin, step.end);
  const TraceFile file = read(file_of(Json::parse("[" + events + "]").get<std::vector<Json>>()));
  ASSERT_EQ(file.ranks.size(), 1u);
  const TracedRank& rank = file.ranks.at(3);
  EXPECT_EQ(rank.name, "rank 3\x1b");
  EXPECT_EQ(rank.stage, 1);
  EXPECT_EQ(rank.team, 1);
  ASSERT_EQ(rank.tasks.size(), 3u);
  ASSERT_EQ(rank.waits.size(), 3u);
  ASSERT_EQ(rank.transfers.size(), 4u);
  const auto us = [&](Moment m) { return double(clock(m)) / 1000; };
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(rank.tasks[i].time.begin, us(recorder.work()[i + 1].begin), 1e-6);
    EXPECT_NEAR(rank.tasks[i].time.end, us(recorder.work()[i + 1].end), 1e-6);
    EXPECT_EQ(rank.tasks[i].micro, i);
    EXPECT_EQ(rank.tasks[i].chunk, 1);
    EXPECT_NEAR(rank.waits[i].time.end, us(recorder.transfers()[i].wait_end), 1e-6);
    EXPECT_NEAR(rank.transfers[i].begin, us(recorder.transfers()[i].begin), 1e-6);
    EXPECT_EQ(rank.waits[i].communicator, "a \"name\"\n");
  }
  EXPECT_NEAR(rank.transfers[3].end, us(step.end), 1e-6) << "a transfer in progress ends with the step";
  EXPECT_EQ(open.has_value(), true);
}

// ---- Slow ranks

double ratio_of(const std::vector<Comparison>& all, const std::string& what, std::size_t rank) {
  for (const Comparison& c : all)
    if (c.what == what) return c.relative[rank];
  return -1;
}

TEST(trace, ranks_are_compared_within_their_stage) {
  const auto rank = [](int number, int stage, double forward, double backward) {
    RankSummary r;
    r.rank = number, r.stage = stage, r.forward[0] = forward, r.backward[0] = backward, r.busy = forward + backward, r.step = 10;
    return r;
  };
  // The second stage has three times as much work, which makes no rank slow. Of its ranks, the last one is slow.
  const auto both = comparisons_of({rank(0, 0, 1, 2), rank(1, 0, 1.1, 2), rank(2, 1, 3, 6), rank(3, 1, 4, 6)});
  EXPECT_NEAR(ratio_of(both, "forward", 1), 1.1, 1e-12);
  EXPECT_NEAR(ratio_of(both, "forward", 2), 1, 1e-12);
  EXPECT_NEAR(ratio_of(both, "forward", 3), 4.0 / 3, 1e-12);
  EXPECT_NEAR(ratio_of(both, "backward", 3), 1, 1e-12);
  // Stages with one rank each are compared with each other.
  const auto single = comparisons_of({rank(0, 0, 1, 2), rank(1, 1, 1, 2), rank(2, 2, 5, 2)});
  EXPECT_NEAR(ratio_of(single, "forward", 2), 5, 1e-12);
  EXPECT_NEAR(ratio_of(single, "work", 2), 7.0 / 3, 1e-12);
  // Ranks of a separate mixer team (attention or SSM) have different work. A team with one rank per stage is compared
  // with that team in other stages.
  std::vector<RankSummary> separate{rank(0, 0, 1, 2), rank(1, 0, 3, 6), rank(2, 1, 1, 2), rank(3, 1, 6, 6)};
  separate[1].team = separate[3].team = 1;
  EXPECT_NEAR(ratio_of(comparisons_of(separate), "forward", 2), 1, 1e-12);
  EXPECT_NEAR(ratio_of(comparisons_of(separate), "forward", 1), 1, 1e-12);
  EXPECT_NEAR(ratio_of(comparisons_of(separate), "forward", 3), 2, 1e-12);
}

TEST(trace, report_names_only_the_stragglers) {
  std::vector<Json> events;
  for (int r = 0; r < 4; ++r) {
    const double time = r == 2 ? 300 : 100;
    events.insert(events.end(), {process(r, 0), task(r, "step", 0, 1000), task(r, "forward", 0, time), task(r, "backward", 400, 500),
                                 wait(r, "data", "all_reduce", 500, 1000 + time - 300)});
  }
  const std::string report = trace_report({read(file_of(events, 17))});
  EXPECT_NE(report.find("step 17 of 4 ranks"), std::string::npos) << report;
  EXPECT_NE(report.find("slow: rank 2: data 2 on node1: forward 3.00"), std::string::npos) << report;
  EXPECT_EQ(report.find("slow: rank 0"), std::string::npos) << report;
  EXPECT_NE(report.find("██"), std::string::npos) << report;
  std::vector<Json> even;
  for (const Json& e : events)
    if (e.at("pid") != 2) even.push_back(e);
  EXPECT_NE(trace_report({read(file_of(even))}).find("no rank is slow"), std::string::npos);
}

// ---- Invalid and damaged files

TEST(trace, invalid_trace_files_are_refused_by_name) {
  const Folder folder;
  const auto refusal = [&](const std::string& text) {
    const Error error = error_of([&] { read_trace_file(folder.write("t.json", text)); });
    EXPECT_EQ(error.code, Exit::data) << text;
    EXPECT_NE(std::string(error.what()).find("t.json"), std::string::npos) << error.what();
    return std::string(error.what());
  };
  const auto with = [&](const char* key, const Json& value, std::size_t event = 3) {
    std::vector<Json> events = by_hand();
    events[event][key] = value;
    return refusal(file_of(events).dump());
  };
  EXPECT_NE(refusal("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(file_of(by_hand()).dump() + std::string(1, '\0') + "x").find("zero byte"), std::string::npos);
  EXPECT_NE(refusal(R"({"traceEvents":[]})").find("no trace that gyrfalcon train has written"), std::string::npos);
  EXPECT_NE(refusal("[]").find("JSON"), std::string::npos);
  EXPECT_NE(refusal(file_of({}).dump()).find("no events"), std::string::npos);
  EXPECT_NE(refusal(file_of({1}).dump()).find("event 0"), std::string::npos);
  EXPECT_NE(refusal(file_of({process(0, 0)}).dump()).find("no span called step"), std::string::npos);
  EXPECT_NE(with("dur", -1).find("event 3: `dur`"), std::string::npos);
  EXPECT_NE(with("dur", 1e300).find("`dur`"), std::string::npos);
  EXPECT_NE(with("ts", "x").find("`ts`"), std::string::npos);
  EXPECT_NE(with("ts", nullptr).find("`ts`"), std::string::npos);
  for (const Json& pid : {Json(-1), Json(1.5), Json("0"), Json(std::uint64_t(1) << 63)}) EXPECT_NE(with("pid", pid).find("`pid`"), std::string::npos);
  EXPECT_NE(with("args", 3).find("`args`"), std::string::npos);
  EXPECT_NE(with("name", 3).find("`name`"), std::string::npos);
  std::vector<Json> events = by_hand();
  events.push_back(transfer(1, 1, 0, 1)[0]);
  EXPECT_NE(refusal(file_of(events).dump()).find("does not end"), std::string::npos);
  events.back() = transfer(1, 1, 0, 1)[1];
  EXPECT_NE(refusal(file_of(events).dump()).find("has not begun"), std::string::npos);
  EXPECT_EQ(error_of([&] { read_traces(folder / "absent.json"); }).code, Exit::missing);
  EXPECT_EQ(error_of([&] { read_traces(folder.path()); }).code, Exit::missing);
}

// A damaged file is refused or read. If it is read, the parts of a step must still add up.
TEST(trace, damaged_files_are_refused_or_read) {
  const Folder folder;
  const std::string good = file_of(by_hand()).dump();
  int read = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = good;
    for (int n = draw(1, 3); n > 0; --n) text[std::size_t(draw(0, int(text.size()) - 1))] = char(draw(1, 126));
    if (draw(0, 9) == 0) text.resize(std::size_t(draw(0, int(text.size()))));
    const fs::path file = folder.write("t.json", text);
    const Error error = error_of([&] {
      const std::vector<TraceFile> files{read_trace_file(file)};
      EXPECT_FALSE(trace_report(files).empty());
      for (const RankSummary& r : summary_of(files)) {
        double sum = r.busy + r.bubble + r.rest;
        for (const auto& [name, seconds] : r.exposed) sum += seconds;
        EXPECT_NEAR(sum, r.step, 1e-9 * (1 + r.step));
      }
      ++read;
    });
    EXPECT_TRUE(error.code == Exit::ok || error.code == Exit::data) << error.what() << "\n" << text;
  }
  EXPECT_GT(read, 100);
}

TEST(trace, folders_are_read_step_by_step) {
  const Folder folder;
  fs::create_directories(folder / "trace");
  put_contents(folder / "trace/step_00000010.json", file_of(by_hand(), 10).dump());
  put_contents(folder / "trace/step_00000002.json", file_of(by_hand(), 2).dump());
  put_contents(folder / "trace/step_00000003.json.tmp", "half");
  for (const fs::path& from : {folder.path(), folder / "trace"}) {
    const std::vector<TraceFile> files = read_traces(from);
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0].step, 2);
    EXPECT_NEAR(summary_of(files)[0].busy, 550e-6, 1e-12) << "busy time is per step";
    EXPECT_NE(trace_report(files).find("steps 2, 10 of 2 ranks"), std::string::npos);
  }
  put_contents(folder / "trace/step_00000004.json", file_of({process(0, 0), task(0, "step", 0, 1)}, 4).dump());
  EXPECT_NE(std::string(error_of([&] { read_traces(folder.path()); }).what()).find("different ranks"), std::string::npos);
}

}  // namespace
}  // namespace gyr::testing::trace_suite
