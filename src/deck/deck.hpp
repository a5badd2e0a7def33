// SPDX-License-Identifier: BSD-3-Clause
// Input decks. A setting is declared where it is used, with default, unit, range and help; the help text, the echo in
// the log and every error message come from that one declaration.
//
//   Deck deck = Deck::read("run.yaml", overrides);
//   Section s = deck.section("mamba", "state-space branch");
//   Index chunk_size = s.get("chunk_size", 128, "SSD chunk length in tokens").power_of_two().at_most(512);
//   deck.finish();
//
// Integers are 64-bit (an `int` on either side is converted, with a range check); numbers are doubles, `inf` included.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/error.hpp"
#include "kernels/scalar.hpp"
#include "src/deck/yaml.hpp"

namespace gyr {

// What another value of a setting means to a run that goes on from a checkpoint.
enum class Effect {
  function,  // the model computes something else with the same weights
  course,    // the same model, but other steps from here on: data, optimizer, precision
  none       // no number depends on it but for rounding: layout, files, limits, what is told
};

// One declared setting: what help, effective deck and messages need to know of it.
struct Declaration {
  std::string path;      // "mamba.chunk_size"
  std::string type;      // "integer"
  std::string fallback;  // YAML; empty when the setting has no default
  std::string help, unit;
  Effect effect = Effect::course;
  std::vector<std::string> rules;  // "<= 512", "power of 2"
  std::string value;               // YAML of the value in use
  std::string where;               // where the user gave it; empty when the default is in use
  std::string hint;                // the allowed word nearest to a wrong one
  bool broken = false;             // the value breaks a rule

  void rule(std::string text, bool holds);
  void suggest(const std::string& word, std::span<const std::string> allowed);
  void confirm() const;  // Error(config) when broken
  [[noreturn]] void refuse(std::string_view why) const;
  std::string range() const;  // the rules, or the type where there are none
};

namespace deck {

// How a C++ type is kept: every integer as Index, every literal text as std::string.
template <class T>
struct Kept {
  using type = T;
};
template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) struct Kept<T> {
  using type = Index;
};
template <std::floating_point T>
struct Kept<T> {
  using type = double;
};
template <std::convertible_to<std::string> T>
struct Kept<T> {
  using type = std::string;
};

template <class T>
struct Traits {
  using Element = T;
};
template <class T>
struct Traits<std::vector<T>> {
  using Element = T;
};
template <class T>
struct Traits<std::optional<T>> {
  using Element = T;
};

inline std::string type_name(const bool*) { return "true or false"; }
inline std::string type_name(const Index*) { return "integer"; }
inline std::string type_name(const double*) { return "number"; }
inline std::string type_name(const std::string*) { return "text"; }
template <class T>
std::string type_name(const std::vector<T>*) {
  return "list of: " + type_name((const T*)nullptr);
}
template <class T>
std::string type_name(const std::optional<T>*) {
  return type_name((const T*)nullptr) + " or null";
}

template <class T, class F>
void for_each(T& value, F&& f) {
  f(value);
}
template <class T, class F>
void for_each(std::vector<T>& list, F&& f) {
  for (T& element : list) f(element);
}
template <class T, class F>
void for_each(std::optional<T>& maybe, F&& f) {
  if (maybe) f(*maybe);
}

struct Group;

}  // namespace deck

// A declared value on its way into a variable. Rules apply to every element of a list. Converting it checks them; what
// is never converted is checked by Deck::finish.
template <class T>
class [[nodiscard]] Setting {
 public:
  using Element = typename deck::Traits<T>::Element;

  Setting(std::shared_ptr<Declaration> declaration, T value, bool open)
      : declaration_(std::move(declaration)), value_(std::move(value)), open_(open) {}

  Setting& unit(std::string_view name) {
    declaration_->unit = name;
    return *this;
  }
  Setting& effect(Effect effect) {  // where it is not its section's
    declaration_->effect = effect;
    return *this;
  }
  Setting& at_least(Element least) {
    return rule(">= " + write_yaml(least), least, [=](Element x) { return x >= least; });
  }
  Setting& at_most(Element most) {
    return rule("<= " + write_yaml(most), most, [=](Element x) { return x <= most; });
  }
  Setting& above(Element limit) {
    return rule("> " + write_yaml(limit), limit + 1, [=](Element x) { return x > limit; });
  }
  Setting& below(Element limit) {
    return rule("< " + write_yaml(limit), limit - 1, [=](Element x) { return x < limit; });
  }
  Setting& positive() { return above(0); }
  Setting& finite() {
    return rule("finite", 0, [](Element x) { return std::isfinite(x); });
  }
  Setting& power_of_two() {
    return rule("power of 2", 1, [](Element x) { return x > 0 && std::has_single_bit(std::uint64_t(x)); });
  }
  Setting& multiple_of(Element n) {
    return rule("multiple of " + write_yaml(n), n, [=](Element x) { return x % n == 0; });
  }
  Setting& not_empty() {
    declaration_->rule("not empty", open_ || !value_.empty());
    return *this;
  }
  Setting& one_of(const std::vector<Element>& allowed);
  // A rule of its own, in words.
  Setting& must(std::string rule, bool holds) {
    declaration_->rule(std::move(rule), open_ || holds);
    return *this;
  }

  // The value, once it keeps its rules.
  const T& value() const {
    declaration_->confirm();
    return value_;
  }
  operator T() const { return value(); }
  template <class U>
  requires(std::is_arithmetic_v<U> && !std::same_as<U, T> && !std::same_as<U, bool> &&
           (std::same_as<T, Index> || (std::same_as<T, double> && std::floating_point<U>)))
  operator U() const {
    if constexpr (std::integral<U>) {
      using Limits = std::numeric_limits<U>;
      if (!std::in_range<U>(value_))
        declaration_->rule(value_ < 0 ? fmt::format(">= {}", Limits::min()) : fmt::format("<= {}", Limits::max()), false);
    }
    return U(value());
  }

