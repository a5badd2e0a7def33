// SPDX-License-Identifier: BSD-3-Clause
// Dataset: one split of one corpus, or of a weighted blend of several, as an ordered stream of samples.
//
// The documents of a sample are either joined or separate. Joined documents are one sequence for the model. Separate
// documents are masked from each other in attention: each begins at position 0, and its first token is not predicted.
// For a document that began before the window, positions count from the start of the window, because the tokens
// before it are not visible either.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "modules/objectives/text_pairs.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/mixing/data_stage.hpp"
#include "src/data/mixing/fill_in_middle.hpp"
#include "src/data/samples.hpp"
#include "src/data/text_references.hpp"
#include "src/data/token_file.hpp"
#include "src/data/words.hpp"

namespace gyr {

enum class Split { train, validation, test };
std::string_view name_of(Split split);

struct Corpus {
  std::filesystem::path prefix;  // PREFIX of PREFIX.bin and PREFIX.idx, and of PREFIX_mask.* if the corpus has a loss mask
  // sampling weight, set for all corpora or for none; if unset, corpora are drawn in proportion to their number of
  // windows
  std::optional<double> weight;
};

// One sample. Token t + 1 is predicted from tokens 0 to t if learned[t + 1] is 1.
struct Sample {
  std::vector<std::int32_t> tokens;        // [L + 1]; padding is 0. It follows the documents (order documents only). If no next token is predicted,
                                           // the last element is padding too
  std::vector<std::int32_t> positions;     // position of each token in its document; padding counts as one document; empty if documents are joined
  std::vector<std::uint8_t> learned;       // [L + 1]: 1 for target tokens; 0 for padding, masked tokens, the first token of a separate document, and
                                           // special tokens if `begins` is set
  std::vector<std::uint8_t> begins;        // 1 where a token begins a word (whole-word masking); empty if not requested
  std::vector<std::int32_t> classes = {};  // class of each token, or of the text at its first token; else ignored_label; empty if not requested
  std::vector<TextSpan> texts = {};        // documents of this sample; only with the order documents
  std::vector<std::int32_t> source = {};   // encoder input of an encoder-decoder pair; empty for other corpora
  // Retrieval: tokens of the neighbours of each chunk (chunks, k, r), padding 0; and the length of each (chunks, k), 0 if
  // it is missing. Empty for a model without layers R.
  std::vector<std::int32_t> neighbours = {}, neighbour_lengths = {};
  NamedHostValues values = {};  // values of the objective's fields that come with the sample; empty for corpora
};

// Preference pairs: the documents of a corpus alternate between a chosen and a rejected text (data build --pairs), and
// both are in one sample. The log-probabilities of a reference model (text_references.hpp) are optional (as_they_are),
// required (with_reference), or not read (without_reference).
enum class Pairs { none, as_they_are, with_reference, without_reference };

struct DatasetOptions {
  std::vector<Corpus> corpora;
  std::vector<DataStage> stages = {};         // in which the weights change; empty: the weights of the corpora hold throughout
  std::vector<std::int64_t> max_epochs = {};  // of each corpus; 0: no limit; empty: no limits
  FillInMiddle fill_in_middle = {};
  std::string split = "949,50,1";  // proportions of train, validation and test among the sequences of each corpus; any sum
  Split which = Split::train;
  std::int64_t seq_length = 0;  // L: sequence length; samples hold L + 1 tokens
  std::uint64_t seed = 1234;
  SampleOrder order = SampleOrder::shuffled;
  bool separate = false;                           // true: documents of a window are masked from each other in attention; false: they are joined
  bool predicts = true;                            // true: next-token prediction; false: the labels belong to the first L tokens themselves
  std::int64_t samples = 0;                        // number of samples that will be read; only the megatron order needs it
  std::int64_t vocab_size = TokenFile::max_vocab;  // larger ids in the data are an Exit::data error when they are read
  std::shared_ptr<const Tokenizer> words;          // tokenizer that locates word beginnings (Sample::begins); null: not requested
  std::vector<std::string> classes;                // class names that the corpora must have; empty: labels are not read
  Pairs pairs = Pairs::none;
  std::int64_t source_length = 0;  // maximum tokens of an encoder input (data build --source); 0: the corpora have no encoder inputs
};

// Parses the proportions of train, validation and test, such as 949,50,1, and normalises them to sum 1. Empty if `text`
// is malformed.
std::optional<std::array<double, 3>> split_fractions(std::string_view text);
// Sequences of one split of N sequences. As in Megatron-LM, boundaries lie at round(cumulative proportion * N), with
// halves rounded to even.
// Exit::config unless `fractions` is one to three numbers, none negative, not all 0.
SequenceRange split_range(std::string_view fractions, Split which, std::int64_t N);

class Dataset {
 public:
  // Exit::missing and Exit::data from TokenFile. Exit::data if the split of a corpus has too few tokens for one sample.
  // Exit::config for invalid options.
  explicit Dataset(const DatasetOptions& options);

