// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/critic.hpp"

#include <map>

#include "src/deck/deck.hpp"
#include "src/engine/model/replicas.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/train/row_scores.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

// Deck of a run that would train the critic by itself: it describes the critic's checkpoints.
std::string deck_of(const RunConfig& run) {
  Deck deck = Deck::parse(fmt::format("train: {{objective: value, seq_length: {}, precision: {}}}\n", run.train.seq_length, run.train.precision),
                          "the deck of models.critic");
  RunDefaults defaults;
  defaults.model = run.model, defaults.tokenizer = run.data.tokenizer;
  read_run_config(deck, defaults);
  return deck.effective();
}

// Saves the critic and then the policy, so that a checkpoint of the policy never lacks that of its critic.
class PairSaver final : public StateSaver {
 public:
  PairSaver(std::unique_ptr<StateSaver> critic, std::string deck, std::unique_ptr<StateSaver> policy)
      : critic_(std::move(critic)), deck_(std::move(deck)), policy_(std::move(policy)) {}

  std::optional<Saved> save(CheckpointHeader header) override {
    // The policy's last checkpoint is complete before the critic's of the one before is removed.
    const std::optional<Saved> before = finish();
    CheckpointHeader of_critic = header;
    of_critic.deck = deck_;
    saved_[header.step] = *critic_->save(std::move(of_critic));
    const std::optional<Saved> now = joined(policy_->save(std::move(header)));
    return now ? now : before;
  }
  std::optional<Saved> poll() override { return joined(policy_->poll()); }
  std::optional<Saved> finish() override { return joined(policy_->finish()); }
  Index buffer_bytes() const override { return policy_->buffer_bytes(); }

 private:
  std::optional<Saved> joined(std::optional<Saved> policy) {
    if (!policy) return {};
    const auto critic = saved_.find(policy->step);
    if (critic == saved_.end()) return policy;
    const Saved& c = critic->second;
    policy->bytes += c.bytes, policy->files += c.files;
    policy->blocked_seconds += c.blocked_seconds, policy->write_seconds += c.write_seconds;
    policy->notes.insert(policy->notes.end(), c.notes.begin(), c.notes.end());
    saved_.erase(critic);
    return policy;
  }

  const std::unique_ptr<StateSaver> critic_;
  const std::string deck_;
  const std::unique_ptr<StateSaver> policy_;
  std::map<std::int64_t, Saved> saved_;  // checkpoints of the critic whose policy is still being written
};

}  // namespace

struct Critic::Held {
  PlacedModel placed;
  MPI_Comm comm;
  Timers timers{engine_timer_names()};
  Grid grid;
  Capacity capacity;
  Engine engine;

  Held(PlannedModel planned, MPI_Comm mesh, WaitPolicy patience, const Arena& working, ProgressRecord& progress_record)
      : placed(std::move(planned.placed)), comm(mesh), grid(placed.layout, mesh, patience, &progress_record), capacity(*planned.capacity),
        engine(scoring_config(placed), grid, &capacity, timers, &working) {}
};

Critic::Critic(PlannedModel planned, MPI_Comm world, const Arena& working, ProgressRecord& progress_record) {
  const MPI_Comm mesh = communicator_of(planned.placed.mesh, world);
  held_ = std::make_unique<Held>(std::move(planned), mesh, wait_policy_of(world), working, progress_record);
}

Critic::~Critic() {
  MPI_Comm comm = held_->comm;
  held_.reset();
  MPI_Comm_free(&comm);
}

void Critic::begin() {
  const RunConfig& run = held_->placed.run;
  const std::filesystem::path from = run.train.init_from;
  if (from.empty()) return held_->engine.initialise(run.train.seed);
  const bool new_head = !keeps_head(*defaults_of(from).model.objective, *run.model.objective);
  load_weights_from([&] { return open_initial(from, run.model, new_head, run.train.seed); }, held_->engine);
}

void Critic::load(const std::filesystem::path& of_policy) {
  load_checkpoint(critic_checkpoint(of_policy), held_->engine, LoadWhat::everything, reading_of(held_->placed.run.checkpoint.read));
}

void Critic::check_checkpoint(const std::filesystem::path& of_policy) const {
  const std::filesystem::path path = critic_checkpoint(of_policy);
  std::error_code no;
  require(std::filesystem::exists(path, no), Exit::data,
          "{}: does not exist, and {} needs the critic of its step; restore it, or resume from another checkpoint", path.string(),
          of_policy.string());
  gyr::check_checkpoint(path, held_->engine);
}

std::unique_ptr<StateSaver> Critic::saver(std::unique_ptr<StateSaver> of_policy) {
  const CheckpointConfig& c = held_->placed.run.checkpoint;
  // One more is kept than of the policy, whose newest checkpoint may still be in writing.
  const int keep = c.keep > 0 ? int(c.keep) + 1 : 0;
  const SaveOptions options{files_of(c.files), {c.deflate, c.verify}, {keep, c.keep_every}, false};
  const std::filesystem::path folder = critic_checkpoint(checkpoints_of(held_->placed.run) / "step").parent_path();
  return std::make_unique<PairSaver>(std::make_unique<Saver>(folder, options, held_->engine), deck_of(held_->placed.run), std::move(of_policy));
}

std::vector<double> Critic::values(const StepSamples& s) {
  std::vector<double> all = row_values(held_->engine, s.source, s.samples);
  held_->grid.world().start_all_reduce(held_->engine.device(), Tensor1<double>(all.data(), Index(all.size()))).host_wait();
  held_->engine.device().fence();
  return all;
}

StepResult Critic::step(StepOrder order, const StepSamples& s) {
  const EngineConfig& config = held_->engine.config();
  try {
    const StepResult result =
        held_->engine.train(feed(s.source, s.samples.first, config, held_->grid), micros_of(held_->engine, held_->grid, s.batch()), order);
    held_->engine.device().fence();
    return result;
  } catch (const Error& error) {
    fail(error.code, "models.critic: {}", error.what());
  }
}

void Critic::check_replicas(Index step) { gyr::check_replicas(held_->engine, step); }

const Capacity& Critic::capacity() const { return held_->capacity; }

std::filesystem::path critic_checkpoint(const std::filesystem::path& of_policy) {
  return of_policy.parent_path().parent_path() / "critic" / "checkpoints" / of_policy.filename();
}

}  // namespace gyr
