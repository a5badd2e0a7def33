// SPDX-License-Identifier: BSD-3-Clause
// What a training run reads: one split of one or several weighted corpora, as an ordered stream of samples.
//
// Documents of a sample are joined, one text for the model, or separate. Separate documents do not see each other: each
// begins at position 0, and its first token is not predicted from the document before it. A document that began before
// the window counts its positions from the window's start, because nothing before that is seen either.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "modules/objectives/text_pairs.hpp"
#include "src/data/blend.hpp"
#include "src/data/class_labels.hpp"
#include "src/data/loss_mask.hpp"
#include "src/data/samples.hpp"
#include "src/data/text_references.hpp"
#include "src/data/token_file.hpp"
#include "src/data/words.hpp"

namespace gyr {

enum class Split { train, validation, test };
std::string_view name_of(Split split);

struct Corpus {
  std::filesystem::path prefix;  // of PREFIX.bin and PREFIX.idx, and of a loss mask where it has one
  std::optional<double> weight;  // share of the samples; for all corpora or none. Without: in proportion to their windows
};

// A sample as a model meets it: token t + 1 is to be predicted from tokens 0 to t, if learned[t + 1].
struct Sample {
  std::vector<std::int32_t> tokens;  // L + 1; padding, after the documents of the documents order, is 0, and so is the last where none is predicted
  std::vector<std::int32_t> positions;     // of each token within its document, padding being one; empty where joined
  std::vector<std::uint8_t> learned;       // 0: padding, masked, or the first token of a separate document; where words are told, a special token
  std::vector<std::uint8_t> begins;        // 1 where a token begins a word; empty: nobody asked
  std::vector<std::int32_t> classes = {};  // of each token or of the text that begins with it, or ignored_label; empty: nobody asked
  std::vector<TextSpan> texts = {};        // in the documents order
  std::vector<std::int32_t> source = {};   // that belongs to the text, where the corpora have one
};

// Whether the texts of a corpus are pairs, a chosen one and behind it a rejected one (data build --pairs); then both are in one sample. What a
// reference model says of them (text_references.hpp) is read where it is there, or must be there.
enum class Pairs { none, as_they_are, with_reference };

struct DatasetOptions {
  std::vector<Corpus> corpora;
  std::string split = "949,50,1";  // shares of train, validation and test among the sequences of each corpus; any sum
  Split which = Split::train;
  std::int64_t seq_length = 0;  // L: samples hold L + 1 tokens
  std::uint64_t seed = 1234;
  SampleOrder order = SampleOrder::shuffled;
  bool separate = false;                           // documents do not see each other
  bool predicts = true;                            // the token behind each; else those of the first L are labelled themselves
  std::int64_t samples = 0;                        // how many will be read: needed by the megatron order only
  std::int64_t vocab_size = TokenFile::max_vocab;  // ids not below it stop the run where they are read
  std::shared_ptr<const Tokenizer> words;          // tells where words begin; null: nothing does
  std::vector<std::string> classes;                // by name, that the corpora tell; none: nobody asks
  Pairs pairs = Pairs::none;
  std::int64_t source_length = 0;  // most tokens of a source beside each text (data build --source); 0: the corpora have none
};

// The shares of train, validation and test that a text such as 949,50,1 gives, of a sum of 1; nothing where it gives none.
std::optional<std::array<double, 3>> split_shares(std::string_view text);
// The sequences of each split, as Megatron-LM cuts them: boundaries at round(share so far * N), halves to even.
// Exit::config unless `shares` is one to three numbers, none negative, not all 0.
SequenceRange split_range(std::string_view shares, Split which, std::int64_t N);

class Dataset {
 public:
  // Exit::missing, Exit::data: what TokenFile finds; Exit::data when the split of a corpus has too few tokens for one
  // sample; Exit::config for impossible options.
  explicit Dataset(const DatasetOptions& options);

  // Sample `number` of the run. A pure function of the options and the number. Cheap, and safe from several threads.
  // Exit::data for ids outside the vocabulary and marks that are neither 0 nor 1, with file and byte.
  Sample sample(std::int64_t number) const;

  // Of a corpus what the next window behind the last would begin with, as a shorter sample; empty where documents are whole.
  Sample rest(std::int64_t corpus) const;

  // What the user should know of the corpora, a line each: how full windows are, how many documents are cut.
  std::vector<std::string> notes() const;

  std::int64_t seq_length() const { return options_.seq_length; }
  std::int64_t corpora() const { return std::int64_t(files_.size()); }
  const TokenFile& file(std::int64_t corpus) const { return *files_[std::size_t(corpus)]; }
  std::int64_t per_epoch(std::int64_t corpus) const { return samples_[std::size_t(corpus)]->per_epoch(); }
  double weight(std::int64_t corpus) const { return blend_->weights()[std::size_t(corpus)]; }

 private:
  std::vector<double> given_weights() const;
  void open(const Corpus&);
  std::unique_ptr<Samples> samples_of(std::size_t corpus, SequenceRange) const;
  Sample sample_of(std::size_t corpus, const std::vector<Extract>&, std::size_t length) const;
  SequenceRange range_of(const TokenFile&) const;
  bool two_by_two() const { return options_.pairs != Pairs::none || options_.source_length > 0; }
  std::vector<std::int32_t> source_of(std::size_t corpus, const Extract&) const;

  DatasetOptions options_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<std::unique_ptr<LossMask>> masks_;      // null: every token is predicted
  std::vector<std::unique_ptr<ClassLabels>> labels_;  // none where nobody asks
  std::vector<TextReferences> references_;            // none where texts are no pairs
  std::vector<std::unique_ptr<Samples>> samples_;
  std::unique_ptr<Blend> blend_;
};

}  // namespace gyr
