// SPDX-License-Identifier: BSD-3-Clause
// Matches added tokens, such as <|endoftext|>, in the text before it is pre-tokenized.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/pattern.hpp"

namespace gyr {

// A token that is matched as a unit and is not produced by merges, such as "<|endoftext|>" (`added_tokens` in
// tokenizer.json).
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool special = true;                  // control token that is not part of the text (BOS, EOS, ...)
  bool normalized = false;              // true: matched after normalization, in its normalized form
  bool single_word = false;             // matched only if no word character is adjacent
  bool lstrip = false, rstrip = false;  // the match includes the white space before it, after it
  bool in_model = true;                 // true: the token is also in model.vocab
};

// Finds added tokens: the leftmost match, and the longest one there. The search continues at its end.
class AddedMatcher {
 public:
  AddedMatcher();

  // Adds a token. `spelling`: its text, normalized if necessary. Exit::data if it is empty or already added.
  void add(std::string_view spelling, const AddedToken& token);

  struct Part {
    std::size_t begin, end;
    const AddedToken* token;  // null: text between tokens
  };
  // Calls visit(Part) for all parts of `text` (valid UTF-8) in order. If `specials` is false, special tokens are
  // treated as text.
  template <class Visit>
  void visit(std::string_view text, bool specials, Visit&& visit) const {
    if (tokens_.empty()) {
      if (!text.empty()) visit(Part{0, text.size(), nullptr});
      return;
    }
    std::size_t done = 0, from = 0;
    for (Part part; find(text, from, part);) {
      from = part.end;
      if ((part.token->special && !specials) || !is_delimited(text, part)) continue;
      widen(text, done, part);
      if (part.begin >= part.end) continue;  // the white space already belongs to the previous match
      if (done < part.begin) visit(Part{done, part.begin, nullptr});
      visit(part);
      done = part.end;
    }
    if (done != text.size()) visit(Part{done, text.size(), nullptr});
  }

 private:
  bool find(std::string_view text, std::size_t from, Part& part) const;
  bool is_delimited(std::string_view text, const Part& part) const;
  static void widen(std::string_view text, std::size_t done, Part& part);

  // Trie of bytes. Node 0 is the root; below_ maps (node, byte) to the child node.
  PairMap below_;
  std::vector<std::int32_t> token_at_{-1};  // [node]: index in tokens_ of the token that ends at this node, or -1
  std::array<bool, 256> begins_one_{};
  std::vector<AddedToken> tokens_;
  Pattern word_;
};

}  // namespace gyr
