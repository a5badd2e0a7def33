// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/run_config.hpp"

#include <algorithm>
#include <cmath>

#include "modules/cost/flops.hpp"
#include "modules/objectives/objective.hpp"
#include "src/config/bounds.hpp"
#include "src/data/dataset.hpp"

namespace gyr {

namespace {

std::vector<std::string> names_of(const std::vector<Weight>& weights) {
  std::vector<std::string> names;
  for (const Weight& w : weights) names.push_back(w.name);
  return names;
}

// Checks the data section against the objective and the other training keys.
void check_data(const RunConfig& run) {
  require(run.train.non_finite != NonFinite::rollback || run.data.order != "megatron", Exit::config,
          "train.non_finite = rollback needs data.order shuffled: the megatron order depends on how many samples are read");
  check_retrieval(run);
  require(run.train.eval_every == 0 || split_fractions(run.data.split)->at(1) > 0, Exit::config,
          "train.eval_every = {} evaluates on the validation split, but data.split = {} leaves that empty", run.train.eval_every, run.data.split);
  mixture_stages(run.data.stages, run.train.seq_length, std::vector<double>(run.data.prefixes.size(), 1));  // throws if they are not in order
  const bool plain = run.model.objective->writes_next_token() && !run.model.objective->reads_pairs() && !run.policy;
  require(run.data.fim.rate == 0 || plain, Exit::config,
          "data.fim.rate = {:g}: only a model that predicts the next token of plain text learns to fill gaps; set it to 0 for train.objective: {}",
          run.data.fim.rate, run.model.objective->name());
  if (!run.model.objective->has_source()) return;
  run.model.objective->lengths(run.train.seq_length);  // throws if samples of this length are too short for the objective
  require(!run.model.objective->reads_pairs() || run.data.order == "documents", Exit::config,
          "train.objective = {}: each pair of source and text is a sample of its own; set data.order to documents", run.model.objective->name());
  require(!run.data.separate, Exit::config, "data.documents = separate: an encoder reads full samples; leave it joined");
}

void check_source(const ModelConfig& m) {
  if (reads_images(m)) {
    require(std::string_view(m.objective->name()) == "next_token", Exit::config,
            "train.objective = {}: a model with a vision tower (V of model.pattern) predicts the next token; set it to next_token",
            m.objective->name());
    return;
  }
  require(m.objective->has_source() || !has_encoder(m), Exit::config,
          "train.objective = {}: its samples have no input for the encoder of model.pattern (layers before >); set it to span_corruption or seq2seq",
          m.objective->name());
  require(!m.objective->has_source() || has_encoder(m), Exit::config,
          "train.objective = {}: its samples have a source, and model.pattern has no encoder to read it; put the encoder's layers and > in front",
          m.objective->name());
}

Section& model_section(Deck& deck) { return deck.section("model", "shape of the model", Effect::function); }
Section& data_section(Deck& deck) { return deck.section("data", "token files", Effect::course); }
Section& finetune_section(Deck& deck) { return deck.section("finetune", "fine-tuning of an existing model", Effect::function); }
Section& output_section(Deck& deck) { return deck.section("output", "folder of the results", Effect::operation); }
Section& train_section(Deck& deck) { return deck.section("train", "training steps: number, batch, length, precision, objective", Effect::course); }

void check_best(const RunConfig& run, const Deck& deck) {
  require(!run.checkpoint.keep_best || run.train.eval_every > 0, Exit::config,
          "{}: the best checkpoint is that of the lowest validation loss, and the run does not validate; set train.eval_every, or "
          "checkpoint.keep_best=false",
          deck.settings_text({"checkpoint.keep_best", "train.eval_every"}));
}

// Keys of model.encoder need an encoder: layers before the symbol >, or that of the neighbours of layers R, which retro.layers may have placed.
void check_encoder_settings(const ModelConfig& m, const Deck& deck) {
  require(!m.encoder || (has_encoder(m) && !reads_images(m)) || reads_neighbours(m), Exit::config,
          "{}: model.pattern has no encoder; end its layers with >, add layers R, which have an encoder of neighbours, or leave model.encoder out",
          deck.settings_text({"model.encoder.hidden_size", "model.encoder.norm", "model.encoder.rms_norm_eps", "model.encoder.attention.num_heads",
                              "model.encoder.attention.num_kv_heads", "model.encoder.attention.head_dim", "model.encoder.mlp.intermediate_size"}));
}

// Token files of the samples, and their neighbours.
void read_samples_of(RunConfig& run, Deck& deck, const std::string& tokenizer) {
  run.data = read_data(data_section(deck), tokenizer);
  run.retro = read_retro(deck.section("retro", "neighbours of the samples, for layers R of model.pattern", Effect::course));
  if (run.retro.layers != RetrievalPlaces::pattern) place_retrieval(run.model), check(run.model);
  check_encoder_settings(run.model, deck);
}

void read_objective_of(RunConfig& run, Deck& deck, const Objective& otherwise) {
  ModelConfig& m = run.model;
  m.objective = read_objective(train_section(deck), m, otherwise);
  m.loss_terms = read_loss_terms(train_section(deck));
  if (!m.objective->classes().empty() || m.objective->gives_values()) m.tie_word_embeddings = false;
  Section& rl = deck.section("rl", "policy training from rewards (train.objective: policy)", Effect::course);
  const PolicyConfig read = read_policy(rl, m.objective->reads_rollouts());
  if (m.objective->reads_rollouts()) run.policy = read, m.objective = policy(read.loss);
}

// True if policy training has this model in its deck and no use for it: a critic without ppo, or a reference without a divergence.
bool is_idle(const RunConfig& run, const std::string& model) {
  return run.policy && ((model == "critic" && !run.policy->has_critic()) || (model == "reference" && !run.policy->reads_reference()));
}

std::vector<FurtherModel> read_models(Deck& deck, const RunConfig& run, const RunDefaults& defaults) {
  auto models = read_further_models(deck.section("models", "models besides the trained one, by name", Effect::none), defaults.models);
  for (FurtherModel& m : models)
    if (m.init_from.empty()) m.model = run.model, m.model->lora = {};
  std::erase_if(models, [&](const FurtherModel& m) { return is_idle(run, m.name); });
  return models;
}

// Steps and sequences of an optimizer step that follow from section rl: each answer fills at most one window.
std::optional<PlannedSteps> planned_steps(const std::optional<PolicyConfig>& policy) {
  if (!policy) return {};
  return PlannedSteps{policy->steps(), policy->per_minibatch()};
}

void check_adapters(const ModelConfig& m) {
  require(!m.lora || m.linear == LinearLayers::full, Exit::config,
          "finetune.lora.rank = {}: ternary linear layers (model.linear) take no adapters; set finetune.lora.rank: 0, or model.linear: full",
          m.lora.rank);
}

// FP8 GEMMs need layers whose weights all go through one kind of linear layer (modules/layers/projection.hpp).
void check_fp8(const RunConfig& run, const Deck& deck) {
  if (run.train.fp8 == Fp8Recipe::none) return;
  const std::string key = deck.settings_text({"train.fp8"}), layers = all_layers(run.model);
  require(run.model.linear == LinearLayers::full, Exit::config,
          "{}: ternary linear layers (model.linear) have whole numbers as operands; set train.fp8: none, or model.linear: full", key);
  require(!run.policy, Exit::config,
          "{}: policy training compares log-probabilities of generation with those of training, and generation has no FP8 GEMMs; set train.fp8: none",
          key);
  const auto other = find_layer(layers, [](const LayerTraits& t) { return !t.ternary; });
  require(other == std::string::npos, Exit::config, "{}: the model has a layer of type {}, whose GEMMs have no FP8 form; set train.fp8: none", key,
          layers[other == std::string::npos ? 0 : other]);
}

// Requirements of policy training on the other sections.
void check_policy(const RunConfig& run, const Deck& deck) {
  const ModelConfig& m = run.model;
  require(!has_encoder(m), Exit::config,
          "train.objective = policy: model.pattern has an encoder; only models that write token by token learn from rewards");
  require(!m.dropout.any(), Exit::config,
          "train.objective = policy: model.dropout is set, and old and new log-probabilities must be those of one function; set it to 0");
  require(m.moe.capacity_factor == 0, Exit::config,
          "{}: generation drops no expert choice and training would; set it to 0 for train.objective: policy",
          deck.settings_text({"model.moe.capacity_factor"}));
  require(run.train.eval_every == 0 && !run.checkpoint.keep_best, Exit::config,
          "train.eval_every: policy training does not validate on texts; set it to 0 and follow the rewards in the log");
  require(run.train.non_finite != NonFinite::rollback && run.train.spike == 0, Exit::config,
          "train.non_finite = rollback or train.spike: the same answers would be generated again; use train.non_finite: stop or skip");
  require(run.data.weights.empty() && run.data.skip.empty() && run.data.stages.empty() && run.data.max_epochs.empty(), Exit::config,
          "{}: prompts are drawn from all data.prefixes in turn, each once per epoch; remove these keys",
          deck.settings_text({"data.weights", "data.skip", "data.stages", "data.max_epochs"}));
  require(run.train.ramp.empty(), Exit::config, "train.ramp: the batch follows from rl.prompts, num_generations and minibatches; remove it");
  for (const Index end : run.policy->end_tokens)
    require(end < m.vocab_size, Exit::config, "rl.generate.end_tokens: {} is no token of the model, whose ids are 0 to {} (model.vocab_size)", end,
            m.vocab_size - 1);
  const auto has = [&](const std::string& name) { return std::ranges::any_of(run.models, [&](const FurtherModel& f) { return f.name == name; }); };
  require(has("critic") || !run.policy->has_critic(), Exit::config,
          "rl.algorithm = ppo: it needs a critic; name its first weights, such as models.critic.init_from=DIR (a reward model, or the model that is "
          "trained), or set rl.algorithm to grpo");
  for (const std::string& name : run.policy->loss.reward_models)
    require(has(name), Exit::config, "rl.rewards: the deck has no models.{}; name the folder of the reward model in models.{}.init_from", name, name);
  require(has("reference") || !run.policy->reads_reference(), Exit::config,
          "{}: the KL divergence needs a reference model; name it in models.reference.init_from, or set rl.kl.coefficient=0",
          deck.settings_text({"rl.kl.coefficient"}));
}

}  // namespace

RunDefaults::RunDefaults() { model.pattern.assign(36, layer_type("hybrid").symbol); }

std::string read_init_from(Deck& deck) {
  model_section(deck), data_section(deck);  // sections are shown in the order in which they were first named
  return read_init_from(train_section(deck));
}

bool read_branch(Deck& deck) { return read_branch(train_section(deck)); }

std::string read_output_folder(Deck& deck) { return output_section(deck).get("folder", "out", "folder of checkpoints, logs and metrics").value(); }

namespace {

void read_log(Section& log, RunConfig& run) {
  run.log_format = get_word(log, "format", LogFormat::short_lines, {"short", "megatron"},
                            "form of a log line: at most 120 characters, or the fields of Megatron-LM's log");
  run.open_metrics = log.get("openmetrics", "",
                             "file of the latest metrics in the OpenMetrics format, as in DIR/run.prom for the textfile collector of node_exporter; "
                             "empty: none")
                         .value();
}

}  // namespace

RunConfig read_run_config(Deck& deck, const RunDefaults& defaults) {
  deck.refuse_renamed();
  RunConfig run;
  read_init_from(deck);
  Section& model = model_section(deck);
  run.model = read_model_config(model, defaults.model);
  read_objective_of(run, deck, *defaults.model.objective);
  run.model.lora = read_lora(finetune_section(deck).section("lora", "low-rank adapters (LoRA)"), defaults.model.lora);
  check_adapters(run.model);
  check_source(run.model);
  run.model.objective->check_model(run.model);
  check_bounds(run.model, model);
  read_samples_of(run, deck, defaults.tokenizer);
  run.train = read_train(train_section(deck), defaults.precision, defaults.seq_length, planned_steps(run.policy));
  Section& optimizer = deck.section("optimizer", "update rule of the weights, and its learning rate", Effect::course);
  const std::vector<Weight> weights = declared_weights(run.model);
  check_targets(run.model.lora, weights);
  run.optimizer = read_optimizer(optimizer, names_of(weights));
  apply(run.optimizer.width, run.model), run.optimizer.lora = run.model.lora;
  require(!run.model.lora || std::any_of(weights.begin(), weights.end(), run.optimizer.trained()), Exit::config,
          "optimizer.frozen: matches every adapter of finetune.lora, and leaves no weight to train");
  run.lr.unit = read_schedule_unit(optimizer);
  run.lr = read_learning_rate(optimizer, run.lr.unit, run.schedule_position(run.train.steps));
  run.weight_decay = read_weight_decay(optimizer, run.optimizer.weight_decay, run.lr);
  run.parallel = read_parallel(deck.section("parallel", "the process grid: data x pipeline x context x tensor parallel", Effect::none));
  run.models = read_models(deck, run, defaults);
  run.parallel.islands = read_islands(deck.section("cluster", "properties of the machine that the layout takes into account", Effect::none));
  Section& activation = deck.section("activation", "activation checkpointing and offload", Effect::none);
  const ActivationPolicy policy = read_activation_policy(activation);
  run.offload = policy.offload;
  run.recompute = read_recompute(activation, run.model.pattern, policy.recompute);
  run.device_bytes =
      deck.section("memory", "memory limits of a rank", Effect::operation)
          .get("device_bytes", 0,
               "limit of a rank's device memory: a run that needs more does not start, and gyrfalcon plan --longest shows the longest sequences that "
               "fit; 0: no limit")
          .unit("bytes")
          .at_least(0);
  run.checkpoint = read_checkpoint(deck.section("checkpoint", "checkpoints", Effect::operation));
  run.dump = read_dump(deck.section("dump", "tensors of a step, for inspection", Effect::operation));
  run.trace = read_trace(deck.section("trace", "timeline traces of steps", Effect::operation));
  run.watch = read_watch(deck.section("watchdog", "ends a job that hangs", Effect::operation));
  run.supervise = read_supervise(deck.section("supervise", "limits of the supervisor gyrfalcon run", Effect::operation));
  run.fault = read_fault(deck.section("fault", "injected faults, to test how a run survives failures", Effect::none));
  read_log(deck.section("log", "log lines on standard output, and metrics for monitoring", Effect::operation), run);
  run.output = read_output_folder(deck);
  run.watch.lock_patience =
      output_section(deck)
          .get("lock_seconds", run.watch.lock_patience,
               "time without a sign of life of a run on another machine after which this run takes the folder over, if that run has "
               "not released it; at once if the scheduler reports that its job has ended")
          .unit("s")
          .positive();
  check_bounds(run, deck);
  check_data(run), check_fp8(run, deck);
  check_best(run, deck);
  if (run.policy) check_policy(run, deck);
  return run;
}

TextLengths RunConfig::lengths() const {
  TextLengths lengths = model.objective->lengths(train.seq_length);
  if (reads_neighbours(model)) lengths.source = model.retrieval.source_length(lengths.text);
  if (reads_images(model)) lengths.source = model.vision.rows_of_sequence();
  return lengths;
}

double RunConfig::limited_choices(Index batch) const {
  if (model.moe.capacity_factor == 0) return 0;
  const std::string layers = all_layers(model);
  const auto of_experts = std::count_if(layers.begin(), layers.end(), [](char symbol) { return layer_type(symbol).traits.experts; });
  return double(of_experts) * double(batch * lengths().text * model.moe.routing.top_k);
}

Index RunConfig::largest_batch() const {
  Index most = 0;
  for (const BatchStep& step : train.batches()) most = std::max(most, step.batch);
  return most;
}

Index RunConfig::next_sample(Index first, Index batch, const std::vector<Span>& skip) {
  for (const Span& range : skip)
    if (first < range.last && first + batch > range.first) first = range.last;
  return first;
}

Index RunConfig::schedule_position(Index steps) const {
  if (lr.unit == ScheduleUnit::steps) return steps;
  const std::vector<BatchStep> batches = train.batches();
  Index samples = 0;
  for (std::size_t i = 0; i < batches.size() && steps > 0; ++i) {
    Index here = steps;
    if (i + 1 < batches.size()) {  // steps until the next batch size applies
      const double left = batches[i + 1].tokens - double(samples * train.seq_length), each = double(batches[i].batch * train.seq_length);
      here = std::clamp<Index>(Index(std::ceil(left / each)), 0, steps);
    }
    samples += here * batches[i].batch, steps -= here;
  }
  return lr.unit == ScheduleUnit::samples ? samples : samples * train.seq_length;
}

Index RunConfig::batch_after(double tokens) const {
  const std::vector<BatchStep> batches = train.batches();
  Index batch = batches.front().batch;
  for (const BatchStep& step : batches)
    if (tokens >= step.tokens) batch = step.batch;
  return batch;
}

namespace {

bool reads(const RuleType& type, const std::string& path) {
  const auto& shared = type.shared_keys;
  return path.starts_with("optimizer." + type.name + ".") ||
         std::any_of(shared.begin(), shared.end(), [&](const std::string& key) { return path == "optimizer." + key; });
}

// Update rules that read a setting; empty: it does not belong to a rule.
std::string rules_that_read(const std::string& path) {
  std::string names;
  for (const RuleType& type : rule_types())
    if (reads(type, path)) names += (names.empty() ? "" : " or ") + type.name;
  return names;
}

bool is_read(const OptimizerConfig& optimizer, const std::string& path) {
  const std::vector<const UpdateRule*> rules = optimizer.rules();
  return std::any_of(rule_types().begin(), rule_types().end(), [&](const RuleType& type) {
    return reads(type, path) && std::any_of(rules.begin(), rules.end(), [&](const UpdateRule* rule) { return rule->name() == type.name; });
  });
}

// Symbols of the layer types with this section, as in "M or P"; empty if the pattern has one of them.
std::string absent_layers(const RunConfig& run, std::string_view section) {
  std::vector<std::string> symbols;
  for (const LayerType& type : layer_types()) {
    if (std::none_of(type.sections.begin(), type.sections.end(), [&](const LayerSection& s) { return s.name == section; })) continue;
    if (all_layers(run.model).find(type.symbol) != std::string::npos) return "";
    symbols.emplace_back(1, type.symbol);
  }
  const std::string last = symbols.back();
  symbols.pop_back();
  return symbols.empty() ? last : fmt::format("{} or {}", fmt::join(symbols, ", "), last);
}

// Sections of layer types that the pattern does not have: one note for the keys of each section.
void add_absent_layers(const Deck& deck, const RunConfig& run, const std::vector<Declaration>& settings, std::vector<std::string>& idle) {
  for (const LayerSection& section : layer_sections()) {
    const std::string absent = absent_layers(run, section.name), begin = fmt::format("model.{}.", section.name);
    std::vector<std::string> keys;
    for (const Declaration& d : settings)
      if (!d.where.empty() && d.value != d.fallback && d.path.starts_with(begin)) keys.push_back(d.path);
    if (absent.empty() || keys.empty()) continue;
    const std::string more = keys.size() == 1 ? " is" : fmt::format(" and {} more of model.{} are", keys.size() - 1, section.name);
    idle.push_back(fmt::format("{}{} not read: model.pattern has no layer {}", deck.settings_text({keys.front()}), more, absent));
  }
}

}  // namespace

std::vector<std::string> idle_keys(const Deck& deck, const RunConfig& run) {
  const std::string chosen = run.model.objective->name();
  const std::vector<Declaration> settings = deck.settings();
  const bool named = std::any_of(settings.begin(), settings.end(), [](const auto& d) { return d.path == "train.objective" && !d.where.empty(); });
  const bool scores_rows = run.model.objective->most_pairs(run.train.seq_length) == 0 && !run.policy;
  std::vector<std::string> idle;
  for (const Declaration& d : settings) {
    if (d.where.empty() || d.value == d.fallback) continue;
    if (!scores_rows && (d.path == "train.label_smoothing" || d.path == "train.z_loss" || d.path == "train.entropy_bonus"))
      idle.push_back(fmt::format("{} is not read: train.objective is {}, which {}", deck.settings_text({d.path}), chosen,
                                 run.policy ? "has terms of its own (rl.loss)" : "compares texts in pairs"));
    for (const ObjectiveType& type : objective_types()) {
      if (type.name == chosen || !d.path.starts_with("train." + type.name + ".")) continue;
      const std::string settings_text = deck.settings_text({d.path});
      require(named, Exit::config, "{}: train.objective is {}, which does not read it; set that to {}, or remove the key", settings_text, chosen,
              type.name);
      idle.push_back(fmt::format("{} is not read: train.objective is {}", settings_text, chosen));
    }
    require(run.policy || !d.path.starts_with("rl."), Exit::config, "{}: train.objective is {}, which does not read section rl; set that to policy",
            deck.settings_text({d.path}), chosen);
    for (const char* const model : {"critic", "reference"})
      if (is_idle(run, model) && d.path == key_of_model(model, "init_from"))
        idle.push_back(fmt::format("models.{} is not read: {}", model, deck.settings_text({model[0] == 'c' ? "rl.algorithm" : "rl.kl.coefficient"})));
    if (run.policy && !run.policy->has_critic() &&
        (d.path.starts_with("rl.critic.") || d.path == "rl.advantage.gamma" || d.path == "rl.advantage.lambda"))
      idle.push_back(fmt::format("{} is not read: only rl.algorithm: ppo has a critic", deck.settings_text({d.path})));
    if (run.policy && run.policy->correction.of == CorrectionOf::none && d.path.starts_with("rl.correction."))
      idle.push_back(fmt::format("{} is not read: rl.correction.weights is none", deck.settings_text({d.path})));
    if (d.path.starts_with("data.fim.") && run.data.fim.rate == 0)
      idle.push_back(fmt::format("{} is not read: data.fim.rate is 0", deck.settings_text({d.path})));
    if (d.path.starts_with("retro.") && !reads_neighbours(run.model))
      idle.push_back(fmt::format("{} is not read: model.pattern has no layer R", deck.settings_text({d.path})));
    if (d.path.starts_with("optimizer.power_") && run.lr.schedule != "power")
      idle.push_back(fmt::format("{} is not read: optimizer.schedule is {}", deck.settings_text({d.path}), run.lr.schedule));
    if (d.path == "optimizer.weight_decay_start" && run.weight_decay.schedule == "constant")
      idle.push_back(fmt::format("{} is not read: optimizer.weight_decay_schedule is constant", deck.settings_text({d.path})));
    if (const std::string rules = rules_that_read(d.path); !rules.empty() && !is_read(run.optimizer, d.path))
      idle.push_back(fmt::format("{} is not read: no weight is updated by {}", deck.settings_text({d.path}), rules));
  }
  add_absent_layers(deck, run, settings, idle);
  return idle;
}

void check_padding(const RunConfig& run) {
  if (run.data.order != "documents") return;
  if (run.model.objective->reads_pairs()) return;  // these objectives distinguish padding from text
  require(!run.model.objective->has_source(), Exit::config,
          "data.order = documents: an encoder reads full samples, padding included; set it to shuffled");
  require(run.model.attention.causal || run.data.separate, Exit::config,
          "data.order = documents: bidirectional attention would see the padding after a text; set data.documents: separate");
}

void check_schedule(const RunConfig& run) {
  const LearningRate& lr = run.lr;
  const bool decays = lr.schedule != "constant" && lr.schedule != "inverse-sqrt", set = lr.decay_steps != run.schedule_position(run.train.steps);
  require(!decays || !set || lr.decay_steps >= lr.warmup_steps, Exit::config,
          "optimizer.decay_steps = {} ends the decay within the warm-up of optimizer.warmup_steps = {}: the learning rate would fall to its minimum "
          "right after the warm-up; set optimizer.decay_steps=0 (the end of the run) or above {}, or shorten the warm-up",
          lr.decay_steps, lr.warmup_steps, lr.warmup_steps);
}

}  // namespace gyr
