// SPDX-License-Identifier: BSD-3-Clause
#include "src/tokenizer/tokenizer.hpp"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "kernels/base/error.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/testing.hpp"
#include "src/data/tokenizer_training.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::tokenizer_suite {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Prose-like text: words with the frequencies of Zipf's law, built from a few syllables.
std::string prose(std::size_t words, unsigned seed = 1) {
  const std::vector<std::string> syllables = {"the", "fal", "con", "er", "ing", "wind", "over", "an", "d", "ly", "\u00e9t\u00e9", "moon"};
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    const unsigned word = unsigned(std::exp(std::generate_canonical<double, 32>(random) * std::log(2000.0)));
    std::mt19937 spelling(word);
    for (unsigned s = 0; s < 1 + word % 4; ++s) text += syllables[spelling() % syllables.size()];
    const unsigned end = random() % 20;
    text += end == 0 ? ".\n" : end == 1 ? ", " : end == 2 ? " 1984 " : " ";
  }
  return text;
}

const Tokenizer& trained() {
  static const Tokenizer tokenizer = [] {
    const Folder folder;
    const fs::path file = folder.write("prose.txt", prose(30000));
    gyr::TrainerOptions options;
    options.vocab_size = 600;
    return gyr::train_tokenizer(std::vector{file}, options);
  }();
  return tokenizer;
}

Tokenizer bytes_only() { return Tokenizer(gyr::byte_vocabulary(std::vector<std::string>{"<|pad|>"})); }

// Exit code and message of the error that `action` throws.
std::pair<int, std::string> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {int(error.code), error.what()};
  }
  return {0, "no error"};
}

std::vector<std::string> pieces(std::string_view text, const std::vector<gyr::SplitStep>& steps) {
  const gyr::Splitter splitter(steps);
  gyr::Splitter::Scratch scratch;
  splitter.split(text, scratch);
  std::vector<std::string> result;
  for (const auto& piece : scratch.pieces) result.emplace_back(scratch.text.substr(piece.begin, piece.end - piece.begin));
  return result;
}
std::vector<std::string> gpt2_pieces(std::string_view text) { return pieces(text, {{std::string(gyr::gpt2_pattern)}}); }

using Words = std::vector<std::string>;

// A small vocabulary in the file format: all bytes, then "ab", "abc", "bc".
json small_file() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[gyr::to_letters(std::string(1, char(b)))] = b;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["bc"] = 258;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array({{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"b c", "a b", "ab c"}}}}};
}

// A WordPiece vocabulary in the file format.
json word_piece_file() {
  json vocab = json::object();
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]", "un", "##able", "##a", "##b", "a", "##", "unable", "e"}) vocab[token] = vocab.size();
  return {{"added_tokens", json::array({{{"id", 0}, {"content", "[UNK]"}, {"special", true}}, {{"id", 1}, {"content", "[CLS]"}, {"special", true}}})},
          {"normalizer",
           {{"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", true}, {"strip_accents", nullptr}, {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 2}}, {"cls", {"[CLS]", 1}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"max_input_chars_per_word", 8}, {"vocab", vocab}}}};
}

}  // namespace

