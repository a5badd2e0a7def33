// SPDX-License-Identifier: BSD-3-Clause
// Text corpora as documents.
#include "src/data/documents.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/error.hpp"
#include "src/base/json_text.hpp"
#include "src/data/json_line.hpp"

namespace gyr {
namespace {

using Rule = DocumentFormat::Rule;
using json = nlohmann::json;

constexpr std::string_view white_space = " \t\n\v\f\r";

bool blank(std::string_view text) { return text.find_first_not_of(white_space) == text.npos; }

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Takes the string under `key` out of one JSON object without building the rest of it.
class TextOfObject : public nlohmann::json_sax<json> {
 public:
  explicit TextOfObject(const std::string& key) : wanted_(key) {}

  std::optional<std::string> text;
  std::string problem;  // why there is no text

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    here_ = name == wanted_;
    if (here_ && text) return refuse("has the key '" + wanted_ + "' twice");
    if (!here_ && others_.size() < 100) others_ += (others_.empty() ? "" : ", ") + name;
    return true;
  }
  bool string(std::string& value) override {
    if (here_ && depth_ == 1) text = std::move(value);
    return scalar("a string");
  }
  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(std::int64_t) override { return scalar("a number"); }
  bool number_unsigned(std::uint64_t) override { return scalar("a number"); }
  bool number_float(double, const std::string&) override { return scalar("a number"); }
  bool binary(json::binary_t&) override { return scalar("binary"); }
  bool start_object(std::size_t) override { return open("an object"); }
  bool start_array(std::size_t) override { return open("an array"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return refuse(fmt::format("is not valid JSON at character {}: {}", position, error.what()));
  }

 private:
  bool refuse(std::string why) {
    text.reset();
    problem = std::move(why);
    return false;
  }
  bool scalar(const char* type) {
    if (depth_ == 0) return refuse(fmt::format("is {}, not a JSON object", type));
    if (here_ && depth_ == 1 && !text) return refuse(fmt::format("has {} under '{}', not a string", type, wanted_));
    return true;
  }
  bool open(const char* type) {
    if (depth_ == 0 && type[3] != 'o') return refuse("is an array, not a JSON object");
    if (here_ && depth_ == 1) return refuse(fmt::format("has {} under '{}', not a string", type, wanted_));
    if (++depth_ > json_line::max_depth) return refuse(fmt::format("is nested deeper than {} levels", json_line::max_depth));
    return true;
  }
  bool close() {
    if (--depth_ == 0 && !text) return refuse(fmt::format("has no key '{}' (keys: {}); name the key that holds the text", wanted_, others_));
    return true;
  }

  std::string wanted_, others_;
  std::size_t depth_ = 0;
  bool here_ = false;  // the value to come, or just come, is that of the wanted key
};

Rule rule_for(const std::filesystem::path& path, Rule rule) {
  if (rule != Rule::automatic) return rule;
  return path.extension() == ".jsonl" || path.extension() == ".ndjson" ? Rule::json_lines : Rule::file;
}

}  // namespace

Rule parse_document_rule(std::string_view name) {
  constexpr std::pair<std::string_view, Rule> rules[] = {
      {"auto", Rule::automatic}, {"file", Rule::file}, {"separator", Rule::separator}, {"line", Rule::line}, {"jsonl", Rule::json_lines}};
  for (const auto& [known, rule] : rules)
    if (name == known) return rule;
  fail(Exit::config, "'{}' is no document rule; there are auto, file, separator, line, jsonl", name);
}

DocumentFile::DocumentFile(const std::filesystem::path& path, const DocumentFormat& format) : file_(path), format_(format) {
  format_.rule = rule_for(path, format.rule);
  const std::string_view text = file_.text();
  for (const std::string_view magic : {"\x1f\x8b", "\x28\xb5\x2f\xfd",
                                       "\xfd"
                                       "7zXZ"})
    require(!text.starts_with(magic), Exit::data, "{}: is compressed; decompress it first", path.string());
  for (const std::string_view mark : {"\xff\xfe", "\xfe\xff"})
    require(!text.starts_with(mark), Exit::data, "{}: is UTF-16; convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)", path.string());
  start_ = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
}

std::int64_t DocumentFile::blocks() const { return std::max<std::int64_t>(1, (bytes() + block_bytes - 1) / block_bytes); }

// The first good line start at or after `offset`: any, where lines are documents. In running text it is one at which
// GPT-2's split rule cuts anyway, so that blocks leave no trace in the tokens: a run of white space gives its last
// character to what follows. (Lines that end in CR LF, and other split rules, may show one token cut differently per
// block.)
std::int64_t DocumentFile::cut_after(std::int64_t offset) const {
  if (offset <= start_) return start_;
  const std::string_view text = file_.text();
  const auto white = [&](std::size_t i) { return white_space.find(text[i]) != white_space.npos; };
  const bool any = format_.rule == Rule::line || format_.rule == Rule::json_lines;
  auto at = std::size_t(offset - 1);
  while ((at = text.find('\n', at)) != text.npos && ++at < text.size()) {
    const bool after_single = !white(at) && (at < 2 || !white(at - 2) || text[at - 2] == '\r');
    const bool before_last = text[at] == '\n' && at + 1 < text.size() && !white(at + 1);
    if (any || after_single || before_last) return std::int64_t(at);
  }
  return bytes();
}

std::int64_t DocumentFile::line_end(std::int64_t offset) const {
  const auto at = file_.text().find('\n', std::size_t(offset));
  return at == std::string_view::npos ? bytes() : std::int64_t(at) + 1;
}

bool DocumentFile::separates(std::int64_t line) const {
  const auto text = file_.text().substr(std::size_t(line), std::size_t(line_end(line) - line));
  return format_.separator.empty() ? blank(text) : without_line_end(text) == format_.separator;
}

// Whether the line that begins at `offset` belongs to the same document as the line before it.
bool DocumentFile::continues(std::int64_t offset) const {
  if (offset <= start_ || offset >= bytes()) return false;
  if (format_.rule == Rule::file) return true;
  const auto newline = offset < 2 ? std::string_view::npos : file_.text().rfind('\n', std::size_t(offset - 2));
  const std::int64_t before = newline == std::string_view::npos ? start_ : std::int64_t(newline) + 1;
  return !separates(before) && !separates(offset);
}

std::int64_t DocumentFile::visit(std::int64_t first, std::int64_t last, const std::function<void(const Fragment&)>& visit) const {
  std::int64_t skipped = 0;
  std::int64_t begin = cut_after(first * block_bytes);
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t border = (block + 1) * block_bytes;
    const std::int64_t end = block + 1 == blocks() ? bytes() : begin >= border ? begin : cut_after(border);
    if (begin < end) {
      switch (format_.rule) {
        case Rule::file: visit_text(begin, end, visit); break;
        case Rule::separator: visit_separated(begin, end, visit); break;
        default: skipped += visit_lines(begin, end, visit);
      }
    }
    begin = end;
  }
  return skipped;
}

