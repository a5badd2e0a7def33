// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/layout_choice.hpp"

#include <algorithm>

#include "src/planner/layouts/offload_fraction.hpp"

namespace gyr {

namespace {

bool keeps(const std::vector<std::string>& kept, const char* key) { return std::find(kept.begin(), kept.end(), key) != kept.end(); }

}  // namespace

std::string LayoutChoice::text() const {
  std::string text = fmt::format("{} data x {} pipeline", data, pipeline);
  if (context > 1) text += fmt::format(" x {} context ({})", context, name_of(context_mode));
  text += fmt::format(" x {} tensor", tensor);
  if (attention_ranks > 0) text += fmt::format(" ({} attention)", attention_ranks);
  if (sequence) text += ", sequence";
  if (expert > 1) text += fmt::format(", {} expert-parallel", expert);
  if (virtual_stages > 1) text += fmt::format(", {} virtual stages", virtual_stages);
  else if (pipeline > 1) text += fmt::format(", {}", schedules[std::size_t(schedule)].name);
  return text;
}

double LayoutChoice::offload_fraction() const { return double(alpha) / alpha_steps; }

std::vector<std::string> deck_lines(const LayoutChoice& c, const std::vector<std::string>& kept, const Islands& islands) {
  std::vector<std::string> lines;
  const auto add_line = [&](std::string_view key, const auto& value) { lines.push_back(fmt::format("{}={}", key, value)); };
  add_line("parallel.data", c.data), add_line("parallel.pipeline", c.pipeline), add_line("parallel.context", c.context),
      add_line("parallel.tensor", c.tensor);
  add_line("parallel.expert", c.expert);
  add_line("parallel.virtual_stages", c.virtual_stages);
  add_line("parallel.schedule", schedules[std::size_t(c.schedule)].name);
  add_line("parallel.context_mode", name_of(c.context_mode));
  add_line("parallel.mixer", mixer_names[c.attention_ranks > 0]);
  add_line("parallel.attention_ranks", c.attention_ranks);
  add_line("parallel.sequence", c.sequence);
  add_line("parallel.shard", name_of(c.shard));
  add_line("train.micro_batch_size", c.micro_batch_size);
  add_line("activation.recompute", recompute_names[c.recompute]);
  if (!keeps(kept, "recompute")) add_line("activation.recompute_types", "[]");
  if (c.alpha >= 0) add_line("activation.alpha", c.offload_fraction());
  if (!islands.empty()) add_line("cluster.emulate", fmt::format("\"{}\"", to_text(islands)));
  return lines;
}

ParallelConfig with(ParallelConfig p, const LayoutChoice& c) {
  p.data = c.data, p.pipeline = c.pipeline, p.context = c.context, p.tensor = c.tensor, p.expert = c.expert;
  p.virtual_stages = c.virtual_stages;
  p.one_chunk = schedules[std::size_t(c.schedule)].schedule;
  p.context_mode = c.context_mode;
  p.mixer = c.attention_ranks > 0 ? Mixer::separate : Mixer::split, p.attention_ranks = c.attention_ranks;
  p.sequence = c.sequence;
  p.shard = c.shard;
  return p;
}

RunConfig with(RunConfig run, const LayoutChoice& c) {
  run.parallel = with(std::move(run.parallel), c);
  run.train.micro_batch_size = c.micro_batch_size;
  run.recompute.all = recompute_of(recompute_names[c.recompute]);
  if (!keeps(run.parallel.keep, "recompute")) run.recompute.by_type.clear();
  if (c.alpha >= 0) run.offload.alpha = c.offload_fraction(), run.offload.find_alpha = false;
  return run;
}

LayoutChoice choice_of(const RunConfig& run, const Layout& layout) {
  const ParallelConfig& p = run.parallel;
  LayoutChoice c;
  c.tensor = p.tensor, c.pipeline = p.pipeline, c.context = p.context, c.data = layout.size(Axis::data), c.expert = p.expert;
  c.virtual_stages = p.virtual_stages;
  c.attention_ranks = layout.attention_ranks;
  c.context_mode = p.context_mode;
  c.sequence = p.sequence;
  c.micro_batch_size = run.train.micro_batch_size;
  while (schedules[std::size_t(c.schedule)].schedule != p.one_chunk) ++c.schedule;
  while (recompute_of(recompute_names[c.recompute]) != run.recompute.all) ++c.recompute;
  c.shard = p.shard;
  return c;
}

}  // namespace gyr
