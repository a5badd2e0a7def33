// SPDX-License-Identifier: BSD-3-Clause
// Text corpora as documents: plain text under three rules of where a document ends, and JSON lines. Files are cut into
// blocks at places that depend on their bytes alone, so that any number of ranks reads the same documents. Compressed files (gzip, Zstandard) are the
// documents of what they hold; one rank reads such a file.
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

namespace gyr {

struct DocumentFormat {
  enum class Rule {
    automatic,  // by the file's name, but .gz and .zst: .jsonl and .ndjson are json_lines, all others are `file`
    file,       // a file is one document
    separator,  // lines equal to `separator` stand between documents; text is kept up to and with the newline before
                // one
    line,       // a line is a document, without its line end
    json_lines  // a line is a JSON object whose `key` holds the document, or that is a conversation
  };
  enum class Invalid { stop, skip };

  Rule rule = Rule::automatic;
  std::string separator;                                   // "" is a blank line (white space only); any run of them is one cut
  std::string key = "text";                                // of json_lines
  std::string source_key;                                  // the same: of a source in front of it (sourced_text.hpp), two documents; "": none
  std::shared_ptr<const ConversationFormat> conversation;  // of json_lines: instead of the text under `key`
  std::shared_ptr<const LabelledFormat> labelled;          // the same
  bool pairs = false;                                      // the same: a chosen and a rejected text (paired_texts.hpp), two documents
  Invalid invalid = Invalid::stop;                         // a line that is not such an object: stop with file:line, or skip and count
  std::int64_t max_line_bytes = std::int64_t(64) << 20;    // of json_lines: a longer line is invalid
};

// "auto", "file", "separator", "line", "jsonl", as users write it. Exit::config for anything else.
DocumentFormat::Rule parse_document_rule(std::string_view name);

// A document, or a part of a long one. The parts of a document come in order; empty documents do not come at all.
// Views are valid during the call.
struct Fragment {
  std::string_view text;
  bool begins, ends;                           // the document begins or ends here
  std::span<const Utterance> utterances = {};  // of a conversation, which comes whole; there is no text then
  const LabelledText* labelled = nullptr;      // an example with classes, likewise
  bool learned = true;                         // the text; a source is only read
};

// One open file of a corpus. Text passes as it is, byte for byte, except a UTF-8 byte order mark at the start, which is
// dropped.
class DocumentFile {
 public:
  static constexpr std::int64_t block_bytes = std::int64_t(1) << 20;

  // Exit::missing, Exit::io; Exit::data for UTF-16 and otherwise compressed files, which are told by their first bytes.
  DocumentFile(const std::filesystem::path& path, const DocumentFormat& format);

  std::int64_t blocks() const;                            // at least 1; of a compressed file as many as it may have
  double blocks_read() const;                             // of a compressed file
  std::int64_t stored() const { return file_.stored(); }  // bytes of the file
  bool compressed() const { return file_.compressed(); }
  std::int64_t bytes() const { return file_.known(); }  // of text: of a compressed file what has been read

  // Visits the documents that begin in the lines which belong to blocks [first, last). A line belongs to the block in
  // which the last cut before it lies; cuts are line starts. Returns how many invalid lines were skipped. Exit::data
  // with file:line for an invalid line, unless these are skipped. Of a compressed file all documents belong to block 0.
  std::int64_t visit(std::int64_t first, std::int64_t last, const std::function<void(const Fragment&)>& visit);

 private:
  using Visit = std::function<void(const Fragment&)>;
  std::int64_t cut_after(std::int64_t offset);
  std::int64_t line_end(std::int64_t offset);
  bool separates(std::int64_t line);
  bool continues(std::int64_t offset);
  std::int64_t visit_part(std::int64_t begin, std::int64_t end, const Visit& visit);
  void visit_text(std::int64_t begin, std::int64_t end, const Visit& visit);
  void visit_separated(std::int64_t begin, std::int64_t end, const Visit& visit);
  std::int64_t visit_lines(std::int64_t begin, std::int64_t end, const Visit& visit);
  bool visit_object(std::string_view line, std::int64_t offset, const Visit& visit) const;
  std::string problem_of_object(std::string_view line, const Visit& visit) const;

  TextFile file_;
  DocumentFormat format_;
  std::int64_t start_;  // after the byte order mark
};

}  // namespace gyr
