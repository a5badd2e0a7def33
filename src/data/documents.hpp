// SPDX-License-Identifier: BSD-3-Clause
// Splits text files into documents: plain text with four rules for document boundaries, or JSON lines. Files are read
// in blocks whose boundaries depend only on the bytes, so that any number of ranks reads the same documents. A
// compressed file (gzip, Zstandard) is decompressed and read by one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/text_file.hpp"
#include "src/data/conversation.hpp"
#include "src/data/labelled.hpp"
#include "src/data/prompt_line.hpp"

namespace gyr {

struct DocumentFormat {
  enum class Rule {
    automatic,  // by the file name without .gz or .zst: json_lines for .jsonl and .ndjson, `file` for all others
    file,       // the file is one document
    separator,  // lines equal to `separator` separate documents; a document ends with the newline before such a line
    line,       // each line is a document, without its line end
    page,       // documents of page_bytes, each extended to the next line start; see page_slack
    json_lines  // each line is a JSON object: the document under `key`, a conversation, a labelled example, a pair or a prompt
  };
  enum class Invalid { stop, skip };

  Rule rule = Rule::automatic;
  std::string separator;     // text of a separator line; "": any run of blank lines (only white space)
  std::string key = "text";  // json_lines: key of the text
  std::string source_key;    // json_lines: key of an encoder input (sourced_text.hpp); it is a document before the text's document; "": none
  // json_lines: format of conversations to read instead of `key`; null: lines hold no conversations
  std::shared_ptr<const ConversationFormat> conversation;
  std::shared_ptr<const LabelledFormat> labelled;  // json_lines: format of labelled examples to read instead of `key`; null: lines hold none
  bool pairs = false;                              // json_lines: true: read a chosen and a rejected text (paired_texts.hpp), which are two documents
  std::shared_ptr<const PromptFormat> prompts;     // json_lines: format of prompts with fields to read instead of `key`; null: lines hold none
  Invalid invalid = Invalid::stop;                 // invalid JSON line: stop with file:line, or skip and count it
  std::int64_t max_line_bytes = std::int64_t(64) << 20;  // json_lines: a longer line is invalid
};

// Parses the user's name of a rule: "auto", "file", "separator", "line", "page", "jsonl". Exit::usage for anything else.
DocumentFormat::Rule parse_document_rule(std::string_view name);

// A document, or a part of a long document. The parts of a document are visited in order, and empty documents are not
// visited. The views are valid during the call only.
struct Fragment {
  std::string_view text;
  bool begins, ends;                           // true if the document begins, or ends, with this fragment
  std::span<const Utterance> utterances = {};  // a complete conversation or preference text; `text` is then empty
  const LabelledText* labelled = nullptr;      // a complete example with classes; `text` is then empty
  const PromptLine* prompt = nullptr;          // a complete prompt as tokens, with its fields; `text` is then empty
  bool learned = true;                         // true: `text` is target tokens; false: it is an encoder input, masked from the loss
};

// One open text file of a corpus. Text is passed on byte for byte, but a UTF-8 byte order mark at the start is dropped.
class DocumentFile {
 public:
  static constexpr std::int64_t block_bytes = std::int64_t(1) << 20;
  static constexpr std::int64_t page_bytes = 4 << 10;  // a divisor of block_bytes, so that each block begins with a page
  static constexpr std::int64_t page_slack = 1 << 10;  // a page ends before an unindented line if one begins within these bytes

  // Exit::missing, Exit::io. Exit::data for UTF-16, for xz and bzip2 files, and for files that are not text
  // (text_content.hpp), which are recognised by their first bytes.
  DocumentFile(const std::filesystem::path& path, const DocumentFormat& format);

  std::int64_t blocks() const;                            // at least 1; for a compressed file an estimate from its size
  double blocks_read() const;                             // compressed files only: number of blocks read so far, estimated from the bytes read
  std::int64_t stored() const { return file_.stored(); }  // size of the file on disk, bytes
  bool compressed() const { return file_.compressed(); }
  std::int64_t bytes() const { return file_.known(); }  // size of the text, bytes; for a compressed file the bytes decompressed up to now

  // Visits the documents that begin in the lines of blocks [first, last). Each block border is moved to the next usable
  // line start, so that no line is split. Returns the number of invalid lines skipped. Exit::data with file:line for an
  // invalid line, unless invalid lines are skipped, and for text that is not UTF-8. All documents of a compressed file belong
  // to block 0.
  std::int64_t visit(std::int64_t first, std::int64_t last, const std::function<void(const Fragment&)>& visit);

 private:
  using Visit = std::function<void(const Fragment&)>;
  std::string_view first_bytes();
  std::int64_t truncate_after(std::int64_t offset);
  std::int64_t line_end(std::int64_t offset);
  bool separates(std::int64_t line);
  void require_utf8(std::int64_t begin, std::int64_t end);
  bool continues(std::int64_t offset);
  std::int64_t visit_part(std::int64_t begin, std::int64_t end, const Visit& visit);
  void visit_text(std::int64_t begin, std::int64_t end, const Visit& visit);
  void visit_pages(std::int64_t begin, std::int64_t end, const Visit& visit);
  void visit_separated(std::int64_t begin, std::int64_t end, const Visit& visit);
  std::int64_t visit_lines(std::int64_t begin, std::int64_t end, const Visit& visit);
  bool visit_object(std::string_view line, std::int64_t offset, const Visit& visit) const;
  std::string problem_of_object(std::string_view line, const Visit& visit) const;

  TextFile file_;
  DocumentFormat format_;
  std::int64_t start_;  // first byte of the text, after the byte order mark
};

}  // namespace gyr
