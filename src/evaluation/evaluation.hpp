// SPDX-License-Identifier: BSD-3-Clause
// Evaluations of a model. An evaluation reads its files, lists the passages to be scored, and computes results from the
// scores. It does not depend on ranks.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/base/json.hpp"
#include "src/data/dataset.hpp"
#include "src/data/documents.hpp"
#include "src/evaluation/passage.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

struct Conclusion {
  std::string text;           // summary for the log
  Json results;               // the same results, unrounded, with counts and standard errors
  std::vector<Json> records;  // one JSON record per example
};

class Evaluation {
 public:
  virtual ~Evaluation() = default;
  virtual const Passages& passages() const = 0;
  // Computes the results from the scores of all passages, in the order of the passages.
  virtual Conclusion conclude(const std::vector<PassageScore>&) const = 0;
};

// Settings common to evaluations of text.
struct TextSettings {
  const Tokenizer& tokenizer;
  Index vocab_size;            // vocabulary size of the model; a token id that is not below it is Exit::data
  Index window;                // maximum number of tokens that the model reads at once
  std::optional<Token> begin;  // token put before a text, so that its first token is scored too; empty: none
  Index limit = 0;             // maximum number of documents or examples; 0: all
};

// Adds to the samples of a dataset what does not come from the token files (neighbours).
using SampleCompletion = std::function<void(Dataset&)>;
// Loss and perplexity over the windows of token files. `limit`: maximum number of windows; 0: all. `overlap`: the records of a
// model with layers R have the overlap of each window with its neighbours (neighbour_overlap.hpp).
std::unique_ptr<Evaluation> token_file_evaluation(const DatasetOptions&, const ModelConfig&, Index limit, const SampleCompletion& complete = {},
                                                  bool overlap = false);

// Perplexity of text documents, read in windows of at most `window` tokens that advance by `stride` (see
// strided_windows). Exit::missing, Exit::data.
std::unique_ptr<Evaluation> text_evaluation(const std::vector<std::filesystem::path>& files, const DocumentFormat&, Index stride,
                                            const TextSettings&);

// Accuracy and perplexity of the last word of each {"text": ...} of a JSONL file, predicted from all text before it, as
// in LAMBADA. Exit::missing; Exit::data with file:line.
std::unique_ptr<Evaluation> last_word_evaluation(const std::filesystem::path& file, const TextSettings&);

// Multiple choice: the most likely choice of each {"context": ..., "choices": [...], "answer": i} of a JSONL file.
// `delimiter` separates context and choice. Exit::missing; Exit::data with file:line.
std::unique_ptr<Evaluation> choices_evaluation(const std::filesystem::path& file, const std::string& delimiter, const TextSettings&);

}  // namespace gyr
