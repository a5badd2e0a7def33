// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes tokenizer.json, the format of Hugging Face's `tokenizers`. The reader checks every value.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/foreign_file.hpp"
#include "src/base/json_text.hpp"
#include "src/base/mapped_file.hpp"
#include "src/base/output_file.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/oniguruma.hpp"
#include "src/tokenizer/tokenizer.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

using json = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

constexpr std::size_t max_file_bytes = std::size_t(256) << 20;
constexpr std::size_t max_depth = 16;
constexpr std::int64_t max_vocabulary = std::int64_t(1) << 24;

// The vocabulary and the merges of BPE and WordPiece models. They are extracted during parsing, because they are large.
struct Lists {
  std::vector<std::pair<std::string, json>> vocab;  // spelling and id of each token
  std::vector<std::pair<std::string, std::string>> merges;
};

// A JSON value with its path in the file. Every error message contains the file name and this path.
class Node {
 public:
  Node(const json& value, const std::string& file, std::string path) : value_(value), file_(file), path_(std::move(path)) {}

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (condition) return;
    fail(Exit::data, "{}: {}{}{}", file_, printable(path_), path_.empty() ? "" : ": ", printable(fmt::format(text, std::forward<Args>(args)...)));
  }

  const json& value() const { return value_; }
  std::string dump() const { return value_.dump(); }
  // Text of the value for messages: its "type" for an object that has one, else its first 60 characters.
  std::string shown() const {
    return value_.is_object() && value_.contains("type") ? value_["type"].dump()
                                                         : value_.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60);
  }

  bool has(const char* name) const { return value_.is_object() && value_.contains(name) && !value_[name].is_null(); }
  Node operator[](const char* name) const {
    check(value_.is_object(), "is {}, not an object", value_.type_name());
    check(value_.contains(name), "has no '{}'", name);
    return {value_[name], file_, path_.empty() ? name : path_ + "." + name};
  }
  std::vector<Node> list() const {
    check(value_.is_array(), "is {}, not an array", value_.type_name());
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < value_.size(); ++i) nodes.emplace_back(value_[i], file_, fmt::format("{}[{}]", path_, i));
    return nodes;
  }
  std::string string() const {
    check(value_.is_string(), "is {}, not a string", shown());
    return value_.get<std::string>();
  }
  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    const json& flag = value_[name];
    check(flag.is_boolean(), "'{}' is {}, not true or false", name, flag.type_name());
    return flag.get<bool>();
  }
  // A flag that is required, because `tokenizers` requires it.
  bool flag(const char* name) const {
    check(has(name), "has no '{}'", name);
    return flag(name, false);
  }
  std::int64_t number(std::int64_t most) const {
    const bool fits = value_.is_number_unsigned() && value_.get<std::uint64_t>() <= std::uint64_t(most);
    check(fits, "is {}, not a whole number in 0 .. {}", shown(), most);
    return value_.get<std::int64_t>();
  }
  std::int32_t id() const { return std::int32_t(number(max_vocabulary - 1)); }
  std::string type() const { return (*this)["type"].string(); }
  [[noreturn]] void refuse(const char* supported) const {
    check(false, "'{}' is not supported; supported are {}", type(), supported);
    std::abort();
  }
  // Runs `action` and puts the file name and the path in front of its error message.
  template <class Action>
  auto naming(Action&& action) const {
    try {
      return action();
    } catch (const Error& error) {
      fail(error.code, "{}: {}: {}", file_, path_, printable(error.what()));
    }
  }

 private:
  const json& value_;
  const std::string& file_;
  std::string path_;
};

