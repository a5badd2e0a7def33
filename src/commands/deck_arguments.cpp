// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/deck_arguments.hpp"

#include <algorithm>
#include <utility>

#include "src/base/table.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/commands/notes.hpp"
#include "src/config/placed_models.hpp"
#include "src/data/fingerprint.hpp"
#include "src/deck/renamed_keys.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

void add_deck(Command& command, DeckArguments& a) {
  command.add_option("deck", a.deck, "Input deck (YAML)")->required();
  command.add_option(
      "--init-from", a.init_from,
      "Hugging Face folder, checkpoint or folder of a run (its newest checkpoint) whose weights a new run starts from (train.init_from); a plan also "
      "takes the shape of a model from a deck");
  command.add_option("overrides", a.overrides,
                     "Overrides of deck keys, as in parallel.tensor=2 train.steps=10; ~section.key removes a key of the deck");
}

std::vector<Declaration> deck_keys() {
  Deck deck = Deck::describe();
  read_run_config(deck);
  return deck.settings();
}

std::string key_table(const std::vector<Declaration>& keys, int width) {
  const bool wide = width >= 120;  // otherwise the help would have too few columns
  std::vector<TableColumn> columns{{"key", false, 26}, {"default", false, wide ? 16u : 12u}};
  if (wide) columns.insert(columns.end(), {{"unit", false, 10}, {"range", false, 20}});
  std::size_t taken = 2 * columns.size();
  for (const TableColumn& column : columns) taken += column.at_most;
  columns.push_back({"help", false, std::max<std::size_t>(std::size_t(width), taken + 12) - taken});
  Table table(columns);
  std::string section;
  for (const Declaration& key : keys) {
    const auto dot = key.path.rfind('.');
    if (key.path.substr(0, dot) != section) table.heading((section = key.path.substr(0, dot)) + ":");
    const std::string fallback = key.fallback.empty() ? "(required)" : key.fallback;
    std::vector<std::string> cells{key.path.substr(dot + 1), fallback};
    if (wide) cells.insert(cells.end(), {key.unit, key.range()});
    cells.push_back(wide ? key.help : fmt::format("{} ({}{})", key.help, key.range(), key.unit.empty() ? "" : ", in " + key.unit));
    table.row(std::move(cells));
  }
  return table.str(true, std::size_t(width));
}

void describe_deck(Command& command) {
  command.footer(
      "\nKeys of the deck can be set as section.key=value on the command line. `gyrfalcon keys` lists all of them, `gyrfalcon keys "
      "optimizer` those of a section, and `gyrfalcon help optimizer.lr` describes one. `gyrfalcon --help` lists the exit codes.\n");
}

std::string deck_key_advice(const std::string& name, const std::string& value) {
  std::vector<std::string> paths;
  for (const Declaration& key : deck_keys()) paths.push_back(key.path);
  const UnknownKey key{shown(name), shown(value)};
  const std::string advice = remedy_for(key, paths, Match::path);
  return advice.empty() ? remedy_for(key, paths, Match::name) : advice;
}

std::string option_advice(const std::string& name, const std::string& value, const std::vector<std::string>& options) {
  if (counts_ranks(name) && std::find(options.begin(), options.end(), "--ranks") != options.end())
    return name.find("node") != name.npos ? "did you mean `--ranks`? It counts devices: nodes x devices per node"
                                          : fmt::format("did you mean `--ranks{}`?", value.empty() ? "" : " " + shown(value));
  const std::string advice = deck_key_advice(name, value);
  return advice.empty() ? "" : "keys of the deck are written section.key=value, without dashes: " + advice;
}

