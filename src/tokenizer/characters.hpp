// SPDX-License-Identifier: BSD-3-Clause
// Kinds of characters, as the parts of Hugging Face's `tokenizers` see them (character_tables.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gyr {

bool is_white_space(char32_t c);  // Unicode's White_Space
bool is_number(char32_t c);       // to the pre-tokenizer Digits
bool is_punctuation(char32_t c);  // to the pre-tokenizer Punctuation
bool is_accent(char32_t c);       // to the normalizer StripAccents

// To the steps of BertNormalizer: what clean_text removes, strip_accents removes, and handle_chinese_chars puts spaces around.
bool is_unclean(char32_t c);
bool is_nonspacing(char32_t c);
bool is_han(char32_t c);

// Appends the small form of `c`, or `c` itself where it has none.
void append_small(std::string& text, char32_t c);

// Normal forms leave `c` as it is, and nothing moves past it: tables of other editions of Unicode must not see it.
bool is_inert(char32_t c);

// An older character that regular expressions treat as they should treat `c`; nothing where `c` is known to them.
std::optional<char32_t> stand_in(char32_t c);

// A copy of `text` (valid UTF-8) of the same length with every such character replaced; nothing where there is none.
std::optional<std::string> with_stand_ins(std::string_view text);

// Whether regular expressions see all characters from first to last, and no others, as members of this range in spite of stand-ins.
bool range_is_exact(char32_t first, char32_t last);

}  // namespace gyr
