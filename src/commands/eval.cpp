// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon eval CHECKPOINT: scores a model on token files, plain text, last words (LAMBADA) or multiple choice.
#include <cstdio>
#include <memory>
#include <numeric>

#include "kernels/base/printable.hpp"
#include "modules/objectives/masking.hpp"
#include "src/base/output_file.hpp"
#include "src/base/precision.hpp"
#include "src/base/quantity.hpp"
#include "src/base/terminal.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/commands/command.hpp"
#include "src/commands/documents_option.hpp"
#include "src/commands/notes.hpp"
#include "src/commands/runtime.hpp"
#include "src/commands/tokenizer_file.hpp"
#include "src/commands/weights_option.hpp"
#include "src/data/fingerprint.hpp"
#include "src/data/text_references.hpp"
#include "src/evaluation/evaluation.hpp"
#include "src/evaluation/scorer.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/pretrained/pretrained.hpp"
#include "src/pretrained/weights.hpp"
#include "src/report/build_facts.hpp"
#include "src/report/json_lines.hpp"
#include "src/report/transfer.hpp"
#include "src/train/feed.hpp"
#include "src/train/neighbours.hpp"

namespace gyr {

namespace {

struct EvalArguments {
  std::string checkpoint, objective, split = "validation", precision, weights = "stored", tokenizer, begin = "auto", delimiter = " ", lambada,
                                     choices, json, records, logits, retrieval;
  std::vector<std::string> prefixes, texts;
  DocumentsOption documents;
  Index limit = 0, seq_length = 0, stride = 0, mask_token = -1, shuffle = -1;
  BatchLimits batch;
  int tensor = 0, pipeline = 1;
  bool overwrite = false;

