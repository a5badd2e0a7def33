// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/layout_space.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "src/base/limits.hpp"
#include "src/config/bounds.hpp"
#include "src/config/layout_rules.hpp"
#include "src/config/mixer_split.hpp"

namespace gyr {

namespace {

constexpr int fine = -1;  // index of a reason for rejection that means "accepted"

std::vector<Index> divisors_of(Index n) {
  std::vector<Index> divisors;
  for (Index d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    divisors.push_back(d);
    if (d * d != n) divisors.push_back(n / d);
  }
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

bool keeps(const RunConfig& run, const char* key) {
  const std::vector<std::string>& kept = run.parallel.keep;
  return std::find(kept.begin(), kept.end(), key) != kept.end();
}

class Enumeration {
 public:
  Enumeration(const RunConfig& run, int ranks) : run_(run), trial_(run), ranks_(ranks) {
    trial_.parallel.data = trial_.parallel.pipeline = trial_.parallel.context = trial_.parallel.tensor = trial_.parallel.expert = 1;
    trial_.parallel.virtual_stages = 1;
    if (!keeps(run, "schedule")) trial_.parallel.one_chunk = one_f_one_b;
    if (!keeps(run, "sequence")) trial_.parallel.sequence = false;
    Index batch = 0;
    for (const BatchStep& step : run.train.batches()) batch = std::gcd(batch, step.batch);
    micro_batches_ = keeps(run, "micro_batch_size") ? std::vector<Index>{run.train.micro_batch_size} : divisors_of(batch);
    const std::vector<Index> all = divisors_of(ranks);
    divisors_.assign(all.begin(), all.end());
    recomputations_ = double(recomputations_of(run).size());
  }

  LayoutSpace space() {
    check_run();
    for (const int tensor : axis("tensor", run_.parallel.tensor, ranks_))
      for (const Mixers& mixers : mixers_of(tensor)) with_tensor(tensor, mixers);
    return std::move(space_);
  }

 private:
  struct Mixers {
    int attention_ranks = 0;
    int refused = fine;
  };

  template <class Rule>
  int refused(const Rule& rule) {
    try {
      rule();
      return fine;
    } catch (const Error& e) {
      if (e.code != Exit::config) throw;
      return space_.refusals.reason(e.what());
    }
  }

  // Checks the rules that do not depend on the layout.
  void check_run() {
    check_permutation(run_.parallel.permutation, ranks_);
    check_islands(run_.parallel.islands, ranks_);
    require(!run_.parallel.reduce_dtype || run_.train.precision != "fp64", Exit::config,
            "parallel.reduce_dtype = bf16 is for gradients in fp32, and train.precision = fp64 adds them up in fp64; set it to full");
  }

  std::vector<int> axis(const char* key, int kept, int left) const {
    std::vector<int> sizes;
    for (const int n : divisors_)
      if (n <= left && left % n == 0 && (!keeps(run_, key) || kept == n)) sizes.push_back(n);
    return sizes;
  }

  std::vector<Mixers> mixers_of(int tensor) {
    ParallelConfig& p = trial_.parallel;
    p.tensor = tensor;
    std::vector<Mixers> all;
    const auto add = [&](Mixer mixer, int attention_ranks) {
      p.mixer = mixer, p.attention_ranks = attention_ranks;
      Mixers m;
      m.refused = refused([&] {
        m.attention_ranks = attention_ranks_of(p, run_.model, run_.train.seq_length);
        check_sharding(trial_, m.attention_ranks);
        require(tensor <= most_axis, Exit::config, "parallel.tensor = {} exceeds {}, the maximum size of an axis", tensor, most_axis);
      });
      all.push_back(m);
    };
    if (keeps(run_, "mixer")) {
      add(run_.parallel.mixer, run_.parallel.attention_ranks);
      return all;
    }
    add(Mixer::split, 0);
    if (has_layer(run_.model.pattern, &LayerTraits::without_mixers) && tensor > 1 && tensor <= most_axis)
      for (const MixerSplit& mixer_split : mixer_splits(run_.model, run_.train.seq_length, tensor)) add(Mixer::separate, mixer_split.attention_ranks);
    return all;
  }

  void with_tensor(int tensor, const Mixers& mixers) {
    shape_ = {};
    shape_.tensor = tensor, shape_.attention_ranks = mixers.attention_ranks;
    trial_.parallel.tensor = tensor;
    const int left = ranks_ / tensor;
    for (const int pipeline : axis("pipeline", run_.parallel.pipeline, left))
      for (const int chunks : virtual_stages_of(pipeline)) {
        shape_.pipeline = pipeline, shape_.virtual_stages = chunks;
        const int staged = mixers.refused != fine ? mixers.refused : stages_refused(pipeline, chunks);
        for (const int context : axis("context", run_.parallel.context, left / pipeline))
          for (const ContextMode mode : modes_of(context)) {
            shape_.context = context, shape_.context_mode = mode;
            shape_.data = left / pipeline / context;
            if (keeps(run_, "data") && run_.parallel.data > 0 && run_.parallel.data != shape_.data) continue;
            with_grid(staged != fine ? staged : context_refused());
          }
      }
  }

  void with_grid(int why) {
    for (const int expert : experts_of()) {
      shape_.expert = expert;
      const int distributed = why != fine ? why : experts_refused();
      for (const Index micro_batch : micro_batches_) {
        shape_.micro_batch_size = micro_batch;
        const int batched = distributed != fine ? distributed : batches_refused();
        for (const bool sequence : sequences_of()) {
          shape_.sequence = sequence;
          add(batched);
        }
      }
    }
  }

  void add(int why) {
    const int micros = why == fine ? micros_of(run_, shape_) : 2;
    const double layouts = double(schedules_of(run_, shape_, micros).size() * shards_of(run_, shape_).size()) * recomputations_;
    space_.layouts += layouts;
    if (why != fine) return space_.refusals.add(why, layouts);
    space_.shapes.push_back(variants_of(run_, shape_).front());
  }

  std::vector<int> virtual_stages_of(int pipeline) const {
    if (keeps(run_, "virtual_stages")) return {run_.parallel.virtual_stages};
    std::vector<int> counts{1};
    const Index layers = run_.model.layers();
    for (Index chunks = 2; pipeline > 1 && chunks * pipeline <= layers; ++chunks)
      if (layers % (chunks * pipeline) == 0 || std::has_single_bit(std::uint64_t(chunks))) counts.push_back(int(chunks));
    return counts;
  }

  int stages_refused(int pipeline, int chunks) {
    const auto [known, fresh] = stages_.try_emplace({pipeline, chunks}, fine);
    if (!fresh) return known->second;
    ParallelConfig& p = trial_.parallel;
    p.pipeline = pipeline, p.virtual_stages = chunks;
    return known->second = refused([&] {
             check_schedule(p);
             require(pipeline <= most_axis, Exit::config, "parallel.pipeline = {} exceeds {}, the maximum size of an axis", pipeline, most_axis);
             stages_of(trial_);
           });
  }

  std::vector<ContextMode> modes_of(int context) const {
    if (keeps(run_, "context_mode")) return {run_.parallel.context_mode};
    if (context == 1) return {ContextMode::ring};
    return {ContextMode::ring, ContextMode::heads, ContextMode::balanced};
  }

  int context_refused() {
    const auto [known, fresh] =
        contexts_.try_emplace({shape_.tensor, shape_.attention_ranks, shape_.context, int(shape_.context_mode), shape_.pipeline}, fine);
    if (!fresh) return known->second;
    ParallelConfig p = trial_.parallel;
    p.pipeline = 1, p.context = shape_.context, p.context_mode = shape_.context_mode, p.permutation.clear();
    const Layout layout = layout_from_choices(p, 1, shape_.attention_ranks, {});
    const Index model_ranks = Index(shape_.tensor) * shape_.context * shape_.pipeline;
    return known->second = refused([&] {
             require(shape_.context <= most_axis, Exit::config, "parallel.context = {} exceeds {}, the maximum size of an axis", shape_.context,
                     most_axis);
             require(model_ranks <= most_model_ranks, Exit::config,
                     "parallel: pipeline x context x tensor is {} ranks per model replica, but the maximum is {}", model_ranks, most_model_ranks);
             check_context(layout, trial_);
           });
  }

  std::vector<int> experts_of() const {
    if (keeps(run_, "expert")) return {run_.parallel.expert};
    std::vector<int> counts{1};
    if (!has_layer(run_.model.pattern, &LayerTraits::experts)) return counts;
    for (const Index n : divisors_of(run_.model.moe.experts))
      if (n > 1 && n <= most_axis && shape_.token_ranks() % n == 0) counts.push_back(int(n));
    return counts;
  }

  int experts_refused() {
    const auto [known, fresh] = experts_.try_emplace({shape_.expert, shape_.token_ranks()}, fine);
    if (!fresh) return known->second;
    trial_.parallel.expert = shape_.expert, trial_.parallel.context = shape_.context;
    return known->second = refused([&] { check_experts(trial_, shape_.data); });
  }

  int batches_refused() {
    const auto [known, fresh] = batches_.try_emplace({shape_.data, shape_.micro_batch_size}, fine);
    if (!fresh) return known->second;
    trial_.train.micro_batch_size = shape_.micro_batch_size;
    return known->second = refused([&] {
             check_batches(trial_, shape_.data);
             ParallelConfig& p = trial_.parallel;
             p.data = p.pipeline = p.context = p.tensor = 1;
             check_bounds(trial_, SettingsText([&](const std::vector<std::string>&) {
                            return fmt::format("train.micro_batch_size = {}, train.seq_length = {}", shape_.micro_batch_size, run_.train.seq_length);
                          }));
           });
  }

  std::vector<bool> sequences_of() const {
    if (keeps(run_, "sequence")) return {run_.parallel.sequence};
    return shape_.tensor > 1 ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }

  const RunConfig& run_;
  RunConfig trial_;  // settings chosen so far, for checking rules
  int ranks_;
  std::vector<int> divisors_;
  std::vector<Index> micro_batches_;
  double recomputations_ = 1;
  LayoutChoice shape_;
  LayoutSpace space_;
  // Cached reasons, by the settings that a rule reads.
  std::map<std::pair<int, int>, int> stages_, experts_;
  std::map<std::array<int, 5>, int> contexts_;
  std::map<std::pair<int, Index>, int> batches_;
};

}  // namespace

LayoutSpace space_of(const RunConfig& run, int ranks) { return Enumeration(run, ranks).space(); }

int micros_of(const RunConfig& run, const LayoutChoice& c) { return int(run.largest_batch() / (c.data * c.micro_batch_size)); }

// With a single micro-batch, GPipe is the same as 1F1B and is left out.
std::vector<int> schedules_of(const RunConfig& run, const LayoutChoice& c, int micros) {
  std::vector<int> all;
  for (int i = 0; i < int(schedules.size()); ++i) {
    const Schedule schedule = schedules[std::size_t(i)].schedule;
    if (keeps(run, "schedule") ? schedule == run.parallel.one_chunk
                               : i == 0 || (c.pipeline > 1 && c.virtual_stages == 1 && (micros > 1 || schedule != all_forward_all_backward)))
      all.push_back(i);
  }
  return all;
}

std::vector<int> recomputations_of(const RunConfig& run) {
  std::vector<int> all;
  for (int i = 0; i < int(std::size(recompute_names)); ++i)
    if (!keeps(run, "recompute") || recompute_of(recompute_names[i]) == run.recompute.all) all.push_back(i);
  return all;
}

std::vector<Shard> shards_of(const RunConfig& run, const LayoutChoice& c) {
  if (keeps(run, "shard")) return {run.parallel.shard};
  if (c.token_ranks() == 1) return {Shard::none};
  return {Shard::none, Shard::optimizer, Shard::gradients, Shard::weights};
}

LayoutChoice in_search_form(const RunConfig& run, LayoutChoice c) {
  const auto first_unless_listed = [](const auto& all, auto& value) {
    if (std::find(all.begin(), all.end(), value) == all.end()) value = all.front();
  };
  if (c.context == 1 && !keeps(run, "context_mode")) c.context_mode = ContextMode::ring;
  if (c.tensor == 1 && !keeps(run, "sequence")) c.sequence = false;
  first_unless_listed(schedules_of(run, c, micros_of(run, c)), c.schedule);
  first_unless_listed(shards_of(run, c), c.shard);
  return c;
}

std::vector<LayoutChoice> variants_of(const RunConfig& run, const LayoutChoice& shape) {
  std::vector<LayoutChoice> all;
  for (const int schedule : schedules_of(run, shape, micros_of(run, shape)))
    for (const int recompute : recomputations_of(run))
      for (const Shard shard : shards_of(run, shape)) {
        LayoutChoice& c = all.emplace_back(shape);
        c.schedule = schedule, c.recompute = recompute, c.shard = shard;
      }
  return all;
}

}  // namespace gyr
