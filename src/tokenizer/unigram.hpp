// SPDX-License-Identifier: BSD-3-Clause
// Unigram tokenization (Kudo 2018). A piece is segmented into the tokens with the largest sum of scores, which are
// log-probabilities. A character that is not itself a token may also become the unknown token, whose score is below
// that of any token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

struct UnigramRule {
  std::vector<double> scores;  // [id]: log-probability, finite
};

class Unigram {
 public:
  struct Token {
    std::string_view spelling;  // not empty; the caller keeps it alive
    std::int32_t id;
    double score;
  };
  explicit Unigram(std::vector<Token>);

  // A segment of a piece: a token, or a run of characters that are unknown (id -1).
  struct Part {
    std::size_t begin, end;
    std::int32_t id;
  };
  // Segments a piece of valid UTF-8 and stores the parts in `parts`, in order. Ties are resolved in favour of the
  // segmentation found first, from the left.
  void split_piece(std::string_view piece, std::vector<Part>& parts) const;

 private:
  std::vector<Token> tokens_;  // sorted by spelling
  double unknown_;             // score of an unknown character
};

}  // namespace gyr