  // Returns sample `number` of the run, a pure function of the options and the number. Cheap and thread-safe.
  // Exit::data, with file and byte, for ids outside the vocabulary and mask values other than 0 and 1.
  Sample sample(std::int64_t number) const;

  // Function that adds to sample `number` what does not come from the corpora (neighbours).
  using Complete = std::function<void(const Dataset&, std::int64_t number, Sample&)>;
  void complete_with(Complete complete) { complete_ = std::move(complete); }

  // Corpus of sample `number`, and the tokens that it consists of.
  std::pair<std::int64_t, std::vector<Extract>> extracts(std::int64_t number) const;
  // The tokens of window `w` of a corpus, in [0, per_epoch(corpus)); only for the order shuffled.
  std::vector<Extract> window(std::int64_t corpus, std::int64_t w) const { return samples_[std::size_t(corpus)]->window(w); }
  // Corpus and window of sample `number`; only for the order shuffled.
  std::pair<std::int64_t, std::int64_t> window_of(std::int64_t number) const {
    const Blend::Pick pick = mixture_->at(number);
    return {pick.corpus, samples_[std::size_t(pick.corpus)]->window_of(pick.number)};
  }
  // Corpus of sample `number`, and the index of its first sequence there.
  std::pair<std::int64_t, std::int64_t> place(std::int64_t number) const;

  // The tokens of a corpus after its last complete window, as a shorter sample; empty in the order documents.
  Sample rest(std::int64_t corpus) const;

  // Notes for the user, one line each: how full the windows are, how many documents are truncated or left out, and the
  // reference model of preference pairs.
  std::vector<std::string> notes() const;

  std::int64_t seq_length() const { return options_.seq_length; }
  std::int64_t corpora() const { return std::int64_t(files_.size()); }
  const TokenFile& file(std::int64_t corpus) const { return *files_[std::size_t(corpus)]; }
  std::int64_t per_epoch(std::int64_t corpus) const { return samples_[std::size_t(corpus)]->per_epoch(); }
  // Proportions of the corpora, by sample number.
  const Mixture& mixture() const { return *mixture_; }

 private:
  std::vector<double> given_weights() const;
  void check_layout() const;
  void check_filling() const;
  void mix(std::vector<double> weights);
  void open(const Corpus&);
  std::unique_ptr<Samples> samples_of(std::size_t corpus, SequenceRange) const;
  Sample sample_of(std::size_t corpus, const std::vector<Extract>&, std::size_t length, std::int64_t epoch) const;
  std::size_t read_filled(std::size_t corpus, const Extract&, std::int64_t epoch, std::span<std::int32_t> tokens) const;
  SequenceRange range_of(const TokenFile&) const;
  bool has_document_pairs() const { return options_.pairs != Pairs::none || options_.source_length > 0; }
  std::vector<std::int32_t> source_of(std::size_t corpus, const Extract&) const;

  DatasetOptions options_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<std::unique_ptr<LossMask>> masks_;      // null: the corpus has no loss mask, so all its tokens are targets
  std::vector<std::unique_ptr<ClassLabels>> labels_;  // empty if no classes are requested
  std::vector<TextReferences> references_;            // empty unless the documents are preference pairs
  std::vector<std::unique_ptr<Samples>> samples_;
  std::unique_ptr<Mixture> mixture_;
  Complete complete_;  // may be empty
};

}  // namespace gyr