TEST(tokenizer, any_bytes_are_decoded_unchanged) {
  std::mt19937 random(7);
  const std::string signs[] = {"a", " ", "\n", "\xff", "\xc3", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\xa6\x85", "\xed\xa0\x80", "\0", "'s", "9"};
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text;
    const bool structured = trial % 2;
    for (unsigned i = random() % 60; i > 0; --i) text += structured ? signs[random() % 12] : std::string(1, char(random()));
    EXPECT_EQ(trained().decode(trained().encode(text)), text);
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all += char(b);
  EXPECT_EQ(trained().decode(trained().encode(all)), all);
  EXPECT_EQ(bytes_only().encode(all).size(), 256u);
  EXPECT_TRUE(trained().encode("").empty());
}

TEST(tokenizer, valid_utf8_prefix_ends_at_invalid_bytes) {
  const auto valid = [](std::string_view s) { return gyr::valid_utf8_prefix(s); };
  EXPECT_EQ(valid("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\xa6\x85 ok"), 17u);
  for (const char* broken : {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                             "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\xa6"})
    EXPECT_EQ(valid("01234567" + std::string(broken)), 8u) << broken;
}

TEST(tokenizer, text_is_split_as_in_gpt2) {
  EXPECT_EQ(gpt2_pieces("Hello world's 123 --go!"), (Words{"Hello", " world", "'s", " 123", " --", "go", "!"}));
  EXPECT_EQ(gpt2_pieces("a   b\n\n c  "), (Words{"a", "  ", " b", "\n\n", " c", "  "}));
  EXPECT_EQ(gpt2_pieces("\u00c9t\u00e9 \u6771\u4eac\u0661\u0662 x\u00b2"), (Words{"\u00c9t\u00e9", " \u6771\u4eac", "\u0661\u0662", " x", "\u00b2"}));
  EXPECT_EQ(gpt2_pieces("I'LL we'll"), (Words{"I", "'", "LL", " we", "'ll"}));
}

TEST(tokenizer, split_steps_apply_in_order) {
  EXPECT_EQ(pieces("ab12, 3", {{R"(\p{N})"}, {R"(\p{L}+)"}}), (Words{"ab", "1", "2", ", ", "3"}));
  // In the byte alphabet, byte b2 is the letter "superscript two", a number. Split steps after the byte level see that
  // letter, as in `tokenizers`.
  EXPECT_EQ(pieces("a\u0432b", {{R"(\p{N})", true}}), (Words{"a\xd0", "\xb2", "b"}));
}

TEST(tokenizer, earliest_merges_apply_first_then_leftmost) {
  const Folder folder;
  const auto t = Tokenizer::load(folder.write("t.json", small_file().dump()));
  EXPECT_EQ(t.encode("abc"), (std::vector<std::int32_t>{'a', 258}));  // "b c" is an earlier merge than "a b"
  EXPECT_EQ(t.encode("abab"), (std::vector<std::int32_t>{256, 256}));
  auto file = small_file();
  file["model"]["ignore_merges"] = true;
  const auto full = Tokenizer::load(folder.write("t.json", file.dump()));
  EXPECT_EQ(full.encode("abc"), (std::vector<std::int32_t>{257}));
  EXPECT_EQ(full.encode("abcc"), (std::vector<std::int32_t>{'a', 258, 'c'}));
}

// Reference without a heap: applies the earliest merge at its leftmost place until none applies.
TEST(tokenizer, merges_match_the_reference_algorithm) {
  const auto& v = trained().vocabulary();
  std::map<std::pair<int, int>, std::size_t> rank;
  for (std::size_t i = 0; i < v.merges.size(); ++i) rank[{v.merges[i].left, v.merges[i].right}] = i;
  for (const std::string& piece : gpt2_pieces(prose(1500, 5) + std::string(300, '-') + "theththeeeeeeeeethee")) {
    std::vector<std::int32_t> ids;
    for (const char c : piece) ids.push_back(*trained().id_of(std::string(1, c)));
    for (;;) {
      std::size_t best = v.merges.size(), at = 0;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i)
        if (const auto it = rank.find({ids[i], ids[i + 1]}); it != rank.end() && it->second < best) best = it->second, at = i;
      if (best == v.merges.size()) break;
      ids[at] = v.merges[best].result;
      ids.erase(ids.begin() + std::ptrdiff_t(at) + 1);
    }
    EXPECT_EQ(trained().encode(piece), ids) << piece;
    EXPECT_EQ(trained().encode(piece), ids) << piece << " from the cache";
  }
}

TEST(tokenizer, training_compresses_text_and_is_reproducible) {
  const Folder folder;
  const fs::path file = folder.write("a.txt", prose(20000, 3));
  gyr::TrainerOptions options;
  options.vocab_size = 500;
  const auto a = gyr::train_tokenizer(std::vector{file}, options), b = gyr::train_tokenizer(std::vector{file}, options);
  a.save(folder / "a.json");
  b.save(folder / "b.json");
  EXPECT_TRUE(gyr::testing::contents(folder / "a.json") == gyr::testing::contents(folder / "b.json"));
  EXPECT_EQ(a.size(), 500);
  const std::string unseen = prose(2000, 99);
  EXPECT_LT(double(a.encode(unseen).size()), 0.4 * double(unseen.size()));
}

