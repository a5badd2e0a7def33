// SPDX-License-Identifier: BSD-3-Clause
// WordPiece (Wu et al. 2016; Devlin et al. 2019). A word is split greedily: the longest token at its start, then the
// longest continuation token, and so on. If no token matches, the word becomes the unknown token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gyr {

struct WordPieceRule {
  std::string prefix = "##";           // prefix of continuation tokens
  std::int64_t most_characters = 100;  // maximum characters of a word; longer words become the unknown token
};

class WordPieces {
 public:
  // The caller keeps the spellings passed to add() alive.
  explicit WordPieces(const WordPieceRule& rule) : rule_(rule) {}
  void add(std::string_view spelling, std::int32_t id);

  // Appends the tokens of a nonempty word. Returns false and appends nothing if there is no match, or if the word is
  // invalid UTF-8.
  bool split_piece(std::string_view word, std::vector<std::int32_t>& ids) const;
  bool goes_on(std::string_view spelling) const { return spelling.starts_with(rule_.prefix); }

 private:
  using Ids = std::unordered_map<std::string_view, std::int32_t>;
  struct Found {
    std::size_t length;
    std::int32_t id;
  };
  static std::optional<Found> longest(const Ids& ids, std::string_view text, std::size_t most);

  WordPieceRule rule_;
  Ids at_begin_, inside_;  // inside_: continuation tokens, without the prefix
  std::size_t longest_begin_ = 0, longest_inside_ = 0;
};

}  // namespace gyr
