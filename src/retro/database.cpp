// SPDX-License-Identifier: BSD-3-Clause
#include "src/retro/database.hpp"

#include <cstring>
#include <limits>

#include "kernels/base/error.hpp"

namespace gyr::retro {

namespace {

namespace fs = std::filesystem;

constexpr const char* merged_remedy = "remove the file, and `gyrfalcon retro build-db` with the options of its first call makes it again";

hdf5::TableReader opened(const fs::path& project, const ProjectSettings& s) {
  const fs::path path = merged_path(project);
  std::error_code error;
  require(fs::exists(path, error), Exit::missing, "{}: does not exist; `gyrfalcon retro build-db {}` with the options of its first call makes it",
          path.string(), project.string());
  return s.foreign ? hdf5::TableReader(path) : open_tables(path, s.hash());
}

}  // namespace

Database::Database(const fs::path& project, const ProjectSettings& s, const Corpora& corpora)
    : settings_(s), corpora_(corpora), file_(opened(project, s)), size_(file_.rows<std::uint32_t>("chunks", chunk_columns)),
      documents_(file_.rows<std::uint64_t>("doc_offsets", offset_columns)) {
  const auto count = file_.read<std::uint64_t>("n_written");
  require(count.size() == 1 && count[0] == std::uint64_t(size_), Exit::data, "{}:n_written: row 0 is {}, but 'chunks' has {} rows; {}", file_.name(),
          count.empty() ? 0 : count[0], size_, merged_remedy);
  if (s.foreign) return;
  std::int64_t documents = 0;
  for (std::size_t c = 0; c < corpora.size(); ++c) documents += s.documents(c).last - s.documents(c).first;
  require(documents == documents_, Exit::data, "{}:doc_offsets: has {} rows, but the project has {} documents; {}", file_.name(), documents_,
          documents, merged_remedy);
}

void Database::require_sound(const ChunkRow& row, std::int64_t id) const {
  const bool known = row.corpus < corpora_.size() && std::int64_t(row.document) < corpora_.file(row.corpus).sequences();
  require(known, Exit::data, "{}:chunks: row {} names document {} of corpus {}, which does not exist; {}", file_.name(), id, row.document, row.corpus,
          merged_remedy);
  const std::int64_t length = corpora_.file(row.corpus).length(row.document);
  const bool inside = row.first < row.last && std::int64_t(row.last) <= length && std::int64_t(row.last) - row.first <= settings_.chunk;
  require(inside && (settings_.foreign || (row.terms >= 1 && row.terms <= row.last - row.first)), Exit::data,
          "{}:chunks: row {} is tokens {} to {} of a document of {}, {} of them compared, which is no chunk of at most {}; {}", file_.name(), id,
          row.first, row.last, length, row.terms, settings_.chunk, merged_remedy);
}

std::vector<ChunkRow> Database::rows(std::int64_t first, std::int64_t count) const {
  const auto values = file_.read<std::uint32_t>("chunks", chunk_columns, first, count);
  std::vector<ChunkRow> rows(static_cast<std::size_t>(count));
  std::memcpy(rows.data(), values.data(), values.size() * sizeof(std::uint32_t));
  for (std::int64_t i = 0; i < count; ++i) require_sound(rows[std::size_t(i)], first + i);
  return rows;
}

std::vector<std::int32_t> Database::tokens(const ChunkRow& row) const {
  std::vector<std::int32_t> tokens(row.last - row.first);
  corpora_.file(row.corpus).read(row.document, row.first, tokens);
  return tokens;
}

std::vector<std::int32_t> Database::passage(std::int64_t id, const PassageRule& rule) const {
  if (rule.any_document && id < 0) id = size_ - 1;
  std::vector<ChunkRow> rows = this->rows(id, std::min<std::int64_t>(2, size_ - id));
  if (rule.any_document && rows.size() == 1) rows.push_back(this->rows(0, 1)[0]);
  std::vector<std::int32_t> passage = tokens(rows[0]);
  const bool full = std::int64_t(passage.size()) == settings_.chunk || rule.padding;
  const auto pad_to = [&](std::int64_t length) {
    if (rule.padding) passage.resize(std::size_t(length), *rule.padding);
  };
  pad_to(settings_.chunk);
  const auto follows = [](const ChunkRow& a, const ChunkRow& b) { return a.corpus == b.corpus && a.document == b.document && a.last == b.first; };
  if (full && rows.size() > 1 && (rule.any_document || follows(rows[0], rows[1]))) {
    const std::vector<std::int32_t> next = tokens(rows[1]);
    passage.insert(passage.end(), next.begin(), next.end());
  }
  pad_to(2 * settings_.chunk);
  return passage;
}

Database::DocumentChunks Database::document(std::int64_t d) const {
  const std::int64_t before = d > 0 ? d - 1 : 0;
  const auto values = file_.read<std::uint64_t>("doc_offsets", offset_columns, before, d - before + 1);
  const std::uint64_t* const row = values.data() + (d - before) * offset_columns;
  const std::uint64_t first = d > 0 ? values[2] : 0, last = row[2];
  require(first <= last && last <= std::uint64_t(size_) && row[0] < corpora_.size() &&
              row[1] < std::uint64_t(corpora_.file(std::size_t(row[0])).sequences()),
          Exit::data, "{}:doc_offsets: row {} has the chunks {} to {} of document {} of corpus {}, which do not exist; {}", file_.name(), d, first,
          last, row[1], row[0], merged_remedy);
  return {std::size_t(row[0]), std::int64_t(row[1]), std::int64_t(first), std::int64_t(last)};
}

}  // namespace gyr::retro
