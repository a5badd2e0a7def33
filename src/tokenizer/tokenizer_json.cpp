// SPDX-License-Identifier: BSD-3-Clause
// tokenizer.json, the format of Hugging Face's `tokenizers`, read with suspicion and written plainly.
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kernels/error.hpp"
#include "src/data/mapped_file.hpp"
#include "src/data/output_file.hpp"
#include "src/tokenizer/byte_alphabet.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {
namespace {

using json = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

constexpr std::size_t max_file_bytes = std::size_t(256) << 20;
constexpr std::size_t max_depth = 16;
constexpr std::int64_t max_vocabulary = std::int64_t(1) << 24;

// Reads one tokenizer.json. Every refusal names the file and the field.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path.string()) {}

  Vocabulary read(std::string_view text) {
    const json file = parse(text);
    check(file.is_object(), "the file is not a JSON object");
    for (const char* field : {"normalizer", "truncation", "padding"})
      check(!file.contains(field) || file[field].is_null(), "'{}' is {}, which is not supported: only null is", field,
            summary(file, field));
    const json& model = member(file, "model", json::value_t::object);
    check_model(model);
    read_tokens(member(model, "vocab", json::value_t::object));
    read_merges(member(model, "merges", json::value_t::array));
    if (file.contains("added_tokens"))
      for (const json& token : member(file, "added_tokens", json::value_t::array)) read_added(token);
    spell_out();
    read_pre_tokenizer(member(file, "pre_tokenizer", json::value_t::object));
    check(on_letters_, "'pre_tokenizer' has no ByteLevel: only byte-level vocabularies are supported");
    result_.pre_tokenizer = file["pre_tokenizer"].dump();
    const json& decoder = member(file, "decoder", json::value_t::object);
    check(name_of(decoder) == "ByteLevel", "decoder '{}' is not supported: only ByteLevel is", name_of(decoder));
    if (file.contains("post_processor")) {
      check_post_processor(file["post_processor"]);
      result_.post_processor = file["post_processor"].dump();
    }
    return std::move(result_);
  }