namespace {

// Refuses overrides without a section, such as steps=3, if the section is known.
void check_overrides(const std::vector<std::string>& overrides) {
  for (const std::string& change : overrides) {
    const auto equals = change.find('=');
    if (equals == change.npos || change.find('.') < equals) continue;
    const std::string advice = deck_key_advice(change.substr(0, equals), change.substr(equals + 1));
    require(advice.empty(), Exit::usage, "command line `{}`: keys are written section.key=value; {}", shown(change), advice);
  }
}

// Model that the run to resume started from, and its newest checkpoint. Both are empty if the run started from random
// weights or has not started. The checkpoint is empty if the run ended before its first one; `branch` is then train.branch
// of that run.
struct Origin {
  std::string model, checkpoint;
  bool branch = false;
};

Origin origin_of_run(const std::string& output, const Runtime& runtime) {
  const std::string text = runtime.shared_text([&]() -> std::string {
    try {
      const auto newest = newest_checkpoint(std::filesystem::path(output) / "checkpoints");
      const std::filesystem::path deck = std::filesystem::path(output) / "deck.yaml";
      if (!newest && std::filesystem::exists(deck)) {
        Deck stored = Deck::read(deck);
        const std::string model = read_init_from(stored);
        return model + (read_branch(stored) ? "\nbranch" : "\n");
      }
      if (!newest) return "";
      Deck stored = Deck::stored(read_header(*newest).deck, newest->string());
      return read_init_from(stored) + '\n' + newest->string();
    } catch (const Error&) {
      return "";  // reported when the run resumes; errors of the deck come first
    }
  });
  const auto line = text.find('\n');
  if (line == text.npos || line == 0) return {};
  const std::string rest = text.substr(line + 1);
  return {text.substr(0, line), rest == "branch" ? "" : rest, rest == "branch"};
}

// A resumed run needs of the model that it started from at most the tokenizer.
void require_initial_tokenizer(const Origin& origin, const std::string& tokenizer) {
  std::error_code error;
  require(origin.model.empty() || tokenizer.empty() || std::filesystem::exists(tokenizer, error), Exit::missing,
          "this run was started with --init-from {}, and its tokenizer {} does not exist; put it back, give the new place of the model with "
          "--init-from DIR, or that of the tokenizer with data.tokenizer=FILE",
          shown(origin.model), shown(tokenizer));
}

// Without a model to start from and without a model section, the deck would train a large random model.
void require_model(const Deck& deck, const RunConfig& run, const std::string& file, bool resume) {
  require(!run.train.init_from.empty() || deck.given("model"), Exit::config,
          "{}: {}{}; give --init-from DIR with a Hugging Face folder, a checkpoint or the folder of a run (or the key train.init_from){}", file,
          run.model.lora ? "finetune.lora adapts a trained model, and the deck names none" : "the deck names no model and has no section model",
          resume ? fmt::format(", and {} has no run to resume", run.output) : "",
          run.model.lora ? "" : ", or a section model as in input/pretrain.yaml");
}

// The model knows the token ids of its own tokenizer. `of_model`: file of that tokenizer; empty: not known.
std::string other_tokenizer(const RunConfig& run, const std::string& of_model) {
  std::error_code error;
  if (of_model.empty() || run.data.tokenizer == of_model || !std::filesystem::is_regular_file(of_model, error) ||
      !std::filesystem::is_regular_file(run.data.tokenizer, error) || same_tokenizer(mark_of(run.data.tokenizer), mark_of(of_model)))
    return "";
  return fmt::format(
      "data.tokenizer {} is not the tokenizer of the model in {}, {}, whose token ids the model knows; build the token files with the "
      "model's tokenizer, unless yours only adds tokens",
      shown(run.data.tokenizer), shown(run.train.init_from), shown(of_model));
}

bool is_deck(const std::string& path) {
  const std::string type = std::filesystem::path(path).extension().string();
  return type == ".yaml" || type == ".yml";
}

// A deck gives a plan the shape of a model, but a run cannot start from it.
void require_weights(const std::string& key, const std::string& from) {
  require(
      !is_deck(from), Exit::config,
      "{}: {} is a deck, which has no weights; name a Hugging Face folder, a checkpoint or the folder of a run (plan and --dry-run take the shape "
      "of a model from a deck)",
      key, shown(from));
}

ModelConfig shape_of_deck(const std::string& file) {
  Deck deck = Deck::read(file);
  require(deck.given("model"), Exit::config,
          "{}: the deck has no section model, so that it gives no shape; name a deck with one, such as input/falcon-h1-34b.yaml", file);
  ModelConfig shape = read_run_config(deck).model;
  deck.finish();
  return shape;
}

// Replaces the folder of a run from which a further model starts by its chosen checkpoint, as for train.init_from.
void name_models(const std::string& file, std::vector<std::string>& overrides, const Runtime& runtime, const Note& note, Deck& deck) {
  Deck early = Deck::read(file, overrides);
  bool named = false;
  for (const auto& [name, from] : read_model_sources(early))
    if (const std::string chosen = from.empty() || is_deck(from) ? from : chosen_model(from, runtime, note); chosen != from) {
      overrides.push_back(key_of_model(name, "init_from") + "=" + write_yaml(chosen));
      named = true;
    }
  if (named) deck = Deck::read(file, overrides);
}

std::map<std::string, ModelConfig> shapes_of_models(const std::string& file, const std::vector<std::string>& overrides) {
  std::map<std::string, ModelConfig> shapes;
  Deck early = Deck::read(file, overrides);
  for (const auto& [name, from] : read_model_sources(early))
    if (is_deck(from)) shapes[name] = shape_of_deck(from);
    else if (!from.empty()) shapes[name] = inference_run(from).model;
  return shapes;
}

}  // namespace

