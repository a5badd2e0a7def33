// SPDX-License-Identifier: BSD-3-Clause
// The subset of YAML that decks use: maps, lists and scalars. Anchors, aliases, tags and duplicate keys are errors.
// `true`, `false`, `True` and `False` are the only booleans. Integers are decimal digits, or digits with an exponent (1e6).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

// One node as the user wrote it.
struct YamlValue {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;  // text of a scalar, without quotes
  bool quoted = false;
  std::vector<std::string> names;  // keys of a map, in the order written
  std::vector<YamlValue> items;    // the map's values, or the list's elements
  std::string where;               // place of the node for messages: "run.yaml:12" or "command line `train.steps=5`"

  YamlValue* find(std::string_view name);
  const YamlValue* find(std::string_view name) const { return const_cast<YamlValue*>(this)->find(name); }
};

// Parses the one document in `text`; an empty document is an empty map. Error(config) with "origin:line" if it is
// malformed, not UTF-8, larger than 1 MiB, longer than 10000 nodes or deeper than 16 levels.
YamlValue parse_yaml(const std::string& text, const std::string& origin);

// A value on one line: text of a scalar, "[a, b]", "null".
std::string one_line(const YamlValue&);
// The values below a map by path, as in "optimizer.lr".
std::map<std::string, std::string> values_by_path(const YamlValue& map);

// Reads a value of the wanted type. Returns an error such as "is not an integer", or an empty string.
std::string read_yaml(const YamlValue&, bool&);
std::string read_yaml(const YamlValue&, Index&);
std::string read_yaml(const YamlValue&, double&);
std::string read_yaml(const YamlValue&, std::string&);
template <class T>
std::string read_yaml(const YamlValue&, std::vector<T>&);
template <class T>
std::string read_yaml(const YamlValue&, std::optional<T>&);

// Text for a message: control characters escaped, long text truncated.
std::string shown(std::string_view text);
std::string shown(const YamlValue&);

template <class T>
std::string read_yaml(const YamlValue& node, std::vector<T>& list) {
  if (node.kind != YamlValue::Kind::list) return "is not a list; write [a, b, c]";
  list.clear();
  for (const YamlValue& item : node.items) {
    T element{};
    if (auto wrong = read_yaml(item, element); !wrong.empty()) return "has an element " + shown(item) + " that " + wrong;
    list.push_back(std::move(element));
  }
  return "";
}

template <class T>
std::string read_yaml(const YamlValue& node, std::optional<T>& maybe) {
  maybe.reset();
  if (node.kind == YamlValue::Kind::null) return "";
  T value{};
  std::string wrong = read_yaml(node, value);
  maybe = std::move(value);
  return wrong;
}

}  // namespace gyr
