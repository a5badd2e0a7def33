// SPDX-License-Identifier: BSD-3-Clause
// Command-line options for the format of text files: how they separate documents.
#pragma once

#include <string>

#include "src/commands/command_line.hpp"
#include "src/data/documents.hpp"

namespace gyr {

struct DocumentsOption {
  std::string rule = "auto", separator, key = "text";
  bool skip_invalid = false;

  // Returns the option of the JSON key of the text.
  Option* add(Command& command) {
    command
        .add_option("--documents", rule, "Unit of a document: auto (by file name), file, separator, line, page (4 KiB, up to the next line) or jsonl")
        ->show_default();
    command.add_option("--separator", separator, "Line that separates documents with --documents separator; empty: a blank line");
    command.add_flag("--skip-invalid", skip_invalid, "Skip and count invalid JSON lines instead of stopping");
    return command.add_option("--key", key, "JSON key of the text in JSONL files")->show_default();
  }
  DocumentFormat format() const {
    DocumentFormat f;
    f.rule = parse_document_rule(rule);
    f.separator = separator;
    f.key = key;
    f.invalid = skip_invalid ? DocumentFormat::Invalid::skip : DocumentFormat::Invalid::stop;
    return f;
  }
};

}  // namespace gyr
