// SPDX-License-Identifier: BSD-3-Clause
#include "src/trace/trace_file.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "src/base/json.hpp"
#include "src/base/json_text.hpp"
#include "src/base/mapped_file.hpp"
#include "src/trace/trace_text.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_bytes = std::size_t(1) << 29;  // limit of the file size; parsing needs several times as much memory
constexpr double longest_time = 1e15;                     // limit of times in microseconds, about 30 years

// One event of the file, with checked access to its fields.
class TracedEvent {
 public:
  TracedEvent(const std::string& file, std::size_t number, const Json& json) : file_(file), number_(number), json_(json) {
    require(json.is_object(), Exit::data, "{}: event {} is not an object", file_, number_);
  }

  std::string text(const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) return {};
    if (!found->is_string()) refuse(key, "a string");
    return found->get<std::string>();
  }
  std::string text(const char* key) const { return text(json_, key); }
  const Json& args() const {
    static const Json none = Json::object();
    const auto found = json_.find("args");
    if (found == json_.end()) return none;
    if (!found->is_object()) refuse("args", "an object");
    return *found;
  }
  Index integer(const Json& object, const char* key, Index fallback) const {
    const auto found = object.find(key);
    if (found == object.end()) return fallback;
    const bool small = found->is_number_integer() && !(found->is_number_unsigned() && found->get<std::uint64_t>() > limit);
    if (!small || found->get<Index>() < 0 || found->get<Index>() > Index(limit)) refuse(key, "a whole number from 0 to 2147483647");
    return found->get<Index>();
  }
  Index rank() const {
    if (!json_.contains("pid")) refuse("pid", "a rank");
    return integer(json_, "pid", 0);
  }
  double time(const char* key) const {
    const auto found = json_.find(key);
    const double t = found != json_.end() && found->is_number() ? found->get<double>() : -1;
    if (!(t >= 0 && t <= longest_time)) refuse(key, "a time in microseconds, 0 or more");
    return t;
  }
  Interval interval() const {
    const double begin = time("ts");
    return {begin, begin + time("dur")};
  }
  // Key that the begin and the end event of a transfer have in common; includes the rank.
  std::string transfer() const {
    const auto found = json_.find("id2");
    if (found == json_.end() || !found->is_object()) refuse("id2", "an object");
    return fmt::format("{} {}", rank(), text(*found, "local"));
  }
  [[noreturn]] void refuse(const char* key, const char* wanted) const {
    fail(Exit::data, "{}: event {}: `{}` is not {}: the file is damaged or is not a gyrfalcon trace", file_, number_, key, wanted);
  }

 private:
  static constexpr std::uint64_t limit = 0x7fffffff;
  const std::string& file_;
  std::size_t number_;
  const Json& json_;
};

class TraceReader {
 public:
  explicit TraceReader(const fs::path& path) { file_.path = path.string(); }

  TraceFile read(const Json& json) {
    require(json.is_object(), Exit::data, "{}: is not valid JSON, or not an object", file_.path);
    const auto facts = json.find("otherData"), events = json.find("traceEvents");
    const bool ours = facts != json.end() && facts->is_object() && facts->contains("program") && facts->at("program") == "gyrfalcon" &&
                      events != json.end() && events->is_array();
    require(ours, Exit::data, "{}: is no trace that gyrfalcon train has written (trace.on)", file_.path);
    const TracedEvent header(file_.path, 0, *facts);
    file_.step = header.integer(*facts, "step", 0);
    file_.left_out = header.integer(*facts, "records_left_out", 0);
    for (std::size_t i = 0; i < events->size(); ++i) take(TracedEvent(file_.path, i, (*events)[i]));
    require(begun_.empty(), Exit::data, "{}: a transfer begins and does not end: the file is damaged", file_.path);
    require(!file_.ranks.empty(), Exit::data, "{}: has no events of a rank", file_.path);
    for (const auto& [number, rank] : file_.ranks)
      require(Intervals(rank.steps).total() > 0, Exit::data, "{}: rank {} has no span called {}: the file is incomplete", file_.path, number,
              step_span);
    return std::move(file_);
  }

 private:
  void take(const TracedEvent& e) {
    const std::string phase = e.text("ph"), category = e.text("cat");
    if (phase == "M") metadata(e);
    else if (phase == "X" && category == "task") task(e);
    else if (phase == "X" && category == "wait")
      file_.ranks[e.rank()].waits.push_back({e.text(e.args(), "communicator"), e.text(e.args(), "operation"), e.interval()});
    else if ((phase == "b" || phase == "e") && category == "transfer") transfer(e, phase == "b");
  }
  void metadata(const TracedEvent& e) {
    if (e.text("name") != "process_name") return;
    TracedRank& rank = file_.ranks[e.rank()];
    rank.name = e.text(e.args(), "name"), rank.host = e.text(e.args(), "host"), rank.stage = e.integer(e.args(), "stage", 0);
    rank.team = e.integer(e.args(), "team", 0);
  }
  void task(const TracedEvent& e) {
    TracedRank& rank = file_.ranks[e.rank()];
    if (const std::string name = e.text("name"); name == step_span) rank.steps.push_back(e.interval());
    else rank.tasks.push_back({name, e.interval(), e.integer(e.args(), "chunk", -1), e.integer(e.args(), "micro", -1)});
  }
  void transfer(const TracedEvent& e, bool begins) {
    const std::string id = e.transfer();
    const double time = e.time("ts");
    if (begins) {
      require(begun_.emplace(id, time).second, Exit::data, "{}: a transfer of rank {} begins twice: the file is damaged", file_.path, e.rank());
      return;
    }
    const auto begin = begun_.find(id);
    require(begin != begun_.end(), Exit::data, "{}: a transfer of rank {} ends that has not begun: the file is damaged", file_.path, e.rank());
    file_.ranks[e.rank()].transfers.push_back({begin->second, time});
    begun_.erase(begin);
  }

  TraceFile file_;
  std::map<std::string, double> begun_;
};

std::vector<fs::path> traces_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename(); name.starts_with("step_") && name.ends_with(".json")) files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TraceFile read_trace_file(const fs::path& path) {
  const MappedFile file(path);
  require(file.size() <= most_bytes, Exit::data, "{}: has {} bytes, but at most {} can be read here; Perfetto reads larger files", path.string(),
          file.size(), most_bytes);
  require(!zero_byte(file.text()), Exit::data, "{}: is not valid JSON: it has a zero byte", path.string());
  return TraceReader(path).read(json_in(file.text()));
}

std::vector<TraceFile> read_traces(const fs::path& from) {
  std::error_code error;
  std::vector<fs::path> files{from};
  if (fs::is_directory(from, error)) {
    files = traces_in(from);
    if (files.empty()) files = traces_in(from / "trace");
    require(!files.empty(), Exit::missing, "{}: has no traces (step_N.json, in it or in a folder trace); train with trace.on=true writes some",
            from.string());
  }
  std::vector<TraceFile> all;
  for (const fs::path& file : files) {
    all.push_back(read_trace_file(file));
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto &first = all.front().ranks, &last = all.back().ranks;
    require(std::equal(first.begin(), first.end(), last.begin(), last.end(), same), Exit::data,
            "{} and {} have different ranks: show only one of them", all.front().path, all.back().path);
  }
  return all;
}

}  // namespace gyr