// Each merge must take the most frequent pair, counted again from scratch at every step.
TEST(tokenizer, training_merges_the_most_frequent_pair) {
  const Folder folder;
  const std::string text = "aaaa aaab abab ababab banana bandana aa aab cabcab abcabc";
  gyr::TrainerOptions options;
  options.vocab_size = 3 + 256 + 25;
  options.min_frequency = 1;
  const auto t = gyr::train_tokenizer(std::vector{folder.write("a.txt", text)}, options);
  std::vector<std::vector<std::int32_t>> words;
  for (const std::string& piece : gpt2_pieces(text)) {
    words.emplace_back();
    for (const char c : piece) words.back().push_back(*t.id_of(std::string(1, c)));
  }
  std::set<std::pair<int, int>> done;
  for (const auto& merge : t.vocabulary().merges) {
    std::map<std::pair<int, int>, int> counts;
    for (const auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    auto best = counts.begin();  // of equally frequent pairs the smallest, because the map is sorted
    for (auto it = counts.begin(); it != counts.end(); ++it)
      if (it->second > best->second) best = it;
    ASSERT_EQ(best->first, std::pair(merge.left, merge.right));
    EXPECT_TRUE(done.insert(best->first).second);
    for (auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == merge.left && word[i + 1] == merge.right) {
          word[i] = merge.result;
          word.erase(word.begin() + std::ptrdiff_t(i) + 1);
        }
  }
  EXPECT_GE(t.vocabulary().merges.size(), 20u);
}

TEST(tokenizer, training_obeys_its_options) {
  const Folder folder;
  const fs::path file = folder.write("a.txt", std::string(5000, '-') + " xyxy xy");
  gyr::TrainerOptions options;
  options.max_token_bytes = 8;
  const auto t = gyr::train_tokenizer(std::vector{file}, options);
  for (const auto& token : t.vocabulary().tokens) EXPECT_LE(token->size(), 13u);  // the special tokens have up to 13
  options.min_frequency = 100000;
  EXPECT_EQ(gyr::train_tokenizer(std::vector{file}, options).size(), 3 + 256);
  options.vocab_size = 258;
  EXPECT_EQ(error_of([&] { gyr::train_tokenizer(std::vector{file}, options); }).first, int(Exit::config));
  EXPECT_EQ(error_of([&] { gyr::train_tokenizer(std::vector{folder.write("e.txt", "")}, {}); }).first, int(Exit::data));
  EXPECT_EQ(error_of([&] { gyr::train_tokenizer(std::vector{folder / "none.txt"}, {}); }).first, int(Exit::missing));
}

TEST(tokenizer, special_tokens_in_text_are_plain_text) {
  const auto& t = trained();
  EXPECT_EQ(t.pad(), 0);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eod(), 2);
  const std::string text = "one<|endoftext|>two<|pad|>";
  for (const auto id : t.encode(text)) EXPECT_FALSE(t.is_special(id));
  const auto ids = t.encode(text, Tokenizer::Specials::as_tokens);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);
  EXPECT_EQ(ids.back(), 0);
  EXPECT_EQ(t.decode(ids), text);
}

TEST(tokenizer, save_and_load_is_identity) {
  const Folder folder;
  trained().save(folder / "a.json");
  const auto again = Tokenizer::load(folder / "a.json");
  again.save(folder / "b.json");
  EXPECT_TRUE(gyr::testing::contents(folder / "a.json") == gyr::testing::contents(folder / "b.json"));
  const std::string text = prose(500, 42) + "\xff\xfe <|pad|>";
  EXPECT_EQ(again.encode(text), trained().encode(text));
  EXPECT_EQ(again.size(), trained().size());
  EXPECT_EQ(again.eod(), 2);
  EXPECT_FALSE(fs::exists(folder / "a.json.tmp"));
}

