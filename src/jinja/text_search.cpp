// SPDX-License-Identifier: BSD-3-Clause
#include "src/jinja/text_search.hpp"

#include <string.h>

#include <algorithm>

#include "src/jinja/characters.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr::jinja {

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from, Budget& budget) {
  if (from > text.size()) return text.npos;
  if (needle.empty()) return from;
  const auto* found = static_cast<const char*>(::memmem(text.data() + from, text.size() - from, needle.data(), needle.size()));
  const std::size_t at = found ? std::size_t(found - text.data()) : text.npos;
  budget.step(1 + ((found ? at : text.size()) - from) / 64 + needle.size() / 64);
  return at;
}

std::size_t find_last_bytes(std::string_view text, std::string_view needle, Budget& budget) {
  budget.bytes(text.size() + needle.size());
  const std::string backwards(text.rbegin(), text.rend()), wanted(needle.rbegin(), needle.rend());
  const std::size_t at = find_bytes(backwards, wanted, 0, budget);
  return at == text.npos ? at : text.size() - at - needle.size();
}

Text replaced(const Text& text, std::string_view old, const Text& other, std::int64_t count, Budget& budget) {
  const std::string& bytes = text.bytes();
  budget.bytes(text.memory());
  Text out;
  std::size_t done = 0, at = 0;
  for (; count != 0; --count) {
    const std::size_t found = find_bytes(bytes, old, at, budget);
    if (found == std::string::npos) break;
    out.append(text, done, found);
    budget.bytes(other.memory());
    out.append(other);
    done = found + old.size();
    at = done;
    if (!old.empty()) continue;
    if (done == bytes.size()) break;
    at = done + character_at(bytes, done).length;
  }
  out.append(text, done);
  return out;
}

Text without_ends(const Text& text, const std::string* characters, bool left, bool right, Budget& budget) {
  const std::string& bytes = text.bytes();
  std::vector<char32_t> set;
  for (std::size_t at = 0; characters && at < characters->size(); at += character_at(*characters, at).length)
    set.push_back(character_at(*characters, at).point);
  std::sort(set.begin(), set.end());
  const auto goes = [&](char32_t c) { return characters ? std::binary_search(set.begin(), set.end(), c) : is_python_space(c); };
  std::size_t begin = 0, end = bytes.size();
  while (left && begin < end && goes(character_at(bytes, begin).point)) begin += character_at(bytes, begin).length;
  while (right && end > begin && goes(character_before(bytes, end).point)) end -= character_before(bytes, end).length;
  budget.bytes(text.memory() + set.size() * sizeof set[0]);
  return text.part(begin, end);
}

namespace {

// Charges one part of a split text.
void add_part(std::vector<Text>& parts, Text part, Budget& budget) {
  budget.bytes(part.memory() + 4 * sizeof(Text));
  parts.push_back(std::move(part));
}

std::vector<Text> split_at_space(const Text& text, std::int64_t count, Budget& budget) {
  const std::string& bytes = text.bytes();
  std::vector<Text> parts;
  std::size_t at = 0;
  const auto skip = [&](bool space) {
    while (at < bytes.size() && is_python_space(character_at(bytes, at).point) == space) at += character_at(bytes, at).length;
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const std::size_t begin = at;
    if (count-- == 0) {
      add_part(parts, text.part(begin, bytes.size()), budget);
      break;
    }
    skip(false);
    add_part(parts, text.part(begin, at), budget);
  }
  return parts;
}

std::vector<Text> split_at_space_from_right(const Text& text, std::int64_t count, Budget& budget) {
  const std::string& bytes = text.bytes();
  std::vector<Text> parts;
  std::size_t at = bytes.size();
  const auto skip = [&](bool space) {
    while (at > 0 && is_python_space(character_before(bytes, at).point) == space) at -= character_before(bytes, at).length;
  };
  for (skip(true); at > 0; skip(true)) {
    const std::size_t end = at;
    if (count-- == 0) {
      add_part(parts, text.part(0, end), budget);
      break;
    }
    skip(false);
    add_part(parts, text.part(at, end), budget);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Positions of the separator, without overlap, from the left.
std::vector<std::size_t> places_of(std::string_view bytes, std::string_view separator, Budget& budget) {
  if (separator.empty()) refuse("the separator must not be empty");
  std::vector<std::size_t> places;
  for (std::size_t at = 0; (at = find_bytes(bytes, separator, at, budget)) != bytes.npos; at += separator.size()) {
    budget.bytes(sizeof at);
    places.push_back(at);
  }
  return places;
}

std::vector<Text> split_at_places(const Text& text, const std::vector<std::size_t>& places, std::size_t width, Budget& budget) {
  std::vector<Text> parts;
  std::size_t begin = 0;
  for (const std::size_t place : places) {
    add_part(parts, text.part(begin, place), budget);
    begin = place + width;
  }
  add_part(parts, text.part(begin, text.size()), budget);
  return parts;
}

}  // namespace

std::vector<Text> split_text(const Text& text, const std::string* separator, std::int64_t count, Budget& budget) {
  if (!separator) return split_at_space(text, count, budget);
  std::vector<std::size_t> places = places_of(text.bytes(), *separator, budget);
  if (count >= 0 && places.size() > std::size_t(count)) places.resize(std::size_t(count));
  return split_at_places(text, places, separator->size(), budget);
}

std::vector<Text> split_text_from_right(const Text& text, const std::string* separator, std::int64_t count, Budget& budget) {
  if (!separator) return split_at_space_from_right(text, count, budget);
  // Without overlap from the right: the occurrences from the left in the reversed text.
  const std::string& bytes = text.bytes();
  budget.bytes(bytes.size() + separator->size());
  const std::string backwards(bytes.rbegin(), bytes.rend()), wanted(separator->rbegin(), separator->rend());
  std::vector<std::size_t> places = places_of(backwards, wanted, budget);
  if (count >= 0 && places.size() > std::size_t(count)) places.resize(std::size_t(count));
  std::reverse(places.begin(), places.end());
  for (std::size_t& place : places) place = bytes.size() - place - separator->size();
  return split_at_places(text, places, separator->size(), budget);
}

std::vector<Text> lines_of_text(const Text& text, bool keep_ends, Budget& budget) {
  const std::string& bytes = text.bytes();
  std::vector<Text> lines;
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin;
    while (end < bytes.size() && !is_line_end(character_at(bytes, end).point)) end += character_at(bytes, end).length;
    std::size_t next = end < bytes.size() ? end + character_at(bytes, end).length : end;
    if (bytes.compare(end, 2, "\r\n") == 0) next = end + 2;
    add_part(lines, text.part(begin, keep_ends ? next : end), budget);
    begin = next;
  }
  return lines;
}

}  // namespace gyr::jinja