 private:
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) fail(Exit::data, "{}: {}", path_, fmt::format(text, std::forward<Args>(args)...));
  }

  // JSON text to values, refusing what two readers may understand differently: a key given twice.
  json parse(std::string_view text) const {
    std::vector<std::unordered_set<std::string>> keys;
    std::size_t depth = 0;
    const auto watch = [&](int, json::parse_event_t event, json& value) {
      using Event = json::parse_event_t;
      if (event == Event::object_start || event == Event::array_start) {
        check(++depth <= max_depth, "nested deeper than {} levels", max_depth);
        if (event == Event::object_start) keys.emplace_back();
      } else if (event == Event::object_end || event == Event::array_end) {
        --depth;
        if (event == Event::object_end) keys.pop_back();
      } else if (event == Event::key) {
        const auto& key = value.get_ref<const std::string&>();
        check(keys.back().insert(key).second, "key '{}' is given twice in one object", key);
      }
      return true;
    };
    try {
      return json::parse(text.begin(), text.end(), watch);
    } catch (const json::exception& error) {
      fail(Exit::data, "{}: not valid JSON: {}", path_, error.what());
    }
  }

  const json& member(const json& object, const char* name, json::value_t type) const {
    check(object.is_object() && object.contains(name), "'{}' is missing", name);
    check(object[name].type() == type, "'{}' is {}, not {}", name, object[name].type_name(), json(type).type_name());
    return object[name];
  }

  // The field as a message shows it: "null" where there is none, an entry's type for an entry.
  static std::string summary(const json& object, const char* field) {
    const json value = object.value(field, json());
    return value.is_object() && value.contains("type") ? value["type"].dump() : value.dump().substr(0, 40);
  }

  std::string name_of(const json& object) const {
    check(object.is_object() && object.contains("type") && object["type"].is_string(), "an entry has no 'type'");
    return object["type"].get<std::string>();
  }

  bool flag(const json& object, const char* name, bool otherwise) const {
    if (!object.contains(name)) return otherwise;
    check(object[name].is_boolean(), "'{}' is {}, not true or false", name, object[name].type_name());
    return object[name].get<bool>();
  }

  std::int32_t id_in(const json& value, const std::string& token) const {
    check(value.is_number_integer(), "the id of '{}' is {}, not a whole number", token, value.dump().substr(0, 40));
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t(max_vocabulary);
    check(fits, "the id of '{}' is {}; ids lie in 0 .. {}", token, value.dump(), max_vocabulary - 1);
    return value.get<std::int32_t>();
  }

  void check_model(const json& model) {
    if (model.contains("type"))
      check(name_of(model) == "BPE", "model '{}' is not supported: only BPE is", name_of(model));
    for (const char* field : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const bool plain = !model.contains(field) || model[field].is_null() || model[field] == "" || model[field] == 0.0;
      check(plain, "'model.{}' is {}, which is not supported: only null is", field, summary(model, field));
    }
    check(!flag(model, "byte_fallback", false),
          "'model.byte_fallback' is not supported: the vocabulary must be byte-level");
    result_.ignore_merges = flag(model, "ignore_merges", false);
  }

  void place(const std::string& letters, std::int32_t id) {
    if (std::size_t(id) >= letters_.size()) letters_.resize(std::size_t(id) + 1);
    auto& place = letters_[std::size_t(id)];
    check(!place, "id {} belongs to both '{}' and '{}'", id, place.value_or(""), letters);
    place = letters;
    ids_[letters] = id;
  }

  void read_tokens(const json& vocab) {
    for (const auto& [letters, id] : vocab.items()) {
      check(!letters.empty(), "the vocabulary has an empty token");
      const std::int32_t number = id_in(id, letters);
      check(std::size_t(number) <= 2 * vocab.size() + 65536, "the id {} of '{}' is far beyond the {} tokens", number,
            letters, vocab.size());
      place(letters, number);
    }
  }

  void read_merges(const json& merges) {
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = sides(merges[i], i);
      const auto id = [&](const std::string& letters) {
        const auto it = ids_.find(letters);
        check(it != ids_.end(), "merge {} needs '{}', which is not a token", i, letters);
        return it->second;
      };
      result_.merges.push_back({id(left), id(right), id(left + right)});
    }
  }

  // Both spellings in use: "a b" and ["a", "b"].
  std::pair<std::string, std::string> sides(const json& merge, std::size_t i) const {
    if (merge.is_array()) {
      check(merge.size() == 2 && merge[0].is_string() && merge[1].is_string(), "merge {} is not a pair of strings", i);
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    check(merge.is_string(), "merge {} is {}, neither a string nor a pair", i, merge.type_name());
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ');
    const bool two = space != std::string::npos && text.find(' ', space + 1) == std::string::npos;
    check(two, "merge {} is '{}', not two tokens with a space between", i, text);
    return {text.substr(0, space), text.substr(space + 1)};
  }

  void read_added(const json& token) {
    AddedToken added;
    added.content = member(token, "content", json::value_t::string).get<std::string>();
    check(!added.content.empty(), "an added token is empty");
    check(token.contains("id"), "added token '{}' has no id", added.content);
    added.id = id_in(token["id"], added.content);
    added.special = flag(token, "special", false);
    added.normalized = flag(token, "normalized", !added.special);
    for (const char* field : {"single_word", "lstrip", "rstrip"})
      check(!flag(token, field, false), "added token '{}' has '{}', which is not supported", added.content, field);
    const auto known = ids_.find(added.content);
    if (known == ids_.end()) {
      place(added.content, added.id);
    } else {
      check(known->second == added.id, "added token '{}' has id {} here and {} in the vocabulary", added.content,
            added.id, known->second);
    }
    result_.added.push_back(std::move(added));
  }

  // Ordinary tokens are spelt in letters, added ones as they are.
  void spell_out() {
    std::unordered_set<std::int32_t> added;
    for (const AddedToken& token : result_.added)
      check(added.insert(token.id).second, "added token '{}' is given twice", token.content);
    result_.tokens.resize(letters_.size());
    for (std::size_t id = 0; id < letters_.size(); ++id) {
      if (!letters_[id]) continue;
      result_.tokens[id] = added.contains(std::int32_t(id)) ? letters_[id] : from_letters(*letters_[id]);
      check(result_.tokens[id].has_value(),
            "token {} '{}' is not spelt in the byte alphabet: not a byte-level vocabulary", id, *letters_[id]);
    }
  }

  void step(std::string pattern) { result_.split.push_back({std::move(pattern), on_letters_}); }

  void read_pre_tokenizer(const json& entry) {
    const std::string name = name_of(entry);
    if (name == "Sequence") {
      for (const json& part : member(entry, "pretokenizers", json::value_t::array)) read_pre_tokenizer(part);
    } else if (name == "ByteLevel") {
      check(!on_letters_, "'pre_tokenizer' has two ByteLevel entries");
      check(!flag(entry, "add_prefix_space", true),
            "ByteLevel with add_prefix_space is not supported: it changes the text");
      if (flag(entry, "use_regex", true)) step(std::string(gpt2_pattern));
      on_letters_ = true;  // what follows sees the byte alphabet
    } else if (name == "Digits") {
      step(flag(entry, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (name == "Punctuation") {
      const auto behavior = entry.contains("behavior") ? entry["behavior"] : json("Isolated");
      check(behavior == "Isolated" || behavior == "Contiguous", "Punctuation with behavior {} is not supported",
            behavior.dump());
      step(std::string(R"([\p{P}$+<=>^`|~])") + (behavior == "Contiguous" ? "+" : ""));
    } else if (name == "Split") {
      check(entry.contains("behavior") && entry["behavior"] == "Isolated", "Split with behavior {} is not supported",
            summary(entry, "behavior"));
      step(split_pattern(member(entry, "pattern", json::value_t::object)));  // `invert` changes nothing when isolated
    } else {
      check(false, "pre-tokenizer '{}' is not supported: only Sequence, Split, Digits, Punctuation, ByteLevel are",
            name);
    }
  }

  std::string split_pattern(const json& pattern) const {
    if (pattern.contains("Regex")) return member(pattern, "Regex", json::value_t::string).get<std::string>();
    std::string quoted;
    for (const char c : member(pattern, "String", json::value_t::string).get_ref<const std::string&>()) {
      if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0) quoted += '\\';
      quoted += c;
    }
    return quoted;
  }

  void check_post_processor(const json& entry) const {
    if (entry.is_null()) return;
    const std::string name = name_of(entry);
    if (name == "Sequence") {
      for (const json& part : member(entry, "processors", json::value_t::array)) check_post_processor(part);
    } else {
      const bool known = name == "ByteLevel" || name == "TemplateProcessing" || name == "RobertaProcessing";
      check(known, "post-processor '{}' is not supported", name);
    }
  }

  std::string path_;
  Vocabulary result_;
  std::vector<std::optional<std::string>> letters_;  // [id], as spelt in the file
  std::unordered_map<std::string, std::int32_t> ids_;
  bool on_letters_ = false;
};

// ordered_json looks every key up by a linear search; a vocabulary's keys are known to differ.
void append(ordered_json::object_t& object, std::string key, ordered_json value) {
  static_cast<ordered_json::object_t::Container&>(object).emplace_back(std::move(key), std::move(value));
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const MappedFile file(path);
  require(file.size() <= max_file_bytes, Exit::data, "{}: {} bytes; a tokenizer.json has at most {}", path.string(),
          file.size(), max_file_bytes);
  Vocabulary vocabulary = Reader(path).read(file.text());
  try {
    return Tokenizer(std::move(vocabulary));
  } catch (const Error& error) {
    fail(error.code, "{}: {}", path.string(), error.what());
  }
}

void Tokenizer::save(const std::filesystem::path& path) const {
  const Vocabulary& v = vocabulary();
  std::vector<std::string> letters(v.tokens.size());
  for (std::size_t id = 0; id < letters.size(); ++id) letters[id] = to_letters(v.tokens[id].value_or(""));
  auto added = ordered_json::array();
  for (const AddedToken& token : v.added) {
    letters[std::size_t(token.id)] = token.content;
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  ordered_json::object_t vocab;
  for (std::size_t id = 0; id < letters.size(); ++id)
    if (v.tokens[id]) append(vocab, letters[id], id);
  auto merges = ordered_json::array();
  for (const Merge& merge : v.merges)
    merges.push_back(letters[std::size_t(merge.left)] + " " + letters[std::size_t(merge.right)]);

  ordered_json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = std::move(added);
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = ordered_json::parse(v.pre_tokenizer);
  file["post_processor"] = ordered_json::parse(v.post_processor);
  file["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  file["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", v.ignore_merges}};
  file["model"]["vocab"] = std::move(vocab);
  file["model"]["merges"] = std::move(merges);
  OutputFile out(path);
  out.append(file.dump(1));
  out.append("\n");
  out.commit();
}

}  // namespace gyr
