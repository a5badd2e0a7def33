// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/json_text.hpp"

#include <algorithm>
#include <cmath>

#include "src/jinja/numbers.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Text run(const Value& value) {
    write(value);
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    budget_.bytes(text.size());
    out_.append(text);
  }

  void write(const Value& value) {
    budget_.step();
    if (const String* string = value.string()) return write_string(string->text);
    if (const Dict* dict = value.dict()) return write_dict(*dict);
    const List* list = value.list();
    if (list && (list->kind == List::Kind::list || list->kind == List::Kind::tuple)) return write_list(*list);
    const auto simple = simple_text(value);
    if (!simple) refuse("tojson cannot write a value of type '{}'", type_name(value));
    put(*simple);
  }

  // Text of a value that is neither text nor a container; empty for all others.
  static std::optional<std::string> simple_text(const Value& value) {
    if (value.none()) return "null";
    if (const bool* b = value.boolean()) return *b ? "true" : "false";
    if (const Integer* i = value.integer()) return std::to_string(*i);
    if (const double* d = value.real()) return std::isnan(*d) ? "NaN" : std::isinf(*d) ? (*d > 0 ? "Infinity" : "-Infinity") : shown_real(*d);
    return std::nullopt;
  }

  void write_string(const Text& text) {
    const std::string& bytes = text.bytes();
    budget_.bytes(text.memory());
    put("\"");
    std::size_t done = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const Character c = character_at(bytes, at);
      if (const std::string escape = escape_of(c.point); !escape.empty()) {
        out_.append(text, done, at);
        budget_.bytes(escape.size());
        out_.append_changed(escape, text, at);
        done = at + c.length;
      }
      at += c.length;
    }
    out_.append(text, done);
    put("\"");
  }

  std::string escape_of(char32_t c) const {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\b': return "\\b";
      case '\f': return "\\f";
      default: break;
    }
    if (c < 0x20 || (style_.ascii && c >= 0x7f && c < 0x10000)) return fmt::format("\\u{:04x}", unsigned(c));
    if (!style_.ascii || c < 0x10000) return "";
    const unsigned rest = unsigned(c) - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
  }

  void begin_line() {
    if (!style_.indent) return;
    put("\n");
    for (std::size_t i = 0; i < level_; ++i) put(*style_.indent);
  }

  // Writes `count` members between brackets.
  template <class WriteMember>
  void write_members(std::size_t count, const char* open, const char* close, WriteMember&& write_member) {
    put(open);
    ++level_;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) put(style_.item_end);
      begin_line();
      write_member(i);
    }
    --level_;
    if (count > 0) begin_line();
    put(close);
  }

  void write_list(const List& list) {
    write_members(list.items.size(), "[", "]", [&](std::size_t i) { write(list.items[i]); });
  }

  void write_dict(const Dict& dict) {
    std::vector<std::size_t> places(dict.items.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
    if (style_.sort_keys) {
      budget_.step(20 * places.size());
      std::stable_sort(places.begin(), places.end(),
                       [&](std::size_t a, std::size_t b) { return order(dict.items[a].first, dict.items[b].first).value_or(0) < 0; });
    }
    write_members(places.size(), "{", "}", [&](std::size_t i) {
      const auto& [key, value] = dict.items[places[i]];
      write_key(key);
      put(style_.key_end);
      write(value);
    });
  }

  void write_key(const Value& key) {
    if (key.string()) return write_string(key.string()->text);
    const auto simple = simple_text(key);
    if (!simple) refuse("tojson cannot write a key of type '{}'", type_name(key));
    put("\"" + *simple + "\"");
  }

  const JsonStyle& style_;
  Budget& budget_;
  Text out_;
  std::size_t level_ = 0;
};

}  // namespace

Text json_text(const Value& value, const JsonStyle& style, Budget& budget) { return JsonWriter(style, budget).run(value); }

}  // namespace gyr::jinja
