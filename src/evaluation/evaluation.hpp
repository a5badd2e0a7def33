// SPDX-License-Identifier: BSD-3-Clause
// What a model can be measured by. An evaluation reads its files, says which passages it wants scored, and draws its figures from the scores:
// it knows nothing of ranks.
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
  std::string text;           // for people
  Json results;               // the same figures, unrounded, with counts and standard errors
  std::vector<Json> records;  // one for each example
};

class Evaluation {
 public:
  virtual ~Evaluation() = default;
  virtual const Passages& passages() const = 0;
  // From the scores of all passages, in their order.
  virtual Conclusion conclude(const std::vector<PassageScore>&) const = 0;
};

// What evaluations of text have in common.
struct TextSettings {
  const Tokenizer& tokenizer;
  Index vocab_size;            // of the model; a token beyond it is Exit::data
  Index window;                // most tokens a model reads at once
  std::optional<Token> begin;  // put before a text, so that its first token too follows something
  Index limit = 0;             // first documents or examples only; 0: all
};

// Loss and perplexity over the windows of token files, `limit` of them (0: all).
std::unique_ptr<Evaluation> token_file_evaluation(const DatasetOptions&, const ModelConfig&, Index limit);

// Perplexity of text documents, each read in windows of at most `window` tokens that go on by `stride`: see strided_windows.
// Exit::missing, Exit::data.
std::unique_ptr<Evaluation> text_evaluation(const std::vector<std::filesystem::path>& files, const DocumentFormat&, Index stride,
                                            const TextSettings&);

// The last word of each {"text": ...} of a JSONL file, given all before it, as LAMBADA has it. Exit::missing; Exit::data with file:line.
std::unique_ptr<Evaluation> last_word_evaluation(const std::filesystem::path& file, const TextSettings&);

// Which choice of each {"context": ..., "choices": [...], "answer": i} of a JSONL file is likeliest; `delimiter` stands between context and
// choice. Exit::missing; Exit::data with file:line.
std::unique_ptr<Evaluation> choices_evaluation(const std::filesystem::path& file, const std::string& delimiter, const TextSettings&);

}  // namespace gyr
