// SPDX-License-Identifier: BSD-3-Clause
// Deck settings. Each is declared where it is used, with default, unit, range and help. The help text, the logged
// effective deck and all error messages derive from this declaration. This file does not know the source of the values:
// src/deck reads them from a deck.
//
//   void read_mamba(Section& s, ModelConfig& m) {
//     m.mamba.chunk_size = s.get("chunk_size", m.mamba.chunk_size, "SSD chunk length in tokens").positive().at_most(512);
//
// Integers are 64-bit (an `int` on either side is converted with a range check). Numbers are doubles and may be `inf`.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/base/scalar.hpp"

namespace gyr {

// Effect of a changed setting on a run that resumes from a checkpoint.
enum class Effect {
  function,  // the model computes a different function with the same weights
  course,    // same model, but different steps from here on: data, optimizer, precision
  none,      // results change at most by rounding: layout, storage of activations
  operation  // no computation of the training reads it: files, limits, logging, supervision
};

// One declared setting, with all that help, the effective deck and messages need.
struct Declaration {
  std::string path;      // full key, e.g. "model.mamba.chunk_size"
  std::string type;      // name of the value type, e.g. "integer"
  std::string fallback;  // default as YAML; empty when the setting has no default
  std::string help, unit;
  Effect effect = Effect::course;
  std::vector<std::string> rules;  // allowed values, e.g. "<= 512", "power of 2"
  std::string value;               // value in use as YAML
  std::string where;               // place where the user set it; empty if the default is used
  std::string hint;                // allowed word nearest to the wrong one; empty: none is near
  bool broken = false;             // true if the value violates a rule

  void rule(std::string text, bool holds);
  void suggest(const std::string& word, std::span<const std::string> allowed);
  void confirm() const;  // throws Exit::config if the setting is broken
  [[noreturn]] void refuse(std::string_view why) const;
  std::string range() const;  // the rules, or the type if there are no rules
};

namespace kept {

// Storage type of a C++ type: Index for every integer, std::string for every literal.
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

}  // namespace kept

// A value as one line of YAML, as in a deck.
std::string write_yaml(bool);
std::string write_yaml(Index);
std::string write_yaml(double);
std::string write_yaml(const std::string&);

template <class T>
std::string write_yaml(const std::vector<T>& list) {
  std::string text;
  for (const T& element : list) text += (text.empty() ? "" : ", ") + write_yaml(element);
  return "[" + text + "]";
}

template <class T>
std::string write_yaml(const std::optional<T>& maybe) {
  return maybe ? write_yaml(*maybe) : "null";
}

// A declared value before its conversion to a variable. Rules apply to every element of a list. The conversion checks
// them; values that are never converted are checked once the source has been read.
template <class T>
class [[nodiscard]] Setting {
 public:
  using Element = typename kept::Traits<T>::Element;

  Setting(std::shared_ptr<Declaration> declaration, T value, bool open)
      : declaration_(std::move(declaration)), value_(std::move(value)), open_(open) {}

  Setting& unit(std::string_view name) {
    declaration_->unit = name;
    return *this;
  }
  Setting& effect(Effect effect) {  // needed if the effect differs from that of the section
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
  // Custom rule, described in words.
  Setting& must(std::string rule, bool holds) {
    declaration_->rule(std::move(rule), open_ || holds);
    return *this;
  }

  // Returns the value after checking its rules.
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
  bool open_;  // the setting is required but not given, while settings are only described (help): each rule replaces the value by a valid one
};

// Settings under a common name, with the values that a source (a deck) has for them.
class Section {
 public:
  virtual ~Section() = default;
  // Nested section. The first help text given for a section is kept.
  virtual Section& section(std::string_view name, std::string_view help) = 0;
  // Names that the user gave to the entries of this section, in order, where names are free: models: {NAME: {...}}. Each is
  // then declared like any other section. A source that only describes settings returns a placeholder.
  virtual std::vector<std::string> names() const = 0;

  // get: setting with a default. need: setting that must be given. T: bool, integers, floating point, text,
  // std::optional of these, and std::vector of these. A repeated declaration of a key must have the same default.
  template <class T>
  auto get(std::string_view key, T fallback, std::string_view help) -> Setting<typename kept::Kept<T>::type>;
  template <class T>
  auto need(std::string_view key, std::string_view help) -> Setting<typename kept::Kept<T>::type>;

  virtual bool given(std::string_view key) const = 0;  // true if set explicitly, false if the default is used
  // Values of these keys (or key paths, relative to this section) as text for messages, each with the place where it
  // was set.
  virtual std::string settings_text(const std::vector<std::string>& paths) const = 0;

 protected:
  // Pointer to a value of one of the storage types.
  template <class... T>
  using Places = std::variant<T*..., std::optional<T>*..., std::vector<T>*...>;
  using Place = Places<bool, Index, double, std::string>;

  virtual std::shared_ptr<Declaration> declare(std::string_view key, std::string type, std::string fallback, std::string_view help) = 0;
  // Stores the given value, if any, in `Place`, and its text in the declaration.
  virtual void read(std::string_view key, Declaration&, Place) const = 0;
  // Called for a required key that is missing: an error, unless the source only describes settings.
  virtual void missing(std::string_view key, const Declaration&) const = 0;
};

template <class T>
template <class Holds>
Setting<T>& Setting<T>::rule(std::string text, Element nearest, Holds&& holds) {
  bool all = true;
  kept::for_each(value_, [&](Element& x) {
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
  if constexpr (std::same_as<Element, std::string>) kept::for_each(value_, [&](const std::string& x) { declaration_->suggest(x, allowed); });
  const auto known = [&](const Element& x) { return std::find(allowed.begin(), allowed.end(), x) != allowed.end(); };
  return rule(text, allowed.front(), known);
}

template <class T>
auto Section::get(std::string_view key, T fallback, std::string_view help) -> Setting<typename kept::Kept<T>::type> {
  using V = typename kept::Kept<T>::type;
  V value(std::move(fallback));
  auto declaration = declare(key, kept::type_name((const V*)nullptr), write_yaml(value), help);
  read(key, *declaration, &value);
  return {declaration, std::move(value), false};
}

// Declares a setting that is one of these words, and returns the index of the word as enum.
template <class E>
requires std::is_enum_v<E> E get_word(Section& s, std::string_view key, E fallback, const std::vector<std::string>& words, std::string_view help) {
  const std::string word = s.get(key, words.at(std::size_t(fallback)), help).one_of(words);
  return E(std::find(words.begin(), words.end(), word) - words.begin());
}

template <class T>
auto Section::need(std::string_view key, std::string_view help) -> Setting<typename kept::Kept<T>::type> {
  using V = typename kept::Kept<T>::type;
  V value{};
  auto declaration = declare(key, kept::type_name((const V*)nullptr), "", help);
  const bool open = !given(key);
  if (open) missing(key, *declaration);
  read(key, *declaration, &value);
  return {declaration, std::move(value), open};
}

}  // namespace gyr
