// SPDX-License-Identifier: BSD-3-Clause
// Unigram tokenizer: a piece is split into its most probable tokens, and no other split scores more. Invalid files are
// refused by name. Damaged character maps are refused or do no harm.
#include "src/tokenizer/unigram.hpp"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr::testing::unigram_suite {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

struct Way {
  double score = -std::numeric_limits<double>::infinity();
  std::vector<std::string> parts;
};

// Best split of a piece, found by trying all splits.
Way best_of(const std::string& piece, const std::map<std::string, double>& scores, double unknown) {
  if (piece.empty()) return {0, {}};
  Way best;
  const auto try_part = [&](std::size_t length, double score) {
    Way rest = best_of(piece.substr(length), scores, unknown);
    if (score + rest.score <= best.score) return;
    rest.score += score;
    rest.parts.insert(rest.parts.begin(), piece.substr(0, length));
    best = rest;
  };
  for (std::size_t length = 1; length <= piece.size(); ++length)
    if (const auto token = scores.find(piece.substr(0, length)); token != scores.end()) try_part(length, token->second);
  if (!scores.contains(piece.substr(0, 1))) try_part(1, unknown);
  return best;
}

TEST(unigram, no_other_split_of_a_piece_scores_more) {
  Dice dice(seed_of_run());
  const auto word = [&](int most) {
    std::string text;
    for (int i = dice.between(1, most); i > 0; --i) text += char('a' + dice.between(0, 3));
    return text;
  };
  int unknown = 0;
  for (int i = 0; i < 400; ++i) {
    std::map<std::string, double> scores;
    for (int n = dice.between(1, 12); n > 0; --n) scores[word(4)] = -dice.real(0, 9);
    double least = 0;
    std::vector<Unigram::Token> tokens;
    for (const auto& [spelling, score] : scores) {
      least = std::min(least, score);
      tokens.push_back({spelling, std::int32_t(tokens.size()), score});
    }
    const std::vector<Unigram::Token> by_id = tokens;
    const Unigram cutter(tokens);
    const std::string piece = word(12);
    std::vector<Unigram::Part> parts;
    cutter.split_piece(piece, parts);
    double score = 0;
    std::size_t end = 0;
    for (const Unigram::Part& part : parts) {
      EXPECT_EQ(part.begin, end);
      end = part.end;
      const std::string text = piece.substr(part.begin, part.end - part.begin);
      EXPECT_TRUE(part.id < 0 || text == by_id[std::size_t(part.id)].spelling);
      unknown += part.id < 0;
      score += part.id >= 0 ? scores.at(text) : double(text.size()) * (least - 10);
    }
    EXPECT_EQ(end, piece.size());
    EXPECT_NEAR(score, best_of(piece, scores, least - 10).score, 1e-9) << piece;
  }
  EXPECT_GT(unknown, 50);
}

json file() {
  return {{"version", "1.0"},
          {"added_tokens", json::array({{{"id", 1}, {"content", "</s>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}, {"split", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}, {"split", true}}},
          {"model",
           {{"type", "Unigram"},
            {"unk_id", 0},
            {"vocab", json::array({{"<unk>", 0.0}, {"</s>", 0.0}, {"_", -3.0}, {"a", -3.0}, {"_a", -4.0}, {"ab", -5.0}, {"b", -4.5}})}}}};
}

TEST(unigram, metaspace_marks_replace_spaces_and_begin_words) {
  const Tokenizer t = Tokenizer::parse(file().dump(), "file");
  EXPECT_EQ(t.encode("a ab"), (Ids{4, 2, 5}));  // _ab: _a and b score -8.5, _ and ab score -8
  EXPECT_EQ(t.encode("a  xyb"), (Ids{4, 2, 2, 0, 6}));
  EXPECT_EQ(t.decode(Ids{4, 2, 5, 1}), "a ab</s>");
  EXPECT_EQ(t.decode(Ids{4, 2, 5, 1}, Tokenizer::Shown::without_specials), "a ab");
  EXPECT_EQ(t.word_begins(Ids{4, 2, 5, 6}), (std::vector<std::uint8_t>{1, 1, 0, 0}));
}

TEST(unigram, invalid_files_are_refused_by_name) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& why) {
    json wrong = file();
    change(wrong);
    const Error error = error_of([&] { Tokenizer::parse(wrong.dump(), "file"); });
    EXPECT_EQ(error.code, Exit::data);
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  };
  refused([](json& f) { f["model"].erase("unk_id"); }, "unk_id");
  refused([](json& f) { f["model"]["unk_id"] = nullptr; }, "unk_id");
  refused([](json& f) { f["model"]["unk_id"] = 7; }, "there are only 7 tokens");
  refused([](json& f) { f["model"]["vocab"][2] = {"_"}; }, "model.vocab[2]");
  refused([](json& f) { f["model"]["vocab"][2] = {"_", "x"}; }, "model.vocab[2]");
  refused([](json& f) { f["model"]["vocab"][2] = {"", 1.0}; }, "empty");
  refused([](json& f) { f["model"]["vocab"][2] = {"a", 1.0}; }, "'a' is given twice");
  refused([](json& f) { f["model"]["vocab"] = 3; }, "model.vocab");
  refused([](json& f) { f["pre_tokenizer"]["prepend_scheme"] = "last"; }, "'last' is not supported");
  refused([](json& f) { f["pre_tokenizer"]["replacement"] = "__"; }, "not one character");
  refused([](json& f) { f["decoder"]["replacement"] = ""; }, "not one character");
  refused([](json& f) { f["pre_tokenizer"] = {{"type", "ByteLevel"}}; }, "ByteLevel");
  refused([](json& f) { f["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}; }, "base64");
  refused([](json& f) { f["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}; }, "too few");
  refused([](json& f) { f["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "////fw=="}}; }, "at most 0");
}

// The character map of a golden tokenizer, with random damage.
TEST(unigram, damaged_character_map_does_no_harm) {
  Dice dice(seed_of_run());
  std::ifstream in(std::string(GYR_SOURCE_DIR) + "/regression/golden/tokenizers/t5.json");
  std::string bytes;
  ASSERT_TRUE(from_base64(json::parse(in)["normalizer"]["precompiled_charsmap"].get<std::string>(), bytes));
  EXPECT_EQ(CharacterMap(bytes).apply("\u2026\ufb01 e\u0301\u200bx"), "...fi \u00e9x");
  int refused = 0, harmless = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = bytes;
    if (dice.coin()) damaged.resize(std::size_t(dice.between(0, int(bytes.size()) - 1)));
    for (int n = dice.between(0, 8); n > 0 && !damaged.empty(); --n)
      damaged[std::size_t(dice.between(0, int(damaged.size()) - 1))] = char(dice.between(0, 255));
    try {
      CharacterMap(damaged).apply("\u2026\ufb01 e\u0301\u200bxyz \u00bd\U0001f600");
      ++harmless;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Exit::data);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(harmless, 100);
}

}  // namespace
}  // namespace gyr::testing::unigram_suite