RunConfig read_deck(const DeckArguments& a, const Runtime& runtime, std::string& effective) {
  std::vector<std::string> overrides = a.overrides;
  if (!a.init_from.empty()) overrides.push_back("train.init_from=" + a.init_from);
  check_overrides(overrides);
  const Note note = a.quiet ? Note() : notes_of(runtime);
  Deck deck = Deck::read(a.deck, overrides);
  std::string from = read_init_from(deck);
  const std::string shape_of = a.shapes_only && is_deck(from) ? std::exchange(from, "") : "";
  if (!shape_of.empty()) overrides.push_back("train.init_from=" + write_yaml(std::string())), deck = Deck::read(a.deck, overrides);
  require_weights("train.init_from", from);
  // The deck in use names the chosen checkpoint, so that a resumed run and an export find the same one.
  if (const std::string chosen = from.empty() ? from : chosen_model(from, runtime, note); chosen != from) {
    overrides.push_back("train.init_from=" + write_yaml(chosen));
    deck = Deck::read(a.deck, overrides);
    from = read_init_from(deck);
  }
  Deck early = Deck::read(a.deck, overrides);  // a deck shows its sections in the order in which they are read
  const Origin origin = from.empty() && a.resume ? origin_of_run(read_output_folder(early), runtime) : Origin{};
  if (!origin.model.empty()) {
    overrides.push_back("train.init_from=" + write_yaml(origin.model));
    if (origin.branch) overrides.push_back("train.branch=true");
    deck = Deck::read(a.deck, overrides);
    if (origin.checkpoint.empty()) from = origin.model;  // nothing has been trained: the run starts again
  }
  name_models(a.deck, overrides, runtime, note, deck);
  RunDefaults defaults;
  // A run that is resumed takes the shape from its checkpoint, because the model that it started from may be gone.
  if (const std::string shape = from.empty() ? origin.checkpoint : from; !shape.empty()) {
    defaults = defaults_of(shape, note);
    defaults.precision = RunDefaults().precision;  // precision and sequence length come from the deck, not from the model
    defaults.seq_length = RunDefaults().seq_length;
  }
  if (!shape_of.empty()) defaults.model = shape_of_deck(shape_of);
  defaults.models = shapes_of_models(a.deck, overrides);
  RunConfig run = read_run_config(deck, defaults);
  for (const FurtherModel& m : run.models)
    if (!a.shapes_only) require_weights(key_of_model(m.name, "init_from"), m.init_from);
  check_further_models(run, a.shapes_only ? ModelWeights::not_needed : ModelWeights::needed);
  require_initial_tokenizer(origin, run.data.tokenizer);
  if (const std::string other = from.empty() ? "" : other_tokenizer(run, defaults.tokenizer); note && !other.empty()) note(other);
  check_padding(run);
  check_schedule(run);
  for (const std::string& idle : idle_keys(deck, run))
    if (note) note(idle);
  deck.finish();
  if (shape_of.empty()) require_model(deck, run, a.deck, a.resume);
  effective = deck.effective();
  return run;
}

int planned_ranks(const RunConfig& run, int asked, const Runtime& runtime) {
  if (asked > 0) return asked;
  if (runtime.ranks() > 1) return runtime.ranks();
  return run.parallel.least_ranks();
}

}  // namespace gyr
