// SPDX-License-Identifier: BSD-3-Clause
// Tokens that are looked for in the text itself, before anything else happens to it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/pattern.hpp"

namespace gyr {

// A token that no merge makes: "<|endoftext|>" and its like.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool special = true;                  // stands for structure, not for text
  bool normalized = false;              // looked for after normalizing, in its normalized form
  bool single_word = false;             // only where no letter or digit touches it
  bool lstrip = false, rstrip = false;  // takes the white space before, after it
  bool in_model = true;                 // the model's vocabulary has it too
};

// Finds added tokens: the leftmost, of those that begin there the longest, then on from its end.
class AddedMatcher {
 public:
  AddedMatcher();

  // `spelling`: how the text spells it. Exit::data when it is empty or known already.
  void add(std::string_view spelling, const AddedToken& token);

  struct Part {
    std::size_t begin, end;
    const AddedToken* token;  // null: text between tokens
  };
  // Calls visit(Part) for all parts of `text` (valid UTF-8) in order. Special tokens are text where `specials` is false.
  template <class Visit>
  void visit(std::string_view text, bool specials, Visit&& visit) const {
    if (tokens_.empty()) {
      if (!text.empty()) visit(Part{0, text.size(), nullptr});
      return;
    }
    std::size_t done = 0, from = 0;
    for (Part part; find(text, from, part);) {
      from = part.end;
      if ((part.token->special && !specials) || !stands_alone(text, part)) continue;
      widen(text, done, part);
      if (done < part.begin) visit(Part{done, part.begin, nullptr});
      visit(part);
      done = part.end;
    }
    if (done != text.size()) visit(Part{done, text.size(), nullptr});
  }

 private:
  bool find(std::string_view text, std::size_t from, Part& part) const;
  bool stands_alone(std::string_view text, const Part& part) const;
  static void widen(std::string_view text, std::size_t done, Part& part);

  // A tree of bytes: node 0 is the root; (node, byte) leads to the node below.
  PairMap below_;
  std::vector<std::int32_t> token_at_{-1};  // [node]: place in tokens_ of the one that ends here
  std::array<bool, 256> begins_one_{};
  std::vector<AddedToken> tokens_;
  Pattern word_;
};

}  // namespace gyr
