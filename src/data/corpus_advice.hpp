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

// One line each. `vocab_size`: tokens of the tokenizer. `plain`: true if the text can be divided into more documents by
// --documents, false for JSON lines.
std::vector<std::string> corpus_warnings(const BuildReport&, std::int64_t vocab_size, bool plain);

// Values of deck keys for a first training run on this corpus, as words of the form key=value.
std::string suggested_settings(const BuildReport&);

}  // namespace gyr
