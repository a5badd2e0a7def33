// SPDX-License-Identifier: BSD-3-Clause
#include "src/gguf/vocabulary.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "src/gguf/sentencepiece.hpp"
#include "src/huggingface/json.hpp"
#include "src/tokenizer/byte_alphabet.hpp"

namespace gyr::gguf {

namespace {

using json = nlohmann::json;

// ---- pre-tokenizer ----

// Canonical description of a pre-tokenizer, one line per step.
std::string steps_of(const json& entry) {
  const std::string type = entry.value("type", "");
  std::string steps;
  if (type == "Sequence") {
    for (const json& part : entry["pretokenizers"]) steps += steps_of(part);
    return steps;
  }
  if (type == "ByteLevel")
    return std::string(entry.value("add_prefix_space", true) ? "space\n" : "") + (entry.value("use_regex", true) ? "words\n" : "");
  if (type == "Digits") return entry.value("individual_digits", false) ? "digit\n" : "digits\n";
  if (type == "Punctuation") return "punctuation " + entry.value("behavior", "Isolated") + "\n";
  if (type != "Split" || !entry["pattern"].contains("Regex")) return type + "\n";
  // If every character belongs to a match, isolating the matches and removing the text between them have the same
  // result.
  const std::string behavior = entry.value("behavior", "");
  const bool isolates = behavior == (entry.value("invert", false) ? "Removed" : "Isolated");
  return (isolates ? "cut " : behavior + " ") + entry["pattern"]["Regex"].get<std::string>() + "\n";
}

// Pattern of words and numbers in the style of GPT-4. `digits`: quantifier of the digits in a number, such as {1,3}.
std::string words_and(const std::string& digits) {
  return R"(cut (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)" +
         "\n";
}

const std::string cased_words =
    R"(cut [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
    "\n";
// ---- tokens ----

enum TokenKind : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> kinds;
};

// True for tokens that are control tokens although some tokenizers do not mark them as special.
bool looks_special(const std::string& text) {
  const auto within = [&](std::string_view begin, std::string_view end) { return text.starts_with(begin) && text.ends_with(end); };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" || within("<|", "|>") || within("<｜", "｜>") ||
         within("<unused", ">");
}

// Replaces U+2581 by a space: some tokenizers spell spaces in added tokens that way.
std::string with_spaces(std::string_view text) {
  constexpr std::string_view underline = "\u2581";
  std::string spaced;
  while (!text.empty()) {
    const bool space = text.starts_with(underline);
    spaced += space ? ' ' : text[0];
    text.remove_prefix(space ? underline.size() : 1);
  }
  return spaced;
}

// Spelling of a token of the model in the file.
std::string spelling_of(const Vocabulary& v, std::int32_t id) {
  const std::string& token = *v.tokens[std::size_t(id)];
  return v.of_text ? token : to_letters(token);
}

Tokens tokens_of(const Vocabulary& v, Index vocab_size) {
  Tokens t;
  for (Index id = 0; id < vocab_size; ++id) {
    const bool known = id < Index(v.tokens.size()) && v.tokens[std::size_t(id)].has_value();
    t.texts.push_back(known ? spelling_of(v, std::int32_t(id)) : fmt::format("[PAD{}]", id));
    t.kinds.push_back(known ? normal : unused);
  }
  for (const AddedToken& added : v.added) {
    const bool special = added.special || looks_special(added.content);
    t.texts[std::size_t(added.id)] = special ? added.content : with_spaces(added.content);
    t.kinds[std::size_t(added.id)] = special ? control : user_defined;
  }
  if (!v.of_text) return t;
  if (v.unknown) t.kinds[std::size_t(*v.unknown)] = unknown;
  std::set<std::string> bytes;
  for (int value = 0; value < 256; ++value) bytes.insert(fmt::format("<0x{:02X}>", value));
  for (std::size_t id = 0; id < t.texts.size(); ++id)
    if (bytes.contains(t.texts[id])) t.kinds[id] = byte;
  return t;
}

// ---- special tokens ----

struct Role {
  const char *token, *key;  // token: key of tokenizer_config.json without "_token"; key: llama.cpp's key, without "tokenizer.ggml."
};
constexpr Role roles[] = {{"bos", "bos_token_id"},     {"eos", "eos_token_id"}, {"unk", "unknown_token_id"}, {"sep", "seperator_token_id"},
                          {"pad", "padding_token_id"}, {"cls", "cls_token_id"}, {"mask", "mask_token_id"}};

json object_in(const Companions& companions, const char* name) {
  const auto text = companions.find(name);
  return text == companions.end() ? json::object() : parse_json(text->second, name);
}

std::optional<std::int32_t> added_token(const Vocabulary& v, const json& entry) {
  const json text = entry.is_object() ? entry.value("content", json()) : entry;
  for (const AddedToken& token : v.added)
    if (text == token.content) return token.id;
  return std::nullopt;
}

// Special token ids by role. The first of these sources has priority: tokenizer_config.json, config.json, and for the
// end of a text the tokenizer's end-of-document token.
std::map<std::string, std::int32_t> special_tokens(const VocabularySource& s) {
  const json named = object_in(s.companions, tokenizer_config_name), numbered = object_in(s.companions, config_file_name);
  std::map<std::string, std::int32_t> ids;
  for (const Role& role : roles) {
    const std::string name = std::string(role.token) + "_token";
    if (named.is_object() && named.contains(name))
      if (const auto id = added_token(s.tokenizer.vocabulary(), named[name])) ids.emplace(role.token, *id);
    if (!numbered.is_object() || !numbered.contains(name + "_id")) continue;
    const json& id = numbered[name + "_id"];
    if (id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t(s.config.model.vocab_size))
      ids.emplace(role.token, id.get<std::int32_t>());
  }
  if (!s.config.end_tokens.empty()) ids.emplace("eos", std::int32_t(s.config.end_tokens.front()));
  if (const auto end = s.tokenizer.eod()) ids.emplace("eos", *end);
  return ids;
}

// Tokens that the post-processor adds around a text. llama.cpp supports one token before and one after it.
struct Around {
  std::vector<std::int32_t> before, after;
};
Around around_text(const Vocabulary& v) {
  Around all;
  for (const Template& t : v.templates) {  // templates are in order from the innermost to the outermost
    all.before.insert(all.before.begin(), t.before.begin(), t.before.end());
    all.after.insert(all.after.end(), t.after.begin(), t.after.end());
  }
  return all;
}

void put_special_tokens(const VocabularySource& s, Keys& keys, const Note& note) {
  std::map<std::string, std::int32_t> ids = special_tokens(s);
  const Around around = around_text(s.tokenizer.vocabulary());
  if (around.before.size() == 1) ids["bos"] = around.before[0];
  if (around.after.size() == 1) ids.emplace("eos", around.after[0]);
  const Vocabulary& v = s.tokenizer.vocabulary();
  if (v.of_text && v.unknown) ids["unk"] = *v.unknown;
  const auto adds = [&](const std::vector<std::int32_t>& tokens, const char* role, const char* where) {
    const bool one = tokens.size() == 1 && ids.at(role) == tokens[0];
    if (!tokens.empty() && !one && note)
      note(fmt::format("{}: adds tokens {} a text other than its single {} token, which is all that llama.cpp supports; llama.cpp adds none", s.name,
                       where, role));
    return one;
  };
  const bool begins = adds(around.before, "bos", "before"), ends = adds(around.after, "eos", "after");
  for (const Role& role : roles)
    if (ids.contains(role.token)) keys.set(std::string("tokenizer.ggml.") + role.key, std::uint32_t(ids.at(role.token)));
  keys.set("tokenizer.ggml.add_bos_token", begins);
  keys.set("tokenizer.ggml.add_eos_token", ends);
}

}  // namespace

