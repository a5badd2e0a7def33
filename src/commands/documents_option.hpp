// SPDX-License-Identifier: BSD-3-Clause
// How text files hold documents, as options of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "src/data/documents.hpp"

namespace gyr {

struct DocumentsOption {
  std::string rule = "auto", separator, key = "text";
  bool skip_invalid = false;

  // Returns the option that names the key of the text.
  CLI::Option* add(CLI::App& command) {
    command.add_option("--documents", rule, "auto (by file name), file, separator, line or jsonl")->capture_default_str();
    command.add_option("--separator", separator, "Line between documents with --documents separator; empty: a blank line");
    command.add_flag("--skip-invalid", skip_invalid, "Skip and count lines that are not such JSON instead of stopping");
    return command.add_option("--key", key, "Key of the text in JSONL")->capture_default_str();
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