// JSON parser that rejects repeated keys, which other readers treat differently, and deep nesting.
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  json parse(std::string_view text, Lists& lists) {
    lists_ = &lists;
    if (const auto at = zero_byte(text)) check(false, "not valid JSON: byte {} is zero", *at);
    try {
      return json::parse(text.begin(), text.end(), [this](int, json::parse_event_t event, json& value) { return watch(event, value); });
    } catch (const json::exception& error) {
      const std::string_view begin = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
      require(begin.starts_with('{'), Exit::data,
              "{}: seems to be text, not a tokenizer.json: it begins with `{}`; give the tokenizer.json of a model, or make one with `gyrfalcon "
              "tokenizer "
              "train`",
              file_, printable(begin.substr(0, valid_utf8_prefix(begin.substr(0, 40)))));
      fail(Exit::data, "{}: not valid JSON: {}", file_, error.what());
    }
  }

 private:
  using Event = json::parse_event_t;
  struct Level {
    bool object;
    std::string key;  // key read last
    // Keys read so far in this object, to find repeated keys; not filled in model.vocab.
    std::unordered_set<std::string> keys;
  };

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) fail(Exit::data, "{}: {}", file_, printable(fmt::format(text, std::forward<Args>(args)...)));
  }

  // True if the parser is inside model.`name`, `deeper` levels below it.
  bool inside(const char* name, std::size_t deeper = 0) const {
    return levels_.size() == 3 + deeper && levels_[0].key == "model" && levels_[1].object && levels_[1].key == name;
  }

  // Parser callback. Returns false if the value must not be kept in the JSON tree.
  bool watch(Event event, json& value) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        check(levels_.size() < max_depth, "nested deeper than {} levels", max_depth);
        if (in_vocab()) check(false, "model.vocab: the id of '{}' is not a whole number", levels_.back().key);
        check(!in_merges() && !inside("merges", 1), "model.merges: merge {} is not a pair of strings", lists_->merges.size());
        levels_.push_back({event == Event::object_start, {}, {}});
        return true;
      case Event::object_end:
      case Event::array_end: {
        const bool merge = inside("merges", 1);
        check(!merge || pair_.size() == 2, "model.merges: merge {} is not a pair of strings", lists_->merges.size());
        if (merge) lists_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
        pair_.clear();
        levels_.pop_back();
        return !merge;
      }
      case Event::key: return key(value.get_ref<std::string&>());
      case Event::value: return leaf(value);
    }
    return true;
  }

  bool in_vocab() const { return inside("vocab") && levels_[2].object; }
  bool in_merges() const { return inside("merges") && levels_[2].object; }

  bool key(std::string& name) {
    Level& level = levels_.back();
    if (in_vocab()) {
      level.key = std::move(name);
      return false;
    }
    check(level.keys.insert(name).second, "key '{}' is given twice in one object", name);
    level.key = std::move(name);
    return true;
  }

  bool leaf(json& value) {
    if (in_vocab()) {
      lists_->vocab.emplace_back(levels_.back().key, std::move(value));
      check(std::int64_t(lists_->vocab.size()) <= max_vocabulary, "model.vocab: more than {} tokens", max_vocabulary);
      return true;  // the key was discarded, so the value is discarded too
    }
    const bool in_pair = inside("merges", 1);
    if (!in_pair && !inside("merges")) return true;
    const std::size_t i = lists_->merges.size();
    check(value.is_string(), "model.merges: merge {} is {}, neither a string nor a pair of strings", i, value.type_name());
    check(std::int64_t(i) < 2 * max_vocabulary, "model.merges: more than {} merges", 2 * max_vocabulary);
    auto& text = value.get_ref<std::string&>();
    if (in_pair) {
      pair_.push_back(std::move(text));
      check(pair_.size() <= 2, "model.merges: merge {} is not a pair of strings", i);
      return false;
    }
    const auto space = text.find(' ');
    const bool two = space != std::string::npos && text.find(' ', space + 1) == std::string::npos;
    check(two, "model.merges: merge {} is '{}', not two tokens with a space between", i, text);
    lists_->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return false;
  }

  const std::string& file_;
  Lists* lists_ = nullptr;
  std::vector<Level> levels_;
  std::vector<std::string> pair_;  // left and right token of the current merge
};