std::string split_rule_of(const Vocabulary& v) {
  const std::string steps = steps_of(json::parse(v.pre_tokenizer_json));
  // In llama.cpp, ignore_merges is a property of some pre-tokenizers.
  if (steps == words_and("{1,3}")) return v.ignore_merges ? "llama-bpe" : "smaug-bpe";
  const std::pair<std::string, const char*> known[] = {{"words\n", "gpt-2"},
                                                       {words_and(""), "qwen2"},
                                                       {words_and("+") + "digit\n", "falcon-h1"},
                                                       {"punctuation Contiguous\nwords\ndigits\ncut [0-9][0-9][0-9]\n", "falcon"},
                                                       {"digit\nwords\n", "starcoder"},
                                                       {cased_words, "gpt-4o"}};
  for (const auto& [rule, name] : known)
    if (steps == rule) return name;
  return "";
}

namespace {

// Sets the keys of a SentencePiece-style BPE tokenizer.
void put_sentencepiece(const VocabularySource& s, Index vocab_size, Keys& keys, const Note& note) {
  const Vocabulary& v = s.tokenizer.vocabulary();
  require(s.rule.empty(), Exit::usage, "{}: --split-rule is for byte-level tokenizers, and this one is not byte-level; omit it", s.name);
  SentencePieceRule rule = sentencepiece_rule_of(v, s.name, note);
  rule.scores.resize(std::size_t(vocab_size), rule.scores.back());
  keys.set("tokenizer.ggml.model", std::string("llama"));
  keys.set("tokenizer.ggml.pre", std::string("default"));
  Tokens tokens = tokens_of(v, vocab_size);
  keys.set("tokenizer.ggml.tokens", std::move(tokens.texts));
  keys.set("tokenizer.ggml.scores", std::move(rule.scores));
  keys.set("tokenizer.ggml.token_type", std::move(tokens.kinds));
  keys.set("tokenizer.ggml.add_space_prefix", rule.space_prefix);
}

// Sets the keys of a byte-level BPE tokenizer.
void put_byte_level(const VocabularySource& s, Index vocab_size, Keys& keys, const Note& note) {
  const Vocabulary& v = s.tokenizer.vocabulary();
  const std::string rule = s.rule.empty() ? split_rule_of(v) : s.rule;
  require(!rule.empty(), Exit::data,
          "{}: its pre-tokenizer matches none of llama.cpp's; name one that splits your texts in the same way (--split-rule qwen2), or "
          "write the model without a tokenizer (--no-tokenizer)",
          s.name);
  if (v.normalizer_json != "null" && note) note(fmt::format("{}: has a normalizer, which llama.cpp does not apply", s.name));
  keys.set("tokenizer.ggml.model", std::string("gpt2"));
  keys.set("tokenizer.ggml.pre", rule);
  Tokens tokens = tokens_of(v, vocab_size);
  std::vector<std::string> merges;
  for (const Merge& merge : v.merges) merges.push_back(spelling_of(v, merge.left) + " " + spelling_of(v, merge.right));
  keys.set("tokenizer.ggml.tokens", std::move(tokens.texts));
  keys.set("tokenizer.ggml.token_type", std::move(tokens.kinds));
  keys.set("tokenizer.ggml.merges", std::move(merges));
}

}  // namespace

void put_vocabulary(const VocabularySource& s, Index vocab_size, Keys& keys, const Note& note) {
  const Vocabulary& v = s.tokenizer.vocabulary();
  require(!v.word_pieces, Exit::data,
          "{}: is a WordPiece tokenizer, which no decoder of llama.cpp supports; --no-tokenizer writes the model without it", s.name);
  require(!v.unigram, Exit::data, "{}: is a Unigram tokenizer, which export-gguf does not support; --no-tokenizer writes the model without it",
          s.name);
  require(s.tokenizer.size() <= vocab_size, Exit::data, "{}: has {} tokens, but the model's vocabulary has {}; is it the tokenizer of another model?",
          s.name, s.tokenizer.size(), vocab_size);
  (v.of_text ? put_sentencepiece : put_byte_level)(s, vocab_size, keys, note);
  put_special_tokens(s, keys, note);
  if (const auto chat = chat_template_in(s.companions, s.name)) keys.set("tokenizer.chat_template", chat->text);
}

void put_no_vocabulary(Keys& keys) { keys.set("tokenizer.ggml.model", std::string("none")); }

}  // namespace gyr::gguf
