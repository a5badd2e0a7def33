// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/deck_changes.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/table.hpp"
#include "src/base/terminal.hpp"
#include "src/config/run_config.hpp"
#include "src/deck/renamed_keys.hpp"

namespace gyr {

namespace {

std::map<std::string, std::string> values_of(const std::string& deck, const std::string& origin) {
  return values_by_path(with_current_names(parse_yaml(deck, origin)));
}

// All settings, with those of the models and rewards that these decks name.
std::vector<Declaration> settings_known_to(const std::vector<std::map<std::string, std::string>>& decks) {
  std::set<std::string> names;
  for (const auto& deck : decks)
    for (const auto& [path, value] : deck)
      for (const std::string_view section : {"models.", "rl.rewards."})
        if (path.starts_with(section))
          if (const auto dot = path.find('.', section.size()); dot != path.npos) names.insert(path.substr(section.size(), dot - section.size()));
  Deck known = names.empty() ? Deck::describe() : Deck::describe({names.begin(), names.end()});
  read_run_config(known);
  return known.settings();
}

// True if results change at most by rounding.
bool is_quiet(Effect effect) { return effect == Effect::none || effect == Effect::operation; }

std::string function_changes(const std::vector<DeckChange>& changes) {
  std::string names;
  for (const DeckChange& c : changes)
    if (c.effect == Effect::function) names += (names.empty() ? "" : ", ") + c.key;
  return names;
}

// `of_start`: the keys that only a new run reads, or the others.
std::string quiet_changes(const std::vector<DeckChange>& changes, bool of_start) {
  std::string names;
  for (const DeckChange& c : changes)
    if (is_quiet(c.effect) && is_of_start(c.key) == of_start) names += (names.empty() ? "" : ", ") + c.key;
  return names;
}

// True for settings of policy training that determine the iteration of a step.
bool of_iterations(const DeckChange& c) { return c.key.starts_with("rl."); }

}  // namespace

std::vector<DeckChange> deck_changes(const std::string& before, const std::string& now) {
  std::vector<DeckChange> changes;
  if (before.empty() || now.empty()) return changes;
  auto was = values_of(before, "the deck of the checkpoint");
  const auto is = values_of(now, "the deck");
  for (const Declaration& d : settings_known_to({was, is})) {
    const std::string fallback = one_line(parse_yaml("value: " + d.fallback, "default").items.at(0));
    const auto value_in = [&](const auto& deck) { return deck.contains(d.path) ? deck.at(d.path) : fallback; };
    if (value_in(was) != value_in(is)) changes.push_back({d.path, value_in(was), value_in(is), d.effect});
    was.erase(d.path);
  }
  for (const auto& [path, value] : was) changes.push_back({path, value, "not known to this program", Effect::course});
  return changes;
}

std::string text_of(const std::vector<DeckChange>& changes, const std::string& since) {
  Table table({{"key", false, 48}, {"old value"}, {"new value"}, {""}});
  for (const DeckChange& c : changes)
    if (!is_quiet(c.effect))
      table.row({c.key, shown(c.was), shown(c.is),
                 c.effect == Effect::function ? of_iterations(c) ? "moves the iterations" : "changes what the model computes" : ""});
  const std::string quiet = quiet_changes(changes, false), unread = quiet_changes(changes, true);
  const bool any = std::any_of(changes.begin(), changes.end(), [](const DeckChange& c) { return !is_quiet(c.effect); });
  std::string text = any ? fmt::format("the deck has changed since {} was saved:\n{}", since, table.str()) : "";
  if (!quiet.empty()) text += fmt::format("changed since {}, with the same results up to rounding: {}\n", since, quiet);
  if (!unread.empty()) text += fmt::format("changed since {}, and read only by a new run: {}\n", since, unread);
  if (!text.empty()) text.pop_back();
  return text;
}

std::string old_values(const std::vector<DeckChange>& changes) {
  const auto of_layout = [](const DeckChange& c) { return c.key.starts_with("parallel.") || c.key.starts_with("activation."); };
  if (std::all_of(changes.begin(), changes.end(), of_layout)) return "";  // a run may continue on other ranks
  std::map<std::string, std::string> paths;
  for (const DeckChange& c : changes) paths[c.key] = c.was;
  const auto declared = settings_known_to({paths});
  std::string text;
  for (const DeckChange& c : changes) {
    if (is_of_start(c.key) || c.key == "output.folder") continue;  // not read by a resumed run; a copied folder stays a copy
    if (std::none_of(declared.begin(), declared.end(), [&](const Declaration& d) { return d.path == c.key; })) continue;
    text += (text.empty() ? "" : " ") + shell_word(fmt::format("{}={}", c.key, c.was));
  }
  return text;
}

std::string remedy_for_function(const std::vector<DeckChange>& changes) {
  std::vector<DeckChange> of_function;
  for (const DeckChange& c : changes)
    if (c.effect == Effect::function) of_function.push_back(c);
  const std::string old = old_values(of_function);
  return fmt::format(
      "take the old values back{}, or start another run in another output.folder (with --init-from CHECKPOINT if it has all weights, in the same "
      "shapes)",
      old.empty() ? "" : fmt::format(" ({})", old));
}

std::string text_of_moved_decay(const std::vector<DeckChange>& changes, const LearningRate& lr) {
  const auto change_of = [&](const char* key) {
    return std::find_if(changes.begin(), changes.end(), [&](const DeckChange& c) { return c.key == key; });
  };
  const auto steps = change_of("train.steps");
  const bool decays = lr.schedule != "constant" && lr.schedule != "inverse-sqrt";
  if (!decays || lr.unit != ScheduleUnit::steps || steps == changes.end() || fmt::format("{}", lr.decay_steps) != steps->is) return "";
  if (change_of("optimizer.decay_steps") != changes.end()) return "";
  return fmt::format(
      "the decay of the learning rate ends at step {} instead of {}, so that the rate changes at once; optimizer.decay_steps={} keeps the old one",
      steps->is, steps->was, steps->was);
}

std::string text_of_jump(const LearningRate& parent, const LearningRate& branch, std::int64_t parent_position, std::int64_t position,
                         std::int64_t step) {
  constexpr double close = 1.2;
  const double was = parent.at(parent_position), is = branch.at(position);
  if (is <= close * was && was <= close * is) return "";
  return fmt::format(
      "warning: at step {} the parent has the learning rate {:.3g}, and this branch has {:.3g}. A branch for a cool-down goes on with the parent's "
      "rate: set optimizer.lr={:.3g}, or branch off a run whose optimizer.schedule is constant or wsd",
      step, was, is, was);
}

bool changes_function(const std::vector<DeckChange>& changes) { return !function_changes(changes).empty(); }

void require_same_function(const std::vector<DeckChange>& changes, const std::string& since) {
  const std::string names = function_changes(changes);
  const bool only_iterations =
      std::all_of(changes.begin(), changes.end(), [](const DeckChange& c) { return c.effect != Effect::function || of_iterations(c); });
  require(
      names.empty() || !only_iterations, Exit::config,
      "{}: the steps of {} belong to iterations of another size, so that answers or prompts would be left out; restore the old values, start a new "
      "run with train.init_from, or give --accept-changes",
      names, since);
  require(names.empty(), Exit::config, "{}: the model would compute a different function with the weights of {}; {}, or give --accept-changes", names,
          since, remedy_for_function(changes));
}

}  // namespace gyr
