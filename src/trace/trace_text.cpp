// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace_text.hpp"

#include <fmt/format.h>

#include "src/base/json.hpp"

namespace gyr {

namespace {

enum Track { tasks, kernels };

std::string in_json(std::string_view text) { return json_text(Json(text)); }

// Nanoseconds as text in microseconds, with three decimals.
std::string micro(std::int64_t nanoseconds) { return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000); }

class Events {
 public:
  Events(const TraceProcess& process, const TraceClock& clock, Moment begin, Moment end)
      : process_(process), clock_(clock), begin_(begin), end_(end) {}

  void metadata(std::string_view what, int track, const std::string& args) {
    line(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}})", process_.rank, track, what, args));
  }
  void complete(Track track, std::string_view category, std::string_view name, Moment begin, Moment end, const std::string& args) {
    const std::int64_t from = time(begin), to = std::max(from, time(end));
    line(fmt::format(R"("ph":"X","pid":{},"tid":{},"cat":"{}","name":{},"ts":{},"dur":{},"args":{{{}}})", process_.rank, int(track), category,
                     in_json(name), micro(from), micro(to - from), args));
  }
  void transfer(std::uint64_t id, std::string_view name, Moment begin, Moment end, const std::string& args) {
    const std::int64_t from = time(begin), to = std::max(from, time(end));
    for (const char* phase : {"b", "e"})
      line(fmt::format(R"("ph":"{}","pid":{},"tid":0,"cat":"transfer","id2":{{"local":"{:#x}"}},"name":{},"ts":{},"args":{{{}}})", phase,
                       process_.rank, id, in_json(name), micro(*phase == 'b' ? from : to), *phase == 'b' ? args : ""));
  }
  std::string text() && { return std::move(text_); }

 private:
  std::int64_t time(Moment m) const { return std::max<std::int64_t>(0, clock_(std::clamp(m, begin_, end_))); }
  void line(const std::string& fields) { text_.append(text_.empty() ? "{" : ",\n{").append(fields).append("}"); }

  const TraceProcess& process_;
  const TraceClock& clock_;
  const Moment begin_, end_;
  std::string text_;
};

// JSON fields of the subject that are set.
std::string args_of(const Subject& s) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) { text += fmt::format(R"({}"{}":{})", text.empty() ? "" : ",", name, value); };
  if (s.micro >= 0) add("chunk", fmt::format("{}", s.chunk)), add("micro", fmt::format("{}", s.micro));
  if (s.last_part > s.first_part) add("parts", fmt::format("[{},{}]", s.first_part, s.last_part - 1));
  if (s.bucket >= 0) add("bucket", fmt::format("{}", s.bucket));
  return text;
}

std::string args_of(const Recorder::Transfer& t, const std::string& communicator) {
  return fmt::format(R"("communicator":{},"operation":"{}","bytes":{},"counted":{},"transfer":{})", in_json(communicator), t.operation, t.bytes,
                     t.counted, t.number);
}

}  // namespace

std::string trace_events(const Recorder& recorder, const TraceProcess& process, const TraceClock& clock, Moment begin, Moment end) {
  Events events(process, clock, begin, end);
  events.metadata(
      "process_name", 0,
      fmt::format(R"("name":{},"stage":{},"team":{},"host":{})", in_json(process.name), process.stage, process.team, in_json(process.host)));
  events.metadata("process_labels", 0, fmt::format(R"("labels":{})", in_json(process.host)));
  events.metadata("process_sort_index", 0, fmt::format(R"("sort_index":{})", process.position));
  events.metadata("thread_name", tasks, R"("name":"tasks")");
  if (!recorder.kernels().empty()) events.metadata("thread_name", kernels, R"("name":"kernels")");
  for (const Recorder::Work& w : recorder.work()) events.complete(tasks, "task", w.name, w.begin, w.end, args_of(w.subject));
  for (const Recorder::Work& k : recorder.kernels()) events.complete(kernels, "kernel", k.name, k.begin, k.end, "");
  for (const Recorder::Transfer& t : recorder.transfers()) {
    const std::string& communicator = recorder.channels()[t.channel];
    const std::string name = fmt::format("{} {}", communicator, t.operation), args = args_of(t, communicator);
    const Moment seen = t.wait_end != 0 ? t.wait_end : t.end != 0 ? t.end : end;
    if (seen < begin) continue;  // a transfer of an earlier step, which ended before this one
    events.transfer(t.number, name, t.begin, seen, args);
    if (t.wait_end != 0 && t.wait_begin < end) events.complete(tasks, "wait", "wait " + name, t.wait_begin, t.wait_end, args);
  }
  return std::move(events).text();
}

}  // namespace gyr