// Builds a Vocabulary from the parsed JSON and reports unsupported values.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Vocabulary read(std::string_view text) {
    Lists lists;
    const json value = Parser(file_).parse(text, lists);
    const Node root(value, file_, "");
    root.check(value.is_object(), "the file is not a JSON object");
    if (root.has("version")) root["version"].check(root["version"].value() == "1.0", "is {}; only \"1.0\" is supported", root["version"].shown());
    for (const char* field : {"truncation", "padding"})
      if (root.has(field))
        root[field].check(false, "is set, and would truncate or pad every text; set it to null, because sequence lengths are chosen elsewhere");
    const Node model = root["model"];
    result_.of_text = !has_byte_level(value.value("pre_tokenizer", json()));
    read_model(model, lists);
    if (root.has("added_tokens")) read_added(root["added_tokens"]);
    decode_spellings(root);
    if (root.has("normalizer")) read_normalizer(root["normalizer"]);
    read_pre_tokenizer(root);
    if (root.has("post_processor")) read_post_processor(root["post_processor"]);
    read_decoder(root);
    return std::move(result_);
  }

 private:
  // True if the pre-tokenizer has a ByteLevel step. A BPE model is then byte-level; otherwise its tokens are text.
  static bool has_byte_level(const json& entry) {
    if (!entry.is_object()) return false;
    if (entry.value("type", json()) == "ByteLevel") return true;
    const json parts = entry.value("pretokenizers", json());
    return parts.is_array() && std::any_of(parts.begin(), parts.end(), has_byte_level);
  }

  void read_model(const Node& model, const Lists& lists) {
    const std::string type = model.has("type") ? model.type() : model.has("max_input_chars_per_word") ? "WordPiece" : "BPE";
    model.check(type == "BPE" || type == "WordPiece" || type == "Unigram", "'{}' is not supported; supported are BPE, WordPiece, Unigram", type);
    result_.of_text = result_.of_text || type != "BPE";
    if (type == "Unigram") return read_unigram(model);
    if (type == "BPE") check_pairs(model);
    else read_word_pieces(model);
    read_tokens(model["vocab"], lists);
    if (type == "BPE") read_merges(model["merges"], lists);
    if (model.has("unk_token")) read_unknown(model["unk_token"]);
    else if (type != "BPE") model.check(false, "has no 'unk_token'");
  }

  void read_word_pieces(const Node& model) {
    WordPieceRule& rule = result_.word_pieces.emplace();
    if (model.has("continuing_subword_prefix")) rule.prefix = model["continuing_subword_prefix"].string();
    if (model.has("max_input_chars_per_word")) rule.most_characters = model["max_input_chars_per_word"].number(max_file_bytes);
  }

  // Reads a Unigram model. The id of a token is its index in the list.
  void read_unigram(const Node& model) {
    UnigramRule& rule = result_.unigram.emplace();
    result_.byte_fallback = model.flag("byte_fallback", false);
    const Node vocab = model["vocab"];
    const std::vector<Node> tokens = vocab.list();
    vocab.check(std::int64_t(tokens.size()) <= max_vocabulary, "more than {} tokens", max_vocabulary);
    for (const Node& token : tokens) {
      const std::vector<Node> parts = token.list();
      token.check(parts.size() == 2 && parts[1].value().is_number(), "is not a pair of a token and its score");
      const std::string spelling = parts[0].string();
      const double score = parts[1].value().get<double>();
      token.check(!spelling.empty(), "is an empty token");
      token.check(std::isfinite(score), "has a score that is not finite");
      place(token, spelling, std::int32_t(rule.scores.size()));
      rule.scores.push_back(score);
    }
    model_tokens_ = std::int64_t(tokens.size());
    model.check(model.has("unk_id"), "has no 'unk_id'");
    const std::int64_t unknown = model["unk_id"].number(max_vocabulary);
    model["unk_id"].check(unknown < model_tokens_, "is {}, but there are only {} tokens", unknown, model_tokens_);
    result_.unknown = std::int32_t(unknown);
  }

  void check_pairs(const Node& model) {
    const auto& value = model.value();
    if (model.has("dropout"))
      model["dropout"].check(value["dropout"] == 0.0, "is {}, which would make token ids random; set it to 0 or null", value["dropout"].dump());
    for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model.has(field)) model[field].check(value[field] == "", "is {}, which is not supported; set it to null", model[field].shown());
    result_.ignore_merges = model.flag("ignore_merges", false);
    result_.byte_fallback = model.flag("byte_fallback", false);
    result_.fuse_unknown = model.flag("fuse_unk", false);
  }

  void place(const Node& at, const std::string& spelling, std::int32_t id) {
    if (std::size_t(id) >= spellings_.size()) spellings_.resize(std::size_t(id) + 1);
    auto& place = spellings_[std::size_t(id)];
    at.check(!place, "id {} belongs to both '{}' and '{}'", id, place.value_or(""), spelling);
    place = spelling;
    at.check(ids_.emplace(spelling, id).second, "key '{}' is given twice in one object", spelling);
  }

  void read_tokens(const Node& vocab, const Lists& lists) {
    vocab.check(vocab.value().is_object(), "is {}, not an object", vocab.value().type_name());
    const std::size_t most = 2 * lists.vocab.size() + 65536;
    for (const auto& [spelling, value] : lists.vocab) {
      vocab.check(!spelling.empty(), "has an empty token");
      const std::int32_t id = Node(value, file_, "model.vocab: the id of '" + spelling + "'").id();
      vocab.check(std::size_t(id) <= most, "the id {} of '{}' is far beyond the {} tokens", id, spelling, lists.vocab.size());
      place(vocab, spelling, id);
    }
    model_tokens_ = std::int64_t(lists.vocab.size());
  }

  void read_merges(const Node& merges, const Lists& lists) {
    merges.check(merges.value().is_array(), "is {}, not an array", merges.value().type_name());
    result_.merges.reserve(lists.merges.size());
    for (const auto& [left, right] : lists.merges) {
      const auto id = [&](const std::string& spelling) {
        const auto it = ids_.find(spelling);
        merges.check(it != ids_.end(), "merge {} needs '{}', which is not a token", result_.merges.size(), spelling);
        return it->second;
      };
      result_.merges.push_back({id(left), id(right), id(left + right)});
    }
  }

  void read_unknown(const Node& token) {
    const auto it = ids_.find(token.string());
    token.check(it != ids_.end(), "'{}' is not in model.vocab", token.string());
    result_.unknown = it->second;
  }

  // `tokenizers` itself assigns ids to added tokens, in their order. The ids in the file must agree with that.
  void read_added(const Node& tokens) {
    std::int64_t next = model_tokens_;
    for (const Node& node : tokens.list()) {
      AddedToken added;
      added.content = node["content"].string();
      node.check(!added.content.empty(), "'content' is empty");
      added.id = node["id"].id();
      added.special = node.flag("special", false);
      added.normalized = node.flag("normalized", !added.special);
      added.single_word = node.flag("single_word", false);
      added.lstrip = node.flag("lstrip", false);
      added.rstrip = node.flag("rstrip", false);
      const auto known = ids_.find(added.content);
      added.in_model = known != ids_.end();
      if (known != ids_.end()) {
        node.check(known->second == added.id, "'{}' has id {} here and {} in the vocabulary", added.content, added.id, known->second);
      } else {
        node.check(added.id == next, "'{}' has id {}, but is number {} after the {} tokens of model.vocab: `tokenizers` would use {}", added.content,
                   added.id, next - model_tokens_, model_tokens_, next);
        ++next;
        place(node, added.content, added.id);
      }
      node.check(added_.insert(added.id).second, "'{}' is given twice", added.content);
      result_.added.push_back(std::move(added));
    }
  }

  // Converts spellings to bytes. The model tokens of a byte-level vocabulary are spelt in the byte alphabet. Added
  // tokens and all tokens of other vocabularies are plain text.
  void decode_spellings(const Node& root) {
    result_.tokens.resize(spellings_.size());
    for (std::size_t id = 0; id < spellings_.size(); ++id) {
      if (!spellings_[id]) continue;
      if (result_.of_text) result_.tokens[id] = *spellings_[id];
      else result_.tokens[id] = added_.contains(std::int32_t(id)) ? bytes_of_spelling(*spellings_[id]) : from_letters(*spellings_[id]);
      root.check(result_.tokens[id].has_value(),
                 "model.vocab: token {} '{}' has characters outside the byte alphabet, so this is not a byte-level vocabulary", id, *spellings_[id]);
    }
  }

  // The pattern of a Split or Replace step, in PCRE2 syntax.
  static std::string pattern(const Node& entry) {
    const Node pattern = entry["pattern"];
    pattern.check(pattern.value().is_object() && pattern.value().size() == 1, "is not a single 'Regex' or 'String'");
    return pattern.naming([&] {
      const bool regex = pattern.has("Regex");
      auto pcre = regex ? pcre_of(pattern["Regex"].string()) : quoted_for_pcre(pattern["String"].string());
      Pattern(pcre, regex ? pattern["Regex"].string() : pattern["String"].string());
      return pcre;
    });
  }

  void read_normalizer(const Node& entry) {
    result_.normalizer_json = entry.dump();
    add_normalizer(entry);
  }

  void add_normalizer(const Node& entry) {
    using Kind = NormalizerStep::Kind;
    static const std::unordered_map<std::string, Kind> plain = {{"NFC", Kind::nfc},
                                                                {"NFD", Kind::nfd},
                                                                {"NFKC", Kind::nfkc},
                                                                {"NFKD", Kind::nfkd},
                                                                {"Lowercase", Kind::lowercase},
                                                                {"StripAccents", Kind::strip_accents}};
    const std::string type = entry.type();
    if (const auto kind = plain.find(type); kind != plain.end()) {
      result_.normalizer.push_back({kind->second, {}, {}});
    } else if (type == "Sequence") {
      for (const Node& part : entry["normalizers"].list()) add_normalizer(part);
    } else if (type == "BertNormalizer") {
      add_bert_normalizer(entry);
    } else if (type == "Precompiled") {
      std::string bytes;
      entry["precompiled_charsmap"].check(from_base64(entry["precompiled_charsmap"].string(), bytes), "is not base64");
      entry["precompiled_charsmap"].naming([&] { return CharacterMap(bytes); });
      result_.normalizer.push_back({Kind::map, {}, bytes});
    } else if (type == "Strip") {
      result_.normalizer.push_back({Kind::strip, {}, {}, entry.flag("strip_left"), entry.flag("strip_right")});
    } else if (type == "Prepend") {
      result_.normalizer.push_back({Kind::prepend, {}, entry["prepend"].string()});
    } else if (type == "Replace") {
      const std::string pcre = pattern(entry);
      // Patterns that can match the empty string are refused: for such matches `tokenizers` is inconsistent and
      // sometimes repeats parts of the text.
      entry["pattern"].check(!Pattern(pcre, pcre).may_be_empty(), "can match the empty string, which is not supported");
      result_.normalizer.push_back({Kind::replace, pcre, entry["content"].string()});
    } else {
      entry.refuse("Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, BertNormalizer, Precompiled");
    }
  }

  // If strip_accents is null, its value is that of `lowercase`.
  void add_bert_normalizer(const Node& entry) {
    using Kind = NormalizerStep::Kind;
    const bool small = entry.flag("lowercase");
    if (entry.flag("clean_text")) result_.normalizer.push_back({Kind::clean, {}, {}});
    if (entry.flag("handle_chinese_chars")) result_.normalizer.push_back({Kind::surround_han, {}, {}});
    if (entry.flag("strip_accents", small))
      for (const Kind kind : {Kind::nfd, Kind::strip_nonspacing}) result_.normalizer.push_back({kind, {}, {}});
    if (small) result_.normalizer.push_back({Kind::lowercase, {}, {}});
  }

  void step(SplitStep::By by, SplitStep::Behavior behavior, std::string pattern = {}, bool invert = false) {
    result_.split.push_back({std::move(pattern), on_letters_, by, behavior, invert});
  }

  SplitStep::Behavior behavior(const Node& entry) const {
    using Behavior = SplitStep::Behavior;
    static const std::unordered_map<std::string, Behavior> behaviors = {{"Isolated", Behavior::isolated},
                                                                        {"Removed", Behavior::removed},
                                                                        {"MergedWithPrevious", Behavior::merged_with_previous},
                                                                        {"MergedWithNext", Behavior::merged_with_next},
                                                                        {"Contiguous", Behavior::contiguous}};
    const Node name = entry["behavior"];
    const auto found = behaviors.find(name.string());
    name.check(found != behaviors.end(), "'{}' is not supported; supported are Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous",
               name.string());
    return found->second;
  }

  void read_pre_tokenizer(const Node& root) {
    if (!root.has("pre_tokenizer")) return;
    const Node entry = root["pre_tokenizer"];
    result_.pre_tokenizer_json = entry.dump();
    add_pre_tokenizer(entry);
    entry.check(on_letters_ != result_.of_text, "has a ByteLevel step, which is not supported for WordPiece and Unigram models");
  }

  void add_pre_tokenizer(const Node& entry) {
    using By = SplitStep::By;
    using Behavior = SplitStep::Behavior;
    const std::string type = entry.type();
    if (type == "Sequence") {
      for (const Node& part : entry["pretokenizers"].list()) add_pre_tokenizer(part);
    } else if (type == "ByteLevel") {
      entry.check(!on_letters_, "is the second ByteLevel step; only one is supported");
      entry.flag("trim_offsets", true);  // affects the offsets of tokens, not their ids
      if (entry.flag("add_prefix_space", true)) step(By::space, Behavior::isolated);
      if (entry.flag("use_regex", true)) step(By::pattern, Behavior::isolated, std::string(gpt2_pattern));
      on_letters_ = true;  // later steps match the byte alphabet
    } else if (type == "Digits") {
      step(By::number, entry.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
    } else if (type == "Punctuation") {
      step(By::punctuation, entry.has("behavior") ? behavior(entry) : Behavior::isolated);
    } else if (type == "BertPreTokenizer") {
      step(By::white_space, Behavior::removed);
      step(By::punctuation, Behavior::isolated);
    } else if (type == "Whitespace") {
      step(By::pattern, Behavior::removed, fmt::format("{}+|[^\\s{}]+", word_character, word_character.substr(1, word_character.size() - 2)), true);
    } else if (type == "WhitespaceSplit") {
      step(By::white_space, Behavior::removed);
    } else if (type == "Split") {
      step(By::pattern, behavior(entry), pattern(entry), entry.flag("invert"));
    } else if (type == "Metaspace") {
      step(By::mark, Behavior::merged_with_next);
      SplitStep& marks = result_.split.back();
      marks.mark = mark(entry), marks.before = pieces_after_marks(entry), marks.split_before_marks = entry.flag("split", true);
      if (marks.before == SplitStep::Before::first) check_offsets(entry["prepend_scheme"]);
    } else {
      entry.refuse("Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, Metaspace");
    }
  }

  static std::string mark(const Node& entry) {
    const std::string c = entry["replacement"].string();
    entry["replacement"].check(!c.empty() && character_at(c, 0).length == c.size(), "is '{}', not one character", c);
    return c;
  }

  // Pieces that a mark is inserted before. `tokenizers` refuses the add_prefix_space of older files unless it agrees.
  static SplitStep::Before pieces_after_marks(const Node& entry) {
    using Before = SplitStep::Before;
    static const std::unordered_map<std::string, Before> schemes = {{"always", Before::all}, {"first", Before::first}, {"never", Before::none}};
    const std::string scheme = entry.has("prepend_scheme") ? entry["prepend_scheme"].string() : "always";
    const auto found = schemes.find(scheme);
    if (found == schemes.end()) entry["prepend_scheme"].check(false, "'{}' is not supported; supported are always, first, never", scheme);
    entry.check(found->second == Before::none || entry.flag("add_prefix_space", true),
                "has add_prefix_space = false, which contradicts prepend_scheme = {}; remove one of them", scheme);
    return found->second;
  }

  // `tokenizers` finds the first piece by its offset in the original text, which changed text no longer shows.
  void check_offsets(const Node& scheme) const {
    const auto changes = [](const SplitStep& step) { return step.by == SplitStep::By::space || step.by == SplitStep::By::mark; };
    const bool changed = std::any_of(result_.split.begin(), result_.split.end() - 1, changes);
    scheme.check(result_.normalizer.empty() && !changed,
                 "'first' is supported only without a normalizer and without earlier steps that change the text");
  }

  void read_post_processor(const Node& entry) {
    result_.post_processor_json = entry.dump();
    add_post_processor(entry);
  }

  void add_post_processor(const Node& entry) {
    const std::string type = entry.type();
    if (type == "Sequence") {
      for (const Node& part : entry["processors"].list()) add_post_processor(part);
    } else if (type == "TemplateProcessing") {
      add_template(entry);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      result_.templates.push_back({{named_id(entry["cls"])}, {named_id(entry["sep"])}});
    } else if (type != "ByteLevel") {  // ByteLevel affects the offsets of tokens, not their ids
      entry.refuse("Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
    }
  }

  static std::int32_t named_id(const Node& pair) {
    const auto parts = pair.list();
    pair.check(parts.size() == 2, "is not a pair of a token and its id");
    parts[0].string();
    return parts[1].id();
  }

  void add_template(const Node& entry) {
    Template result;
    bool text = false;
    for (const Node& piece : entry["single"].list()) {
      piece.check(piece.value().is_object() && piece.value().size() == 1, "is not a single 'Sequence' or 'SpecialToken'");
      if (piece.has("Sequence")) {
        const Node id = piece["Sequence"]["id"];
        id.check(id.string() == "A" && !text, "is '{}'; a template for one text must contain A exactly once", id.string());
        text = true;
        continue;
      }
      const std::string name = piece["SpecialToken"]["id"].string();
      const Node tokens = entry["special_tokens"];
      piece.check(tokens.has(name.c_str()), "names '{}', which is not among special_tokens", name);
      for (const Node& id : tokens[name.c_str()]["ids"].list()) (text ? result.after : result.before).push_back(id.id());
    }
    entry["single"].check(text, "does not contain the text (Sequence A)");
    result_.templates.push_back(std::move(result));
  }

  void read_decoder(const Node& root) {
    const bool text = result_.of_text;
    if (text && !root.has("decoder")) {
      result_.decoder = {{DecoderStep::Kind::spaces, {}, {}}};
      result_.decoder_json = "null";
      return;
    }
    const Node entry = root["decoder"];
    result_.decoder_json = entry.dump();
    result_.decoder.clear();
    add_decoder(entry);
    const auto levels = std::count_if(result_.decoder.begin(), result_.decoder.end(),
                                      [](const DecoderStep& step) { return step.kind == DecoderStep::Kind::byte_level; });
    if (text) entry.check(levels == 0, "has {} ByteLevel steps, which are supported only after a ByteLevel pre-tokenizer", levels);
    else entry.check(levels == 1, "has {} ByteLevel steps; a byte-level vocabulary needs one", levels);
  }

  void add_decoder(const Node& entry) {
    using Kind = DecoderStep::Kind;
    const std::string type = entry.type();
    if (type == "Sequence") {
      for (const Node& part : entry["decoders"].list()) add_decoder(part);
    } else if (type == "ByteLevel") {
      result_.decoder.push_back({Kind::byte_level, {}, {}});
    } else if (type == "ByteFallback") {
      result_.decoder.push_back({Kind::byte_fallback, {}, {}});
    } else if (type == "Fuse") {
      result_.decoder.push_back({Kind::fuse, {}, {}});
    } else if (type == "Replace") {
      result_.decoder.push_back({Kind::replace, pattern(entry), entry["content"].string()});
    } else if (type == "Metaspace") {
      result_.decoder.push_back({Kind::marks, {}, mark(entry), pieces_after_marks(entry) != SplitStep::Before::none});
    } else if (type == "WordPiece") {
      result_.decoder.push_back({Kind::word_pieces, {}, entry["prefix"].string()});
      if (entry.flag("cleanup")) result_.decoder.push_back({Kind::clean_up, {}, {}});
    } else if (type == "Strip") {
      const std::string c = entry["content"].string();
      entry["content"].check(!c.empty() && character_at(c, 0).length == c.size(), "is '{}', not one character", c);
      const auto count = [&](const char* name) { return std::size_t(entry[name].number(1 << 20)); };
      result_.decoder.push_back({Kind::strip, {}, c, count("start"), count("stop")});
    } else {
      entry.refuse("Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, WordPiece, Metaspace");
    }
  }

  const std::string& file_;
  Vocabulary result_;
  std::vector<std::optional<std::string>> spellings_;  // [id]: spelling in the file
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::int32_t> added_;
  std::int64_t model_tokens_ = 0;
  bool on_letters_ = false;
};

// JSON of the model without vocabulary and merges. `letters`: the spelling of each token.
ordered_json written_model(const Vocabulary& v, const std::vector<std::string>& letters) {
  const ordered_json unknown = v.unknown ? ordered_json(letters[std::size_t(*v.unknown)]) : ordered_json();
  if (v.word_pieces)
    return {{"type", "WordPiece"},
            {"unk_token", unknown},
            {"continuing_subword_prefix", v.word_pieces->prefix},
            {"max_input_chars_per_word", v.word_pieces->most_characters}};
  if (v.unigram) return {{"type", "Unigram"}, {"unk_id", *v.unknown}, {"byte_fallback", v.byte_fallback}};
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", v.fuse_unknown},
          {"byte_fallback", v.byte_fallback},
          {"ignore_merges", v.ignore_merges}};
}

