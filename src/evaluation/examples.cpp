// SPDX-License-Identifier: BSD-3-Clause
#include "src/evaluation/examples.hpp"

#include <algorithm>

#include "src/base/json_text.hpp"
#include "src/base/mapped_file.hpp"

namespace gyr {

namespace {

Json parsed(std::string_view line, const std::string& place) {
  Json object;
  if (const auto at = zero_byte(line)) fail(Exit::data, "{}: the line is not valid JSON at character {}: a zero byte", place, *at + 1);
  try {
    object = Json::parse(line);
  } catch (const Json::exception& error) {
    fail(Exit::data, "{}: the line is not valid JSON: {}", place, error.what());
  }
  require(object.is_object(), Exit::data, "{}: the line is {} {}, not a JSON object", place, object.is_array() ? "an" : "a", object.type_name());
  return object;
}

}  // namespace

void visit_examples(const std::filesystem::path& path, Index limit, const std::function<void(const Json&, const std::string&)>& visit) {
  const MappedFile file(path);
  std::string_view rest = file.text();
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  Index examples = 0;
  for (Index number = 1; !rest.empty() && (limit == 0 || examples < limit); ++number) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line.find_first_not_of(white_space) == line.npos) continue;
    const std::string place = fmt::format("{}:{}", path.string(), number);
    visit(parsed(line, place), place);
    ++examples;
  }
  require(examples > 0, Exit::data, "{}: holds no example", path.string());
}

const std::string& text_under(const Json& object, const char* key, const std::string& place) {
  const auto value = object.find(key);
  require(value != object.end(), Exit::data, "{}: the object has no key '{}'", place, key);
  require(value->is_string(), Exit::data, "{}: '{}' is {}, not a string", place, key, value->type_name());
  return value->get_ref<const std::string&>();
}

std::vector<Token> encoded(const std::string& text, const TextSettings& settings, const std::string& place) {
  std::vector<Token> tokens = settings.tokenizer.encode(text);
  for (const Token token : tokens)
    require(token < settings.vocab_size, Exit::data, "{}: token {} is beyond the model's vocabulary of {}: is this the model's tokenizer?", place,
            token, settings.vocab_size);
  return tokens;
}

Continued continued(std::string context, std::string continuation, const TextSettings& settings, const std::string& place) {
  // length of the text without white space at its end; 0 if it has nothing else, because npos + 1 is 0
  const auto text_end = context.find_last_not_of(white_space) + 1;
  continuation.insert(0, context, text_end);
  context.resize(text_end);
  std::vector<Token> tokens = encoded(context, settings, place), full = encoded(context + continuation, settings, place);
  const Index after = Index(full.size()) - Index(tokens.size());
  require(after > 0, Exit::data, "{}: the continuation '{}' has no token of its own", place, continuation);
  require(after <= settings.window, Exit::data, "{}: the continuation has {} tokens, the window holds {}: give a larger --length", place, after,
          settings.window);
  if (tokens.empty()) {
    require(settings.begin.has_value(), Exit::data, "{}: the context is empty, and the tokenizer has no token that begins a text: give --begin",
            place);
    tokens.push_back(*settings.begin);
  }
  tokens.insert(tokens.end(), full.end() - after, full.end());
  const Index removed = std::max<Index>(0, Index(tokens.size()) - 1 - settings.window);
  Continued c{{{tokens.begin() + removed, tokens.end() - 1}, {tokens.begin() + removed + 1, tokens.end()}}, after, removed > 0};
  std::fill(c.passage.labels.begin(), c.passage.labels.end() - after, ignored_label);
  return c;
}

}  // namespace gyr
