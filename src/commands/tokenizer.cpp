// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon tokenizer train|encode|decode
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "src/commands/command.hpp"
#include "src/commands/documents_option.hpp"
#include "src/commands/guard.hpp"
#include "src/tokenizer/trainer.hpp"

namespace gyr {

namespace {

struct Arguments {
  std::string tokenizer, text;
  std::vector<std::string> files;
  TrainerOptions options;
  DocumentsOption documents;
};

std::string whole_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

void train(const Arguments& a) {
  TrainerOptions options = a.options;
  options.format = a.documents.format();
  const std::vector<std::filesystem::path> files(a.files.begin(), a.files.end());
  const Tokenizer tokenizer = train_tokenizer(files, options);
  tokenizer.save(a.tokenizer);
  std::printf("%s: %d tokens\n", a.tokenizer.c_str(), tokenizer.size());
}

void encode(const Arguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.tokenizer);
  for (const auto id : tokenizer.encode(a.text.empty() ? whole_input() : a.text)) std::printf("%d ", id);
  std::printf("\n");
}

void decode(const Arguments& a) {
  const Tokenizer tokenizer = Tokenizer::load(a.tokenizer);
  std::vector<std::int32_t> ids;
  std::int32_t id = 0;
  while (std::cin >> id) ids.push_back(id);
  require(std::cin.eof(), Exit::data, "standard input: token number {} is not a number", ids.size() + 1);
  const std::string text = tokenizer.decode(ids);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("tokenizer", "Byte-level BPE: train, encode, decode");
  c->require_subcommand(1);
  CLI::App* t = c->add_subcommand("train", "Learn a vocabulary from text and write it as tokenizer.json");
  t->add_option("tokenizer", a->tokenizer, "tokenizer.json to write")->required();
  t->add_option("files", a->files, "Text or JSONL files")->required();
  t->add_option("--vocabulary", a->options.vocab_size, "Tokens, special ones and the 256 bytes included")->capture_default_str();
  t->add_option("--min-frequency", a->options.min_frequency, "A pair seen less often makes no token")->capture_default_str();
  a->documents.add(*t);
  t->callback([a, &action] { action = [a] { return guarded([&] { train(*a); }); }; });
  CLI::App* e = c->add_subcommand("encode", "Text (standard input, or --text) to token ids");
  e->add_option("tokenizer", a->tokenizer, "tokenizer.json")->required();
  e->add_option("--text", a->text, "Text instead of standard input");
  e->callback([a, &action] { action = [a] { return guarded([&] { encode(*a); }); }; });
  CLI::App* d = c->add_subcommand("decode", "Token ids on standard input to text");
  d->add_option("tokenizer", a->tokenizer, "tokenizer.json")->required();
  d->callback([a, &action] { action = [a] { return guarded([&] { decode(*a); }); }; });
}

}  // namespace gyr
