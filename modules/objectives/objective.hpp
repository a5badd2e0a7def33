// SPDX-License-Identifier: BSD-3-Clause
// What a batch is scored by, deck key train.objective: how the tokens of a sample become rows with labels, and the head that scores and predicts
// them. Objectives register themselves by name, as layer types do by symbol. One with settings declares them where it is read and keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "modules/objectives/head.hpp"
#include "modules/objectives/text_pairs.hpp"

namespace gyr {

// One sequence as a model meets it: the tokens it reads, and of each the label it is scored by, or ignored_label; what an encoder reads for it; where
// the order of halves is told (sentence_order.hpp), the type of each token, and the label of each that tells it; and pairs of its texts, where these
// are compared.
struct Labelled {
  std::vector<Token> tokens, labels, source = {}, types = {}, order = {};
  TextPairs pairs = {};
};

// What a model says of a sample, or of a part of it: names and values, for people and programs.
using Record = std::vector<std::pair<std::string, std::variant<double, Index, std::string>>>;

// How well a model does, told by what it says: the mean of so many numbers.
struct Figure {
  std::string name;
  double sum = 0, count = 0;
  void add(double x) { sum += x, count += 1; }
};
// The part of the rows with a label than which the model finds nothing likelier.
Figure accuracy_of_rows(const char* name, const std::vector<RowScore>& rows);
// The part of pairs whose chosen text is preferred, and the mean margin.
std::vector<Figure> preferred(const std::vector<double>& margins);

// Sample number `number` of a run, for a model of so many tokens.
struct SampleView {
  std::span<const Token> tokens;          // L + 1, of which L are read
  std::span<const std::uint8_t> learned;  // (L + 1) 0 where token t is not to be predicted: padding, a masked token, or the first of a document that
                                          // sees no other
  std::span<const std::uint8_t> begins;   // (L + 1) 1 where token t begins a word; empty: every token is one
  Index number = 0, vocab_size = 0;
  std::span<const std::int32_t> positions = {};  // (L + 1) of token t in its document, where those are separate
  std::span<const Token> classes = {};           // (L + 1) of token t, or of the text that begins there, or ignored_label; empty: the data has none
  Token start = 0;                               // that a text begins with behind an encoder
  std::span<const TextSpan> texts = {};          // in order, where documents are kept whole
  std::span<const Token> source = {};            // that belongs to the text, where the data have one
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual const char* name() const = 0;  // as it is registered
  virtual Labelled label(const SampleView&) const = 0;
  // What a model says of a sample that label() has labelled, from the scores of its rows, where it predicts more than its loss. Metrics are the means
  // over all records of the numbers of these names.
  virtual bool predicts() const { return false; }
  virtual std::vector<Record> predict(const SampleView&, const Labelled&, std::span<const RowScore>) const { return {}; }
  virtual std::vector<std::string> metrics() const { return {}; }
  // What validation tells besides the loss, of what is said of a micro-batch; the same figures of every one, also where nothing is said.
  virtual std::vector<Figure> figures(const ObjectiveScores&) const { return {}; }
  // Of a sequence of so many tokens: how many pairs of texts the loss compares at most; 0: it compares none. Data are then texts in pairs, and a
  // loss is a mean over pairs.
  virtual Index most_pairs(Index /*seq_length*/) const { return 0; }
  // How long text and source are of samples of so many tokens.
  virtual TextLengths lengths(Index tokens) const { return tokens; }
  // Whether there is a source, so that the model must have an encoder.
  virtual bool has_source() const { return false; }
  // Whether the data have it beside each text; else it is made of the text.
  virtual bool reads_pairs() const { return false; }
  // What source and text end with, where there is a source.
  virtual std::optional<Token> end_token() const { return {}; }
  // Whether a model that is trained for it writes texts, token by token: labels are the tokens behind those that are read.
  virtual bool writes_next_token() const { return false; }
  // How many tokens beyond the one that follows are told of each row, each with a loss of its own (future_tokens.hpp), which counts with
  // ahead_weight() times its mean; and the layers, by symbol, that the head has for all of them. Such a head reads the embedding's matrix.
  virtual Index depths() const { return 0; }
  // Whether the order of a text's halves is told besides (sentence_order.hpp), with a loss that counts with ahead_weight() too.
  virtual bool predicts_sentence_order() const { return false; }
  Index further_losses() const { return depths() + Index(predicts_sentence_order()); }
  virtual double ahead_weight() const { return 0; }
  virtual std::string head_layers() const { return {}; }
  // The objective of the same model where nothing is trained and no more weights are needed; null: this one.
  virtual std::shared_ptr<const Objective> without_training() const { return nullptr; }
  // The same with tokens of its own among so few; null: it has none that must be.
  virtual std::shared_ptr<const Objective> within(Index /*vocab_size*/) const { return nullptr; }
  // Of a sequence of so many tokens: how many rows have a label at most.
  virtual Index most_labels(Index seq_length) const { return seq_length; }
  // Whether the head tells the device the same of every micro-batch that is trained on, but for what lies in the device's memory.
  virtual bool repeats() const { return false; }
  // The share of tokens that meet the output matrix.
  virtual double scored() const { return 1; }
  // Whether it is told where words begin, as far as the tokenizer of the data is known.
  virtual bool needs_word_starts() const { return false; }
  // What rows are told to be, by name, in order; none: tokens of the vocabulary. Such an objective needs data that has classes.
  virtual const std::vector<std::string>& classes() const;
  // Exit::config where it does not go with the model.
  virtual void check_model(const ModelConfig&) const {}
  // Exit::config where a run cannot train the model for it.
  virtual void check_training(const ModelConfig&) const {}
  // Declares the weights behind the last layer. `table`: the embedding's, where the head shares it and lies on the same stage.
  virtual std::unique_ptr<Head> head(const ModelConfig&, Parameter* table, Parameters&) const = 0;
  // Forward flops of one token in the head, but for its layers.
  virtual double flops(const ModelConfig&) const = 0;
};

// A row of the table of objectives. Its file defines one of them and registers it: const RegisteredObjective here({...}).
struct ObjectiveType {
  std::string name;
  const char* help;
  // Declares its settings and reads them; `otherwise`: the objective of the model that the run begins with.
  std::shared_ptr<const Objective> (*read)(Section& train, const ModelConfig&, const Objective& otherwise);
};

// Of tokens 0 to L - 1 the one that follows, or ignored_label where that is not learned: the labels of next_token.
std::vector<Token> next_tokens(std::span<const Token> tokens, std::span<const std::uint8_t> learned);

std::shared_ptr<const Objective> preference(double beta);  // which of two texts is preferred
LossTerms read_loss_terms(Section& train);                 // of any objective that scores rows

// By symbol: those of the model's pattern, and those that its head has.
std::string all_layers(const ModelConfig&);

const std::vector<ObjectiveType>& objective_types();  // by name
// The one that the section names, in place of `otherwise`; the settings of all are declared.
std::shared_ptr<const Objective> read_objective(Section& train, const ModelConfig&, const Objective& otherwise);

struct RegisteredObjective {
  explicit RegisteredObjective(ObjectiveType type);
};

}  // namespace gyr
