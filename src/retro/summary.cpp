// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/summary.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/table.hpp"
#include "src/retro/index.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

std::string index_text(const fs::path& project, const Database& database) {
  std::error_code error;
  if (!fs::exists(index_folder(project) / "statistics.hdf5", error)) return "none: gyrfalcon retro index";
  const TermStatistics statistics = read_statistics(project, database.settings());
  const Blocks blocks = index_blocks(project, database.settings(), database.size());
  std::int64_t made = 0;
  for (std::int64_t b = 0; b < blocks.count(); ++b) made += blocks.exists(b);
  return fmt::format("bm25, {} of {} blocks, {} distinct tokens, {:.1f} tokens per chunk, common {}", made, blocks.count(), statistics.terms.size(),
                     database.size() == 0 ? 0.0 : statistics.mean(), statistics.common);
}

void add_queries(Table& table, const fs::path& project) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(query_folder(project), error)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const QuerySettings s = read_query_settings(folder);
    std::int64_t made = 0;
    for (const auto& entry : fs::directory_iterator(folder, error)) made += entry.path().extension() == ".hdf5";
    table.row(
        {"neighbours", fmt::format("{}: {} block file{}, {} neighbours of {} candidates, order {}, {} tokens per sample",
                                   printable(folder.filename().string()), made, made == 1 ? "" : "s", s.saved, s.candidates, s.order, s.seq_length)});
  }
}

}  // namespace

std::optional<Tokenizer> tokenizer_of(const ProjectSettings& s, const std::string& file) {
  const fs::path path = file.empty() ? fs::path(s.tokenizer.file) : fs::path(file);
  std::error_code error;
  if (path.empty() || (file.empty() && !fs::exists(path, error))) return {};
  const TokenizerMark mark = mark_of(path);
  require(s.tokenizer.sum.empty() || mark.sum == s.tokenizer.sum, Exit::data,
          "{}: is not the tokenizer of the project: XXH3 {} instead of {}; name the right one with --tokenizer FILE", path.string(), mark.sum,
          s.tokenizer.sum);
  return Tokenizer::load(path);
}

std::string project_summary(const fs::path& project, const Database& database, const std::string& vectors) {
  const ProjectSettings& s = database.settings();
  Table table({{""}, {"", false, 100}});
  table.row({"project", printable(project.string())});
  for (std::size_t c = 0; c < s.corpora.size(); ++c)
    table.row({"corpus", fmt::format("{}: {} documents, {} tokens, {} documents in the database", printable(s.corpora[c].prefix.string()),
                                     s.corpora[c].documents, s.corpora[c].tokens, s.documents(c).last)});
  table.row({"tokenizer", s.tokenizer.sum.empty() ? "none" : printable(s.tokenizer.file)});
  table.row({"chunks", fmt::format("{} of at most {} tokens, in {} documents{}", database.size(), s.chunk, database.documents(),
                                   s.all ? "" : fmt::format(" of the training split of {}", s.split))});
  table.row({"index", vectors.empty() ? index_text(project, database) : vectors});
  add_queries(table, project);
  return table.str(false);
}

std::string place_text(const ProjectSettings& s, const ChunkRow& row) {
  return fmt::format("document {} of {}, tokens {} to {}", row.document, printable(s.corpora[row.corpus].prefix.filename().string()), row.first,
                     row.last);
}

std::string chunk_text(const Database& database, const ChunkRow& row, const std::optional<Tokenizer>& tokenizer, std::size_t most) {
  const std::vector<std::int32_t> tokens = database.tokens(row);
  std::string text;
  if (tokenizer) text = tokenizer->decode(tokens);
  else
    for (const std::int32_t token : tokens) text += (text.empty() ? "" : " ") + std::to_string(token);
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= most) return printable(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;  // whole characters
  return printable(text.substr(0, most)) + " ...";
}

}  // namespace gyr::retro
