// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/feed.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/printable.hpp"
#include "src/base/quantity.hpp"
#include "src/config/run_advice.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/sample_view.hpp"
#include "src/engine/model/source_padding.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/policy/rewards/field.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/train/data_reading.hpp"
#include "src/train/neighbours.hpp"
#include "src/train/reward_texts.hpp"

namespace gyr {

namespace {

FillInMiddle filling_of(const RunConfig& run) {
  if (run.data.fim.rate == 0) return {};
  return FillInMiddle(run.data.fim, Tokenizer::load(run.data.tokenizer), run.data.tokenizer, run.data.seed);
}

DatasetOptions dataset_options(const RunConfig& run, Split which, Index samples) {
  DatasetOptions o;
  for (std::size_t i = 0; i < run.data.prefixes.size(); ++i)
    o.corpora.push_back({run.data.prefixes[i], run.data.weights.empty() ? std::nullopt : std::optional(run.data.weights[i])});
  o.stages = run.data.stages;
  if (which == Split::train) o.max_epochs = run.data.max_epochs, o.fill_in_middle = filling_of(run);
  else if (!o.stages.empty()) o.stages.resize(o.stages.front().position > 0 ? 0 : 1);  // validation keeps the first weights
  o.split = run.data.split;
  o.which = which;
  o.seq_length = run.train.seq_length;
  o.seed = run.data.seed;
  o.order = parse_sample_order(run.data.order);
  o.separate = run.data.separate;
  o.predicts = run.model.objective->writes_next_token();
  o.samples = samples;
  o.vocab_size = run.model.vocab_size;
  o.words = words_of(run);
  o.classes = run.model.objective->classes();
  if (run.model.objective->reads_pairs()) o.source_length = run.lengths().source;
  const bool reads_references = !run.model.objective->scoring_models().empty() && run.models.empty();
  if (run.model.objective->most_pairs(run.train.seq_length) > 0) o.pairs = reads_references ? Pairs::with_reference : Pairs::without_reference;
  return o;
}

// Exit::data unless the tokenizer of the deck fits the model and the token files.
void check_tokenizer(const RunConfig& run) {
  const Index size = Tokenizer::load(run.data.tokenizer).size();
  require(size <= run.model.vocab_size, Exit::data,
          "data.tokenizer {}: {} tokens, but model.vocab_size is {}; raise model.vocab_size, or name the model's tokenizer", run.data.tokenizer, size,
          run.model.vocab_size);
  require_tokenizer({run.data.prefixes.begin(), run.data.prefixes.end()}, run.data.tokenizer,
                    run.train.init_from.empty() ? "data.tokenizer" : "the model's tokenizer (data.tokenizer)");
}

constexpr std::int64_t tokens_checked = std::int64_t(1) << 24, tokens_at_once = std::int64_t(1) << 20;

void check_first_tokens(const TokenFile& file, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens(std::size_t(std::min(file.tokens(), tokens_at_once)));
  for (std::int64_t at = 0, end = std::min(file.tokens(), tokens_checked); at < end; at += std::int64_t(tokens.size())) {
    tokens.resize(std::size_t(std::min<std::int64_t>(end - at, std::int64_t(tokens.size()))));
    file.read_stream(at, tokens, vocab_size);
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> words_of(const RunConfig& run) {
  if (!run.model.objective->needs_word_starts() || run.data.tokenizer.empty()) return nullptr;
  return std::make_shared<const Tokenizer>(Tokenizer::load(run.data.tokenizer));
}

// Counts successive steps with the same batch size at once, up to the next change by the batch size ramp-up.
Index samples_of(const RunConfig& run) {
  Index samples = 0;
  for (Index left = run.train.steps; left > 0;) {
    const Index batch = run.batch_after(double(samples * run.train.seq_length));
    const auto same = [&](Index steps) { return run.batch_after(double((samples + steps * batch) * run.train.seq_length)) == batch; };
    Index taken = 1;
    double next = HUGE_VAL;  // token count at which the batch size changes next
    for (const BatchStep& step : run.train.ramp)
      if (step.tokens > double(samples * run.train.seq_length)) next = std::min(next, step.tokens);
    const double until = (next / double(run.train.seq_length) - double(samples)) / double(batch);  // steps until that change, up to rounding
    taken = until >= double(left) + 1 ? left : std::clamp<Index>(Index(until) - 1, 1, left);
    while (taken < left && same(taken)) ++taken;
    samples += taken * batch;
    left -= taken;
  }
  return samples;
}

namespace {

void require_prefixes(const RunConfig& run) {
  require(!run.data.prefixes.empty(), Exit::config,
          "data.prefixes is empty: name at least one PREFIX of PREFIX.bin and PREFIX.idx, which `gyrfalcon data build` makes from text");
}

// Most steps, up to train.steps, that read at most `samples` samples.
Index steps_within(RunConfig run, Index samples) {
  Index least = 0, most = run.train.steps;
  while (least < most) {
    run.train.steps = (least + most + 1) / 2;
    if (samples_of(run) <= samples) least = run.train.steps;
    else most = run.train.steps - 1;
  }
  return least;
}

Dataset training_data(const RunConfig& run) {
  require_prefixes(run);
  Dataset data(dataset_options(run, Split::train, samples_of(run)));
  const Index needed = samples_of(run), samples = data.mixture().size_up_to(needed);
  if (samples == needed) return data;
  const Index steps = steps_within(run, samples);
  fail(Exit::config,
       "data.max_epochs: the run needs {}, but the epoch caps leave {}, enough for {}; set train.steps={}, raise data.max_epochs, or set one of them "
       "to "
       "0 (no limit)",
       counted(needed, "sample"), samples, counted(steps, "step"), steps);
}

// Exit::data for the first line without a field that a rule reads.
void check_fields(const std::vector<RewardConfig>& rewards, const Prompts& prompts) {
  if (std::all_of(rewards.begin(), rewards.end(), [](const RewardConfig& r) { return r.field.empty(); })) return;
  for (std::int64_t line = 0; line < prompts.size(); ++line) {
    const Json fields = prompts.fields(line);
    Answer answer;
    answer.fields = &fields, answer.place = prompts.place(line);
    for (const RewardConfig& reward : rewards)
      if (!reward.field.empty()) field_of(answer, reward);
  }
}

// Prompts of policy training, each of which fits a window together with its answer.
Prompts prompts_of(const RunConfig& run) {
  require_prefixes(run);
  const std::vector<RewardConfig>& rewards = run.policy->rewards;
  const auto of_text = std::find_if(rewards.begin(), rewards.end(), needs_text);
  require(of_text == rewards.end() || !run.data.tokenizer.empty(), Exit::config,
          "data.tokenizer is empty, and rl.rewards.{} reads the text of an answer; name the model's tokenizer.json",
          of_text == rewards.end() ? "" : of_text->name);
  Prompts prompts({run.data.prefixes.begin(), run.data.prefixes.end()}, run.model.vocab_size);
  const Index needed = Index(prompts.longest()) + run.policy->max_new_tokens;
  require(needed <= run.train.seq_length, Exit::data,
          "train.seq_length = {}: the longest prompt has {} tokens and rl.generate.max_new_tokens is {}; set train.seq_length to {} or more",
          run.train.seq_length, prompts.longest(), run.policy->max_new_tokens, needed);
  check_fields(rewards, prompts);
  for (const RewardConfig& reward : rewards)
    if (reward.type == RewardType::model) RewardTexts::of(run, reward);
  return prompts;
}

std::optional<Dataset> validation_data(const RunConfig& run) {
  if (run.train.eval_every == 0) return {};
  return std::optional<Dataset>(std::in_place, dataset_options(run, Split::validation, run.train.eval_batches * run.largest_batch()));
}

}  // namespace

RunData open_data(const RunConfig& run, Grid& grid) {
  grid.begin_task("data");
  run.model.objective->check_training(run.model);
  RunData data;
  if (run.policy) data.prompts = prompts_of(run);
  else add_neighbours(run, Split::train, data.training.emplace(training_data(run)));
  collective_check(grid.world(), [&] {
    if (grid.position() == 0 && !run.data.tokenizer.empty()) check_tokenizer(run);
  });
  data.validation = validation_data(run);
  if (data.validation) add_neighbours(run, Split::validation, *data.validation);
  return data;
}

std::string refusal_of_data(const RunConfig& run) {
  try {
    std::optional<Dataset> training;
    if (run.policy) prompts_of(run);
    else add_neighbours(run, Split::train, training.emplace(training_data(run)));
    if (std::optional<Dataset> validation = validation_data(run)) add_neighbours(run, Split::validation, *validation);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::optional<double> epochs_of(const RunConfig& run) {
  if (run.policy) return {};
  try {
    return epochs_of(run, training_data(run));
  } catch (const Error&) {
    return {};
  }
}

std::string doubtful_vocabulary(const RunConfig& run) {
  std::int64_t tokens = 0;
  for (const std::string& prefix : run.data.prefixes)
    if (const auto fingerprint = fingerprint_of(prefix)) tokens = std::max(tokens, fingerprint->tokenizer.tokens);
  // Vocabularies are padded to a round size, and those of published models to more.
  if (tokens == 0 || !run.train.init_from.empty() || run.model.vocab_size <= tokens + tokens / 4 + 256) return "";
  return fmt::format(
      "model.vocab_size = {}, but the tokenizer of the data has {} tokens: the rows of the others in the embedding and the head are never used; "
      "model.vocab_size={} suits it",
      run.model.vocab_size, tokens, (tokens + 63) / 64 * 64);
}

std::string doubtful_order(const RunConfig& run) {
  if (!run.model.objective->writes_next_token() || (run.data.order == "documents" && run.data.separate)) return "";
  try {
    for (const std::string& prefix : run.data.prefixes)
      if (const auto fingerprint = fingerprint_of(prefix))
        for (const auto& [option, value] : fingerprint->options)
          if (option == "--template")
            return fmt::format(
                "{} holds conversations (--template), and data.order = {} joins them and breaks them at the ends of windows; write "
                "data.order=documents data.documents=separate",
                printable(prefix), run.data.order);
  } catch (const Error&) {  // open_data reports a damaged file
  }
  return "";
}

void check_token_files(const RunConfig& run) {
  std::error_code no;
  std::vector<std::unique_ptr<TokenFile>> files;
  for (const std::string& prefix : run.data.prefixes)
    if (std::filesystem::exists(index_path(prefix), no) && std::filesystem::exists(tokens_path(prefix), no))
      files.push_back(std::make_unique<TokenFile>(prefix));
  check_fingerprints(files, run.model.vocab_size);
  if (!files.empty() && std::filesystem::is_regular_file(run.data.tokenizer, no)) check_tokenizer(run);
  for (const auto& file : files) check_first_tokens(*file, run.model.vocab_size);
}

Index samples_per_epoch(const Dataset& dataset) {
  Index samples = 0;
  for (Index corpus = 0; corpus < dataset.corpora(); ++corpus) samples += dataset.per_epoch(corpus);
  return samples;
}

double epochs_of(const RunConfig& run, const Dataset& training) {
  return double(samples_of(run)) / double(std::max<Index>(1, samples_per_epoch(training)));
}

std::string epoch_text(const RunConfig& run, const Dataset& training) {
  const Index samples = samples_per_epoch(training), batch = run.largest_batch();
  return fmt::format("training data: {} of {}; one epoch is {} of {}; the run reads {:.3g} epochs", counted(samples, "sequence"),
                     counted(run.train.seq_length, "token"), counted((samples + batch - 1) / batch, "step"), batch, epochs_of(run, training));
}

std::string doubtful_epochs(const RunConfig& run, const Dataset& training) {
  constexpr double most_epochs = 100, most_when_tuning = 10;
  const double epochs = epochs_of(run, training);
  if (epochs <= (run.train.init_from.empty() ? most_epochs : most_when_tuning)) return "";
  return fmt::format(
      "the run reads its {} {:.0f} times, and more than four times teach little: lower train.steps, train.global_batch_size or train.seq_length, or "
      "add data",
      counted(samples_per_epoch(training), "sequence"), epochs);
}

std::string reading_table(const RunConfig& run) {
  require(!run.policy, Exit::config, "train.objective = policy: a run reads each prompt once per epoch, and has no mixture of corpora");
  return reading_table(training_data(run), samples_of(run));
}

std::string planned_reading(const RunConfig& run) {
  if (run.policy || run.data.prefixes.empty()) return "";
  try {
    const Dataset data = training_data(run);
    return has_mixture(data) ? reading_table(data, samples_of(run)) : "";
  } catch (const Error&) {
    return "";  // the plan states the reason elsewhere
  }
}

std::string prompts_text(const RunConfig& run, const Prompts& prompts) {
  const PolicyConfig& c = *run.policy;
  return fmt::format("{}; an iteration answers {} of them {}, and has {}; the run reads {:.3g} epochs", counted(Index(prompts.size()), "prompt"),
                     c.prompts, counted(c.group, "time"), counted(c.steps_of_iteration(), "optimizer step"),
                     double(c.iterations) * double(c.prompts) / double(std::max<std::int64_t>(1, prompts.size())));
}

namespace {

// Role and origin of a further model.
std::string text_about(const RunConfig& run, const FurtherModel& m) {
  const bool trained = run.policy && run.policy->has_critic() && m.name == "critic";
  return fmt::format("models.{}: {}, from {}, on ranks {}", m.name, trained ? "trained" : "frozen",
                     m.init_from.empty() ? "random weights" : printable(m.init_from), m.ranks);
}

std::string limit_text(double seconds) {
  const Index whole = std::llround(seconds), minutes = whole / 60, hours = minutes / 60;
  const std::string rest = fmt::format("{} s (train.walltime)", whole % 60);
  if (hours > 0) return fmt::format("time limit: {} h {} min {}", hours, minutes % 60, rest);
  return minutes > 0 ? fmt::format("time limit: {} min {}", minutes, rest) : "time limit: " + rest;
}

}  // namespace

std::vector<std::string> lines_about(const RunConfig& run, const RunData& data) {
  std::vector<std::string> lines{data.prompts ? prompts_text(run, *data.prompts) : epoch_text(run, *data.training)};
  if (run.train.walltime > 0) lines.push_back(limit_text(run.train.walltime));
  if (data.training && has_mixture(*data.training)) {
    const Index samples = samples_of(run);
    for (const std::string& line : reading_lines(*data.training, samples)) lines.push_back(line);
    for (const std::string& line : change_lines(*data.training, 0, samples)) lines.push_back(line);
  }
  for (const FurtherModel& m : run.models) {
    lines.push_back(text_about(run, m));
    std::error_code no;
    for (const std::string& prefix : run.data.prefixes)
      if (std::filesystem::exists(references_path(prefix), no))
        lines.push_back(fmt::format("{} is not read: models.{} scores the texts", references_path(prefix).string(), m.name));
  }
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty()) lines.push_back("warning: " + warning);
  };
  warn(doubtful_vocabulary(run));
  if (data.training) warn(doubtful_epochs(run, *data.training));
  if (data.training)
    for (const std::string& note : data.training->notes()) lines.push_back(note);
  if (!data.validation) return lines;
  for (const std::string& note : data.validation->notes()) lines.push_back("validation: " + note);
  warn(doubtful_evaluation(run, samples_per_epoch(*data.validation)));
  return lines;
}

MicroBatch micro_batch_of(const SampleSource& samples, const ModelConfig& model, Index first, Index batch, Index seq_length) {
  MicroBatch m{batch, seq_length, {}, {}, {}, first};
  std::vector<Sample> with_neighbours;
  for (Index b = 0; b < batch; ++b) {
    const Sample s = samples(first + b);
    if (reads_neighbours(model)) with_neighbours.push_back(s);
    const Labelled labelled = model.objective->label(view_of(s, first + b, model));
    m.tokens.insert(m.tokens.end(), labelled.tokens.begin(), labelled.tokens.end());
    m.labels.insert(m.labels.end(), labelled.labels.begin(), labelled.labels.end());
    m.source.length = model.objective->lengths(Index(s.tokens.size()) - 1).source;
    append_source(labelled.source, m.source);
    if (model.objective->reads_pairs()) m.lengths.push_back(labelled.length());
    append_values(model.objective->fields(model, seq_length), labelled.values, seq_length, m.values);
    if (!s.positions.empty()) m.positions.insert(m.positions.end(), s.positions.begin(), s.positions.end() - 1);
  }
  if (reads_neighbours(model)) m.source = neighbours_of(with_neighbours, model.retrieval);
  return m;
}

MicroBatches feed(SampleSource samples, Index first, const EngineConfig& config, Grid& grid) {
  return [=, &grid, micro = config.micro_batch_size, seq_length = config.seq_length, model = config.model](int i) {
    return micro_batch_of(samples, model, first + first_sample(micro, i, grid), micro, seq_length);
  };
}

MicroBatches feed(const Dataset& dataset, Index first, const EngineConfig& config, Grid& grid) {
  return feed([&dataset](Index number) { return dataset.sample(number); }, first, config, grid);
}

}  // namespace gyr
