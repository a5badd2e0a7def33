// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/media_line.hpp"

#include "src/data/json_line.hpp"
#include "src/media/image/bad_item.hpp"

namespace gyr::media {

namespace {

using json_line::json;

std::size_t marks_in(const std::string& text) {
  constexpr std::string_view mark = "<image>";
  std::size_t count = 0;
  for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + mark.size())) ++count;
  return count;
}

void append_path(const json& path, const char* key, std::vector<std::string>& paths) {
  if (!path.is_string()) json_line::refuse("has {} under '{}', not a path", json_line::kind_of(path), key);
  paths.push_back(path.get<std::string>());
}

// A path or a list of paths.
std::vector<std::string> paths_under(const json& row, const char* key) {
  const json& value = json_line::value_of(row, key);
  std::vector<std::string> paths;
  if (!value.is_array()) append_path(value, key, paths);
  else
    for (const json& path : value) append_path(path, key, paths);
  return paths;
}

void read_part(const json& part, const std::string& where, std::vector<std::string>& paths) {
  if (!part.is_object()) json_line::refuse("has {}{}, not an object with a type", json_line::kind_of(part), where);
  const std::string& type = json_line::string_of(part, "type", where);
  if (type == "text") json_line::string_of(part, "text", where);
  else if (type == "image") paths.push_back(json_line::string_of(part, "path", where));
  else json_line::refuse("has a part of type '{}'{}; the supported types are text and image, an image with a path", type, where);
}

std::vector<std::string> images_of_messages(const json& row) {
  const json& messages = row["messages"];
  if (!messages.is_array()) json_line::refuse("has {} under 'messages', not a list", json_line::kind_of(messages));
  std::vector<std::string> paths;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const std::string where = fmt::format(" in message {}", m + 1);
    if (!messages[m].is_object()) json_line::refuse("has {} as message {}, not an object", json_line::kind_of(messages[m]), m + 1);
    const json& content = json_line::value_of(messages[m], "content", where);
    if (content.is_string()) continue;
    if (!content.is_array()) json_line::refuse("has {} as content{}, not a text or a list of parts", json_line::kind_of(content), where);
    for (const json& part : content) read_part(part, where, paths);
  }
  return paths;
}

void require_marks(std::size_t marks, std::size_t images) {
  if (marks != images) json_line::refuse("has {} <image> marks, but names {} images; the numbers must be equal", marks, images);
}

std::vector<std::string> images_of_conversation(const json& row) {
  const json& turns = row["conversations"];
  if (!turns.is_array()) json_line::refuse("has {} under 'conversations', not a list", json_line::kind_of(turns));
  std::vector<std::string> paths;
  if (row.contains("image")) paths = paths_under(row, "image");
  std::size_t marks = 0;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    if (!turns[t].is_object()) json_line::refuse("has {} as turn {}, not an object", json_line::kind_of(turns[t]), t + 1);
    marks += marks_in(json_line::string_of(turns[t], "value", fmt::format(" in turn {}", t + 1)));
  }
  require_marks(marks, paths.size());
  return paths;
}

}  // namespace

std::vector<std::string> images_of_line(std::string_view line) {
  try {
    const json row = json_line::parse_object(line);
    if (row.contains("messages")) return images_of_messages(row);
    if (row.contains("conversations")) return images_of_conversation(row);
    if (!row.contains("text")) json_line::refuse("has none of the keys messages, conversations and text (keys: {})", json_line::keys_of(row));
    std::vector<std::string> paths;
    if (row.contains("images")) paths = paths_under(row, "images");
    require_marks(marks_in(json_line::string_of(row, "text")), paths.size());
    return paths;
  } catch (const json_line::Problem& problem) {
    refuse_item("the line {}", problem.what);
  }
}

}  // namespace gyr::media