  bool reads_text() const { return !(texts.empty() && lambada.empty() && choices.empty()); }
};

constexpr const char* footer =
    "\nOne task per run:\n"
    "  --data     Loss and perplexity over windows of --length tokens, each with the token after it, and over the shorter remainder of each file. "
    "For a classifier the files have full texts with labels (data build --classes, --tags). Its results are also accuracy, F1 of each class, macro "
    "F1 (mean over classes), micro F1 (over all labels) and, for at most 16 classes, the confusion matrix. For masked tokens, and for spans that a "
    "decoder writes, accuracy is the fraction of them that the model ranks first; order accuracy is that of sentence order. For a model with an "
    "encoder (data build --source) each text is one window, truncated to --length. For preference pairs (--objective preference), --records writes a "
    "line with the model and its checksum, and the sum of ln p of each text. train.objective preference reads this file as PREFIX_reference.jsonl. "
    "The results are also the loss, the fraction of pairs whose chosen text is preferred, and the margin. Without that file they are relative to a "
    "reference that gives each text ln p = 0, and a note says so. Layers R read the neighbours that gyrfalcon retro query found for these files; the "
    "remainders are not scored, and --records has the overlap of each window: the fraction of its targets, after the first chunk, that occur in the "
    "neighbours which the model sees.\n"
    "  --text     Perplexity of plain text or JSONL documents. Of the tokens y_0 .. y_n of a document (y_0 is --begin, or the text's first token if "
    "--begin is none) y_1 .. y_n are scored once each. The first window reads y_0 .. y_{L-1}, L = --length, and scores the token after each of them. "
    "Every further window ends S = --stride tokens later and scores the S new tokens, each with at least L-S+1 tokens before it. With T the sum of "
    "-ln p of all scored tokens: perplexity exp(T / scored tokens), word perplexity exp(T / words), bits per byte T / ln 2 / bytes, byte perplexity "
    "2^(bits per byte). Words are separated by ASCII white space. The error is that of the mean over tokens.\n"
    "  --lambada  Lines {\"text\": \"...\"}. The last word is correct if each of its tokens is the most likely one after all tokens before it; "
    "perplexity exp(mean over examples of the -ln p of the word).\n"
    "  --choices  Lines {\"context\": \"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}. Each choice follows the context and --delimiter. acc "
    "takes "
    "the choice with the largest sum of ln p, acc_norm divides the sum by the choice's bytes, acc_token by its tokens.\n"
    "Context and continuation are encoded together: the continuation's tokens are those of encode(context + continuation) after the first "
    "|encode(context)|. White space at the end of the context belongs to the continuation. A text longer than --length loses its beginning.\n"
    "--logits FILE.h5, for h5py and h5ls, works with each task: /logits (rows, vocab_size or classes) has the logits after each token, float32 "
    "(float64 with --precision fp64); /tokens (rows) the tokens read; /labels (rows) the target tokens, -100 for rows that are not scored; /offsets: "
    "sequence, window or example i has the rows from offsets[i] to before offsets[i+1]. The file appears when it is complete. --limit and --length "
    "keep it small.\n"
    "Errors are standard errors of a mean; the error of a perplexity is the perplexity times the error of its logarithm. Results do not depend on "
    "the number of ranks.";

DatasetOptions dataset_options(const EvalArguments& a, const RunConfig& run, Index seq_length) {
  DatasetOptions data;
  for (const std::string& prefix : a.prefixes.empty() ? run.data.prefixes : a.prefixes) data.corpora.push_back({prefix, std::nullopt});
  require(!data.corpora.empty(), Exit::usage, "the checkpoint's deck names no data: give --data, --text, --lambada or --choices");
  data.split = a.prefixes.empty() ? run.data.split : "1";
  data.which = a.prefixes.empty() ? (a.split == "test" ? Split::test : a.split == "train" ? Split::train : Split::validation) : Split::train;
  data.seq_length = seq_length;
  data.seed = run.data.seed;
  data.classes = run.model.objective->classes();
  if (run.model.objective->most_pairs(seq_length) > 0) data.pairs = Pairs::as_they_are;
  if (run.model.objective->reads_pairs()) data.source_length = run.model.objective->lengths(seq_length).source;
  const bool full_texts = !data.classes.empty() || data.pairs != Pairs::none;  // true: each sample is a full text, not a window of joined documents
  // The orders shuffled and megatron have the same windows, so that shuffled, the default, is used for both.
  if (full_texts || data.source_length > 0 || run.data.order == "documents") data.order = SampleOrder::documents;
  data.separate = full_texts || (run.data.separate && data.source_length == 0);
  data.predicts = run.model.objective->writes_next_token();
  data.vocab_size = run.model.vocab_size;
  data.words = words_of(run);
  return data;
}

std::optional<Token> begin_of(const Tokenizer& tokenizer, const std::string& name) {
  if (name == "none") return std::nullopt;
  if (name == "auto") return tokenizer.bos() ? tokenizer.bos() : tokenizer.eod();
  const auto token = tokenizer.id_of(name);
  require(token.has_value(), Exit::usage, "--begin {}: the tokenizer has no such token", name);
  return token;
}

// Gives the samples of token files their neighbours, if the model has layers R; otherwise empty. They are those of `gyrfalcon
// retro query` for a run with these files.
SampleCompletion neighbours_for(const EvalArguments& a, RunConfig run, Index seq_length, Json& settings) {
  if (!reads_neighbours(run.model)) return {};
  require(a.split != "test", Exit::usage,
          "--split test: layers R of the model read neighbours, and gyrfalcon retro query finds those of training and validation samples; to score "
          "other texts, query a deck with data.prefixes=[PREFIX] data.split=1, then give --data PREFIX");
  require(seq_length % run.model.retrieval.chunk == 0, Exit::usage,
          "--length {}: layers R of the model read chunks of {} tokens; give a multiple of them", seq_length, run.model.retrieval.chunk);
  // Windows are read in the order of the tokens, whatever the samples of the training were.
  run.data.order = "shuffled", run.data.weights.clear();
  if (!a.prefixes.empty()) run.data.prefixes = a.prefixes, run.data.split = "1";
  if (!a.retrieval.empty()) run.retro.project = a.retrieval, run.retro.neighbours.clear();
  if (a.shuffle >= 0) run.retro.shuffle = a.shuffle;
  run.train.seq_length = seq_length;
  settings["retrieval"] = {{"project", run.retro.project}, {"shuffle", run.retro.shuffle}};
  const Split split = a.prefixes.empty() && a.split == "validation" ? Split::validation : Split::train;
  return [run = std::move(run), split](Dataset& data) { add_neighbours(run, split, data); };
}

// Creates the evaluation of the chosen task, and records the settings of this task in `settings`.
std::unique_ptr<Evaluation> make_evaluation(const EvalArguments& a, const RunConfig& run, Json& settings) {
  const Index seq_length = a.seq_length > 0 ? a.seq_length : run.train.seq_length;
  require(seq_length <= longest, Exit::usage, "--length {}: the maximum is {}", seq_length, longest);
  settings["length"] = seq_length;
  if (a.limit > 0) settings["limit"] = a.limit;
  if (!a.reads_text()) {
    const DatasetOptions data = dataset_options(a, run, seq_length);
    settings["task"] = "data";
    for (const Corpus& corpus : data.corpora) settings["files"].push_back(corpus.prefix.string());
    if (a.prefixes.empty()) settings["split"] = a.split;
    return token_file_evaluation(data, run.model, a.limit, neighbours_for(a, run, seq_length, settings), !a.records.empty());
  }
  require(!reads_neighbours(run.model), Exit::usage,
          "--text, --lambada, --choices: layers R of the model read neighbours, which are found for token files only; give --data or --split");
  require(run.model.objective->writes_next_token(), Exit::usage,
          "--text, --lambada, --choices: the model was trained with train.objective = {}, which predicts no next token; give --data",
          run.model.objective->name());
  const std::string file = a.tokenizer.empty() ? run.data.tokenizer : a.tokenizer;
  require(!file.empty(), Exit::usage, "the checkpoint's deck names no tokenizer: give --tokenizer FILE");
  const Tokenizer tokenizer = Tokenizer::load(file);
  const TextSettings text{tokenizer, run.model.vocab_size, seq_length, begin_of(tokenizer, a.begin), a.limit};
  settings["tokenizer"] = file;
  settings["begin"] = text.begin ? Json(*text.begin) : Json();
  if (!a.lambada.empty()) {
    settings["task"] = "lambada", settings["files"] = {a.lambada};
    return last_word_evaluation(a.lambada, text);
  }
  if (!a.choices.empty()) {
    settings["task"] = "choices", settings["files"] = {a.choices}, settings["delimiter"] = a.delimiter;
    return choices_evaluation(a.choices, a.delimiter, text);
  }
  const Index stride = a.stride > 0 ? a.stride : seq_length;
  require(stride <= seq_length, Exit::usage, "--stride {} would skip tokens between windows of {} tokens", stride, seq_length);
  settings["task"] = "text", settings["files"] = a.texts, settings["stride"] = stride, settings["documents"] = a.documents.rule;
  return text_evaluation({a.texts.begin(), a.texts.end()}, a.documents.format(), stride, text);
}

// Layout with the requested tensor- and pipeline-parallel ranks. The other ranks are data-parallel: the passages are
// distributed over them.
Layout layout_of(const EvalArguments& a, RunConfig run, int ranks) {
  run.parallel.pipeline = a.pipeline, run.parallel.virtual_stages = 1, run.parallel.sequence = false;
  run.parallel.context = run.parallel.expert = 1;
  run.parallel.shard = Shard::none, run.parallel.mixer = Mixer::split, run.parallel.attention_ranks = 0;
  run.parallel.tensor = a.tensor > 0 ? a.tensor : std::gcd(ranks / a.pipeline, run.parallel.tensor);
  run.parallel.data = 0;
  run.parallel.permutation.clear(), run.parallel.islands.clear();
  run.parallel.layers.clear();
  run.train.ramp.clear();
  run.train.micro_batch_size = 1, run.train.global_batch_size = ranks;  // the evaluation forms its own batches (--batch)
  const int model = run.parallel.tensor * run.parallel.pipeline;
  require(ranks % model == 0, Exit::config, "--tensor {} x --pipeline {} does not divide the {} ranks", run.parallel.tensor, a.pipeline, ranks);
  return gyr::layout_of(run, ranks);
}

// Output files, on rank 0. They are opened before the evaluation starts, so that hours of work are not lost to a path
// that cannot be written.
class Outputs {
 public:
  Outputs(const EvalArguments& a, bool writes) {
    std::error_code error;
    for (const std::string& file : {a.json, a.records, a.logits})
      require(a.overwrite || !writes || !std::filesystem::is_regular_file(file, error), Exit::usage,
              "{}: exists; choose another name, or give --overwrite to replace it", file);
    if (writes && !a.json.empty()) json_.emplace(a.json);
    if (writes && !a.records.empty()) records_.emplace(a.records);
  }
  void write(const Json& summary, const std::vector<Json>& records) {
    if (records_) {
      for (const Json& record : records) records_->append(json_text(record) + "\n");
      records_->commit();
    }
    if (json_) json_->append(json_text(summary) + "\n"), json_->commit();
  }

