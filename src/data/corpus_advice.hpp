// SPDX-License-Identifier: BSD-3-Clause
// Advice after a text has been tokenized: deck settings that suit its size, and warnings about data that trains badly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/builder.hpp"

namespace gyr {

// Vocabulary size for a tokenizer that is trained on a text of `bytes`: a power of two from 512 to 32768, so that each
// token occurs often enough to be learned.
std::int64_t suggested_vocabulary(std::int64_t bytes);

// Source of the documents: running text that --documents could divide into more of them, text that it has divided into
// pages, or lines with one example each.
enum class DocumentSource { undivided, pages, examples };

// One line each. `vocab_size`: tokens of the tokenizer.
std::vector<std::string> corpus_warnings(const BuildReport&, std::int64_t vocab_size, DocumentSource);

// Documents of the validation split, and how to make them represent the others; empty if there are none.
std::string validation_text(const BuildReport&);

// Values of deck keys for a first training run on this corpus, as words of the form key=value. train.eval_every is 0 if the
// validation split would be empty.
std::string suggested_settings(const BuildReport&);

}  // namespace gyr
