// SPDX-License-Identifier: BSD-3-Clause
// Fill-in-the-middle (Bavarian et al. 2022): a document is divided at two places into prefix P, middle M and suffix S, so
// that a model that predicts the next token learns to fill a gap.
//   PSM: <pre> P <suf> S <mid> M        SPM: <pre> <suf> S <mid> P M
// An end-of-document token stays at the end. The result has three tokens more. All of them are target tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/random.hpp"
#include "modules/settings/settings.hpp"

namespace gyr {

class Tokenizer;

// Deck keys data.fim.*.
struct FimConfig {
  double rate = 0;                  // fraction of documents that are rearranged; 0: none
  double spm = 0.5;                 // fraction of these in the form SPM
  std::vector<std::string> tokens;  // names of <pre>, <mid> and <suf>
};
// `tokenizer`: path of the tokenizer, empty: none. Exit::config if documents are rearranged without three different
// tokens and a tokenizer.
FimConfig read_fim(Section& data, const std::string& tokenizer);

class FillInMiddle {
 public:
  static constexpr std::int64_t sentinels = 3;  // tokens that a rearranged document has in addition

  FillInMiddle() = default;  // rearranges nothing
  // Exit::config unless the tokens of the deck are three tokens of the tokenizer. `name`: the tokenizer in messages.
  FillInMiddle(const FimConfig&, const Tokenizer&, const std::string& name, std::uint64_t seed);

  explicit operator bool() const { return rate_ > 0; }
  // Random numbers for a document, or for the part of it from `offset` on that a window has. They differ in each epoch.
  Stream draws(std::int64_t corpus, std::int64_t sequence, std::int64_t offset, std::int64_t epoch) const;
  // The document, rearranged or not: a pure function of the tokens and the random numbers. The two places are independent
  // and uniform over all gaps between tokens, both ends included.
  std::vector<std::int32_t> operator()(std::span<const std::int32_t> document, const Stream& draws) const;

 private:
  double rate_ = 0, spm_ = 0;
  std::int32_t prefix_ = 0, middle_ = 0, suffix_ = 0, end_ = -1;  // end_: end-of-document token, -1: none
  std::uint64_t seed_ = 0;
};

}  // namespace gyr