// Each merge is a string, or a pair of strings if a token contains a space.
ordered_json written_merges(const Vocabulary& v, const std::vector<std::string>& letters) {
  const auto has_space = [&](std::int32_t id) { return letters[std::size_t(id)].find(' ') != std::string::npos; };
  const bool spaces = std::ranges::any_of(v.merges, [&](const Merge& merge) { return has_space(merge.left) || has_space(merge.right); });
  auto merges = ordered_json::array();
  for (const auto& [left, right, result] : v.merges) {
    const std::string &a = letters[std::size_t(left)], &b = letters[std::size_t(right)];
    merges.push_back(spaces ? ordered_json::array({a, b}) : ordered_json(a + " " + b));
  }
  return merges;
}

// Appends without the linear key search of ordered_json; the keys of a vocabulary are distinct.
void append(ordered_json::object_t& object, std::string key, ordered_json value) {
  static_cast<ordered_json::object_t::Container&>(object).emplace_back(std::move(key), std::move(value));
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  require(!std::filesystem::is_directory(path, error), Exit::data, "{}: is a folder; give the path of the tokenizer.json in it", path.string());
  require(std::filesystem::exists(path, error) || error, Exit::missing,
          "{0}: does not exist; give the tokenizer.json of the model (data.tokenizer in deck.yaml names that of a run), or for a new model make one: "
          "`gyrfalcon tokenizer train {0} TEXT`",
          path.string());
  const MappedFile file(path);
  require(file.size() <= max_file_bytes, Exit::data, "{}: {} bytes; a tokenizer.json has at most {}", path.string(), file.size(), max_file_bytes);
  return parse(file.text(), path.string());
}

