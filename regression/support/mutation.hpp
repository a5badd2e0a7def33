// SPDX-License-Identifier: BSD-3-Clause
// Random damage to a file, as disks, editors and other programs cause it: changed bytes, JSON of another shape, or
// something else under the file's name.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "regression/support/folder.hpp"

namespace gyr::testing {

class Mutation {
 public:
  explicit Mutation(unsigned seed) : random_(seed) {}

  unsigned up_to(unsigned most) { return unsigned(random_() % (std::uint64_t(most) + 1)); }

  // Damages a file and returns what was done. Most draws change a JSON value, if the file has any.
  std::string damage(const std::filesystem::path& file) {
    const unsigned kind = up_to(9);
    if (kind == 0) return replaced(file);
    const std::string text = contents(file);
    const auto [changed, what] = kind < 3 ? other_bytes(text) : other_shape(text);
    put_contents(file, changed);
    return what;
  }

  // A JSON value of any type, with extreme numbers, and names that control a terminal or imitate a log.
  nlohmann::ordered_json value() {
    using Json = nlohmann::ordered_json;
    static const Json values[] = {nullptr,
                                  true,
                                  0,
                                  -1,
                                  1,
                                  3,
                                  1 << 30,
                                  1e308,
                                  -1e-308,
                                  0.5,
                                  std::numeric_limits<std::int64_t>::min(),
                                  std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::uint64_t>::max(),
                                  "",
                                  "done",
                                  "running",
                                  "run",
                                  "end",
                                  "\nRUN OK\n",
                                  "\x1b[2J\r",
                                  "../../x",
                                  std::string(5000, 'k'),
                                  "two words " + std::string(5000, ' ') + "x",
                                  Json::array(),
                                  Json::object(),
                                  Json{1, "a", nullptr},
                                  Json{{"a", 1}}};
    if (up_to(20) > 0) return values[up_to(std::size(values) - 1)];
    Json deep = 1;
    for (int i = 0; i < 200; ++i) deep = Json::array({deep});
    return deep;
  }

 private:
  using Json = nlohmann::ordered_json;
  struct Changed {
    std::string text, what;
  };

  // Something that is no file of its own, or none at all.
  std::string replaced(const std::filesystem::path& file) {
    namespace fs = std::filesystem;
    fs::remove_all(file);
    switch (up_to(6)) {
      case 0: return "removed";
      case 1: fs::create_directory(file); return "a folder";
      case 2: fs::create_symlink("nowhere", file); return "a link to nowhere";
      case 3: fs::create_symlink(file.filename(), file); return "a link to itself";
      case 4: fs::create_symlink("/dev/zero", file); return "a link to an endless device";
      case 5: fs::create_symlink("/dev/null", file); return "a link to an empty device";
      default: return mkfifo(file.c_str(), 0600) == 0 ? "a pipe without a writer" : "removed";
    }
  }

  Changed other_bytes(std::string text) {
    const std::size_t at = text.empty() ? 0 : random_() % text.size();
    switch (up_to(6)) {
      case 0: return {"", "empty"};
      case 1: return {text.substr(0, at), fmt::format("cut at byte {}", at)};
      case 2:
        if (!text.empty()) text[at] = char(random_());
        return {text, fmt::format("byte {} changed", at)};
      case 3: return {text.substr(0, at) + std::string(up_to(300), char(random_())) + text.substr(at), fmt::format("bytes inserted at {}", at)};
      case 4: return {text + text, "twice"};
      case 5: std::erase(text, '\n'); return {text, "one line"};
      default: return {text + std::string(200'000, 'z'), "followed by a long line"};
    }
  }

  // Lines of the text that are JSON, or the text itself if all of it is.
  Changed other_shape(const std::string& text) {
    Json all = Json::parse(text, nullptr, false);
    if (!all.is_discarded()) {
      const std::string what = change(all);
      return {dumped(all), what};
    }
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    std::string what = "unchanged";
    for (int tries = 0; tries < 20 && !lines.empty() && what == "unchanged"; ++tries) {
      std::string& line = lines[random_() % lines.size()];
      Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded()) continue;
      what = change(json);
      line = dumped(json);
    }
    if (what == "unchanged") return other_bytes(text);
    std::string changed;
    for (const std::string& line : lines) changed += line + "\n";
    return {changed, what};
  }

  static std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

  // Replaces, removes, renames or adds one value somewhere in the tree.
  std::string change(Json& json) {
    if (!json.is_structured() || json.empty() || up_to(12) == 0) {
      json = value();
      return "replaced by " + dumped(json).substr(0, 60);
    }
    const std::size_t place = random_() % json.size();
    const std::string key = json.is_object() ? std::next(json.begin(), std::ptrdiff_t(place)).key() : std::to_string(place);
    Json& child = *std::next(json.begin(), std::ptrdiff_t(place));
    if (child.is_structured() && !child.empty() && up_to(2) > 0) return key + "." + change(child);
    switch (json.is_object() ? up_to(5) : 5) {
      case 0: json.erase(key); return key + " removed";
      case 1: {
        const Json old = child;
        json.erase(key);
        json[std::string(5000, 'n')] = old;
        return key + " renamed";
      }
      case 2: json[std::string("\x1b[2J\nRUN OK")] = value(); return "another key";
      default: child = value(); return key + " = " + dumped(child).substr(0, 60);
    }
  }

  std::mt19937_64 random_;
};

}  // namespace gyr::testing
