// SPDX-License-Identifier: BSD-3-Clause
// Splits text files into documents.
#include "src/data/documents.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/json_text.hpp"
#include "src/data/foreign_fields.hpp"
#include "src/data/json_line.hpp"
#include "src/data/paired_texts.hpp"
#include "src/data/sourced_text.hpp"
#include "src/data/text_content.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {
namespace {

using Rule = DocumentFormat::Rule;
using json = nlohmann::json;

constexpr std::string_view white_space = " \t\n\v\f\r";
constexpr double most_stray = 1e-4;  // share of bytes that may not be UTF-8 in a block of text

bool blank(std::string_view text) { return text.find_first_not_of(white_space) == text.npos; }

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// SAX handler that extracts the string under `key` from one JSON object without building a tree.
class TextOfObject : public nlohmann::json_sax<json> {
 public:
  explicit TextOfObject(const std::string& key) : wanted_(key) {}

  std::optional<std::string> text;
  std::string problem;  // why the line is invalid, to be put after "the line "; empty if it is valid

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    here_ = name == wanted_;
    if (here_ && text) return refuse("has the key '" + wanted_ + "' twice");
    if (!here_ && other_names_.size() < 100) other_names_ += (other_names_.empty() ? "" : ", ") + name;
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
    if (--depth_ == 0 && !text) return refuse(fmt::format("has no key '{}' (keys: {}); {}", wanted_, other_names_, remedy()));
    return true;
  }
  bool has_key(std::string_view name) const { return (", " + other_names_ + ",").find(fmt::format(", {},", name)) != std::string::npos; }
  std::string remedy() const {
    const auto has = [this](const char* name) { return has_key(name); };
    if (has_key("prompt") && has_key("response"))
      return "prompts with responses need --template, as in --template 'Question: {prompt}\\nAnswer: {response}\\n'";
    if (has_key("messages")) return "chats need --template, as in --template @FOLDER of the model or --template '{role}: {content}\\n'";
    if (has_key("chosen") && has_key("rejected")) return "preference pairs need --pairs";
    if (const std::string names = prompt_options(has); !names.empty())
      return fmt::format("prompts with responses need --template, as in --template '{{prompt}}{{response}}' {}", names);
    if (const std::string names = message_options(has); !names.empty())
      return fmt::format("chats need --template, as in --template @FOLDER of the model {}", names);
    if (has_key("prompt")) return "prompts for policy training need --prompts; for other texts, give the key that holds the text with --key";
    return "give the key that holds the text with --key";
  }

  std::string wanted_, other_names_;
  std::size_t depth_ = 0;
  bool here_ = false;  // true: the last key read in the outer object is the wanted key
};

Rule rule_for(std::filesystem::path path, Rule rule) {
  if (rule != Rule::automatic) return rule;
  if (path.extension() == ".gz" || path.extension() == ".zst") path.replace_extension();
  return path.extension() == ".jsonl" || path.extension() == ".ndjson" ? Rule::json_lines : Rule::file;
}

}  // namespace

Rule parse_document_rule(std::string_view name) {
  constexpr std::pair<std::string_view, Rule> rules[] = {{"auto", Rule::automatic}, {"file", Rule::file}, {"separator", Rule::separator},
                                                         {"line", Rule::line},      {"page", Rule::page}, {"jsonl", Rule::json_lines}};
  for (const auto& [known, rule] : rules)
    if (name == known) return rule;
  const char* const hint = name.starts_with("paragraph") ? "; separator splits the text at blank lines, into paragraphs" : "";
  fail(Exit::usage, "--documents {}: is not a document rule; the rules are auto, file, separator, line, page, jsonl{}", printable(name), hint);
}

// The window of a compressed file holds two lines of the maximum length, since continues() reads the line before, and
// the blocks around them.
DocumentFile::DocumentFile(const std::filesystem::path& path, const DocumentFormat& format)
    : file_(path, 2 * format.max_line_bytes + 4 * block_bytes), format_(format) {
  format_.rule = rule_for(path, format.rule);
  const auto begins_with = [&](std::string_view mark) {
    return file_.reaches(std::int64_t(mark.size()) - 1) && file_.view(0, std::int64_t(mark.size())) == mark;
  };
  for (const std::string_view magic : {"\xfd"
                                       "7zXZ",
                                       "BZh"})
    require(!begins_with(magic), Exit::data, "{}: is compressed by xz or bzip2; decompress it first, or use gzip or Zstandard", path.string());
  for (const std::string_view mark : {"\xff\xfe", "\xfe\xff"})
    require(!begins_with(mark), Exit::data, "{}: is UTF-16; convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)", path.string());
  const std::string why = why_not_text(first_bytes(), path, format_.rule == Rule::json_lines ? Judge::formats : Judge::all_bytes);
  require(why.empty(), Exit::data, "{}: {}", path.string(), why);
  start_ = begins_with("\xef\xbb\xbf") ? 3 : 0;
}