Tokenizer Tokenizer::parse(std::string_view text, const std::string& name) {
  if (const auto foreign = foreign_file(text); !foreign.empty()) fail(Exit::data, "{}: {}", name, foreign);
  Vocabulary vocabulary = Reader(name).read(text);
  try {
    return Tokenizer(std::move(vocabulary));
  } catch (const Error& error) {
    fail(error.code, "{}: {}", name, printable(error.what()));
  }
}

void Tokenizer::save(const std::filesystem::path& path) const {
  const Vocabulary& v = vocabulary();
  std::vector<std::string> letters(v.tokens.size());
  for (std::size_t id = 0; id < letters.size(); ++id) letters[id] = v.of_text ? v.tokens[id].value_or("") : to_letters(v.tokens[id].value_or(""));
  std::vector<bool> in_model(v.tokens.size());
  for (std::size_t id = 0; id < in_model.size(); ++id) in_model[id] = v.tokens[id].has_value();
  auto added = ordered_json::array();
  for (const AddedToken& token : v.added) {
    letters[std::size_t(token.id)] = token.content;
    in_model[std::size_t(token.id)] = token.in_model;
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  ordered_json::object_t vocab;
  for (std::size_t id = 0; id < letters.size(); ++id)
    if (in_model[id]) append(vocab, letters[id], id);

  ordered_json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = std::move(added);
  file["normalizer"] = ordered_json::parse(v.normalizer_json);
  file["pre_tokenizer"] = ordered_json::parse(v.pre_tokenizer_json);
  file["post_processor"] = ordered_json::parse(v.post_processor_json);
  file["decoder"] = ordered_json::parse(v.decoder_json);
  file["model"] = written_model(v, letters);
  if (v.unigram) {
    auto scored = ordered_json::array();
    for (std::size_t id = 0; id < v.unigram->scores.size(); ++id) scored.push_back({letters[id], v.unigram->scores[id]});
    file["model"]["vocab"] = std::move(scored);
  } else {
    file["model"]["vocab"] = std::move(vocab);
  }
  if (!v.word_pieces && !v.unigram) file["model"]["merges"] = written_merges(v, letters);
  OutputFile out(path);
  out.append(file.dump(1));
  out.append("\n");
  out.commit();
}

}  // namespace gyr
