// SPDX-License-Identifier: BSD-3-Clause
// Converts text to token ids and back. Byte-level BPE is lossless for any bytes (Sennrich et al. 2016, Radford et al.
// 2019). The tokens of SentencePiece-style BPE (Kudo and Richardson 2018), WordPiece (word_pieces.hpp) and Unigram
// (unigram.hpp) are text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/added_tokens.hpp"
#include "src/tokenizer/decoder.hpp"
#include "src/tokenizer/normalizer.hpp"
#include "src/tokenizer/splitter.hpp"
#include "src/tokenizer/text_position.hpp"
#include "src/tokenizer/unigram.hpp"
#include "src/tokenizer/word_pieces.hpp"

namespace gyr {

// A BPE merge: adjacent tokens `left` and `right` of a piece become `result`. Earlier merges in the list have priority.
struct Merge {
  std::int32_t left, right, result;
};

// Token ids that a post-processor adds before and after the ids of a text.
struct Template {
  std::vector<std::int32_t> before, after;
};

// The complete definition of a tokenizer, as plain data.
struct Vocabulary {
  std::vector<std::optional<std::string>> tokens;  // [id]: bytes of the token; empty if no token has this id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::optional<WordPieceRule> word_pieces;  // WordPiece instead of BPE; requires `unknown`
  std::optional<UnigramRule> unigram;        // Unigram instead of BPE; requires `unknown`
  bool ignore_merges = false;                // a piece that is itself a token becomes this token, even if no merges produce it
  bool byte_fallback = false;                // a character without a token becomes the tokens "<0xC4>" of its UTF-8 bytes, if these exist
  std::optional<std::int32_t> unknown;       // id of the unknown token, for bytes without any token; if empty, such bytes are dropped
  bool fuse_unknown = false;                 // true: consecutive unknown tokens become one
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> split;
  std::vector<Template> templates;  // post-processor templates; the first is the innermost: its tokens are next to the text
  bool of_text = false;             // tokens are spelt as plain text (WordPiece, Unigram, SentencePiece-style BPE), not in the byte alphabet
  std::vector<DecoderStep> decoder = {{DecoderStep::Kind::byte_level, "", ""}};
  // Original JSON of these components, kept for save().
  std::string normalizer_json = "null", pre_tokenizer_json = "null", post_processor_json = "null";
  std::string decoder_json = R"({"add_prefix_space":false,"trim_offsets":true,"type":"ByteLevel","use_regex":true})";
};

// Creates a vocabulary of special tokens and the 256 bytes, without merges, with GPT-2's split pattern. Ids: special
// tokens in the given order, then the bytes in the order of their letters (byte_alphabet.hpp). Exit::config if two
// special tokens are equal.
Vocabulary byte_vocabulary(std::span<const std::string> specials);

class Tokenizer {
 public:
  // Treatment of special tokens by encode(). as_text: special tokens spelt in the text are plain text. as_tokens: they
  // become their ids. complete: as as_tokens, and the post-processor adds its own (BOS, EOS, ...), as `tokenizers` does
  // by default.
  enum class Specials { as_text, as_tokens, complete };

  // Exit::data if ids or merges are inconsistent.
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Reads a tokenizer.json of Hugging Face's `tokenizers` with a BPE, WordPiece or Unigram model. BPE is byte-level if
  // the pre-tokenizer has a ByteLevel step. The ids equal those of that library (0.23) for any text. Exit::data, with
  // file, place and name, for unsupported features and for ambiguous content such as repeated keys. Exit::missing.
  static Tokenizer load(const std::filesystem::path& json);
  // As load(), from the text of such a file. `name`: the file's name in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);
  // Writes a tokenizer.json that load() and `tokenizers` read as the same tokenizer. The file is replaced atomically.
  // Exit::io.
  void save(const std::filesystem::path& json) const;

  // Returns the ids of `text`, which may be any bytes. Added tokens that are not special always match. Thread-safe.
  // Invalid UTF-8 is neither normalized nor split: each maximal run of invalid bytes is one piece, and the text on
  // either side is encoded separately. A byte without a token becomes the unknown token, or is dropped if there is none
  // (as in `tokenizers`; see lacks_bytes()). Exit::data if a pattern exceeds its matching limit, or if a piece of more
  // than 2^32 - 1 symbols cannot be divided.
  std::vector<std::int32_t> encode(std::string_view text, Specials specials = Specials::as_text) const;
  // As above, but appends to `ids`. `position` decides about prefixes, such as the space before the first word.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials = Specials::as_text,
              TextPosition position = TextPosition::begin) const;

  // A special token spelt in a text, or text between two of them.
  struct Part {
    std::string_view text;
    std::optional<std::int32_t> special;
  };
  // Divides `text` at the special tokens spelt in it. White space that belongs to a token (lstrip, rstrip) is left out.
  std::vector<Part> divided_at_specials(std::string_view text) const;
  // `text` without the white space that belongs to the token before it (rstrip).
  std::string_view text_after(std::int32_t token, std::string_view text) const;

  enum class Shown { all, without_specials };
  // Returns the concatenated bytes of the tokens. Added tokens give their content. decode(encode(x)) == x for any bytes
  // x if the vocabulary is byte-level, unless there is a normalizer, a lossy pre-tokenizer, or an added token with
  // lstrip or rstrip. The result may end inside a character; lossy_utf8() of it is the text that `tokenizers` returns.
  // Exit::data if an id is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, Shown shown = Shown::all) const;
  // Returns the text that `ids` add to the text of `before`. Some decoders remove the space before the first token of a
  // text, which decode(ids) would therefore lack.
  std::string decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids) const;

  // Returns 1 for each token that begins a word, else 0. Byte-level BPE: the token begins where the pre-tokenizer splits
  // the decoded text. WordPiece: the token has no continuation prefix. Unigram and SentencePiece-style BPE: the token
  // begins with the mark that replaces spaces. All elements are 1 if the tokenizer has no such rule, no prefix, no mark,
  // or a byte-level pre-tokenizer that changes the text. `ids` must not contain special tokens.
  std::vector<std::uint8_t> word_begins(std::span<const std::int32_t> ids) const;

  // Number of bytes (of 256) without their own token in a byte-level vocabulary. Such bytes of a text cannot be
  // restored from its ids.
  int lacks_bytes() const;

  // Largest id plus one: the number of rows that an embedding needs.
  std::int32_t size() const;
  // Id of the token with these bytes, or of the added token with this content.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;
  bool has(std::int32_t id) const;

  // The end-of-document, padding and begin-of-text tokens, found by their usual names; empty if there is none.
  std::optional<std::int32_t> eod() const;
  std::optional<std::int32_t> pad() const;
  std::optional<std::int32_t> bos() const;

  const Vocabulary& vocabulary() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyr
