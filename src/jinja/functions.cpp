// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/functions.hpp"

#include <time.h>

#include <map>

#include "src/jinja/arguments.hpp"
#include "src/jinja/interpreter.hpp"
#include "src/jinja/operators.hpp"
#include "src/jinja/show.hpp"

namespace gyr::jinja {

namespace {

constexpr Integer max_range = 100'000;  // as in Jinja's sandbox

Value make_range(Interpreter& in, const Arguments& a) {
  if (a.positional.empty() || a.positional.size() > 3 || !a.named.empty()) refuse("range needs one to three integers");
  Integer bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < a.positional.size(); ++i) {
    const auto bound = as_integer(a.positional[i]);
    if (!bound) refuse("range needs integers, not {}", type_name(a.positional[i]));
    bounds[a.positional.size() == 1 ? 1 : i] = *bound;
  }
  const auto [first, last, step] = bounds;
  if (step == 0) refuse("the step of range must not be 0");
  std::vector<Value> items;
  for (Integer value = first; step > 0 ? value < last : value > last;) {
    if (Integer(items.size()) == max_range) refuse("a range has more than {} items", max_range);
    in.budget.bytes(sizeof(Value));
    items.push_back({value});
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  List range{List::Kind::range, std::move(items), 1};
  range.shown = step == 1 ? fmt::format("range({}, {})", first, last) : fmt::format("range({}, {}, {})", first, last, step);
  return {std::make_shared<const List>(std::move(range))};
}

// Items of dict(mapping or pairs, name=value, ...).
Dict dict_of(Interpreter& in, const Arguments& a) {
  if (a.positional.size() > 1) refuse("dict takes one mapping or list of pairs, but {} arguments are given", a.positional.size());
  Dict dict;
  if (!a.positional.empty()) {
    if (const Dict* other = a.positional[0].dict()) {
      for (const auto& [key, value] : other->items) in.budget.bytes(Budget::value_size + 2 * sizeof(Value) + key_size(key, in.budget));
      dict = *other;
    } else {
      for (const Value& item : items_of(a.positional[0], in.budget)) {
        std::vector<Value> pair = items_of(item, in.budget);
        if (pair.size() != 2) refuse("dict needs pairs of a key and a value");
        in.budget.bytes(Budget::value_size + 2 * sizeof(Value) + key_size(pair[0], in.budget));
        dict.set(std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : a.named) {
    in.budget.bytes(2 * (Budget::value_size + name.size()));
    dict.set(text_value(name), value);
  }
  return dict;
}

Value make_dict(Interpreter& in, const Arguments& a) { return dict_value(dict_of(in, a)); }

Value make_space(Interpreter& in, const Arguments& a) {
  const Dict dict = dict_of(in, a);
  Variables attributes;
  for (const auto& [key, value] : dict.items) {
    if (!key.string()) refuse("a namespace with an attribute of type '{}' is not supported", type_name(key));
    const std::string& name = key.string()->text.bytes();
    if (name.starts_with('_')) refuse("a namespace cannot have the attribute '{}', which begins with _", name);
    attributes.emplace_back(name, value);
  }
  return in.make_namespace(std::move(attributes));
}

// A function that gives nothing at the first call, and the separator at each later one.
Value make_joiner(Interpreter& in, const Arguments& a) {
  const Parameters p("joiner", a, {"sep"});
  const Value separator = p.value(0, text_value(", "));
  const Value used = in.make_namespace({{"used", {false}}});
  return function_value(
      "joiner",
      [separator, used](Interpreter&, const Arguments& b) {
        const Parameters none("a joiner", b, {});
        Value& flag = *used.space()->find("used");
        const bool first = !truth(flag);
        flag = {true};
        return first ? text_value("") : separator;
      },
      separator);
}

Value raise_exception(Interpreter& in, const Arguments& a) {
  const Parameters p("raise_exception", a, {"message"}, 1);
  throw Problem(shown_text(p.at(0), in.budget).bytes());
}

// A time format for strftime, as Python passes it on: the time has no zone, and glibc's field widths are refused.
std::string time_format(const std::string& format) {
  constexpr std::size_t longest = 1000;
  if (format.size() > longest || format.find('\0') != std::string::npos)
    refuse("a time format of more than {} bytes or with a zero byte is not supported", longest);
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool short_form = format[at + 1] == '-' && at + 2 < format.size();
    const char letter = format[at + (short_form ? 2 : 1)];
    static constexpr std::string_view supported = "aAbBcdHIjmMpSUwWxXyY%GuVDFTRehklnrtCPs";
    if (letter != 'z' && letter != 'Z') {
      if (supported.find(letter) == supported.npos) refuse("the time format %{} is not supported", letter);
      out += format.substr(at, short_form ? 3 : 2);
    }
    at += short_form ? 2 : 1;
  }
  return out;
}

Value strftime_now(Interpreter& in, const Arguments& a) {
  const Parameters p("strftime_now", a, {"format"}, 1);
  const std::string format = time_format(p.text(0).bytes());
  in.budget.bytes(64 * format.size());
  struct tm parts {};
  ::localtime_r(&in.now, &parts);
  std::string text(64 * format.size() + 64, '\0');
  text.resize(::strftime(text.data(), text.size(), format.c_str(), &parts));
  return text_value(text);
}

}  // namespace

Value global_function(const std::string& name) {
  static const std::map<std::string_view, Value (*)(Interpreter&, const Arguments&)> functions{
      {"range", make_range},         {"dict", make_dict}, {"namespace", make_space}, {"joiner", make_joiner}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now}};
  const auto function = functions.find(name);
  if (function != functions.end()) return function_value(name, function->second);
  if (name == "cycler" || name == "lipsum") refuse("the function '{}' is not supported", name);
  return undefined("");
}

}  // namespace gyr::jinja
