// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/run_start.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kernels/base/printable.hpp"
#include "modules/cost/flops.hpp"
#include "src/base/json.hpp"
#include "src/checkpoint/checkpoint_file.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/data/fingerprint.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/pretrained/new_head.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/report/build_facts.hpp"
#include "src/train/run_paths.hpp"

namespace gyr {

namespace {

// Input of a run that must not change while it is resumed: token files, their tokenizer, and the weights of further models. In a checkpoint's
// provenance, fingerprints are found by section and name.
struct Input {
  const char* section;
  std::string name;
  std::string fingerprint;  // empty: it has none
  std::string changed;      // of a changed input
};

std::vector<Input> inputs_of(const RunConfig& run) {
  std::vector<Input> inputs;
  for (const std::string& prefix : run.data.prefixes) {
    const auto fingerprint = fingerprint_of(prefix);
    if (!fingerprint) continue;
    inputs.push_back({"data", prefix, fingerprint->id(), prefix + ": the token files were built again"});
    // All corpora of a run have the same tokenizer, so that their names may change and the tokenizer may not.
    if (const std::string& sum = fingerprint->tokenizer.sum; !sum.empty())
      inputs.push_back({"tokenizer", "checksum", sum, prefix + ": another tokenizer made the token ids"});
  }
  for (const FurtherModel& m : run.models)
    if (!m.init_from.empty())
      inputs.push_back({"models", m.name, fmt::format("{:016x}", checksum_of_model(m.init_from)),
                        fmt::format("models.{}: {} has other weights", m.name, m.init_from)});
  return inputs;
}

// Warning about the learning rate of a branch; empty if the parent's deck cannot be read.
std::string text_of_rates(const CheckpointHeader& saved, const RunConfig& branch) {
  const auto position = [&](const LearningRate& lr) {
    return lr.unit == ScheduleUnit::steps ? saved.step : lr.unit == ScheduleUnit::samples ? saved.samples : saved.tokens;
  };
  try {
    Deck deck = Deck::stored(saved.deck, "checkpoint");
    const RunConfig parent = read_run_config(deck);
    return text_of_jump(parent.lr, branch.lr, position(parent.lr), position(branch.lr), saved.step);
  } catch (const Error&) {
    return "";  // an old deck
  }
}

bool adapts_drawn_weights(const RunConfig& run) {
  const std::vector<Weight> weights = declared_weights(run.model);
  return run.model.lora && !std::all_of(weights.begin(), weights.end(), run.optimizer.trained());
}

}  // namespace

CheckpointHeader RunStart::begin() {
  CheckpointHeader at = header();
  const std::string& from = parts_.run.train.init_from;
  if (from.empty()) {
    parts_.engine.initialise();
    if (adapts_drawn_weights(parts_.run))
      print_line(
          "warning: LoRA (finetune.lora) on frozen random weights learns little; did you forget --init-from DIR, which gives a "
          "trained model?");
    return at;
  }
  if (parts_.run.train.branch) return loaded(from, "branches off");
  parts_.engine.load_weights(from);
  collective_check(parts_.grid.world(), [&] {
    if (parts_.lead()) at.companions = companions_of(from);  // the first rank writes manifests
  });
  print_line("initial weights from " + printable(from));
  if (!parts_.lead()) return at;
  if (const std::string added = describe_initial(from, parts_.run.model, parts_.run.train.new_head); !added.empty()) print_line(added);
  return at;
}

void RunStart::check_begin() const {
  const std::string& from = parts_.run.train.init_from;
  if (parts_.run.train.branch) return check_branch(from);
  collective_check(parts_.grid.world(), [&] {
    if (parts_.lead() && !from.empty()) parts_.engine.check_weights(from);
  });
}

// A branch may change the course of training and its data, but not the function of the model.
void RunStart::check_branch(const std::filesystem::path& from) const {
  CheckpointHeader saved;
  collective_check(parts_.grid.world(), [&] {
    saved = CheckpointFile(from).header();
    gyr::check_branch(parts_.run.train, saved.step);
  });
  const auto changed = deck_changes(saved.deck, parts_.deck);
  print_line(text_of(changed, from.filename().string()));
  require_loadable(from, changed);
  require_same_function(changed, from.filename().string());
  compare_inputs(saved, Changes::reported, from.filename().string());
  print_line(text_of_rates(saved, parts_.run));
}

Index RunStart::check_resume(Changes changes) {
  checked_ = candidate(changes, std::numeric_limits<std::int64_t>::max());
  if (!checked_) print_line(fmt::format("{}: no checkpoint to resume; a new run starts", checkpoints_of(parts_.run).string())), check_begin();
  return checked_ ? checked_->step : 0;
}

// Newest checkpoint of this run below step `before` whose metadata can be read and whose deck is accepted. nullopt if
// there are no checkpoints at all.
std::optional<RunStart::Candidate> RunStart::candidate(Changes changes, std::int64_t before) {
  Communicator& world = parts_.grid.world();
  const std::filesystem::path folder = checkpoints_of(parts_.run);
  const auto print = [this](const std::string& note) { print_line(note); };
  while (const auto newest = newest_checkpoint(folder, world, print, before, &identity_)) {
    const CheckpointHeader saved = read_header(*newest);
    before = saved.step;
    const auto changed = changes == Changes::known ? std::vector<DeckChange>() : deck_changes(saved.deck, parts_.deck);
    print_line(text_of(changed, newest->filename().string()));
    try {
      if (changes != Changes::known) require_loadable(*newest, changed);
      if (changes == Changes::weighed) require_same_function(changed, newest->filename().string());
      if (changes != Changes::known) compare_inputs(saved, changes, newest->filename().string());
      const bool continues = saved.step < parts_.run.train.steps;
      if (const std::string old = old_values(changed); continues && !old.empty())
        print_line(fmt::format("the run continues with the new values; to keep the old ones, stop it and add to the command: {}", old));
      if (continues) print_line(text_of_moved_decay(changed, parts_.run.lr));
      return Candidate{*newest, saved.step};
    } catch (const Error& error) {  // the error is the same on every rank
      pass_over(error);
    }
  }
  // Starting over would overwrite checkpoints that may still be repaired.
  collective_check(world, [&] {
    require(!parts_.lead() || committed_steps(folder).empty(), Exit::data,
            "{}: it has no readable checkpoint of this run; --anew sets its checkpoints aside and starts a new run", folder.string());
  });
  return {};
}

// Changed input continues the run with other samples or scores.
void RunStart::compare_inputs(const CheckpointHeader& saved, Changes changes, const std::string& checkpoint) const {
  collective_check(parts_.grid.world(), [&] {
    if (!parts_.lead()) return;
    const Json provenance = json_in(saved.provenance);
    if (!provenance.is_object()) return;
    for (const Input& input : inputs_of(parts_.run)) {
      const auto known = provenance.find(input.section);
      const std::string was = known != provenance.end() && known->is_object() ? text_in(*known, input.name.c_str()) : "";
      if (was.empty() || input.fingerprint == was) continue;
      const std::string text = fmt::format("{} since {} was saved (fingerprint {}, now {})", input.changed, checkpoint, was, input.fingerprint);
      require(changes != Changes::weighed, Exit::config, "{}; restore them, start a new run with --anew, or give --accept-changes", text);
      print_line(text);
    }
  });
}

CheckpointHeader RunStart::resume(Changes changes, std::int64_t before) {
  parts_.watch.progress_record().phase("load");
  auto next = checked_ ? std::exchange(checked_, std::nullopt) : candidate(changes, before);
  for (; next; next = candidate(changes, next->step)) {
    try {
      const CheckpointHeader at = loaded(next->checkpoint, "resumed");
      if (const std::string& from = parts_.run.train.init_from; changes != Changes::known && !from.empty())
        print_line(fmt::format("train.init_from = {} is not read: the weights are those of {}", from, next->checkpoint.filename().string()));
      return at;
    } catch (const Error& error) {  // the error is the same on every rank
      pass_over(error);
    }
  }
  return begin();
}

// Reports a damaged checkpoint; rethrows any other error. To be called while the error is handled.
void RunStart::pass_over(const Error& error) const {
  if (error.code != Exit::data) throw;
  print_line(fmt::format("skipped checkpoint {}", error.what()));
}

CheckpointHeader RunStart::header() const {
  Json provenance;
  for (const auto& [name, value] : build_facts()) provenance[name] = value;
  CheckpointHeader h;
  if (parts_.lead())  // the first rank writes manifests
    for (const Input& input : inputs_of(parts_.run)) provenance[input.section][input.name] = input.fingerprint;
  h.deck = parts_.deck;
  h.seed = parts_.run.train.seed;
  h.provenance = json_text(provenance);
  h.run = identity_.id;
  return h;
}

// `how`: begin of the line that reports it.
CheckpointHeader RunStart::loaded(const std::filesystem::path& checkpoint, const char* how) {
  const CheckpointHeader saved = parts_.engine.load(checkpoint);
  CheckpointHeader at = header();
  at.step = saved.step, at.samples = saved.samples, at.tokens = saved.tokens;
  at.companions = saved.companions;
  print_line(fmt::format("{} from {} at step {}", how, checkpoint.string(), at.step));
  return at;
}

// The deck must describe the weights and moments that were saved; --accept-changes does not help there. `changed`: since the
// checkpoint was saved.
void RunStart::require_loadable(const std::filesystem::path& checkpoint, const std::vector<DeckChange>& changed) const {
  collective_check(parts_.grid.world(), [&] {
    if (!parts_.lead()) return;
    try {
      parts_.engine.check_checkpoint(checkpoint);
    } catch (const Error& e) {
      if (e.code != Exit::config || !changes_function(changed)) throw;
      fail(e.code, "{}; {}", e.what(), remedy_for_function(changed));
    }
  });
}

void RunStart::print_line(const std::string& lines) const {
  if (parts_.lead() && !lines.empty()) std::printf("%s\n", printable_lines(lines).c_str());
}

}  // namespace gyr
