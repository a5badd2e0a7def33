// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon tokenizer train|encode|decode: trains a byte-level BPE tokenizer, and converts between text and token ids.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/base/file_pattern.hpp"
#include "src/base/input_file.hpp"
#include "src/base/json_text.hpp"
#include "src/base/output_file.hpp"
#include "src/base/quantity.hpp"
#include "src/commands/command.hpp"
#include "src/commands/documents_option.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/tokenizer_file.hpp"
#include "src/data/corpus_advice.hpp"
#include "src/data/tokenizer_training.hpp"
#include "src/tokenizer/utf8.hpp"

namespace gyr {

namespace {

struct TokenizerArguments {
  std::string tokenizer, text;
  bool special = false, json = false, overwrite = false;
  std::vector<std::string> files;
  TrainerOptions options;
  DocumentsOption documents;
};

std::string all_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

// True for a file in the form of Hugging Face's tokenizer.json, by its first keys.
bool holds_tokenizer(const std::filesystem::path& path) {
  std::string start(1 << 16, ' ');
  start.resize(InputFile(path).read(0, start.data(), start.size()));
  return start.starts_with('{') && start.find("\"added_tokens\"") != std::string::npos;
}

void train(const TokenizerArguments& a) {
  std::error_code error;
  // A text in the place of the tokenizer must not be lost.
  require(!std::filesystem::is_regular_file(a.tokenizer, error) || holds_tokenizer(a.tokenizer), Exit::usage,
          "{}: exists and is not a tokenizer; write the tokenizer first and the texts after it: gyrfalcon tokenizer train TOKENIZER TEXT...",
          a.tokenizer);
  if (!a.overwrite) check_new(a.tokenizer);
  TrainerOptions options = a.options;
  options.format = a.documents.format();
  const std::vector<std::filesystem::path> files = files_named(a.files);
  const Tokenizer tokenizer = train_tokenizer(files, options);
  if (const auto folder = std::filesystem::path(a.tokenizer).parent_path(); !folder.empty()) std::filesystem::create_directories(folder, error);
  tokenizer.save(a.tokenizer);
  std::int64_t bytes = 0;
  for (const auto& file : files) bytes += std::int64_t(std::filesystem::file_size(file, error));
  std::printf("%s: %d tokens, learned from %s\n", a.tokenizer.c_str(), tokenizer.size(), metric_text(double(bytes), "B").c_str());
  const std::int64_t asked = options.vocab_size, fitting = suggested_vocabulary(bytes);
  if (tokenizer.size() < asked)
    std::printf("the text has no more pairs that occur %ld times, so the vocabulary stays below --vocab-size %ld: write model.vocab_size=%d\n",
                long(options.min_frequency), long(asked), tokenizer.size());
  if (tokenizer.size() > 4 * fitting)
    std::printf("warning: a vocabulary of %d is large for %s: many tokens occur too seldom to be learned; --vocab-size %ld suits this text\n",
                tokenizer.size(), metric_text(double(bytes), "B").c_str(), long(fitting));
}

// Calls action(value) with the JSON value of each line of standard input. Exit::data with the line number if a line is
// not valid.
template <class Action>
void for_each_line(Action&& action) {
  std::string line;
  for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
    require(!zero_byte(line), Exit::data, "standard input, line {}: not valid JSON: it has a zero byte", number);
    try {
      action(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception& error) {
      fail(Exit::data, "standard input, line {}: {}", number, error.what());
    }
  }
}

void encode(const TokenizerArguments& a) {
  const Tokenizer tokenizer = encoding_tokenizer(a.tokenizer, true);
  const auto specials = a.special ? Tokenizer::Specials::complete : Tokenizer::Specials::as_text;
  if (a.json) {
    for_each_line([&](const nlohmann::json& text) {
      std::puts(nlohmann::json(tokenizer.encode(text.get_ref<const std::string&>(), specials)).dump().c_str());
    });
    return;
  }
  for (const auto id : tokenizer.encode(a.text.empty() ? all_input() : a.text, specials)) std::printf("%d ", id);
  std::printf("\n");
}

void decode(const TokenizerArguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.tokenizer);
  const auto shown = a.special ? Tokenizer::Shown::without_specials : Tokenizer::Shown::all;
  if (a.json) {
    for_each_line([&](const nlohmann::json& ids) {
      std::puts(nlohmann::json(lossy_utf8(tokenizer.decode(ids.get<std::vector<std::int32_t>>(), shown))).dump(-1, ' ', true).c_str());
    });
    return;
  }
  std::vector<std::int32_t> ids;
  std::int32_t id = 0;
  while (std::cin >> id) ids.push_back(id);
  require(std::cin.eof(), Exit::data, "standard input: word {} is not a token id", ids.size() + 1);
  const std::string text = tokenizer.decode(ids, shown);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_tokenizer(Command& app, Action& action) {
  auto a = std::make_shared<TokenizerArguments>();
  Command* c = app.add_command("tokenizer", "Train a byte-level BPE tokenizer, encode and decode text");
  c->require_command();
  Command* t = c->add_command("train", "Learn a vocabulary from text and write it as tokenizer.json");
  t->add_option("tokenizer", a->tokenizer, "tokenizer.json to write")->required();
  t->add_option("files", a->files, "Text or JSONL files, also as .gz or .zst, or patterns")->required();
  t->add_option("--vocab-size", a->options.vocab_size, "Vocabulary size, including special tokens and the 256 bytes")->show_default();
  t->add_option("--min-frequency", a->options.min_frequency, "Minimum count of a pair of tokens to be merged")->show_default();
  a->documents.add(*t);
  t->add_flag("--overwrite", a->overwrite, "Replace an existing file");
  t->callback([a, &action] { action = [a] { return guarded([&] { train(*a); }); }; });
  Command* e = c->add_command(
      "encode", "Encode text (standard input, or --text) to token ids; bytes that are not UTF-8 are encoded separately and decode to themselves");
  e->add_option("tokenizer", a->tokenizer, "tokenizer.json")->required();
  e->add_option("--text", a->text, "Text instead of standard input");
  e->add_flag("--special", a->special,
              "Encode special tokens spelt in the text as tokens, and add those of the post-processor (begin of text, ...), as Hugging Face's "
              "tokenizers does; default: encode all as text, add nothing");
  e->add_flag("--json", a->json, "Read a JSON string from each line of standard input and print its ids as a JSON array");
  e->callback([a, &action] { action = [a] { return guarded([&] { encode(*a); }); }; });
  Command* d = c->add_command("decode", "Decode token ids on standard input to text");
  d->add_option("tokenizer", a->tokenizer, "tokenizer.json")->required();
  d->add_flag("--skip-special", a->special, "Omit special tokens");
  d->add_flag("--json", a->json,
              "Read a JSON array of ids from each line and print its text as a JSON string, with U+FFFD for bytes that are not UTF-8");
  d->callback([a, &action] { action = [a] { return guarded([&] { decode(*a); }); }; });
}

}  // namespace gyr