 private:
  template <class Holds>
  Setting& rule(std::string text, Element nearest, Holds&& holds);

  std::shared_ptr<Declaration> declaration_;
  T value_;
  bool open_;  // needed but not given, in a deck that only describes: takes any value that keeps the rules
};

class Section {
 public:
  // A section inside this one. The first help given to a section stays.
  Section section(std::string_view name, std::string_view help);

  // A setting with a default, and one the deck must give. T: bool, integers, floating point, text, std::optional of
  // these, and std::vector of these. Declaring the same key again must repeat the same default.
  template <class T>
  auto get(std::string_view key, T fallback, std::string_view help) -> Setting<typename deck::Kept<T>::type>;
  template <class T>
  auto need(std::string_view key, std::string_view help) -> Setting<typename deck::Kept<T>::type>;

  bool given(std::string_view key) const;      // does the deck or the command line set it?
  Section known(std::string_view name) const;  // a section inside this one that was named before
  // Values of these keys (or paths of keys, from here) as a message shows them, each with where it was given.
  std::string told(const std::vector<std::string>& paths) const;
  const std::string& path() const;

 private:
  friend class Deck;
  explicit Section(std::shared_ptr<deck::Group> group) : group_(std::move(group)) {}
  std::shared_ptr<Declaration> declare(std::string_view key, std::string type, std::string fallback, std::string_view help);
  const YamlValue* find(std::string_view key) const;
  bool describing() const;
  [[noreturn]] void miss(std::string_view key, const Declaration&) const;
  template <class T>
  void read(std::string_view key, Declaration& declaration, T& value) const;

  std::shared_ptr<deck::Group> group_;
};

class Deck {
 public:
  // Overrides are "section.key=value" and win over the file; the last one of a key wins. Error(missing) when there is
  // no such file, Error(config) naming file:line when its text is not a deck, Error(usage) when an override is not of
  // that form.
  static Deck read(const std::filesystem::path& file, std::span<const std::string> overrides = {});
  // The same from memory; messages call it `origin`.
  static Deck parse(const std::string& text, const std::string& origin, std::span<const std::string> overrides = {});
  // A deck that a checkpoint holds: keys that have another name now (renamed_keys.hpp) are read under it.
  static Deck stored(const std::string& text, const std::string& origin);
  // An empty deck that only collects declarations, for help: nothing is required of it.
  static Deck describe();

  // `effect`: of the settings in it that do not say another one.
  Section section(std::string_view name, std::string_view help, Effect effect = Effect::course);
  void refuse_renamed() const;                                    // Error(config) for keys that have another name now, with file:line and that name
  void finish() const;                                            // Error(config) for undeclared keys, with file:line and the nearest declared name
  std::string effective() const;                                  // YAML of every declared key and the value in use; reads back to the same settings
  std::vector<Declaration> settings() const;                      // all that were declared
  std::string told(const std::vector<std::string>& paths) const;  // as Section::told
  std::string help() const;                                       // key, default, unit, range and help by section, at most 120 columns wide

 private:
  static Deck of(YamlValue written, const std::string& origin);
  explicit Deck(std::shared_ptr<deck::Group> root) : root_(std::move(root)) {}
  std::shared_ptr<deck::Group> root_;
};

template <class T>
template <class Holds>
Setting<T>& Setting<T>::rule(std::string text, Element nearest, Holds&& holds) {
  bool all = true;
  deck::for_each(value_, [&](Element& x) {
    if (open_ && !holds(x)) x = nearest;
    all = all && holds(x);
  });
  declaration_->rule(std::move(text), all || open_);
  return *this;
}

template <class T>
Setting<T>& Setting<T>::one_of(const std::vector<Element>& allowed) {
  std::string text;
  for (const Element& word : allowed) text += (text.empty() ? "" : " | ") + write_yaml(word);
  if constexpr (std::same_as<Element, std::string>) deck::for_each(value_, [&](const std::string& x) { declaration_->suggest(x, allowed); });
  const auto known = [&](const Element& x) { return std::find(allowed.begin(), allowed.end(), x) != allowed.end(); };
  return rule(text, allowed.front(), known);
}

template <class T>
void Section::read(std::string_view key, Declaration& declaration, T& value) const {
  if (const YamlValue* given = find(key)) {
    declaration.where = given->where;
    declaration.value = shown(*given);
    if (const std::string wrong = read_yaml(*given, value); !wrong.empty()) declaration.refuse(wrong);
  }
  declaration.value = write_yaml(value);
}

template <class T>
auto Section::get(std::string_view key, T fallback, std::string_view help) -> Setting<typename deck::Kept<T>::type> {
  using V = typename deck::Kept<T>::type;
  V value(std::move(fallback));
  auto declaration = declare(key, deck::type_name((const V*)nullptr), write_yaml(value), help);
  read(key, *declaration, value);
  return {declaration, std::move(value), false};
}

template <class T>
auto Section::need(std::string_view key, std::string_view help) -> Setting<typename deck::Kept<T>::type> {
  using V = typename deck::Kept<T>::type;
  V value{};
  auto declaration = declare(key, deck::type_name((const V*)nullptr), "", help);
  const bool open = describing() && !find(key);
  if (!open && !find(key)) miss(key, *declaration);
  read(key, *declaration, value);
  return {declaration, std::move(value), open};
}

}  // namespace gyr