 private:
  std::optional<OutputFile> json_, records_;
};

// Number of logits per row: the classes of a classifier, otherwise the vocabulary.
Index columns_of(const ModelConfig& m) {
  const std::size_t classes = m.objective->classes().size();
  return classes > 0 ? Index(classes) : m.vocab_size;
}

// First line of a reference file: path and checksum of the model (src/data/text_references.hpp).
Json model_line(const std::string& model) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(model, error).lexically_normal();
  return {{"model", path.string()}, {"xxh3", hex(checksum_of_model(model))}};
}

void add_figures(const Figures& figures, Conclusion& c) {
  for (const auto& [name, value] : figures.means()) {
    c.text += fmt::format(" | {} {:.6f}", name, value);
    c.results[key_of(name)] = value;
  }
}

// Names the files that have been scored, as in "validation split of data/text".
std::string scored_text(const Json& settings) {
  std::string files;
  for (const Json& file : settings.at("files")) files += (files.empty() ? "" : ", ") + printable(file.get<std::string>());
  return settings.contains("split") ? fmt::format("{} split of {}", settings.at("split").get<std::string>(), files) : files;
}

// Reference model of the run, as a word of a command: models.reference, or the model that the run started from.
std::string reference_of(const RunConfig& run) {
  for (const FurtherModel& m : run.models)
    if (m.name == "reference" && !m.init_from.empty()) return shell_word(m.init_from);
  return run.train.init_from.empty() ? "REFERENCE" : shell_word(run.train.init_from);
}

// Notes on corpora of preference pairs without the file of a reference model; empty if there are none, and with --records,
// which writes such a file.
std::string notes_on_references(const EvalArguments& a, const RunConfig& run, const Json& settings) {
  std::string notes;
  if (!a.records.empty() || settings.at("task") != "data" || run.model.objective->scoring_models().empty()) return notes;
  for (const Json& file : settings.at("files"))
    if (const std::filesystem::path path = references_path(file.get<std::string>()); !std::filesystem::exists(path))
      notes +=
          printable_line(fmt::format("note: {} does not exist: loss, accuracy and margin are relative to a reference that gives each text ln p = "
                                     "0, and differ from those of a training with models.reference. To write the file, score the reference model: "
                                     "gyrfalcon eval {} --objective preference --data {} --length {} --records {}",
                                     path.string(), reference_of(run), shell_word(file.get<std::string>()), settings.at("length").get<Index>(),
                                     shell_word(path.string()))) +
          "\n";
  return notes;
}

// Reports documents that are longer than they seem: --limit counts documents, and each may have many windows.
void announce(const EvalArguments& a, const Passages& passages) {
  if (a.texts.empty() || a.limit == 0 || passages.count() <= a.limit) return;
  print_note(fmt::format("--limit {} counts documents, and they have {}{}", a.limit, counted(passages.count(), "window"),
                         a.documents.rule == "page" ? "" : "; --documents page divides a text into documents of 4 KiB"));
}

// Progress of a long evaluation: on a terminal one line, elsewhere a line every ten seconds.
class EvaluationProgress {
 public:
  explicit EvaluationProgress(const Passages& passages) : tokens_(std::accumulate(passages.lengths.begin(), passages.lengths.end(), Index(0))) {}
  void operator()(std::size_t done, std::size_t batches) {
    if (done == batches || !line_.due()) return;
    const double fraction = double(done) / double(batches), seconds = line_.seconds();
    line_.show(fmt::format("scored {:.1f} % of {} tokens  {} tokens/s  left {}", 100 * fraction, short_count(double(tokens_)),
                           short_count(fraction * double(tokens_) / seconds), duration(seconds * (1 - fraction) / fraction)));
  }

