// SPDX-License-Identifier: BSD-3-Clause
#include "src/planner/layouts/refusals.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "kernels/base/error.hpp"

namespace gyr {

namespace {

// A text split into words and the numbers between them.
struct Taken {
  std::vector<std::string> words{""};
  std::vector<long long> values;
};

Taken split_refusal(const std::string& text) {
  Taken taken;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && std::isdigit((unsigned char)text[end])) ++end;
    // digits that are part of a word or a decimal: 1f1b, bf16, 0.5
    const bool of_word = i > 0 && (std::isalpha((unsigned char)text[i - 1]) || text[i - 1] == '.');
    if (end == i || end - i > 15 || of_word || (end < text.size() && std::isalpha((unsigned char)text[end]))) {
      end = std::max(end, i + 1);
      taken.words.back().append(text, i, end - i);
    } else {
      taken.values.push_back(std::stoll(text.substr(i, end - i)));
      taken.words.emplace_back();
    }
    i = end;
  }
  return taken;
}

struct Group {
  Taken first;
  std::vector<std::pair<long long, long long>> ranges;
  double layouts = 0;
};

std::string text_of(const Group& group) {
  std::string text = group.first.words.front();
  for (std::size_t i = 0; i < group.ranges.size(); ++i) {
    const auto& [least, most] = group.ranges[i];
    text += (least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)) + group.first.words[i + 1];
  }
  return text;
}

}  // namespace

int Refusals::reason(const std::string& text) {
  const auto [known, fresh] = reasons_.try_emplace(text, int(texts_.size()));
  if (fresh) texts_.push_back(text), counts_.push_back(0);
  return known->second;
}

std::vector<Refusals::Line> Refusals::lines() const {
  std::map<std::vector<std::string>, Group> groups;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    const Taken taken = split_refusal(texts_[i]);
    Group& group = groups[taken.words];
    if (group.ranges.empty()) {
      group.first = taken;
      for (const long long n : taken.values) group.ranges.emplace_back(n, n);
    }
    for (std::size_t n = 0; n < taken.values.size(); ++n) {
      auto& [least, most] = group.ranges[n];
      least = std::min(least, taken.values[n]), most = std::max(most, taken.values[n]);
    }
    group.layouts += counts_[i];
  }
  std::vector<Line> lines;
  for (const auto& [words, group] : groups) lines.push_back({text_of(group), group.layouts});
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.layouts > b.layouts; });
  return lines;
}

double Refusals::layouts() const { return std::accumulate(counts_.begin(), counts_.end(), 0.0); }

}  // namespace gyr