TEST(tokenizer, features_of_published_files_are_read) {
  const Folder folder;
  auto file = small_file();
  file["model"]["merges"] = json::array({json::array({"b", "c"}), json::array({"a", "b"}), json::array({"ab", "c"})});
  file["added_tokens"].push_back({{"id", 260}, {"content", "[tool]"}, {"special", false}});
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", R"(\p{N}{1,3}|\s+(?!\S)|\s+|[^\s\p{N}]+)"}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "Punctuation"}, {"behavior", "Contiguous"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}},
        {{"type", "Digits"}, {"individual_digits", true}}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  const fs::path path = folder.write("t.json", file.dump());
  const auto t = Tokenizer::load(path);
  EXPECT_EQ(t.encode("abc"), (std::vector<std::int32_t>{'a', 258}));
  EXPECT_EQ(t.encode("x[tool]y"), (std::vector<std::int32_t>{'x', 260, 'y'}));  // a token that is not special is always matched
  EXPECT_EQ(t.eod(), 259);
  EXPECT_EQ(t.size(), 261);
  t.save(folder / "again.json");
  const auto saved = json::parse(gyr::testing::contents(folder / "again.json"));
  EXPECT_EQ(saved["pre_tokenizer"], file["pre_tokenizer"]);
  EXPECT_EQ(saved["post_processor"], file["post_processor"]);
  EXPECT_EQ(Tokenizer::load(folder / "again.json").encode("abc 1234"), t.encode("abc 1234"));
}

