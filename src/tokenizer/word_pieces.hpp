// SPDX-License-Identifier: BSD-3-Clause
// WordPiece (Wu et al. 2016; Devlin et al. 2019): a word becomes the longest token that it begins with, then the longest that goes on from there, and
// so on; where there is none, all of it is the unknown token.
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
  std::string prefix = "##";           // of tokens that go on with a word
  std::int64_t most_characters = 100;  // of a word; longer ones are unknown
};

class WordPieces {
 public:
  // Spellings stay where they are.
  explicit WordPieces(const WordPieceRule& rule) : rule_(rule) {}
  void add(std::string_view spelling, std::int32_t id);

  // Appends the tokens of a word, which is not empty; false, and nothing is appended, where there are none. Words that are not UTF-8 have none.
  bool cut(std::string_view word, std::vector<std::int32_t>& ids) const;
  bool goes_on(std::string_view spelling) const { return spelling.starts_with(rule_.prefix); }

 private:
  using Ids = std::unordered_map<std::string_view, std::int32_t>;
  struct Found {
    std::size_t length;
    std::int32_t id;
  };
  static std::optional<Found> longest(const Ids& ids, std::string_view text, std::size_t most);

  WordPieceRule rule_;
  Ids at_begin_, inside_;  // inside_: without the prefix
  std::size_t longest_begin_ = 0, longest_inside_ = 0;
};

}  // namespace gyr
