// SPDX-License-Identifier: BSD-3-Clause
// Declared settings form a tree of groups, separate from the tree of the deck's text. finish() compares the two trees.
#include "src/deck/deck.hpp"

#include "kernels/base/printable.hpp"
#include "modules/settings/nearest.hpp"
#include "src/base/input_file.hpp"
#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/deck/amount.hpp"
#include "src/deck/bundled_files.hpp"
#include "src/deck/renamed_keys.hpp"

namespace gyr {
namespace deck {

struct Group final : Section {
  struct Entry {
    std::string key;
    std::shared_ptr<Declaration> setting;  // exactly one of setting and section is not null
    std::unique_ptr<Group> section;
  };
  std::string key, path, help, origin;
  TextKind kind;
  std::vector<std::string> described;  // when only describing: names of sections whose names are free; empty: a text is read
  Effect effect = Effect::course;
  const YamlValue* written = nullptr;  // this section in the deck's text; null: the deck has no such section
  Group* parent = nullptr;
  std::vector<Entry> entries;  // settings and subsections, in the order of declaration

  const YamlValue* find(std::string_view name) const { return written ? written->find(name) : nullptr; }
  const Entry* entry(std::string_view name) const {
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == name; });
    return at == entries.end() ? nullptr : &*at;
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const Entry& e : entries) names.push_back(e.key);
    return names;
  }

  Group& section(std::string_view name, std::string_view help) override;
  std::vector<std::string> names() const override;
  bool given(std::string_view name) const override { return find(name) != nullptr; }
  std::string settings_text(const std::vector<std::string>& paths) const override;

 protected:
  std::shared_ptr<Declaration> declare(std::string_view key, std::string type, std::string fallback, std::string_view help) override;
  void read(std::string_view key, Declaration&, Place) const override;
  void missing(std::string_view key, const Declaration&) const override;
};

}  // namespace deck

using deck::Group;

namespace {

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c | 0x20);
  return text;
}

std::string below(const std::string& path, std::string_view key) { return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key); }

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == text.npos;
}

// ---- the command line ----

constexpr std::string_view override_brackets = "[{\"'";  // a value on the command line that begins with one of these is YAML

// The keys of a section as overrides: "rl.rewards.answer.type=regex rl.rewards.answer.pattern='[0-9]+'".
std::string in_words(const YamlValue& section, const std::string& path) {
  std::string words;
  for (std::size_t i = 0; i < section.names.size(); ++i) {
    const std::string key = below(path, section.names[i]);
    const YamlValue& value = section.items[i];
    const bool literal = value.kind == YamlValue::Kind::scalar && override_brackets.find(value.text.substr(0, 1)) == std::string_view::npos;
    const std::string text = literal || value.kind != YamlValue::Kind::scalar ? one_line(value) : write_yaml(value.text);
    const std::string word = value.kind == YamlValue::Kind::map ? in_words(value, key) : shell_word(fmt::format("{}={}", key, text));
    words += (words.empty() ? "" : " ") + word;
  }
  return words;
}

YamlValue override_value(const std::string& text, const std::string& path, const std::string& where) {
  YamlValue value;
  if (!text.empty() && override_brackets.find(text[0]) != std::string_view::npos) {
    value = std::move(parse_yaml("value: " + text, where).items.at(0));
    require(value.kind != YamlValue::Kind::map, Exit::usage, "{}: set the keys of a section one by one, as in {}", where,
            printable(in_words(value, path)));
  } else if (!text.empty() && text != "null" && text != "~") {
    value.kind = YamlValue::Kind::scalar;  // taken literally, so that `#` and `: ` need no second pair of quotes
    value.text = text;
  }
  return value;
}

bool is_path(std::string_view path) {
  return path.find('.') != path.npos && path.front() != '.' && path.back() != '.' && path.find("..") == path.npos &&
         path.find_first_of(" /:") == path.npos;
}

// The likely intention of a word on the command line that is no override.
std::string remedy_for_override(const std::string& word) {
  std::error_code error;
  if (std::filesystem::is_regular_file(word, error)) return "this is a file, and a run has one deck; set keys as section.key=value";
  const auto mark = word.find_first_of("=:");
  std::string path = word.substr(0, mark);
  std::replace(path.begin(), path.end(), '/', '.');
  const auto value = mark == word.npos ? mark : word.find_first_not_of("=: ", mark);
  if (value != word.npos && is_path(path)) return fmt::format("write {}={}", shown(path), shown(word.substr(value)));
  if (value != word.npos && mark > 0 && path.find_first_of(". ") == path.npos)
    return fmt::format("`{0}` has no section; an override is written section.key=value, and `gyrfalcon help {0}` searches all keys", shown(path));
  return "an override is written section.key=value, with no spaces around `=`";
}

