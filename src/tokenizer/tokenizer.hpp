// SPDX-License-Identifier: BSD-3-Clause
// Text to token ids and back: byte-level byte-pair encoding, lossless on any bytes (Sennrich et al. 2016, Radford et al. 2019), or word pieces
// (word_pieces.hpp) or Unigram (unigram.hpp), whose tokens are text.
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
#include "src/tokenizer/unigram.hpp"
#include "src/tokenizer/word_pieces.hpp"

namespace gyr {

// The tokens `left` `right`, side by side in a piece, become `result`. Earlier merges go first.
struct Merge {
  std::int32_t left, right, result;
};

// What a post-processor puts around the ids of a text.
struct Template {
  std::vector<std::int32_t> before, after;
};

// All that defines a tokenizer, as plain data.
struct Vocabulary {
  std::vector<std::optional<std::string>> tokens;  // [id]: the bytes it stands for; nothing where no token has this id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::optional<WordPieceRule> word_pieces;  // in place of merges; tokens are text, and there is an unknown one
  std::optional<UnigramRule> unigram;        // the same
  bool ignore_merges = false;                // a piece that is a token becomes that token, whether or not merges lead there
  bool byte_fallback = false;                // a letter without token becomes the tokens "<0xC4>" of its UTF-8 bytes where there are such
  std::optional<std::int32_t> unknown;       // of a byte without token otherwise; without this one it is left out
  bool fuse_unknown = false;                 // several of them in a row become one
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> split;
  std::vector<Template> templates;                         // the first goes innermost
  bool of_text() const { return word_pieces || unigram; }  // tokens are spelt as they are, not in the byte alphabet
  std::vector<DecoderStep> decoder = {{DecoderStep::Kind::byte_level, "", ""}};
  // The JSON that these four were read from, kept for the file.
  std::string normalizer_json = "null", pre_tokenizer_json = "null", post_processor_json = "null";
  std::string decoder_json = R"({"add_prefix_space":false,"trim_offsets":true,"type":"ByteLevel","use_regex":true})";
};

// A vocabulary of special tokens and the 256 bytes, without merges, with GPT-2's split rule. Ids: special tokens in the
// order given, then the bytes in the order of their letters (byte_alphabet.hpp). Exit::config when two special tokens
// are the same.
Vocabulary byte_vocabulary(std::span<const std::string> specials);

class Tokenizer {
 public:
  // What encode() does about special tokens. `as_text`: those spelt out in the text are text. `as_tokens`: they are tokens.
  // `complete`: that, and the post-processor adds its own (begin of text, ...), as `tokenizers` does unless told otherwise.
  enum class Specials { as_text, as_tokens, complete };

  // Exit::data when ids or merges contradict each other.
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Reads a tokenizer.json of Hugging Face's `tokenizers`: model BPE, byte-level, WordPiece or Unigram. Its ids are those of that library (0.23), for
  // any text. What is not supported, and what two readers may understand differently, is refused by file, place and name. Exit::missing, Exit::data.
  static Tokenizer load(const std::filesystem::path& json);
  // The same from the text of such a file, which messages call `name`.
  static Tokenizer parse(std::string_view json, const std::string& name);
  // Writes one that load() and `tokenizers` read back to the same tokenizer. Appears whole or not at all. Exit::io.
  void save(const std::filesystem::path& json) const;

  // The ids of `text`. Added tokens that are not special always match. Several threads may encode at a time.
  // Text may be any bytes. Bytes that are not UTF-8 are neither normalized nor cut: each longest run of them is a piece of its own, and
  // the text on either side is encoded as if it stood alone. A byte without token becomes the unknown token, or nothing where the
  // vocabulary has none (as in `tokenizers`; see lacks_bytes()). Exit::data when a pattern passes its matching limit.
  std::vector<std::int32_t> encode(std::string_view text, Specials specials = Specials::as_text) const;
  // Appends to `ids` instead.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials = Specials::as_text) const;

  enum class Shown { all, without_specials };
  // The bytes of the tokens, joined; added tokens give their content. Without normalizer, lossy pre-tokenizers or added tokens with
  // lstrip or rstrip, decode(encode(x)) == x for any bytes x. The bytes may end within a character; lossy_utf8() of them is what
  // `tokenizers` gives. Exit::data when an id is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, Shown shown = Shown::all) const;

  // 1 where a token begins a word: a piece of what these tokens spell, as the rule cuts it in which tokens are merged, or a word piece without
  // prefix, or one of Unigram with the mark that words have. All 1 where there is no such rule or it changes the text, or no prefix. None of them may
  // be special.
  std::vector<std::uint8_t> word_begins(std::span<const std::int32_t> ids) const;

  // How many of the 256 bytes have no token of their own in a byte-level vocabulary: such bytes of a text cannot be told from its ids.
  int lacks_bytes() const;

  // One more than the largest id: rows an embedding needs.
  std::int32_t size() const;
  // The token whose bytes (or content, for added tokens) are `token`.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;
  bool has(std::int32_t id) const;

  // The token that ends a document, pads a batch, begins a text, found by the names in common use; nothing if it has
  // none.
  std::optional<std::int32_t> eod() const;
  std::optional<std::int32_t> pad() const;
  std::optional<std::int32_t> bos() const;

  const Vocabulary& vocabulary() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyr
