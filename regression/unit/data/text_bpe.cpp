// SPDX-License-Identifier: BSD-3-Clause
// BPE over characters, as in SentencePiece-style tokenizers: ids of drawn vocabularies and texts of all Unicode planes
// equal those of a loop that follows `tokenizers` step by step. Long texts without a pre-tokenizer take little time and
// memory. Parts of a text that are encoded or decoded separately give the text of the whole.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "regression/planner/random_cluster.hpp"
#include "regression/support/folder.hpp"
#include "regression/support/seed.hpp"
#include "regression/support/testing.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::testing::text_bpe_suite {

namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::string mark = "\u2581";

std::string drawn_character(Dice& dice) {
  std::string text;
  char32_t point = 0;
  do point = char32_t(dice.between(0, 16) << 16 | dice.between(0, 0xffff));
  while (point >= 0xd800 && point < 0xe000);
  append_character(text, point);
  return text;
}

// A drawn BPE model whose tokens are text.
struct Model {
  std::vector<std::string> tokens;
  std::map<std::string, std::int32_t> ids;
  std::vector<std::pair<std::string, std::string>> merges;
  bool fallback = false, fuse = false, full = false;
  std::optional<std::string> unknown;

  void add(const std::string& token) {
    if (ids.emplace(token, std::int32_t(tokens.size())).second) tokens.push_back(token);
  }

  json file() const {
    json vocab = json::object(), pairs = json::array();
    for (const auto& [token, id] : ids) vocab[token] = id;
    for (const auto& [left, right] : merges) pairs.push_back({left, right});
    return {{"model",
             {{"type", "BPE"},
              {"unk_token", unknown ? json(*unknown) : json()},
              {"fuse_unk", fuse},
              {"byte_fallback", fallback},
              {"ignore_merges", full},
              {"vocab", vocab},
              {"merges", pairs}}},
            {"pre_tokenizer", nullptr},
            {"decoder", {{"type", "ByteFallback"}}}};
  }
};

Model drawn_model(Dice& dice, const std::vector<std::string>& alphabet) {
  Model m;
  m.fallback = dice.between(0, 3) > 0, m.fuse = dice.coin(), m.full = dice.between(0, 3) == 0;
  if (dice.between(0, 3) > 0) m.add(*(m.unknown = "<unk>"));
  const int byte_tokens = dice.between(0, 2);  // none, some, all
  for (int byte = 0; byte < 256; ++byte)
    if (byte_tokens == 2 || (byte_tokens == 1 && dice.between(0, 7) > 0)) m.add(fmt::format("<0x{:02X}>", byte));
  const std::size_t substitutes = m.tokens.size();
  for (const std::string& c : alphabet)
    if (dice.between(0, 5) > 0) m.add(c);
  if (m.tokens.size() == substitutes) m.add(alphabet[0]);
  const bool merges_substitutes = dice.between(0, 3) == 0;
  std::set<std::pair<std::string, std::string>> pairs;
  for (int n = dice.between(0, 40); n > 0; --n) {
    const int first = merges_substitutes && dice.between(0, 3) == 0 ? 0 : int(substitutes);
    const auto token = [&] { return m.tokens[std::size_t(dice.between(first, int(m.tokens.size()) - 1))]; };
    const std::string left = token(), right = token();
    if (left.size() + right.size() > 60 || !pairs.emplace(left, right).second) continue;
    m.add(left + right);
    m.merges.emplace_back(left, right);
  }
  return m;
}

// The symbols of a text, in the order of `tokenizers`.
Ids first_symbols(const Model& m, const std::string& text) {
  Ids symbols;
  int unknown = 0;  // unknown tokens that are due
  const auto flush = [&] {
    for (; unknown > 0; --unknown) symbols.push_back(m.ids.at(*m.unknown));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::string c = text.substr(at, character_at(text, at).length);
    at += c.size();
    if (const auto token = m.ids.find(c); token != m.ids.end()) {
      flush();
      symbols.push_back(token->second);
      continue;
    }
    Ids bytes;
    for (const char byte : c)
      if (const auto token = m.ids.find(fmt::format("<0x{:02X}>", unsigned(static_cast<unsigned char>(byte)))); token != m.ids.end())
        bytes.push_back(token->second);
    if (m.fallback && bytes.size() == c.size()) {
      symbols.insert(symbols.end(), bytes.begin(), bytes.end());
    } else if (m.unknown) {
      if (!m.fuse) flush();
      unknown = 1;
    }
  }
  flush();
  return symbols;
}

// Applies the earliest merge at its leftmost place until none applies.
Ids reference(const Model& m, const std::string& text) {
  if (const auto token = m.ids.find(text); m.full && token != m.ids.end()) return {token->second};
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> rank;
  for (std::size_t i = 0; i < m.merges.size(); ++i) rank[{m.ids.at(m.merges[i].first), m.ids.at(m.merges[i].second)}] = i;
  Ids ids = first_symbols(m, text);
  for (;;) {
    std::size_t best = m.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto it = rank.find({ids[i], ids[i + 1]}); it != rank.end() && it->second < best) best = it->second, at = i;
    if (best == m.merges.size()) return ids;
    ids[at] = m.ids.at(m.merges[best].first + m.merges[best].second);
    ids.erase(ids.begin() + std::ptrdiff_t(at) + 1);
  }
}

TEST(text_bpe, ids_equal_merging_the_full_text) {
  Dice dice(seed_of_run());
  int merged = 0, unknown = 0, full = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<std::string> alphabet{"a", "b", "\n", mark, "\u00e9", "\U0001f600"};
    for (int i = dice.between(0, 4); i > 0; --i) alphabet.push_back(drawn_character(dice));
    const Model m = drawn_model(dice, alphabet);
    const Tokenizer t = Tokenizer::parse(m.file().dump(), "drawn");
    for (int i = 0; i < 20; ++i) {
      std::string text = dice.between(0, 9) == 0 ? dice.one_of(m.tokens) : "";
      for (int n = dice.between(0, 50); n > 0; --n) text += dice.between(0, 9) == 0 ? drawn_character(dice) : dice.one_of(alphabet);
      const Ids expected = reference(m, text);
      ASSERT_EQ(t.encode(text), expected) << json(text) << " " << m.file().dump();
      ASSERT_EQ(t.encode(text), expected) << "from the cache: " << json(text) << " " << m.file().dump();
      merged += expected.size() < first_symbols(m, text).size();
      full += m.full && m.ids.contains(text);
      unknown += m.unknown && std::ranges::count(expected, m.ids.at(*m.unknown)) > 0;
    }
  }
  EXPECT_GT(merged, 1000);
  EXPECT_GT(unknown, 500);
  EXPECT_GT(full, 20);
}

// ---- long texts ----

double seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

// Resets the peak of the resident memory of this process, or returns it in bytes since the last reset.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }
std::size_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stoul(line.substr(name.size() + 1)) * 1024;
  return 0;
}

struct Cost {
  double seconds;
  double bytes;  // peak memory beyond the text
};
Cost cost_of(const Tokenizer& t, const std::string& text) {
  t.encode(text.substr(0, 1000));
  reset_peak();
  const std::size_t before = memory("VmRSS");
  const double start = seconds();
  const Ids ids = t.encode(text);
  const Cost cost{seconds() - start, double(memory("VmHWM")) - double(before)};
  EXPECT_GT(ids.size(), text.size() / 4096);
  std::printf("%zu MiB of %s: %zu tokens, %.2f s, %.1f bytes of memory per byte\n", text.size() >> 20,
              json(text.substr(0, 6)).dump(-1, ' ', true, json::error_handler_t::replace).c_str(), ids.size(), cost.seconds,
              cost.bytes / double(text.size()));
  return cost;
}

std::string repeated(const std::string& unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

Tokenizer golden(const std::string& name) { return Tokenizer::load(std::string(GYR_SOURCE_DIR) + "/regression/golden/tokenizers/" + name + ".json"); }

// Merges of a, aa, aaaa, ...: no place in a text of this letter can be divided.
Tokenizer powers() {
  Model m;
  m.add("<unk>"), m.add("a"), m.add("b");
  for (std::string half = "a"; half.size() < 2048; half += half) {
    m.add(half + half);
    m.merges.emplace_back(half, half);
  }
  return Tokenizer::parse(m.file().dump(), "powers");
}

TEST(text_bpe, long_texts_take_linear_time_and_memory) {
  const Tokenizer llama = golden("llama2"), hard = powers();
  const std::size_t size = std::size_t(16) << 20;
  const std::string word = "the falcon flies over hills, 42 \u00e9t\u00e9s \u6771\u4eac \U0001f600\n";
  for (const std::string& unit : {word, std::string("\U0001f600\u6771"), std::string(" "), std::string("a"), std::string("\xff")}) {
    const Cost cost = cost_of(llama, repeated(unit, size));
    EXPECT_LT(cost.seconds, 40) << unit;  // 0.2 to 7 s on a busy machine; quadratic time would take hours
    EXPECT_LT(cost.bytes, 48 * double(size)) << unit;
  }
  const Cost cost = cost_of(hard, repeated("a", size));
  EXPECT_LT(cost.seconds, 40);
  EXPECT_LT(cost.bytes, 48 * double(size));
}

// ---- parts of a text ----

std::string drawn_text(Dice& dice) {
  std::string text;
  for (int n = dice.between(0, 12); n > 0; --n) {
    const int kind = dice.between(0, 5);
    text += kind == 0 ? drawn_character(dice) : dice.one_of(std::vector<std::string>{" ", "the", "e", ". ", "\u00e9", "\n", "  ", "ing", "\u6771"});
  }
  return text;
}

// SentencePiece inserts one space before a text, and none inside it.
TEST(text_bpe, text_after_text_gets_no_prefix) {
  Dice dice(seed_of_run());
  for (const std::string name : {"llama2", "mistral", "gemma", "phi3"}) {
    const Tokenizer t = golden(name);
    for (int i = 0; i < 300; ++i) {
      const std::string first = drawn_text(dice), second = drawn_text(dice);
      if (first.empty()) continue;
      Ids ids = t.encode(first);
      const std::string begin = t.decode(ids);  // Mistral's tokenizer loses a space at the start
      t.encode(second, ids, Tokenizer::Specials::as_text, TextPosition::after_text);
      EXPECT_EQ(t.decode(ids), begin + second) << name << " " << json(first) << json(second);
    }
    Ids ids = t.encode("the falcon");
    t.encode(" flies", ids, Tokenizer::Specials::as_text, TextPosition::after_text);
    EXPECT_EQ(ids, t.encode("the falcon flies")) << name;
  }
}

// Llama 2's normalizer inserts a space after a special token too. Mistral's Metaspace step inserts one only at the start.
TEST(text_bpe, text_after_token_equals_that_inside) {
  Dice dice(seed_of_run());
  for (const std::string name : {"llama2", "mistral", "gemma", "phi3"}) {
    const Tokenizer t = golden(name);
    const std::string bos = name == "gemma" ? "<bos>" : "<s>";
    for (int i = 0; i < 300; ++i) {
      const std::string first = drawn_text(dice), second = drawn_text(dice);
      Ids ids = t.encode(first);
      ids.push_back(*t.id_of(bos));
      t.encode(second, ids, Tokenizer::Specials::as_text, TextPosition::after_token);
      EXPECT_EQ(ids, t.encode(first + bos + second, Tokenizer::Specials::as_tokens)) << name << " " << json(first) << json(second);
    }
  }
}

TEST(text_bpe, tokens_after_others_decode_to_the_rest) {
  Dice dice(seed_of_run());
  for (const std::string name : {"llama2", "mistral", "gemma", "marks_split", "t5", "gpt2", "bert_cased"}) {
    const Tokenizer t = golden(name);
    for (int i = 0; i < 300; ++i) {
      const Ids ids = t.encode(drawn_text(dice)), more = t.encode(drawn_text(dice), Tokenizer::Specials::as_text);
      Ids all = ids;
      all.insert(all.end(), more.begin(), more.end());
      const std::string head = t.decode(ids), tail = t.decode_after(ids, more), full = t.decode(all);
      EXPECT_EQ(head + tail, full) << name;
    }
  }
  const Tokenizer t = golden("llama2");
  const Ids before = t.encode("the falcon"), ids = t.encode("flies");
  EXPECT_EQ(t.decode(ids), "flies");
  EXPECT_EQ(t.decode_after(before, ids), " flies");
  EXPECT_EQ(t.decode_after({}, ids), "flies");
}

// The mark that replaces spaces begins a word, whether the normalizer or the pre-tokenizer puts it there.
TEST(text_bpe, marks_begin_words) {
  for (const std::string name : {"llama2", "mistral", "gemma"}) {
    const Tokenizer t = golden(name);
    const Ids ids = t.encode("the falcon flies over");
    const auto begins = t.word_begins(ids);
    EXPECT_EQ(std::ranges::count(begins, 1), 4) << name;
    for (std::size_t i = 1; i < ids.size(); ++i)
      EXPECT_EQ(begins[i] == 1, t.decode_after(Ids(ids.begin(), ids.begin() + std::ptrdiff_t(i)), Ids{ids[i]}).starts_with(" "));
  }
}

TEST(text_bpe, invalid_bytes_become_fallback_tokens) {
  const Tokenizer t = golden("llama2");
  const Ids ids = t.encode("the \xff\xe6\x9d falcon");
  for (const char* byte : {"<0xFF>", "<0xE6>", "<0x9D>"}) EXPECT_EQ(std::ranges::count(ids, *t.id_of(byte)), 1) << byte;
  EXPECT_EQ(t.decode(ids), "the \ufffd\ufffd\ufffd falcon");
  EXPECT_EQ(t.lacks_bytes(), 0);
}

}  // namespace

}  // namespace gyr::testing::text_bpe_suite