// Removes the key or section of the deck that `~path` names.
void remove(YamlValue& root, const std::string& path, const std::string& where) {
  require(path.find('=') == path.npos, Exit::usage, "{}: a key is removed with ~section.key, without a value", where);
  require(is_path(path), Exit::usage, "{}: write ~section.key; a whole section cannot be removed, only its keys", where);
  YamlValue *above = nullptr, *node = &root;
  std::string key;
  for (std::size_t begin = 0; node && begin < path.size(); begin += key.size() + 1) {
    key = path.substr(begin, path.find('.', begin) - begin);
    above = node, node = node->find(key);
  }
  require(node != nullptr, Exit::config, "{}: the deck does not set `{}`, so that there is nothing to remove; leave the word out", where, path);
  const auto at = std::find(above->names.begin(), above->names.end(), key) - above->names.begin();
  above->names.erase(above->names.begin() + at), above->items.erase(above->items.begin() + at);
}

void apply(YamlValue& root, const std::string& override) {
  const std::string where = fmt::format("command line `{}`", shown(override));
  if (override.starts_with('~')) return remove(root, override.substr(1), where);
  const auto equals = override.find('=');
  const std::string path = override.substr(0, equals);
  require(equals != std::string::npos && is_path(path), Exit::usage, "{}: {}", where, remedy_for_override(override));
  YamlValue* node = &root;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (node->kind == YamlValue::Kind::null) node->kind = YamlValue::Kind::map;
    require(node->kind == YamlValue::Kind::map, Exit::config, "{}: `{}` is a value ({}), not a section", where, path.substr(0, begin - 1),
            node->where);
    YamlValue* next = node->find(key);
    if (!next) {
      node->names.push_back(key);
      next = &node->items.emplace_back();
      next->where = where;
    }
    node = next;
    begin = end + 1;
  }
  YamlValue value = override_value(override.substr(equals + 1), path, where);  // refuses the keys of a section, with a valid form
  require(node->kind != YamlValue::Kind::map, Exit::config, "{}: `{}` is a section ({}); set its keys one by one", where, path, node->where);
  *node = std::move(value);
  node->where = where;
}

// ---- undeclared names ----

void list_paths(const Group& group, std::vector<std::string>& paths) {
  for (const auto& e : group.entries) {
    if (e.setting) paths.push_back(e.setting->path);
    if (e.section) list_paths(*e.section, paths);
  }
}

// One value or list of the deck's text that no declared key has.
struct Stray {
  std::string path;
  const YamlValue& value;
};

void list_values(const YamlValue& section, const std::string& path, std::vector<Stray>& strays) {
  for (std::size_t i = 0; i < section.names.size(); ++i) {
    const std::string key = below(path, section.names[i]);
    if (section.items[i].kind == YamlValue::Kind::map) list_values(section.items[i], key, strays);
    else strays.push_back({key, section.items[i]});
  }
}

std::string remedy_for(const Group& root, const Stray& stray, Match match) {
  std::vector<std::string> paths;
  list_paths(root, paths);
  const bool has_value = stray.value.kind == YamlValue::Kind::scalar || stray.value.kind == YamlValue::Kind::list;
  const bool in_file = !stray.value.where.starts_with("command line");
  return remedy_for({shown(stray.path), has_value ? shown(one_line(stray.value)) : "", in_file}, paths, match, root.kind.overridden);
}

std::string all_of(const Group& group) {
  if (group.entries.empty()) return fmt::format("section `{}` has no settings here; remove it", group.path);
  return fmt::format("{} has: {}", group.path.empty() ? fmt::format("the {}", group.kind.name) : "section `" + group.path + "`",
                     joined(group.keys(), ", "));
}

