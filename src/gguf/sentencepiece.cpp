// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/sentencepiece.hpp"

#include <string_view>
#include <unordered_map>

#include "kernels/base/error.hpp"
#include "src/tokenizer/oniguruma.hpp"
#include "src/tokenizer/pair_map.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::gguf {

namespace {

constexpr std::string_view space_mark = "\u2581";

void demand_piece(bool fits, const std::string& name, const std::string& what) {
  require(fits, Exit::data, "{}: {}, which llama.cpp's SentencePiece tokenizer cannot represent; --no-tokenizer writes the model without it", name,
          what);
}

// Checks the steps before merging. Returns true if they insert a mark before a text.
bool has_space_prefix(const Vocabulary& v, const std::string& name, const Note& note) {
  bool prefix = false, marked = false;
  for (const NormalizerStep& step : v.normalizer) {
    const bool prepends = step.kind == NormalizerStep::Kind::prepend && step.text == space_mark;
    const bool replaces = step.kind == NormalizerStep::Kind::replace && step.pattern == quoted_for_pcre(" ") && step.text == space_mark;
    prefix |= prepends, marked |= replaces;
    if (!prepends && !replaces && note) note(fmt::format("{}: has a normalizer, which llama.cpp does not apply", name));
  }
  for (const SplitStep& step : v.split) {
    const bool marks = step.by == SplitStep::By::mark && step.mark == space_mark && !step.split_before_marks;
    const bool finds_nothing = step.by == SplitStep::By::pattern && step.pattern == quoted_for_pcre(" ") && marked;
    demand_piece(marks || finds_nothing, name, "its pre-tokenizer splits the text");
    if (!marks) continue;
    marked = true;
    prefix |= step.before != SplitStep::Before::none;
    if (step.before != SplitStep::Before::none && note)
      note(fmt::format("{}: inserts no space before a text that begins with one{}; llama.cpp does", name,
                       step.before == SplitStep::Before::first ? " or that follows a special token" : ""));
  }
  demand_piece(marked, name, "it does not spell spaces as U+2581");
  return prefix;
}

// The score of a token is minus the rank of its first merge. All merges with one result must therefore be adjacent in
// the list. Tokens in `separate` are matched before merging and are exempt.
std::vector<float> scores_of(const Vocabulary& v, const std::vector<bool>& separate, const std::string& name) {
  std::vector<float> scores(v.tokens.size(), -float(v.merges.size()));
  std::vector<bool> seen(v.tokens.size());
  std::int32_t last = -1;
  for (std::size_t rank = 0; rank < v.merges.size(); ++rank) {
    const std::int32_t result = v.merges[rank].result;
    const auto id = std::size_t(result);
    if (!seen[id]) scores[id] = -float(rank);
    else demand_piece(result == last || separate[id], name, fmt::format("the merges of its token {} have different ranks", id));
    seen[id] = true;
    if (!separate[id]) last = result;
  }
  return scores;
}

// llama.cpp merges any two tokens whose joined text is a token. Each such pair must be among the merges.
void check_pairs(const Vocabulary& v, const std::vector<bool>& separate, const std::string& name) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < v.tokens.size(); ++id)
    if (v.tokens[id] && !separate[id]) ids.emplace(*v.tokens[id], std::int32_t(id));
  PairMap merged;
  for (const Merge& merge : v.merges) merged.insert(merge.left, merge.right, 0);
  for (const auto& [text, id] : ids)
    for (std::size_t split_at = character_at(text, 0).length; split_at < text.size(); split_at += character_at(text, split_at).length) {
      const auto left = ids.find(text.substr(0, split_at)), right = ids.find(text.substr(split_at));
      if (left == ids.end() || right == ids.end()) continue;
      demand_piece(merged.find(left->second, right->second) != PairMap::none, name,
                   fmt::format("its tokens {} and {} form token {} but are not merged", left->second, right->second, id));
    }
}

}  // namespace

SentencePieceRule sentencepiece_rule_of(const Vocabulary& vocabulary, const std::string& name, const Note& note) {
  const Vocabulary& v = vocabulary;
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < v.tokens.size(); ++id)
    if (v.tokens[id]) ids.emplace(*v.tokens[id], std::int32_t(id));
  for (int byte = 0; byte < 256; ++byte)
    demand_piece(v.byte_fallback && ids.contains(fmt::format("<0x{:02X}>", byte)), name, fmt::format("it has no token for byte {}", byte));
  demand_piece(!v.ignore_merges, name, "it ignores the merges of texts that are tokens");
  std::vector<bool> separate(v.tokens.size());
  for (const AddedToken& added : v.added) separate[std::size_t(added.id)] = true;
  const bool prefix = has_space_prefix(v, name, note);
  check_pairs(v, separate, name);
  return {scores_of(v, separate, name), prefix};
}

}  // namespace gyr::gguf
