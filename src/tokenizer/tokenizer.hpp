// SPDX-License-Identifier: BSD-3-Clause
// Byte-level byte-pair encoding: text to token ids and back, lossless on any bytes (Sennrich et al. 2016, Radford et
// al. 2019).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/splitter.hpp"

namespace gyr {

// A token that no merge makes: "<|endoftext|>" and its like.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool special = true;      // stands for structure, not for text: plain encoding never gives it
  bool normalized = false;  // kept for the file only: there is no normaliser
};

// The tokens `left` `right`, side by side in a piece, become `result`. Earlier merges go first.
struct Merge {
  std::int32_t left, right, result;
};

// All that defines a tokenizer, as plain data.
struct Vocabulary {
  std::vector<std::optional<std::string>> tokens;  // [id]: the bytes it stands for; nothing where no token has this id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  bool ignore_merges = false;  // a piece that is a token becomes that token, whether or not merges lead there
  std::vector<SplitStep> split;
  std::string pre_tokenizer;  // the JSON that `split` was read from
  std::string post_processor =
      "null";  // JSON, kept for the file: it only adds special tokens, which encode() never does
};

// A vocabulary of special tokens and the 256 bytes, without merges, with GPT-2's split rule. Ids: special tokens in the
// order given, then the bytes in the order of their letters (byte_alphabet.hpp). Exit::config when two special tokens
// are the same.
Vocabulary byte_vocabulary(std::span<const std::string> specials);

class Tokenizer {
 public:
  enum class Specials { as_text, as_tokens };

  // Exit::data when ids or merges contradict each other.
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Reads a tokenizer.json of Hugging Face's `tokenizers`: model BPE, byte-level. Whatever changes the ids and is not
  // supported (another model, a normaliser, other pre-tokenizers than Sequence, Split, Digits, Punctuation and
  // ByteLevel) is refused by name. Exit::missing, Exit::data.
  static Tokenizer load(const std::filesystem::path& json);
  // Writes one that load() and `tokenizers` read back to the same tokenizer. Appears whole or not at all. Exit::io.
  void save(const std::filesystem::path& json) const;

  // The ids of `text`. Special tokens spelt out in the text are text unless asked otherwise; added tokens that are not
  // special always match, longest first. Adds nothing at either end. Several threads may encode at a time. Exit::data
  // when a byte of the text has no token (vocabularies with all 256 bytes encode anything).
  std::vector<std::int32_t> encode(std::string_view text, Specials specials = Specials::as_text) const;
  // Appends to `ids` instead.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Specials specials = Specials::as_text) const;

  // The bytes of the tokens, joined; special tokens give their content. decode(encode(x)) == x for any bytes x.
  // Exit::data when an id is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids) const;

  // One more than the largest id: rows an embedding needs.
  std::int32_t size() const;
  // The token whose bytes (or content, for added tokens) are `token`.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;

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
