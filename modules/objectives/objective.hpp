// SPDX-License-Identifier: BSD-3-Clause
// Training objectives (deck key train.objective). An objective defines how the tokens of a sample become rows with
// labels, and which head scores and predicts them. Objectives register themselves by name, as layer types do by symbol.
// An objective with settings declares them in its read function and stores their values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "modules/objectives/head.hpp"
#include "modules/objectives/text_pairs.hpp"

namespace gyr {

// One labelled sequence: input tokens; the label of each, or ignored_label; the encoder input; the values of the
// objective's fields.
struct Labelled {
  std::vector<Token> tokens, labels, source = {};
  NamedHostValues values = {};

  // Tokens up to the last label, at least 1: the length of a text that ends before its sequence does.
  Index length() const {
    const auto last = std::find_if(labels.rbegin(), labels.rend(), [](Token label) { return label != ignored_label; });
    return std::max<Index>(1, labels.rend() - last);
  }
};

// Predictions of a model for a sample, or for a part of it, as named values.
using Record = std::vector<std::pair<std::string, std::variant<double, Index, std::string>>>;

// Quality metric of a model: the mean of `count` values.
struct Figure {
  std::string name;
  double sum = 0, count = 0;
  void add(double x) { sum += x, count += 1; }
};
// Accuracy: fraction of the labelled rows whose label is the most likely column.
Figure accuracy_of_rows(const char* name, const std::vector<RowScore>& rows);
// Accuracy (fraction of pairs whose chosen text has the higher reward) and mean margin of preference pairs.
std::vector<Figure> preferred(const std::vector<double>& margins);

// Read-only view of sample number `number` of a run, for a model of `vocab_size` tokens.
struct SampleView {
  std::span<const Token> tokens;          // (L + 1) token ids; the first L are model inputs
  std::span<const std::uint8_t> learned;  // (L + 1) 0 if token t is no target: padding, masked from the loss, or first of a separate document
  std::span<const std::uint8_t> begins;   // (L + 1) 1 if token t begins a word; empty: every token does
  Index number = 0, vocab_size = 0;
  std::span<const std::int32_t> positions = {};  // (L + 1) position of token t in its document, if documents are separate
  std::span<const Token> classes = {};           // (L + 1) class of token t, or of the text that begins there, or ignored_label; empty: none
  Token start = 0;                               // decoder start token, with which a text begins after an encoder
  std::span<const TextSpan> texts = {};          // texts of the sample in order, if documents are kept whole; else empty
  std::span<const Token> source = {};            // token ids of the text's encoder input; empty: the data has none
  NamedHostValues values = {};                   // values of the objective's fields that come with the sample
};

// Loss of an objective: a sum over the values of a field that are not ignored_label, times a scale. No name: over the
// labels of the rows.
struct LossSum {
  ValueName<Token> labels = {};
  double weight = 1;
};

class Objective;

// A further model that scores samples before the trained model does, because the loss reads its scores: name in the deck
// (models.NAME), objective that it scores with, and field that receives its scores. These are ObjectiveScores::of_texts of
// the samples of a step, or log-probabilities or values of rows, which a run requests itself. The model is frozen, or trained
// beside the policy.
struct ScoringModel {
  enum class Scores { of_texts, log_probs, values };
  std::string name;
  std::shared_ptr<const Objective> objective;
  ValueName<double> values;
  Scores scores = Scores::of_texts;
  bool trained = false;
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual const char* name() const = 0;  // name under which it is registered
  virtual Labelled label(const SampleView&) const = 0;
  // predict(): predictions for a sample that label() has labelled, from the scores of its rows, if the model predicts
  // more than its loss. metrics(): names of the record values whose means over all records are metrics.
  virtual bool predicts() const { return false; }
  virtual std::vector<Record> predict(const SampleView&, const Labelled&, std::span<const RowScore>) const { return {}; }
  virtual std::vector<std::string> metrics() const { return {}; }
  // Metrics that validation reports besides the loss, from the predictions for a micro-batch. Returns the same metrics
  // every time, even if the scores are empty.
  virtual std::vector<Figure> figures(const ObjectiveScores&) const { return {}; }
  // Maximum number of text pairs that the loss compares in a sequence of seq_length tokens; 0: the objective compares
  // no pairs. With pairs, the data consists of paired texts, and the loss is a mean over pairs.
  virtual Index most_pairs(Index /*seq_length*/) const { return 0; }
  // Lengths of text and encoder input for samples of `tokens` tokens.
  virtual TextLengths lengths(Index tokens) const { return tokens; }
  // True if samples have an encoder input, so that the model must have an encoder.
  virtual bool has_source() const { return false; }
  // True if the data contains the encoder input of each text; otherwise the encoder input is made from the text.
  virtual bool reads_pairs() const { return false; }
  // Token that ends encoder input and text, for objectives with an encoder input.
  virtual std::optional<Token> end_token() const { return {}; }
  // True if a model trained with this objective generates text token by token: labels are the next tokens.
  virtual bool writes_next_token() const { return false; }
  // Multi-token prediction: number of tokens beyond the next one that are predicted for each row (MTP depths). Each
  // depth has its own loss (future_tokens.hpp). head_layers() lists the layer symbols of all MTP modules. Such a head
  // reads the embedding matrix.
  virtual Index depths() const { return 0; }
  // True if sentence-order prediction is trained as well (sentence_order.hpp).
  virtual bool predicts_sentence_order() const { return false; }
  // Values that the head or the embedding reads besides tokens and labels (named_values.hpp), for sequences of
  // seq_length tokens. label() returns them; their names do not depend on seq_length.
  virtual std::vector<NamedField> fields(const ModelConfig&, Index /*seq_length*/) const { return {}; }
  // Further models whose scores the loss reads. A run may name them, or have the values with its data.
  virtual std::vector<ScoringModel> scoring_models() const { return {}; }
  // Losses that are trained together. Runs report the first one as the loss.
  virtual std::vector<LossSum> losses() const { return {{}}; }
  Index further_losses() const { return Index(losses().size()) - 1; }
  // Factor on the sum of a loss in the global batch, which has this number of labels.
  virtual double scale(const LossSum& loss, Index labels) const { return loss.weight / double(std::max<Index>(1, labels)); }
  // Loss that runs report, given its sum over the global batch: by default the mean over the labels.
  virtual double reported(double sum, Index labels) const { return sum / double(labels); }
  // True if the samples are answers that the model itself generates during training (deck section rl), instead of data.
  virtual bool reads_rollouts() const { return false; }
  virtual std::string head_layers() const { return {}; }
  // Objective of the same model for inference, without weights that only training needs; null: this objective.
  virtual std::shared_ptr<const Objective> without_training() const { return nullptr; }
  // The same objective with its special tokens moved into a vocabulary of vocab_size tokens; null: it has no special
  // tokens to move.
  virtual std::shared_ptr<const Objective> within(Index /*vocab_size*/) const { return nullptr; }
  // Maximum number of labelled rows in a sequence of seq_length tokens.
  virtual Index most_labels(Index seq_length) const { return seq_length; }
  // True if the head launches the same work for every training micro-batch, except for data in device memory, so that
  // CUDA graphs can be replayed.
  virtual bool repeats() const { return false; }
  // Fraction of the tokens that are multiplied by the output matrix.
  virtual double scored() const { return 1; }
  // True if the objective uses word boundaries (SampleView::begins), as far as the tokenizer of the data is known.
  virtual bool needs_word_starts() const { return false; }
  // True if the head gives each row a value instead of a loss; RowScore::loss is then this value.
  virtual bool gives_values() const { return false; }
  // Class names in order, if rows predict classes; empty: rows predict tokens of the vocabulary. An objective with
  // classes needs data with classes.
  virtual const std::vector<std::string>& classes() const;
  // Exit::config if the objective does not fit the model.
  virtual void check_model(const ModelConfig&) const {}
  // Exit::config if a run cannot train the model with this objective.
  virtual void check_training(const ModelConfig&) const {}
  // Declares the weights after the last layer. `table`: embedding matrix if the head shares it and is on the same
  // stage, otherwise null.
  virtual std::unique_ptr<Head> head(const ModelConfig&, Parameter* table, Parameters&) const = 0;
  // Forward FLOPs per token in the head, without those of its layers.
  virtual double flops(const ModelConfig&) const = 0;
};

// True if a model trained with `before` keeps its head under `after`: both predict the same tokens or classes from the
// same weights. Modules for further losses may be left out, but not added.
bool keeps_head(const Objective& before, const Objective& after);

// Entry of the table of objectives. The file of an objective defines one and registers it: const RegisteredObjective
// here({...}).
struct ObjectiveType {
  std::string name;
  const char* help;
  // Declares and reads the settings. `otherwise`: objective of the model that the run starts from, which provides the
  // defaults.
  std::shared_ptr<const Objective> (*read)(Section& train, const ModelConfig&, const Objective& otherwise);
};

// Labels of next-token prediction for tokens 0 to L - 1: the next token, or ignored_label if that token is not a
// target.
std::vector<Token> next_tokens(std::span<const Token> tokens, std::span<const std::uint8_t> learned);

std::shared_ptr<const Objective> preference(double beta);    // creates the objective of direct preference optimization (DPO)
std::shared_ptr<const Objective> reward(double center = 0);  // creates the objective of reward models
std::shared_ptr<const Objective> value(double clip);         // creates the objective of critics; clip width 0: no clip
LossTerms read_loss_terms(Section& train);                   // label smoothing, z-loss, entropy bonus

// Layer symbols of the model's pattern, followed by those of its head (MTP modules).
std::string all_layers(const ModelConfig&);

const std::vector<ObjectiveType>& objective_types();  // all registered objectives, sorted by name
// The objective named by train.objective, with `otherwise` as default. Declares the settings of all objectives.
std::shared_ptr<const Objective> read_objective(Section& train, const ModelConfig&, const Objective& otherwise);

// Components of each row's position, by which attention rotates queries and keys (M-RoPE); a field of models whose positions have several. Without
// values, all components of a row are its position.
inline const ValueName<Token> rotary_components{"rotary positions"};
// Fields of the objective, and of the model itself.
std::vector<NamedField> fields_of(const ModelConfig&, Index seq_length);

struct RegisteredObjective {
  explicit RegisteredObjective(ObjectiveType type);
};

}  // namespace gyr
