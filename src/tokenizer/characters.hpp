// SPDX-License-Identifier: BSD-3-Clause
// Character classes as the components of Hugging Face's `tokenizers` define them (character_tables.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gyr {

bool is_white_space(char32_t c);  // the Unicode property White_Space
bool is_number(char32_t c);       // as in the pre-tokenizer Digits
bool is_punctuation(char32_t c);  // as in the pre-tokenizer Punctuation
bool is_accent(char32_t c);       // as in the normalizer StripAccents

// Classes of BertNormalizer: removed by clean_text, removed by strip_accents, surrounded with spaces by
// handle_chinese_chars.
bool is_unclean(char32_t c);
bool is_nonspacing(char32_t c);
bool is_han(char32_t c);

// Appends the lowercase form of `c`, or `c` itself if it has none.
void append_lowercase(std::string& text, char32_t c);

// True if normal forms leave `c` unchanged and do not reorder marks across it. Such characters must not reach utf8proc,
// whose Unicode version is newer.
bool is_inert(char32_t c);

// An older character that PCRE2 classifies as `tokenizers` classifies `c`; empty if PCRE2 knows `c`.
std::optional<char32_t> stand_in(char32_t c);

// A copy of `text` (valid UTF-8), of the same length, with every such character replaced by its stand-in; empty if
// there are none.
std::optional<std::string> with_stand_ins(std::string_view text);

// True if replacing characters by stand-ins does not change which characters match the range [first, last] of a regular
// expression.
bool range_is_exact(char32_t first, char32_t last);

}  // namespace gyr