 private:
  StatusLine line_{stderr, 10};
  Index tokens_;
};

void evaluate(const EvalArguments& a, const RunConfig& run, Runtime& runtime) {
  require(!run.policy || a.reads_text() || !a.prefixes.empty(), Exit::usage,
          "{0}: was trained on rewards, and its data are prompts; `gyrfalcon rollout DECK --init-from {0}` answers them and prints the rewards, and "
          "eval --text or --data scores other text",
          a.checkpoint);
  Grid grid(layout_of(a, run, runtime.ranks()), runtime.world(), wait_policy_of(runtime.world()));
  Json settings{{"gyrfalcon", version()}, {"checkpoint", a.checkpoint}, {"task", ""}};
  std::unique_ptr<Evaluation> evaluation;
  std::optional<Outputs> outputs;
  collective_check(grid.world(), [&] {
    if (runtime.rank() == 0 && !a.reads_text()) {
      const auto& prefixes = a.prefixes.empty() ? run.data.prefixes : a.prefixes;
      require_tokenizer({prefixes.begin(), prefixes.end()}, run.data.tokenizer, "the model's tokenizer");
    }
    evaluation = make_evaluation(a, run, settings);
    outputs.emplace(a, runtime.rank() == 0);
  });
  const std::string precision = a.precision.empty() ? run.train.precision : a.precision;
  require(a.logits.empty() || !run.model.objective->gives_values(), Exit::usage,
          "--logits: a model of train.objective = {} has no logits; leave it out", run.model.objective->name());
  std::optional<LogitsFile> logits;
  if (!a.logits.empty()) logits.emplace(a.logits, grid, evaluation->passages(), columns_of(run.model), precision_of(precision));
  Figures figures(*run.model.objective);
  std::optional<ClassCounts> classes;
  if (const auto& names = run.model.objective->classes(); !names.empty()) classes.emplace(names);
  std::optional<EvaluationProgress> progress;
  if (runtime.rank() == 0 && !a.tokenizer.empty()) note_other_tokenizer(a.tokenizer, run.data.tokenizer, Tokenizer::load(a.tokenizer));
  if (runtime.rank() == 0) announce(a, evaluation->passages()), progress.emplace(evaluation->passages());
  const auto watch = [&](std::size_t done, std::size_t batches) {
    if (progress) (*progress)(done, batches);
  };
  const auto scores = score_passages(
      run.model, precision_of(precision), grid,
      [&](Stage& stage) {
        stage.fill([&](ParameterList weights, const Arrived& arrived) { load_weights(a.checkpoint, grid, stage.config(), weights, arrived); });
      },
      evaluation->passages(), a.batch, logits ? &*logits : nullptr, factors_of(a.weights), {classes ? &*classes : nullptr, &figures, watch});
  progress.reset();
  if (logits) logits->finish();
  Conclusion conclusion = evaluation->conclude(scores);
  add_figures(figures, conclusion);
  if (classes) {
    conclusion.text += "\n" + classes->text();
    conclusion.results["classes"] = classes->results();
  }
  settings["precision"] = precision;
  settings["weights"] = a.weights;
  settings["grid"] = {{"data", grid.layout().size(Axis::data)}, {"pipeline", a.pipeline}, {"tensor", grid.layout().size(Axis::tensor)}};
  settings["batch"] = {{"passages", a.batch.passages}, {"tokens", a.batch.tokens}};
  settings["results"] = conclusion.results;
  collective_check(grid.world(), [&] {
    const bool compares = run.model.objective->most_pairs(1) > 0;
    if (compares && !a.records.empty() && runtime.rank() == 0) conclusion.records.insert(conclusion.records.begin(), model_line(a.checkpoint));
    outputs->write(settings, conclusion.records);
  });
  if (runtime.rank() != 0) return;
  std::printf("%s\nscored: %s\n%s", conclusion.text.c_str(), scored_text(settings).c_str(), notes_on_references(a, run, settings).c_str());
}

// Scores the same weights with another objective.
void choose(const std::string& name, ModelConfig& model) {
  const Objective& before = *model.objective;
  Deck deck = Deck::parse(fmt::format("train: {{objective: {}}}\n", name), "--objective");
  const auto chosen = read_objective(deck.section("train", "objective"), model, *model.objective);
  require(keeps_head(before, *chosen), Exit::usage, "--objective {}: the model was trained with train.objective = {}, which has another head", name,
          before.name());
  model.objective = chosen;
}

// Replaces the mask token of a masked-language-model objective.
void replace_mask_token(Index token, ModelConfig& model) {
  const Masking* const before = masking_of(*model.objective);
  require(before != nullptr, Exit::usage, "--mask-token: the model was trained with train.objective = {}, which masks no tokens",
          model.objective->name());
  require(token < model.vocab_size, Exit::usage, "--mask-token {}: the model's vocabulary has {} tokens", token, model.vocab_size);
  Masking masking = *before;
  masking.mask_token = Token(token);
  model.objective = masked_tokens(masking);
}

int run(EvalArguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        if (runtime.rank() == 0) std::fprintf(stderr, "%s", runtime.thread_advice().c_str());
        a.checkpoint = chosen_model(a.checkpoint, runtime, print_note);
        RunConfig run = inference_run(a.checkpoint, notes_of(runtime));
        if (!a.objective.empty()) choose(a.objective, run.model);
        if (a.mask_token >= 0) replace_mask_token(a.mask_token, run.model);
        require(reads_neighbours(run.model) || (a.retrieval.empty() && a.shuffle < 0), Exit::usage,
                "--retrieval, --shuffle-neighbors: the model has no layers R and reads no neighbours; leave them out");
        evaluate(a, run, runtime);
      },
      LastLine::of_failures);
}