void DocumentFile::visit_text(std::int64_t begin, std::int64_t end, const std::function<void(const Fragment&)>& visit) const {
  visit({file_.text().substr(std::size_t(begin), std::size_t(end - begin)), begin == start_, end == bytes()});
}

void DocumentFile::visit_separated(std::int64_t begin, std::int64_t end, const std::function<void(const Fragment&)>& visit) const {
  const auto text = [&](std::int64_t from, std::int64_t to) { return file_.text().substr(std::size_t(from), std::size_t(to - from)); };
  constexpr std::int64_t none = -1;
  bool begins = !continues(begin);
  std::int64_t open = begins ? none : begin;  // where the current document's text starts
  for (std::int64_t line = begin; line < end; line = line_end(line)) {
    if (separates(line)) {
      if (open != none) visit({text(open, line), begins, true});
      open = none;
    } else if (open == none) {
      open = line;
      begins = true;
    }
  }
  if (open != none) visit({text(open, end), begins, !continues(end)});
}

std::int64_t DocumentFile::visit_lines(std::int64_t begin, std::int64_t end, const std::function<void(const Fragment&)>& visit) const {
  std::int64_t skipped = 0;
  for (std::int64_t at = begin, next; at < end; at = next) {
    next = line_end(at);
    const std::string_view line = without_line_end(file_.text().substr(std::size_t(at), std::size_t(next - at)));
    if (format_.rule == Rule::line) {
      if (!line.empty()) visit({line, true, true});
    } else if (!blank(line) && !visit_object(line, at, visit)) {
      ++skipped;
    }
  }
  return skipped;
}

// Visits what one JSON line holds. False if the line is invalid and invalid lines are skipped.
bool DocumentFile::visit_object(std::string_view line, std::int64_t offset, const std::function<void(const Fragment&)>& visit) const {
  const std::string problem = problem_of_object(line, visit);
  if (problem.empty()) return true;
  if (format_.invalid == DocumentFormat::Invalid::skip) return false;
  const auto before = file_.text().substr(0, std::size_t(offset));
  fail(Exit::data, "{}:{}: the line {}; mend it, or choose to skip invalid lines", file_.path().string(),
       1 + std::count(before.begin(), before.end(), '\n'), problem);
}

// Nothing is visited where there is a problem.
std::string DocumentFile::problem_of_object(std::string_view line, const std::function<void(const Fragment&)>& visit) const {
  if (std::int64_t(line.size()) > format_.max_line_bytes)
    return fmt::format("has {} bytes, more than the {} allowed", line.size(), format_.max_line_bytes);
  if (const auto at = zero_byte(line)) return fmt::format("is not valid JSON at character {}: a zero byte", *at + 1);
  if (format_.conversation) {
    const Conversation conversation = read_conversation(line, *format_.conversation);
    if (!conversation.utterances.empty()) visit({{}, true, true, conversation.utterances});
    return conversation.problem;
  }
  if (format_.labelled) {
    const LabelledText example = read_labelled(line, *format_.labelled);
    if (example.problem.empty()) visit({{}, true, true, {}, &example});
    return example.problem;
  }
  TextOfObject object(format_.key);
  json::sax_parse(line.begin(), line.end(), &object);
  if (object.text && !object.text->empty()) visit({*object.text, true, true});
  return object.problem;
}

}  // namespace gyr