// The only name that begins with `key`; empty if there is none or several, or `key` is very short.
std::string completed(const std::string& key, const std::vector<std::string>& names) {
  std::string found;
  for (const std::string& name : names) {
    if (key.size() < 4 || !name.starts_with(key)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

// Suggestion for an unknown key: its correct path, a name in the section that differs in one letter, the same name in
// another section or in another framework, a similar name, or the list of valid names.
std::string way_out(const Group& root, const Group& group, const std::string& key, const YamlValue& value) {
  const Stray stray{below(group.path, key), value};
  if (std::string remedy = remedy_for(root, stray, Match::path); !remedy.empty()) return remedy;
  const std::string name = nearest(lower_case(key), group.keys());
  const std::string suggestion = fmt::format("did you mean `{}`?", below(group.path, name));
  if (!name.empty() && edit_distance(key, name) == 1) return suggestion;
  if (std::string remedy = remedy_for(root, stray, Match::name); !remedy.empty()) return remedy;
  if (!name.empty()) return suggestion;
  const std::string longer = completed(key, group.keys());
  return longer.empty() ? all_of(group) : fmt::format("did you mean `{}`?", below(group.path, longer));
}

// Lists the values of an unknown section if one of them has a remedy of its own. Returns false if there are none.
bool list_remedies(const Group& root, const std::vector<Stray>& strays, Match match, std::vector<std::string>& unknown) {
  const auto has_remedy = [&](const Stray& stray) { return !remedy_for(root, stray, match).empty(); };
  if (std::none_of(strays.begin(), strays.end(), has_remedy)) return false;
  for (const Stray& stray : strays) {
    std::string remedy = remedy_for(root, stray, Match::path);
    if (remedy.empty()) remedy = remedy_for(root, stray, Match::name);
    unknown.push_back(fmt::format("{}: unknown key `{}`{}{}", stray.value.where, shown(stray.path), remedy.empty() ? "" : "; ", remedy));
  }
  return true;
}

void list_unknown_section(const Group& root, const Group& group, const std::string& key, const YamlValue& section,
                          std::vector<std::string>& unknown) {
  const std::string path = below(group.path, key), name = nearest(lower_case(key), group.keys());
  std::vector<Stray> strays;
  list_values(section, path, strays);
  if (list_remedies(root, strays, Match::path, unknown)) return;
  if (name.empty() && list_remedies(root, strays, Match::name, unknown)) return;
  const std::string remedy =
      name.empty() ? remedy_for(root, {path, section}, Match::name) : fmt::format("did you mean `{}`?", below(group.path, name));
  unknown.push_back(fmt::format("{}: unknown section `{}`; {}", section.where, shown(path), remedy.empty() ? all_of(group) : remedy));
}

// Lists the names of a section's text that the declared group does not have.
void check(const Group& root, const Group& group, const YamlValue* written, std::vector<std::string>& unknown) {
  for (std::size_t i = 0; written && i < written->names.size(); ++i) {
    const std::string& key = written->names[i];
    const YamlValue& value = written->items[i];
    if (group.entry(key)) continue;
    if (value.kind == YamlValue::Kind::map) list_unknown_section(root, group, key, value, unknown);
    else unknown.push_back(fmt::format("{}: unknown key `{}`; {}", value.where, shown(below(group.path, key)), way_out(root, group, key, value)));
  }
  for (const auto& e : group.entries)
    if (const YamlValue* inner = e.section && written ? written->find(e.key) : nullptr) check(root, *e.section, inner, unknown);
}

void confirm(const Group& group) {
  for (const auto& e : group.entries) {
    if (e.setting) e.setting->confirm();
    if (e.section) confirm(*e.section);
  }
}

// Lists every key of the text under an old name: "run.yaml:3: model.width is called model.hidden_size now".
void list_renamed(const YamlValue& section, const std::string& path, std::vector<std::string>& renamed) {
  for (std::size_t i = 0; i < section.names.size(); ++i) {
    const std::string key = below(path, section.names[i]);
    if (const std::string_view now = current_name(key); !now.empty())
      renamed.push_back(fmt::format("{}: {} is called {} now", section.items[i].where, key, now));
    else list_renamed(section.items[i], key, renamed);
  }
}

// Text of a deck, and the declared settings.
struct Written {
  YamlValue text;
  Group group;
};

// Throws the complaints as one message: at most ten of them, one per line, and the count of the others.
void refuse_all(std::vector<std::string> complaints) {
  constexpr std::size_t most = 10;
  if (complaints.size() > most) {
    const std::size_t more = complaints.size() - most;
    complaints.resize(most);
    complaints.push_back(fmt::format("and {} more", more));
  }
  require(complaints.empty(), Exit::config, "{}", joined(complaints, "\n"));
}

// Message about an undeclared key of the deck that is similar to `key`: "run.yaml:3 has `widht`".
std::string slip(const Group& group, const std::string& key) {
  if (!group.written) return group.parent ? slip(*group.parent, group.key) : "";
  std::vector<std::string> strange;
  for (const std::string& name : group.written->names)
    if (!group.entry(name)) strange.push_back(name);
  const std::string name = nearest(key, strange);
  return name.empty() ? "" : fmt::format("{} has `{}`; did you mean `{}`? ", group.find(name)->where, shown(name), key);
}

// ---- effective deck and help ----

void write(const Group& group, const std::string& indent, std::string& text) {
  for (const auto& e : group.entries) {
    if (e.setting) text += fmt::format("{}{}: {}\n", indent, e.key, e.setting->value);
    std::string inner;
    if (e.section) write(*e.section, indent + "  ", inner);
    if (!inner.empty()) text += fmt::format("{}{}:\n{}", indent, e.key, inner);
  }
}

void list_settings(const Group& group, Table& table) {
  const auto is_setting = [](const Group::Entry& e) { return bool(e.setting); };
  if (std::any_of(group.entries.begin(), group.entries.end(), is_setting)) table.heading(fmt::format("{}: {}", group.path, group.help));
  for (const auto& e : group.entries)
    if (const auto& s = e.setting) table.row({e.key, s->fallback.empty() ? "(required)" : s->fallback, s->unit, s->range(), s->help});
  for (const auto& e : group.entries)
    if (e.section) list_settings(*e.section, table);
}

void gather(const Group& group, std::vector<Declaration>& all) {
  for (const auto& e : group.entries) {
    if (e.setting) all.push_back(*e.setting);
    if (e.section) gather(*e.section, all);
  }
}

}  // namespace

Group& Group::section(std::string_view name, std::string_view help) {
  if (const Entry* known = entry(name)) {
    ensure(bool(known->section), "deck: `{}` is declared as a setting and as a section", below(path, name));
    return *known->section;
  }
  const YamlValue* node = find(name);
  const bool absent = !node || node->kind == YamlValue::Kind::null;
  auto inner = std::make_unique<Group>();
  inner->key = name;
  inner->path = below(path, name);
  inner->help = help;
  inner->origin = origin;
  inner->kind = kind;
  inner->described = described;
  inner->effect = effect;
  inner->written = absent ? nullptr : node;
  inner->parent = this;
  require(absent || node->kind == YamlValue::Kind::map, Exit::config,
          "{}: `{}` is a section ({}); write its keys indented below it, or on the command line as {}.KEY=VALUE (`gyrfalcon keys {}` lists them)",
          absent ? "" : node->where, inner->path, help, inner->path, inner->path);
  entries.push_back({std::string(name), nullptr, std::move(inner)});
  return *entries.back().section;
}

std::vector<std::string> Group::names() const {
  if (!described.empty()) return described;
  if (!written) return {};
  for (std::size_t i = 0; i < written->names.size(); ++i)
    require(is_name(written->names[i]), Exit::config, "{}: `{}` is no name in section `{}`; use letters, digits, - and _", written->items[i].where,
            shown(written->names[i]), path);
  return written->names;
}

// Values with their origin, as in "run.yaml:3: model.hidden_size = 64 (with model.pattern = P)". Defaults are in
// parentheses.
std::string Group::settings_text(const std::vector<std::string>& paths) const {
  std::string given, defaults;
  for (const std::string& path : paths) {
    const Group* group = this;
    std::size_t begin = 0;
    for (auto dot = path.find('.'); dot != path.npos; begin = dot + 1, dot = path.find('.', begin)) {
      const Entry* inner = group->entry(path.substr(begin, dot - begin));
      ensure(inner && inner->section, "deck: there is no section in {}", path);
      group = inner->section.get();
    }
    const Entry* entry = group->entry(path.substr(begin));
    ensure(entry && entry->setting, "deck: {} is not declared", path);
    const Declaration& d = *entry->setting;
    if (d.where.empty()) defaults += fmt::format("{}{} = {}", defaults.empty() ? "" : ", ", d.path, shown(d.value));
    else given += fmt::format("{}{}: {} = {}", given.empty() ? "" : "; ", d.where, d.path, shown(d.value));
  }
  if (defaults.empty() || given.empty()) return given + defaults;
  return fmt::format("{} (with {})", given, defaults);
}

std::shared_ptr<Declaration> Group::declare(std::string_view key, std::string type, std::string fallback, std::string_view help) {
  if (const Entry* known = entry(key)) {
    ensure(bool(known->setting), "deck: `{}` is declared as a section and as a setting", below(path, key));
    const Declaration& first = *known->setting;
    ensure(first.type == type && first.fallback == fallback, "deck: `{}` is declared as {} = {} and as {} = {}", first.path, first.type,
           first.fallback, type, fallback);
    return known->setting;
  }
  auto declaration = std::make_shared<Declaration>();
  declaration->path = below(path, key);
  declaration->type = std::move(type);
  declaration->fallback = std::move(fallback);
  declaration->help = help;
  declaration->effect = effect;
  entries.push_back({std::string(key), declaration, nullptr});
  return declaration;
}

namespace {

template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>*> = true;

// Complaint about one value in place of a list, with the way to write it. The paths of token files are often taken for that
// of their text.
std::string advice_on_list(const std::string& text, const std::string& path) {
  std::error_code no;
  for (const char* const ending : {".bin", ".idx"})
    if (path == "data.prefixes" && text.ends_with(ending))
      return fmt::format("is one of the two token files of a PREFIX; write [{}]", shown(text.substr(0, text.size() - 4)));
  if (path == "data.prefixes" && std::filesystem::is_regular_file(text, no))
    return fmt::format(
        "is a file, not a list of PREFIXes of token files; `gyrfalcon data build {} PREFIX --tokenizer FILE` makes them from text, and "
        "data.prefixes is then [PREFIX]",
        shown(text));
  return fmt::format("is not a list; write [{}]", shown(text));
}

}  // namespace

void Group::read(std::string_view key, Declaration& declaration, Place place) const {
  std::visit(
      [&](auto* value) {
        if (const YamlValue* given = find(key)) {
          declaration.where = given->where;
          declaration.value = shown(*given);
          std::string wrong = read_yaml(*given, *value);
          if constexpr (std::is_same_v<decltype(value), Index*>) {
            const std::string_view text = given->quoted ? "" : std::string_view(given->text);
            if (const auto amount = amount_in(text, declaration.path); amount && !wrong.empty()) *value = *amount, wrong.clear();
            if (!wrong.empty()) wrong += advice_on_amount(text, declaration.path);
          }
          if constexpr (std::is_same_v<decltype(value), double*>) {
            const std::string_view text = given->text;  // quotes are allowed around a value with a unit
            if (const auto quantity = quantity_in(text, declaration.path); quantity && !wrong.empty()) *value = *quantity, wrong.clear();
            if (!wrong.empty()) wrong += advice_on_quantity(text, declaration.path);
          }
          if constexpr (is_list<decltype(value)>)
            if (!wrong.empty() && given->kind == YamlValue::Kind::scalar) wrong = advice_on_list(given->text, declaration.path);
          if (!wrong.empty()) declaration.refuse(wrong);
        }
        declaration.value = write_yaml(*value);
      },
      place);
}

void Group::missing(std::string_view key, const Declaration& wanted) const {
  if (!described.empty()) return;
  const std::string or_else = kind.overridden ? fmt::format(", or {}=VALUE on the command line", wanted.path) : "";
  fail(Exit::config, "{}: {} must be given ({}; {}). {}Write `{}:` under `{}:`{}", origin, wanted.path, wanted.help, wanted.type,
       slip(*this, std::string(key)), key, path, or_else);
}

namespace {

// Exit::config for a model's config.json and for text files.
void refuse_other_files(const std::filesystem::path& file, const std::string& name, const std::string& text) {
  const bool json = text.starts_with('{') && text.find("\"model_type\"") != text.npos;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  require(!json, Exit::config, "{}: is a Hugging Face config.json, not a deck; a run starts from this model with a deck and --init-from {}", name,
          shown(folder.string()));
  const std::filesystem::path type = file.extension();
  if (type != ".txt" && type != ".jsonl" && type != ".csv") return;
  try {
    parse_yaml(text, name);
  } catch (const Error&) {
    fail(Exit::config, "{}: is a text file, not a deck (YAML); `gyrfalcon data build` makes training data from text", name);
  }
}

// The deck of the run whose output folder, folder of checkpoints or checkpoint is given in place of a deck; empty if there
// is none.
std::string deck_of_run(const std::filesystem::path& folder) {
  std::filesystem::path output = folder.has_filename() ? folder : folder.parent_path();
  if (output.parent_path().filename() == "checkpoints") output = output.parent_path();
  if (output.filename() == "checkpoints") output = output.parent_path();
  std::error_code no;
  return std::filesystem::is_regular_file(output / "deck.yaml", no) ? (output / "deck.yaml").string() : "";
}

// Remedy for a folder that is given in place of a deck.
std::string remedy_for_folder(const std::filesystem::path& folder) {
  std::error_code no;
  if (std::filesystem::exists(folder / "config.json", no))
    return fmt::format("; a run starts from a model with a deck and --init-from {}", shown(folder.string()));
  const std::string deck = deck_of_run(folder);
  return deck.empty() ? "" : fmt::format("; the deck of this run is {}", shown(deck));
}

}  // namespace

Deck Deck::read(const std::filesystem::path& file, std::span<const std::string> overrides, const TextKind& kind) {
  const std::string name = shown(file.string());
  std::error_code no;
  if (!std::filesystem::exists(file, no)) {
    const std::string near = kind.overridden ? similar_bundled_file(file.string(), "input") : "";
    fail(Exit::missing, "{}: there is no such {}{}{}", name, kind.name, near.empty() ? "" : "; ", near);
  }
  require(!std::filesystem::is_directory(file, no), Exit::missing, "{}: is a folder, not a {}{}", name, kind.name,
          kind.overridden ? remedy_for_folder(file) : "");
  const InputFile in(file);
  std::string text(std::size_t(2) << 20, '\0');  // twice the maximum size of a deck; limits the read of a huge file
  text.resize(in.read(0, text.data(), text.size()));
  if (kind.overridden) refuse_other_files(file, name, text);
  require(!parse_yaml(text, name).names.empty(), Exit::config, "{}: is empty; a {} has {}", name, kind.name, kind.sections);
  return parse(text, name, overrides, kind);
}

Deck Deck::of(YamlValue written, const std::string& origin, const TextKind& kind) {
  auto root = std::make_shared<Written>();
  root->text = std::move(written);
  root->group.origin = origin;
  root->group.kind = kind;
  root->group.written = &root->text;
  return Deck({root, &root->group});
}

Deck Deck::parse(const std::string& text, const std::string& origin, std::span<const std::string> overrides, const TextKind& kind) {
  YamlValue written = parse_yaml(text, origin);
  for (const std::string& override : overrides) apply(written, override);
  return of(std::move(written), origin, kind);
}

Deck Deck::stored(const std::string& text, const std::string& origin) { return of(with_current_names(parse_yaml(text, origin)), origin); }

Deck Deck::describe(std::vector<std::string> names) {
  auto root = std::make_shared<Group>();
  root->described = std::move(names);
  return Deck(std::move(root));
}

Section& Deck::section(std::string_view name, std::string_view help, Effect effect) {
  const bool known = root_->entry(name) != nullptr;
  Group& section = root_->section(name, help);
  if (!known) section.effect = effect;
  return section;
}

void Deck::refuse_renamed() const {
  std::vector<std::string> renamed;
  if (root_->written) list_renamed(*root_->written, "", renamed);
  refuse_all(std::move(renamed));
}

bool Deck::given(std::string_view section) const { return root_->given(section); }

void Deck::finish() const {
  std::vector<std::string> unknown;
  check(*root_, *root_, root_->written, unknown);
  confirm(*root_);
  refuse_all(std::move(unknown));
}

std::string Deck::unknown_to(Deck known) const {
  known.root_->kind = root_->kind;
  std::vector<std::string> unknown;
  check(*known.root_, *known.root_, root_->written, unknown);
  return joined(unknown, "\n");
}

std::string Deck::effective() const {
  std::string text;
  write(*root_, "", text);
  return text;
}

std::vector<Declaration> Deck::settings() const {
  std::vector<Declaration> all;
  gather(*root_, all);
  return all;
}

std::string Deck::settings_text(const std::vector<std::string>& paths) const { return root_->settings_text(paths); }

std::string Deck::help() const {
  Table table({{"key", false, 26}, {"default", false, 16}, {"unit", false, 10}, {"range", false, 20}, {"help", false, 40}});
  list_settings(*root_, table);
  return table.str();
}

}  // namespace gyr
