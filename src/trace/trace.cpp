// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace.hpp"

#include <cmath>

#include "src/base/json.hpp"
#include "src/base/output_file.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

namespace {

constexpr std::size_t most_records = std::size_t(1) << 18;  // maximum number of records per step for each kind of record; a record has about 64 bytes

TraceProcess process_of(const Grid& grid) {
  const Layout& layout = grid.layout();
  TraceProcess p{layout.rank_at(grid.position()), grid.position(), grid.coordinate(Axis::pipeline), 0, {}, host_name()};
  p.team = layout.attention_ranks > 0 && grid.coordinate(Axis::tensor) >= layout.attention_ranks;
  p.name = fmt::format("rank {}", p.rank);
  for (const LayoutAxis& axis : layout.axes)
    if (axis.size > 1) p.name += fmt::format("{} {} {}", p.name.find(':') == p.name.npos ? ":" : ",", name_of(axis.axis), grid.coordinate(axis.axis));
  return p;
}

// Record of the full step. It is the first record, because the training loop opens it before all others.
const Recorder::Work& step_of(const Recorder& recorder) {
  ensure(!recorder.work().empty() && recorder.work().front().name == std::string_view(step_span), "the trace has no record of the step");
  return recorder.work().front();
}

// Trace file that is written rank by rank. An error is kept until all ranks have sent their records.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& file, const Json& facts) {
    attempt([&] {
      std::error_code error;
      std::filesystem::create_directories(file.parent_path(), error);
      require(!error, Exit::io, "{}: cannot be created: {}", file.parent_path().string(), error.message());
      file_.emplace(file).append("{\"displayTimeUnit\":\"ms\",\"otherData\":" + json_text(facts) + ",\"traceEvents\":[\n");
    });
  }
  void add(const std::string& events) {
    attempt([&] {
      if (std::exchange(begun_, true)) file_->append(",\n");
      file_->append(events);
    });
  }
  void finish() {
    if (failed_) throw *failed_;
    file_->append("\n]}\n");
    file_->commit();
  }

 private:
  template <class F>
  void attempt(F&& f) {
    if (failed_) return;
    try {
      f();
    } catch (const Error& error) {
      failed_ = error;
    }
  }

  std::optional<OutputFile> file_;
  std::optional<Error> failed_;
  bool begun_ = false;
};

}  // namespace

std::filesystem::path trace_path(const std::filesystem::path& folder, Index step) { return folder / fmt::format("step_{:08}.json", step); }

Trace::Trace(const TraceConfig& config, std::filesystem::path folder) : config_(config), folder_(std::move(folder)) {
  if (config_.on) recorder_.emplace(most_records);
}

Recorder& Trace::begin(Grid& grid) {
  grid.begin_task("align clocks");
  clock_ = align_clocks(grid.world());
  recorder_->clear();
  return *recorder_;
}

void Trace::write(Index step, Grid& grid) {
  Communicator& world = grid.world();
  grid.begin_task("trace");
  const Recorder::Work& step_work = step_of(*recorder_);
  const double zero = -world.max(-clock_.time(step_work.begin));  // start of the step on the earliest rank
  const auto clock = [&](Moment m) { return std::llround(clock_.time(m) - zero); };
  const double uncertainty = world.max(clock_.difference.uncertainty), left_out = world.sum(double(recorder_->left_out()));
  std::optional<TraceWriter> writer;
  if (grid.position() == 0)
    writer.emplace(trace_path(folder_, step), Json{{"program", "gyrfalcon"},
                                                   {"step", step},
                                                   {"ranks", grid.layout().ranks()},
                                                   {"grid", grid.layout().text()},
                                                   {"clock_uncertainty_us", uncertainty / 1000},
                                                   {"records_left_out", Index(left_out)}});
  visit_texts(world, trace_events(*recorder_, process_of(grid), clock, step_work.begin, step_work.end),
              [&](const std::string& text) { writer->add(text); });
  collective_check(world, [&] {
    if (writer) writer->finish();
  });
}

}  // namespace gyr