TEST(tokenizer, unsupported_features_are_refused_by_name) {
  const Folder folder;
  const auto refused = [&](const std::function<void(json&)>& change, const std::string& name) {
    auto file = small_file();
    change(file);
    const fs::path path = folder.write("bad.json", file.dump());
    const auto [code, message] = error_of([&] { Tokenizer::load(path); });
    EXPECT_EQ(code, int(Exit::data)) << name;
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  };
  refused([](json& f) { f["model"]["type"] = "WordLevel"; }, "'WordLevel' is not supported; supported are BPE, WordPiece, Unigram");
  const auto pieces = [&](const std::function<void(json&)>& change, const std::string& name) {
    refused([&](json& f) { f = word_piece_file(), change(f); }, name);
  };
  pieces([](json& f) { f["model"].erase("unk_token"); }, "no 'unk_token'");
  pieces([](json& f) { f["model"]["unk_token"] = "<unk>"; }, "'<unk>' is not in");
  pieces([](json& f) { f["model"]["continuing_subword_prefix"] = 2; }, "model.continuing_subword_prefix");
  pieces([](json& f) { f["model"]["max_input_chars_per_word"] = -1; }, "model.max_input_chars_per_word");
  pieces([](json& f) { f["pre_tokenizer"] = {{"type", "ByteLevel"}}; }, "has a ByteLevel step");
  pieces([](json& f) { f["decoder"] = {{"type", "ByteLevel"}}; }, "has 1 ByteLevel steps");
  pieces([](json& f) { f["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}}; }, "has no 'cleanup'");
  pieces([](json& f) { f["normalizer"].erase("clean_text"); }, "has no 'clean_text'");
  pieces([](json& f) { f["normalizer"]["strip_accents"] = "no"; }, "'strip_accents' is string");
  refused([](json& f) { f["normalizer"] = {{"type", "Nmt"}}; }, "normalizer: 'Nmt'");
  refused(
      [](json& f) {
        f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}};
      },
      "normalizer.normalizers[1]: 'Nmt'");
  refused([](json& f) { f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "y"}}; }, "can match the empty string");
  refused([](json& f) { f["version"] = "2.0"; }, "version");
  refused([](json& f) { f["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; }, "UnicodeScripts");
  refused([](json& f) { f["pre_tokenizer"]["add_prefix_space"] = "yes"; }, "add_prefix_space");
  refused(
      [](json& f) {
        f["pre_tokenizer"] = {{"type", "Digits"}};
      },
      "has 1 ByteLevel steps, which are supported only after a ByteLevel pre-tokenizer");
  const auto metaspace = [](json& f) {
    f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
    f["decoder"] = nullptr;
  };
  refused([&](json& f) { metaspace(f), f["normalizer"] = {{"type", "NFC"}}; }, "'first' is supported only without a normalizer");
  refused(
      [&](json& f) {
        metaspace(f);
        f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {f["pre_tokenizer"], f["pre_tokenizer"]}}};
      },
      "pre_tokenizer.pretokenizers[1].prepend_scheme: 'first' is supported only without");
  refused([&](json& f) { metaspace(f), f["pre_tokenizer"]["prepend_scheme"] = "last"; },
          "'last' is not supported; supported are always, first, never");
  refused([&](json& f) { metaspace(f), f["pre_tokenizer"].erase("prepend_scheme"), f["pre_tokenizer"]["add_prefix_space"] = false; },
          "has add_prefix_space = false, which contradicts prepend_scheme = always");
  refused([&](json& f) { metaspace(f), f["pre_tokenizer"]["add_prefix_space"] = false; },
          "has add_prefix_space = false, which contradicts prepend_scheme = first");
  refused(
      [](json& f) {
        f["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Halved"}, {"invert", false}};
      },
      "pre_tokenizer.behavior: 'Halved'");
  const auto regex = [&](const std::string& pattern, const std::string& name) {
    refused(
        [&](json& f) {
          f["pre_tokenizer"] = {{"type", "Sequence"},
                                {"pretokenizers",
                                 {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
                                  {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
        },
        name);
  };
  regex("(a", "pre_tokenizer.pretokenizers[0].pattern");
  regex("a{1,70000}", "does not compile");
  regex(std::string(400, '(') + std::string(400, ')'), "does not compile");
  regex("(a)\\1", "\\1");
  regex("\\bx", "\\b");
  regex("[a[bc]]", "a set inside a set");
  regex("[a-z&&[^b]]", "intersection");
  regex("[[:alpha:]]", "a set inside a set");
  regex("(?<name>a)", "(?<");
  regex("(?i:stra\u00dfe)", "case-insensitive");
  regex("(?i:ss)", "'ss' in a case-insensitive part");
  regex("\\p{Cyrillic}", "'Cyrillic'");
  regex("a**", "nothing to repeat");
  regex("a{2}+", "after an interval");
  regex("[\u2000-\U00031350]", "newer than Unicode 14");
  regex("[b-a]", "an invalid range");
  regex("a)", "')'");
  regex("\\", "backslash");
  regex("[a", "not closed");
  refused([](json& f) { f["decoder"]["type"] = "BPEDecoder"; }, "BPEDecoder");
  refused([](json& f) { f["post_processor"] = {{"type", "Odd"}}; }, "Odd");
  refused([](json& f) { f["truncation"] = {{"max_length", 5}}; }, "truncation");
  refused([](json& f) { f["model"]["dropout"] = 0.1; }, "dropout");
  refused([](json& f) { f["model"]["byte_fallback"] = 1; }, "byte_fallback");
  refused([](json& f) { f["model"]["unk_token"] = "<unk>"; }, "'<unk>' is not in");
  refused([](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix");
  refused([](json& f) { f["padding"] = {{"strategy", "BatchLongest"}}; }, "padding");
  refused([](json& f) { f["model"]["vocab"]["ab"] = -1; }, "'ab'");
  refused([](json& f) { f["model"]["vocab"]["ab"] = 1e18; }, "'ab'");
  refused([](json& f) { f["model"]["vocab"]["ab"] = 1 << 30; }, "'ab'");
  refused([](json& f) { f["model"]["vocab"]["ab"] = 1 << 23; }, "far beyond");
  refused([](json& f) { f["model"]["vocab"]["ab"] = json::array({1}); }, "'ab'");
  refused([](json& f) { f["model"]["vocab"]["ab"] = 257; }, "257");
  refused([](json& f) { f["model"]["vocab"]["a b"] = 259, f["added_tokens"][0]["id"] = 260; }, "byte alphabet");
  refused([](json& f) { f["model"]["merges"].push_back("a zz"); }, "zz");
  refused([](json& f) { f["model"]["merges"].push_back("a b"); }, "repeats merge");
  refused([](json& f) { f["model"]["merges"].push_back("a b c"); }, "a b c");
  refused([](json& f) { f["model"]["merges"].push_back(7); }, "merge 3");
  refused([](json& f) { f["model"]["merges"].push_back({"a", "b", "c"}); }, "merge 3");
  refused([](json& f) { f["model"]["merges"].push_back({"a", 1}); }, "merge 3");
  refused([](json& f) { f["model"]["merges"].push_back({{"a", "b"}}); }, "merge 3");
  refused([](json& f) { f["model"]["merges"] = "a b"; }, "merges");
  refused([](json& f) { f["model"].erase("vocab"); }, "vocab");
  refused([](json& f) { f["added_tokens"][0]["id"] = 256; }, "256");
  refused([](json& f) { f["added_tokens"][0]["id"] = 300; }, "`tokenizers` would use 259");
  refused([](json& f) { f["added_tokens"][0]["lstrip"] = "no"; }, "lstrip");
  refused([](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }, "twice");
  refused([](json& f) { f["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"a", 1000}}, {"sep", {"b", 1}}}; }, "1000");
  refused(
      [](json& f) {
        f["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}, {"special_tokens", json::object()}};
      },
      "'<s>', which is not among");
  refused([](json& f) { f["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}}}}; }, "0 ByteLevel");

  const auto load = [&](const std::string& bytes) { return error_of([&] { Tokenizer::load(folder.write("x.json", bytes)); }); };
  EXPECT_EQ(load("").first, int(Exit::data));
  EXPECT_EQ(load("{").first, int(Exit::data));
  // `tokenizers` refuses text after a zero byte, which the JSON library does not see.
  const std::string good = small_file().dump();
  EXPECT_EQ(load(good).first, 0);
  for (const std::string& tail : {std::string(1, '\0'), '\0' + good, std::string("\0 }", 3)})
    EXPECT_NE(load(good + tail).second.find("not valid JSON: byte " + std::to_string(good.size()) + " is zero"), std::string::npos);
  EXPECT_NE(load(R"({"model":{"vocab":{"a":1,"a":2}}})").second.find("twice"), std::string::npos);
  EXPECT_NE(load(std::string(100000, '[')).second.find("deeper"), std::string::npos);
  EXPECT_NE(load(R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})").second.find("twice"), std::string::npos);
  EXPECT_NE(load(R"({"version":"1.0","version":"1.0"})").second.find("twice"), std::string::npos);
  EXPECT_NE(load(R"({"version":"\ud800"})").second.find("surrogate"), std::string::npos);
  EXPECT_NE(load("{\"version\":\"\xff\"}").second.find("UTF-8"), std::string::npos);
  EXPECT_NE(load(R"({"model":{"type":"BPE","vocab":{"\u0000":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}})").second.find("byte alphabet"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder / "none.json"); }).first, int(Exit::missing));
  EXPECT_EQ(error_of([&] { bytes_only().decode(std::vector<std::int32_t>{257}); }).first, int(Exit::data));
  EXPECT_EQ(error_of([&] { bytes_only().decode(std::vector<std::int32_t>{-1}); }).first, int(Exit::data));
}

// WordPiece takes the longest token first, even if a shorter one would match more of the word. A word is split
// completely or becomes [UNK].
TEST(tokenizer, word_piece_takes_the_longest_tokens) {
  using Ids = std::vector<std::int32_t>;
  const Folder folder;
  const auto t = Tokenizer::load(folder.write("pieces.json", word_piece_file().dump()));
  EXPECT_EQ(t.encode("unable UNABLE un\u00e0ble"), (Ids{9, 9, 9}));
  EXPECT_EQ(t.encode("unab una e\u0301"), (Ids{3, 5, 6, 3, 5, 10}));
  EXPECT_EQ(t.encode("unabe un"), (Ids{0, 3}));  // ##ab leaves an e, but there is no ##e, so the word is [UNK]
  // words of 7, 8 and 9 characters, of which 8 is the limit
  EXPECT_EQ(t.encode("aababab aababaab aababaabb"), (Ids{7, 5, 6, 5, 6, 5, 6, 7, 5, 6, 5, 6, 5, 5, 6, 0}));
  EXPECT_EQ(t.encode("a\xff"
                     "b"),
            (Ids{7, 0, 0}));  // bytes that are not UTF-8 are [UNK] and separate the text around them
  EXPECT_EQ(t.encode("una", Tokenizer::Specials::complete), (Ids{1, 3, 5, 2}));
  EXPECT_EQ(t.decode(Ids{1, 3, 4, 7, 2}, Tokenizer::Shown::without_specials), "unable a [SEP]");
  EXPECT_EQ(t.word_begins(Ids{4, 3, 5, 6, 7, 0, 8}), (std::vector<std::uint8_t>{1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(t.eod(), std::nullopt);  // [SEP] is not an added token in this file
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.lacks_bytes(), 0);
  json plain = word_piece_file();
  plain["model"]["continuing_subword_prefix"] = "";
  plain["decoder"] = nullptr;
  const auto bare = Tokenizer::load(folder.write("bare.json", plain.dump()));
  EXPECT_EQ(bare.encode("unun"), (Ids{3, 3}));
  EXPECT_EQ(bare.word_begins(Ids{3, 3}), (std::vector<std::uint8_t>{1, 1}));  // without a prefix, every token begins a word
  EXPECT_EQ(bare.decode(Ids{3, 3}), "un un");
}

// Any damage to the file must give an Error or a tokenizer that still works, never a crash.
TEST(tokenizer, damaged_files_never_crash_the_tokenizer) {
  const auto golden = [](const std::string& name) {
    return json::parse(gyr::testing::contents(fs::path(GYR_SOURCE_DIR) / "regression/golden/tokenizers" / (name + ".json")));
  };
  auto rich = golden("fused_fallback");
  rich["model"]["merges"] = json::array();
  const std::string goods[] = {small_file().dump(), rich.dump(), golden("mistral").dump()};
  std::mt19937 random(11);
  int refused = 0, loaded = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    std::string bad = goods[trial % 3];
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0: bad[at] = char(random()); break;
        case 1: bad[at] = "{}[]\",:0123456789-"[random() % 18]; break;
        case 2: bad.erase(at, random() % 9); break;
        default: bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
      }
    }
    try {
      const auto t = Tokenizer::parse(bad, "damaged");
      t.decode(t.encode("abc def \u00e9<|endoftext|>", Tokenizer::Specials::complete));
      ++loaded;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Exit::data) << error.what();
      EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(loaded, 50);
}

TEST(tokenizer, large_files_are_refused_without_reading) {
  const Folder folder;
  const fs::path path = folder.write("large.json", "{}");
  fs::resize_file(path, std::uintmax_t(1) << 30);
  const auto start = std::chrono::steady_clock::now();
  const auto [code, message] = error_of([&] { Tokenizer::load(path); });
  EXPECT_EQ(code, int(Exit::data));
  EXPECT_NE(message.find("1073741824 bytes"), std::string::npos) << message;
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1);
}

// Added tokens may follow the tokens of the model: here 65536 of the model and one more.
TEST(tokenizer, added_tokens_may_follow_model_tokens) {
  auto file = small_file();
  json& vocab = file["model"]["vocab"];
  file["added_tokens"] = json::array();
  for (int id = 259; id < 65536; ++id) vocab["a" + std::to_string(id) + "b"] = id;
  file["added_tokens"].push_back({{"id", 65536}, {"content", "<|endoftext|>"}, {"special", true}});
  const auto t = Tokenizer::parse(file.dump(), "wide");
  EXPECT_EQ(t.size(), 65537);
  EXPECT_EQ(t.eod(), 65536);
  EXPECT_EQ(t.encode("ab<|endoftext|>", Tokenizer::Specials::complete), (std::vector<std::int32_t>{256, 65536}));
  EXPECT_EQ(t.decode(std::vector<std::int32_t>{256, 65536, 65535}), "ab<|endoftext|>a65535b");
  const Folder folder;
  t.save(folder / "again.json");
  EXPECT_EQ(Tokenizer::load(folder / "again.json").size(), 65537);
}

// As in tokenizers: a token of white space that strips its surroundings takes a run of white space once.
TEST(tokenizer, stripping_white_space_tokens_match_once) {
  json file = small_file();
  file["added_tokens"] = json::array({{{"id", 259}, {"content", " "}, {"special", false}, {"lstrip", true}, {"rstrip", true}}});
  const auto tokenizer = Tokenizer::parse(file.dump(), "strip");
  for (const std::string run : {" ", "  ", "   ", " \n\t "}) {
    const auto ids = tokenizer.encode("a" + run + "b" + run);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 259), 2) << run.size() << " characters";
    EXPECT_EQ(ids.size(), 4u) << run.size() << " characters";
  }
}

TEST(tokenizer, invalid_utf8_bytes_are_separate_pieces) {
  const auto& t = trained();
  const auto joined = [&](const std::vector<std::string>& parts) {
    std::vector<std::int32_t> ids;
    for (const std::string& part : parts) t.encode(part, ids);
    return ids;
  };
  EXPECT_EQ(t.encode("the moon\xff\xfe the\xc3 wind"), joined({"the moon", "\xff\xfe", " the", "\xc3", " wind"}));
  EXPECT_EQ(t.encode("\xe6\x9d the"), joined({"\xe6\x9d", " the"}));
  EXPECT_EQ(t.decode(t.encode("the \xff\xe6\x9d")), "the \xff\xe6\x9d");
  const auto lossy = [](std::string_view s) { return gyr::lossy_utf8(s); };
  const std::string sign = "\xef\xbf\xbd";
  EXPECT_EQ(lossy("a\xff"
                  "b"),
            "a" + sign + "b");
  EXPECT_EQ(lossy("\xf0\x9f\x98!"), sign + "!");
  EXPECT_EQ(lossy("\xe6\x9d"), sign);
  EXPECT_EQ(lossy("\xed\xa0\x80"), sign + sign + sign);
  EXPECT_EQ(lossy("\xc0\x80"), sign + sign);
}

// A megabyte of text without a place to split: the time must not grow with the square of the length.
TEST(tokenizer, hostile_text_takes_no_quadratic_time) {
  for (const std::string unit : {"-", "a", "^", " ", "\n", "\xff", "\xe6\x9d\xb1", "a1", "the"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    const auto start = std::chrono::steady_clock::now();
    const auto ids = trained().encode(text);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 5) << unit;  // 0.1 to 0.3 s on an idle machine; quadratic time would take minutes
    EXPECT_EQ(trained().decode(ids), text);
  }
}

// A pattern that fails at every place after a long search. It takes few steps at each place, but too many in total.
TEST(tokenizer, slow_patterns_are_stopped) {
  const auto [code, message] = error_of([] { pieces(std::string(200000, 'a'), {{R"(a+b|(?=a*c)x)"}}); });
  EXPECT_EQ(code, int(Exit::data)) << message;
  EXPECT_NE(message.find("stopped"), std::string::npos) << message;
}

TEST(tokenizer, growing_replacements_are_stopped) {
  auto file = small_file();
  const json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 100; ++i) file["normalizer"]["normalizers"].push_back(twice);
  const auto t = Tokenizer::parse(file.dump(), "doubling");
  const auto [code, message] = error_of([&] { t.encode(std::string(1000, 'a')); });
  EXPECT_EQ(code, int(Exit::data));
  EXPECT_NE(message.find("64 times"), std::string::npos) << message;
}

// Combining marks out of order: sorting them must not take quadratic time.
TEST(tokenizer, megabyte_of_combining_marks_is_normalized_quickly) {
  const auto t = Tokenizer::load(fs::path(GYR_SOURCE_DIR) / "regression/golden/tokenizers/nfkc.json");
  std::string text = "a";
  while (text.size() < (1u << 20)) text += "\u0301\u0316";
  const auto start = std::clock();
  EXPECT_GT(t.encode(text).size(), 1000u);
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, 5);
}

TEST(tokenizer, patterns_with_exponential_backtracking_are_stopped) {
  const auto runaway = [] { return pieces(std::string(5000, 'a') + "bc", {{R"((?:a+)+[cd])"}}); };
  const auto [code, message] = error_of([&] { runaway(); });
  EXPECT_EQ(code, int(Exit::data)) << message;
}

TEST(tokenizer, threads_can_encode_concurrently) {
  const std::string text = prose(5000, 8);
  const auto expected = trained().encode(text);
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (std::size_t i = 0; i < same.size(); ++i) threads.emplace_back([&, i] { same[i] = trained().encode(text) == expected; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 1));
}

}  // namespace gyr::testing::tokenizer_suite
