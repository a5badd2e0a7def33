// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/show.hpp"

#include "src/jinja/characters.hpp"
#include "src/jinja/numbers.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

namespace {

class Writer {
 public:
  Writer(Text& out, Budget& budget) : out_(out), budget_(budget) {}

  void write(const Value& value) {
    budget_.step();
    if (level_ > max_depth) refuse("a value is nested deeper than {} levels", max_depth);
    ++level_;
    if (const String* string = value.string()) write_string(*string);
    else if (const List* list = value.list()) write_list(*list);
    else if (const Dict* dict = value.dict()) write_dict(dict->items);
    else if (Namespace* space = value.space()) write_space(*space);
    else write_simple(value);
    --level_;
  }
  void write_simple(const Value& value) {
    if (value.undefined()) put("Undefined");
    else if (value.none()) put("None");
    else if (const bool* b = value.boolean()) put(*b ? "True" : "False");
    else if (const Integer* i = value.integer()) put(std::to_string(*i));
    else if (const double* d = value.real()) put(shown_real(*d));
    else if (const Loop* loop = value.loop()) put(fmt::format("<LoopContext {}/{}>", loop->index + 1, loop->items->items.size()));
    else if (const Callable* callable = value.callable(); callable && !callable->shown.empty()) put(callable->shown);
    else refuse("a value of type '{}' has no text that is the same in each run", type_name(value));
  }

 private:
  void put(std::string_view text) {
    budget_.bytes(text.size());
    out_.append(text);
  }

  void write_string(const String& string) {
    const std::string& bytes = string.text.bytes();
    const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
    if (string.safe) put("Markup(");
    put({&quote, 1});
    budget_.bytes(3 * string.text.memory());  // an escape has up to 2.5 times the bytes of its character
    for (std::size_t at = 0; at < bytes.size();) {
      const Character c = character_at(bytes, at);
      if (c.point == char32_t(quote) || c.point == '\\') out_.append_changed(std::string("\\") + char(c.point), string.text, at);
      else if (is_printable(c.point)) out_.append(string.text, at, at + c.length);
      else out_.append_changed(escape_of(c.point), string.text, at);
      at += c.length;
    }
    put({&quote, 1});
    if (string.safe) put(")");
  }
  static std::string escape_of(char32_t c) {
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c < 0x100) return fmt::format("\\x{:02x}", unsigned(c));
    return c < 0x10000 ? fmt::format("\\u{:04x}", unsigned(c)) : fmt::format("\\U{:08x}", unsigned(c));
  }

  void write_items(const std::vector<Value>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(", ");
      write(items[i]);
    }
  }
  void write_list(const List& list) {
    switch (list.kind) {
      case List::Kind::list: put("["), write_items(list.items), put("]"); break;
      case List::Kind::tuple: put("("), write_items(list.items), put(list.items.size() == 1 ? ",)" : ")"); break;
      case List::Kind::range: put(list.shown); break;
      case List::Kind::keys: put("dict_keys(["), write_items(list.items), put("])"); break;
      case List::Kind::values: put("dict_values(["), write_items(list.items), put("])"); break;
      case List::Kind::items: put("dict_items(["), write_items(list.items), put("])"); break;
      case List::Kind::iterator: refuse("an iterator has no text that is the same in each run; apply the filter list first");
    }
  }
  void write_dict(const std::vector<std::pair<Value, Value>>& items) {
    put("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(", ");
      write(items[i].first);
      put(": ");
      write(items[i].second);
    }
    put("}");
  }
  void write_space(const Namespace& space) {
    put("<Namespace ");
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, value] : space.attributes) items.emplace_back(text_value(name), value);
    write_dict(items);
    put(">");
  }

  Text& out_;
  Budget& budget_;
  std::size_t level_ = 0;
};

}  // namespace

void append_shown(const Value& value, Text& out, Budget& budget) {
  if (value.undefined()) return;
  if (const String* string = value.string()) {
    budget.bytes(string->text.memory());
    out.append(string->text);
  } else {
    Writer(out, budget).write(value);
  }
}

Text shown_text(const Value& value, Budget& budget) {
  Text text;
  append_shown(value, text, budget);
  return text;
}

Text repr_of(const Value& value, Budget& budget) {
  Text text;
  Writer(text, budget).write(value);
  return text;
}

}  // namespace gyr::jinja
