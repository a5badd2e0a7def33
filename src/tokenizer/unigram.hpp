// SPDX-License-Identifier: BSD-3-Clause
// Unigram (Kudo 2018): of all ways to cut a piece into tokens the one whose scores, logarithms of probabilities, add up to most. A character that
// no token begins alone with may also be unknown, which scores less than any token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyr {

struct UnigramRule {
  std::vector<double> scores;  // [id], finite
};

class Unigram {
 public:
  struct Token {
    std::string_view spelling;  // not empty; stays where it is
    std::int32_t id;
    double score;
  };
  explicit Unigram(std::vector<Token>);

  // A stretch of the piece: a token, or characters in a row that none stands for (id -1).
  struct Part {
    std::size_t begin, end;
    std::int32_t id;
  };
  // Leaves the parts of valid UTF-8 in `parts`, in order. Of ways that score the same, that which is met first from the left.
  void cut(std::string_view piece, std::vector<Part>& parts) const;

 private:
  std::vector<Token> tokens_;  // by spelling
  double unknown_;             // score of an unknown character
};

}  // namespace gyr