std::string_view DocumentFile::first_bytes() {
  file_.reaches(judged_bytes - 1);  // decompresses as many bytes, or all of the file
  return file_.view(0, std::min(judged_bytes, file_.known()));
}

std::int64_t DocumentFile::blocks() const {
  constexpr std::int64_t usual_ratio = 4;  // assumed compression ratio: text bytes per compressed byte
  return std::max<std::int64_t>(1, (stored() * (compressed() ? usual_ratio : 1) + block_bytes - 1) / block_bytes);
}

double DocumentFile::blocks_read() const { return double(file_.consumed()) / double(std::max<std::int64_t>(1, stored())) * double(blocks()); }

// Returns the first usable line start at or after `offset`, or the end of the text if there is none. If lines are
// documents, any line start is usable. In running text it must be a place where GPT-2's pre-tokenizer splits, so that
// block boundaries do not change the tokens: a run of white space gives its last character to the next piece. (With CR
// LF line ends or other split rules, one token per block may differ.) A page ends at such a place only if one follows
// within page_slack, and at the next line start otherwise: no token crosses the border of documents.
std::int64_t DocumentFile::truncate_after(std::int64_t offset) {
  if (offset <= start_) return start_;
  const std::int64_t most = format_.rule == Rule::page ? offset + page_slack : std::numeric_limits<std::int64_t>::max();
  std::int64_t line = -1;  // first line start, for a page
  const auto white = [&](std::int64_t i) { return white_space.find(file_.at(i)) != white_space.npos; };
  const bool any = format_.rule == Rule::line || format_.rule == Rule::json_lines;
  if (file_.reaches(offset - 1))
    for (std::int64_t at = offset - 1; (at = file_.newline(at)) >= 0 && file_.reaches(++at);) {
      if (format_.rule == Rule::page && line < 0) line = at;
      if (at > most) return line;
      const bool after_single = !white(at) && (at < 2 || !white(at - 2) || file_.at(at - 2) == '\r');
      const bool before_last = file_.at(at) == '\n' && file_.reaches(at + 1) && !white(at + 1);
      if (any || after_single || before_last) return at;
    }
  return line >= 0 ? line : bytes();  // no usable line start follows: the offset of the end of the text
}

std::int64_t DocumentFile::line_end(std::int64_t offset) {
  const std::int64_t at = file_.newline(offset);
  return at < 0 ? bytes() : at + 1;
}

bool DocumentFile::separates(std::int64_t line) {
  const std::string_view text = file_.view(line, line_end(line));
  return format_.separator.empty() ? blank(text) : without_line_end(text) == format_.separator;
}

// True if the line that begins at `offset` belongs to the same document as the line before it.
bool DocumentFile::continues(std::int64_t offset) {
  if (offset <= start_ || !file_.reaches(offset)) return false;
  if (format_.rule == Rule::file) return true;
  const std::int64_t before = std::max(start_, file_.newline_before(offset - 1) + 1);
  return !separates(before) && !separates(offset);
}

std::int64_t DocumentFile::visit(std::int64_t first, std::int64_t last, const Visit& visit) {
  if (compressed() && first > 0) return 0;
  std::int64_t skipped = 0;
  std::int64_t begin = truncate_after(first * block_bytes);
  for (std::int64_t block = first; block < last || (compressed() && file_.reaches(begin)); ++block) {
    const std::int64_t border = (block + 1) * block_bytes;
    const std::int64_t end = begin >= border ? begin : truncate_after(border);
    if (begin < end) skipped += visit_part(begin, end, visit);
    begin = end;
    file_.forget(std::max<std::int64_t>(0, file_.newline_before(begin - 1)));  // keep the line before `begin`, which continues() reads
  }
  return skipped;
}

// Old collections of texts have single bytes of another encoding, which are passed on. JSON lines are checked by their
// parser.
void DocumentFile::require_utf8(std::int64_t begin, std::int64_t end) {
  const std::string_view text = file_.view(begin, end);
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid == text.size() || double(invalid_bytes(text)) <= most_stray * double(text.size())) return;
  const unsigned byte = static_cast<unsigned char>(text[valid]);
  const std::int64_t line = file_.newlines_before(begin + std::int64_t(valid)) + 1;
  fail(Exit::data,
       "{}:{}: is not UTF-8 (byte 0x{:02x}); convert the text (iconv -f latin1 -t utf-8, or another encoding), or drop such bytes (iconv -c -f utf-8 "
       "-t "
       "utf-8)",
       file_.path().string(), line, byte);
}