// Rejects options that do not apply to the chosen task.
void check_options(const Command& c, const EvalArguments& a) {
  const auto only = [&](const char* option, bool fits, const char* tasks) {
    if (c.given(option) && !fits) fail(Exit::usage, "{}: applies to {} only", option, tasks);
  };
  only("--split", !a.reads_text() && a.prefixes.empty(), "the checkpoint's own data");
  for (const char* option : {"--tokenizer", "--begin"}) only(option, a.reads_text(), "--text, --lambada and --choices");
  for (const char* option : {"--stride", "--documents", "--separator", "--key", "--skip-invalid"}) only(option, !a.texts.empty(), "--text");
  only("--delimiter", !a.choices.empty(), "--choices");
  for (const char* option : {"--objective", "--mask-token", "--retrieval", "--shuffle-neighbors"}) only(option, !a.reads_text(), "token files");
}

}  // namespace

void add_eval(Command& app, Action& action) {
  auto a = std::make_shared<EvalArguments>();
  Command* c = app.add_command("eval", "Score a checkpoint on token files, plain text, last words (LAMBADA) or multiple choice");
  c->footer(footer);
  c->add_option("checkpoint", a->checkpoint, "Checkpoint, folder of a run (its newest checkpoint), or Hugging Face folder")->required();
  std::vector<std::string> objectives;
  for (const ObjectiveType& type : objective_types()) objectives.push_back(type.name);
  c->add_option(
       "--objective", a->objective,
       "Objective that scores the token files, if it is not the training objective: preference for pairs (data build --pairs), or seq2seq or "
       "span_corruption for a model with an encoder")
      ->one_of(objectives);
  c->add_option("--mask-token", a->mask_token,
                "Id of the mask token of a masked language model; default: that of the deck, or of the folder's tokenizer")
      ->not_negative();
  Option* data = c->add_option("--data", a->prefixes,
                               "PREFIX of PREFIX.bin and PREFIX.idx: score all of it, or with a loss mask only its tokens; without any task, a split "
                               "of the training data is scored");
  Option* text = c->add_option("--text", a->texts, "Text files to compute the perplexity of")->excludes(data);
  Option* lambada = c->add_option("--lambada", a->lambada, "JSONL file of texts whose last word the model predicts")->excludes(data)->excludes(text);
  c->add_option("--choices", a->choices, "JSONL file of multiple-choice examples")->excludes(data)->excludes(text)->excludes(lambada);
  c->add_option("--split", a->split, "Split of the training data to score")->one_of({"train", "validation", "test"})->show_default();
  c->add_option("--limit,--sequences", a->limit, "Maximum number of sequences, documents or examples to score; 0: all")
      ->not_negative()
      ->show_default();
  c->add_option("--length", a->seq_length, "Window length in tokens; 0: as trained")->not_negative()->show_default();
  c->add_option("--stride", a->stride, "Tokens from one window of a text to the next; 0: --length")->not_negative()->show_default();
  a->documents.add(*c);
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json; default: the one that the checkpoint's deck names");
  c->add_option("--begin", a->begin,
                "Token before a text or an empty context, or none; auto: the tokenizer's begin-of-text token, else its end-of-text token, if any")
      ->show_default();
  c->add_option("--delimiter", a->delimiter, "Text between context and choice; default: one space");
  c->add_option("--retrieval", a->retrieval,
                "PROJECT whose neighbours layers R read (gyrfalcon retro query); default: that of the checkpoint's deck");
  c->add_option("--shuffle-neighbors", a->shuffle,
                "Seed by which every chunk gets the neighbours of another one, as a control; 0: its own; default: retro.shuffle of the deck")
      ->not_negative();
  c->add_option("--json", a->json, "Write settings and results to this file, as one line of JSON");
  c->add_option("--records", a->records, "Write one line of JSON per sequence, window, example or prediction to this file");
  c->add_option("--logits", a->logits, "Write the next-token logits of all tokens read to this HDF5 file, see below");
  c->add_flag("--overwrite", a->overwrite, "Replace existing files of --json, --records and --logits");
  c->add_option("--batch", a->batch.passages, "Maximum number of sequences in a batch")->positive()->show_default();
  c->add_option("--batch-tokens", a->batch.tokens, "Maximum number of tokens in a batch; a longer sequence is a batch of its own")
      ->positive()
      ->show_default();
  c->add_option("--tensor", a->tensor,
                "Tensor-parallel ranks; 0: as in training, as far as the number of ranks allows. Further ranks are data-parallel")
      ->not_negative()
      ->show_default();
  c->add_option("--pipeline", a->pipeline, "Pipeline-parallel ranks")->positive()->show_default();
  c->add_option("--precision", a->precision, "fp32, fp64 or bf16; default: as trained")->one_of({"fp32", "fp64", "bf16"});
  add_weights_option(*c, a->weights);
  c->callback([a, c, &action] {
    check_options(*c, *a);
    action = [a] { return run(*a); };
  });
}

}  // namespace gyr
