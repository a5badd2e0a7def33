// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/json_value.hpp"

#include <nlohmann/json.hpp>

#include "src/jinja/problem.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

using json = nlohmann::json;
constexpr std::size_t max_levels = 64;

// Builds values from the events of the JSON parser.
class ValueBuilder {
 public:
  explicit ValueBuilder(Origin origin) : origin_(origin) {}

  bool null() { return add({None{}}); }
  bool boolean(bool value) { return add({value}); }
  bool number_integer(std::int64_t value) { return add({Integer(value)}); }
  bool number_unsigned(std::uint64_t value) {
    if (value > std::uint64_t(std::numeric_limits<Integer>::max())) refuse("has the integer {}, which does not fit into 64 bits", value);
    return add({Integer(value)});
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == text.npos) refuse("has the integer {}, which does not fit into 64 bits", text.substr(0, 40));
    return add({value});
  }
  bool string(std::string& text) { return add(text_value(Text(std::move(text), origin_))); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool end_object() {
    Level level = close();
    return add(dict_value(std::move(level.dict)));
  }
  bool start_array(std::size_t) { return open(false); }
  bool end_array() {
    Level level = close();
    return add(list_value(std::move(level.items)));
  }
  bool key(std::string& text) {
    if (levels_.back().dict.find(text)) refuse("has the key '{}' twice", text.substr(0, valid_utf8_prefix(std::string_view(text).substr(0, 60))));
    levels_.back().key = std::move(text);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error) {
    const std::string_view what = std::string_view(error.what()).substr(0, 200);  // it repeats the last token, which may be long
    refuse("is not valid JSON at character {}: {}", byte, what.substr(0, valid_utf8_prefix(what)));
  }

  Value result() { return std::move(result_); }

 private:
  struct Level {
    bool object;
    Dict dict = {};
    std::vector<Value> items = {};
    std::string key = {};
  };

  bool open(bool object) {
    if (levels_.size() >= max_levels) refuse("is nested deeper than {} levels", max_levels);
    levels_.push_back({object});
    return true;
  }
  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }
  bool add(Value value) {
    if (levels_.empty()) result_ = std::move(value);
    else if (levels_.back().object) levels_.back().dict.set(text_value(Text(std::move(levels_.back().key), origin_)), std::move(value));
    else levels_.back().items.push_back(std::move(value));
    return true;
  }

  Origin origin_;
  std::vector<Level> levels_;
  Value result_;
};

}  // namespace

Value value_of_json(std::string_view text, Origin origin) {
  ValueBuilder builder(origin);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.result();
}

Value with_origin(const Value& value, Origin origin) {
  if (const String* string = value.string()) return text_value(Text(string->text.bytes(), origin), string->safe);
  if (const List* list = value.list()) {
    std::vector<Value> items;
    for (const Value& item : list->items) items.push_back(with_origin(item, origin));
    return list_value(std::move(items), list->kind);
  }
  const Dict* dict = value.dict();
  if (!dict) return value;
  Dict copy;
  for (const auto& [key, item] : dict->items) copy.set(with_origin(key, origin), with_origin(item, origin));
  return dict_value(std::move(copy));
}

}  // namespace gyr::jinja