std::int64_t DocumentFile::visit_part(std::int64_t begin, std::int64_t end, const Visit& visit) {
  if (format_.rule != Rule::json_lines) require_utf8(begin, end);
  switch (format_.rule) {
    case Rule::file: visit_text(begin, end, visit); return 0;
    case Rule::separator: visit_separated(begin, end, visit); return 0;
    case Rule::page: visit_pages(begin, end, visit); return 0;
    default: return visit_lines(begin, end, visit);
  }
}

// Read ahead before taking a view, because reading may move the buffer.
void DocumentFile::visit_text(std::int64_t begin, std::int64_t end, const Visit& visit) {
  const bool ends = !file_.reaches(end);
  visit({file_.view(begin, end), begin == start_, ends});
}

// The borders of pages are moved like those of blocks, so that the borders of blocks are borders of pages.
void DocumentFile::visit_pages(std::int64_t begin, std::int64_t end, const Visit& visit) {
  while (begin < end) {
    const std::int64_t next = truncate_after((begin / page_bytes + 1) * page_bytes);
    visit({file_.view(begin, next), true, true});
    begin = next;
  }
}

void DocumentFile::visit_separated(std::int64_t begin, std::int64_t end, const Visit& visit) {
  constexpr std::int64_t none = -1;
  bool begins = !continues(begin);
  std::int64_t open = begins ? none : begin;  // byte at which the current document's text begins; none: no document is open
  for (std::int64_t line = begin; line < end; line = line_end(line)) {
    if (separates(line)) {
      if (open != none) visit({file_.view(open, line), begins, true});
      open = none;
    } else if (open == none) {
      open = line;
      begins = true;
    }
  }
  if (open == none) return;
  const bool ends = !continues(end);
  visit({file_.view(open, end), begins, ends});
}

std::int64_t DocumentFile::visit_lines(std::int64_t begin, std::int64_t end, const Visit& visit) {
  std::int64_t skipped = 0;
  for (std::int64_t at = begin, next; at < end; at = next) {
    next = line_end(at);
    const std::string_view line = without_line_end(file_.view(at, next));
    if (format_.rule == Rule::line) {
      if (!line.empty()) visit({line, true, true});
    } else if (!blank(line) && !visit_object(line, at, visit)) {
      ++skipped;
    }
  }
  return skipped;
}

// Visits the content of one JSON line. Returns false if the line is invalid and invalid lines are skipped.
bool DocumentFile::visit_object(std::string_view line, std::int64_t offset, const Visit& visit) const {
  const std::string problem = problem_of_object(line, visit);
  if (problem.empty()) return true;
  if (format_.invalid == DocumentFormat::Invalid::skip) return false;
  const auto first = line.find_first_not_of(" \t");
  const bool plain = format_.prompts && (first == line.npos || line[first] != '{');
  fail(Exit::data, "{}:{}: the line {}; {}correct it, or skip such lines with --skip-invalid", file_.path().string(),
       1 + file_.newlines_before(offset), plain ? "is plain text, not a JSON object" : problem,
       plain ? "prompts are lines such as {\"prompt\": \"2 + 2 =\"}; " : "");
}

// Visits the content of a line, or returns why the line is invalid without visiting anything.
std::string DocumentFile::problem_of_object(std::string_view line, const Visit& visit) const {
  if (std::int64_t(line.size()) > format_.max_line_bytes)
    return fmt::format("has {} bytes, more than the {} allowed", line.size(), format_.max_line_bytes);
  if (const auto at = zero_byte(line)) return fmt::format("is not valid JSON at character {}: a zero byte", *at + 1);
  if (format_.prompts) {
    const PromptLine prompt = read_prompt(line, *format_.prompts);
    if (prompt.problem.empty()) visit({{}, true, true, {}, nullptr, &prompt});
    return prompt.problem;
  }
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
  if (format_.pairs) {
    const PairedResponses pair = read_pair(line);
    if (pair.problem.empty()) visit({{}, true, true, pair.chosen}), visit({{}, true, true, pair.rejected});
    return pair.problem;
  }
  if (!format_.source_key.empty()) {
    const SourcedText pair = read_sourced(line, format_.source_key, format_.key);
    if (pair.problem.empty()) visit({pair.source, true, true, {}, nullptr, nullptr, false}), visit({pair.text, true, true});
    return pair.problem;
  }
  TextOfObject object(format_.key);
  json::sax_parse(line.begin(), line.end(), &object);
  if (object.text && !object.text->empty()) visit({*object.text, true, true});
  return object.problem;
}

}  // namespace gyr
