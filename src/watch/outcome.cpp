// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/outcome.hpp"

#include <algorithm>

#include "src/base/input_file.hpp"
#include "src/base/json.hpp"
#include "src/base/limits.hpp"
#include "src/base/output_file.hpp"
#include "src/report/json_lines.hpp"
#include "src/watch/heartbeat.hpp"

namespace gyr {

std::filesystem::path status_path(const std::filesystem::path& output) { return output / "status.json"; }

namespace {

// Appends the outcome to metrics.jsonl, which may contain several attempts.
void append_end(const std::filesystem::path& output, const Json& outcome) {
  const std::filesystem::path metrics = output / "metrics.jsonl";
  if (!std::filesystem::exists(metrics)) return;
  Json end = {{"kind", "end"}};
  end.update(outcome);
  JsonLines(metrics).line(json_text(end));
}

}  // namespace

void write_outcome(const std::filesystem::path& output, const Outcome& o) noexcept {
  try {
    const Json json = {{"state", o.state}, {"code", o.code},       {"step", o.step},
                       {"rank", o.rank},   {"message", o.message}, {"time", double(wall_nanoseconds()) * 1e-9}};
    OutputFile file(status_path(output));
    file.append(json_text(json, 2) + "\n");
    file.commit();
    if (o.state != "running") append_end(output, json);
  } catch (const std::exception&) {
  }
}

std::optional<Outcome> read_outcome(const std::filesystem::path& output) {
  const Json json = json_of_file(status_path(output));
  if (!json.is_object()) return {};
  const std::string state = text_in(json, "state");
  const auto code = integer_in(json, "code"), step = integer_in(json, "step"), rank = integer_in(json, "rank");
  if (state.empty() || !code || *code < 0 || *code > 255 || !step || !rank) return {};
  return Outcome{state, int(*code), *step, int(std::clamp<std::int64_t>(*rank, -1, most_ranks)), text_in(json, "message")};
}

std::string outcome_text(const std::filesystem::path& output) { return text_or_nothing(status_path(output), most_json); }

}  // namespace gyr
