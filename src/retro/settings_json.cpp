// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/settings_json.hpp"

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json_text.hpp"
#include "src/checkpoint/checksum.hpp"

namespace gyr::retro {

namespace {

constexpr std::size_t most_config = std::size_t(16) << 20;

CorpusMark mark_in(const Json& json) {
  constexpr std::int64_t most = std::int64_t(1) << 50;
  CorpusMark corpus;
  corpus.prefix = json.at("prefix").get<std::string>();
  require(!corpus.prefix.empty(), Exit::data, "'prefix' is empty");
  corpus.documents = count_in(json, "documents", 0, most), corpus.tokens = count_in(json, "tokens", 0, most);
  corpus.bytes = count_in(json, "bytes", 0, most);
  corpus.index_sum = sum_in(json, "index_xxh3"), corpus.content = sum_in(json, "content");
  return corpus;
}

}  // namespace

void read_json(const std::filesystem::path& file, const std::string& remedy, const std::function<void(const Json&)>& parse) {
  const std::string text = text_of_file(file, most_config);
  try {
    require(!zero_byte(text), Exit::data, "it has a zero byte");
    parse(json_in(text));
  } catch (const Json::exception& problem) {
    fail(Exit::data, "{}: is damaged: {}; {}", file.string(), problem.what(), remedy);
  } catch (const Error& problem) {
    fail(Exit::data, "{}: is damaged: {}; {}", file.string(), problem.what(), remedy);
  }
}

void read_config(const std::filesystem::path& file, const std::string& remedy, const std::function<void(const Json&)>& parse) {
  read_json(file, remedy, [&](const Json& json) {
    require(json.is_object(), Exit::data, "it is not a JSON object");
    parse(json);
  });
}

void require_format(const Json& json, std::string_view format) {
  require(text_in(json, "format") == format, Exit::data, "'format' is not '{}'", format);
}

std::int64_t count_in(const Json& object, const char* key, std::int64_t least, std::int64_t most) {
  const auto count = integer_in(object, key);
  require(count && *count >= least && *count <= most, Exit::data, "'{}' must be a number from {} to {}", key, least, most);
  return *count;
}

std::string sum_in(const Json& object, const char* key) {
  const std::string sum = object.at(key).get<std::string>();
  if (!sum.empty()) sum_of_hex(sum, key);
  return sum;
}

Json json_of(const std::vector<CorpusMark>& corpora) {
  Json array = Json::array();
  for (const CorpusMark& c : corpora)
    array.push_back({{"prefix", c.prefix.string()},
                     {"documents", c.documents},
                     {"tokens", c.tokens},
                     {"bytes", c.bytes},
                     {"index_xxh3", c.index_sum},
                     {"content", c.content}});
  return array;
}

std::vector<CorpusMark> marks_in(const Json& array) {
  std::vector<CorpusMark> corpora;
  require(array.is_array() && !array.empty(), Exit::data, "'corpora' is no list, or empty");
  for (const Json& corpus : array) corpora.push_back(mark_in(corpus));
  return corpora;
}

}  // namespace gyr::retro
