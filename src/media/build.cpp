// SPDX-License-Identifier: BSD-3-Clause
#include "src/media/build.hpp"

#include <memory>
#include <optional>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/decompressor.hpp"
#include "src/base/json.hpp"
#include "src/base/mapped_file.hpp"
#include "src/base/output_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/job/run_lock.hpp"
#include "src/media/codecs/decode.hpp"
#include "src/media/image/bad_item.hpp"
#include "src/media/media_line.hpp"
#include "src/media/media_root.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/retro/blocks.hpp"

namespace gyr::media {

namespace {

namespace fs = std::filesystem;

// Lines of the JSONL file that are not blank, with their numbers from 1.
class InputLines {
 public:
  explicit InputLines(const fs::path& path) : file_(path) {
    require(!Decompressor::of(file_.text(), path), Exit::data, "{}: is compressed; decompress it, as only plain JSONL files can be read here",
            path.string());
    std::int64_t number = 0;
    for (std::size_t begin = 0; begin < file_.size();) {
      const std::size_t end = std::min(file_.text().find('\n', begin), file_.size());
      ++number;
      const std::string_view line = file_.text().substr(begin, end - begin);
      if (line.find_first_not_of(" \t\r") != line.npos) lines_.push_back({number, line});
      begin = end + 1;
    }
    require(!lines_.empty(), Exit::data, "{}: has no line; give a JSONL file with one sample per line", path.string());
  }

  struct Line {
    std::int64_t number;
    std::string_view text;
  };
  std::int64_t size() const { return std::int64_t(lines_.size()); }
  const Line& operator[](std::int64_t i) const { return lines_[std::size_t(i)]; }
  std::uint64_t sum() const { return checksum(file_.data(), Index(file_.size())); }

 private:
  MappedFile file_;
  std::vector<Line> lines_;
};

PreparedImage prepared_file(const BuildSettings& s, const MediaRoot& root, const std::string& path) {
  try {
    return prepared(s.processor, decode_image(root.read(path), s.limits));
  } catch (const BadItem& bad) {
    refuse_item("{} {}", path, bad.reason);
  }
}

// Adds all images of a line, or none if one of them is bad.
void add_line(const BuildSettings& s, const MediaRoot& root, const InputLines::Line& line, StoreRows& rows) {
  try {
    const std::vector<std::string> paths = images_of_line(line.text);
    std::vector<PreparedImage> images;
    for (const std::string& path : paths) images.push_back(prepared_file(s, root, path));
    rows.begin_sequence(line.number);
    for (std::size_t i = 0; i < paths.size(); ++i) rows.add_image(paths[i], images[i]);
  } catch (const BadItem& bad) {
    const std::string reason = fmt::format("{}: line {}: {}", s.lines.string(), line.number, bad.reason);
    require(s.skip_bad, Exit::data, "{}; correct or remove it, or give --bad-items skip", reason);
    rows.skipped_lines.push_back(line.number), rows.reasons += printable_line(reason) + "\n";
  }
}

// Checksum of all that the blocks depend on, except the images themselves.
std::string settings_hash(const BuildSettings& s, const MediaRoot& root, const InputLines& lines) {
  const std::string text = json_text({{"version", store_version},
                                      {"processor", s.processor.json()},
                                      {"root", root.root().string()},
                                      {"lines", hex(lines.sum())},
                                      {"pixels", s.limits.pixels},
                                      {"skip", s.skip_bad},
                                      {"block", s.block}});
  return hex(checksum(text.data(), Index(text.size())));
}

void prepare_parts(const BuildSettings& s, const fs::path& parts) {
  std::error_code error;
  const fs::path store = store_path(s.prefix);
  require(s.overwrite || !fs::exists(store, error), Exit::usage, "{}: exists already; give --overwrite to replace it, or another PREFIX",
          store.string());
  fs::create_directories(parts, error);
  require(!error, Exit::io, "{}: the folder cannot be created: {}; choose another PREFIX", parts.string(), error.message());
}

// Blocks of other settings lie in folders of other names, and are removed with them when a store is complete.
struct Work {
  const BuildSettings& settings;
  const MediaRoot root;
  const InputLines lines;
  const std::string hash;
  const retro::Blocks blocks;

  explicit Work(const BuildSettings& s)
      : settings(s), root(s.lines, s.root), lines(s.lines), hash(settings_hash(s, root, lines)),
        blocks(parts_path(s.prefix) / hash, lines.size(), s.block) {}

  StoreRows made(std::int64_t b, const std::function<void(std::int64_t)>& done) const {
    StoreRows rows;
    for (std::int64_t i = blocks.first(b); i < blocks.last(b); ++i) add_line(settings, root, lines[i], rows), done(1);
    return rows;
  }
  StoreRows read(std::int64_t b) const { return StoreRows::read(retro::open_tables(blocks.file(b), hash)); }
};

// Makes the blocks of this rank that do not exist yet.
void make_blocks(const Work& work, const Communicator& world, BuildResult& mine, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::int64_t done = 0, total = 0;
  for (std::int64_t b = world.rank(); b < work.blocks.count(); b += world.size()) total += work.blocks.rows(b);
  const auto advance = [&](std::int64_t lines) {
    done += lines;
    if (progress) progress(done, total);
  };
  for (std::int64_t b = world.rank(); b < work.blocks.count(); b += world.size()) {
    ++mine.blocks;
    if (work.blocks.exists(b)) {
      work.read(b);  // a damaged block is an error now, not after all other blocks
      ++mine.kept, advance(work.blocks.rows(b));
      continue;
    }
    const StoreRows rows = work.made(b, advance);
    retro::write_tables(work.blocks.file(b), work.hash, world.rank(), [&](hdf5::TableWriter& file) { rows.write(file); });
  }
}

// Joins the blocks to the store and removes them.
void join_blocks(const Work& work, BuildResult& result) {
  for (std::int64_t b = 0; b < work.blocks.count(); ++b) {
    const StoreRows rows = work.read(b);
    result.counts.add(rows), result.reasons += rows.reasons;
  }
  require(result.counts.sequences > 0, Exit::data, "{}: all {} lines were skipped, the first one for this reason: {}", work.settings.lines.string(),
          result.counts.skipped, result.reasons.substr(0, result.reasons.find('\n')));
  retro::write_tables(fs::absolute(store_path(work.settings.prefix)), work.hash, 0, [&](hdf5::TableWriter& file) {
    write_store(file, work.settings.processor, result.counts, work.blocks.count(), [&](std::int64_t b) { return work.read(b); });
  });
}

}  // namespace

fs::path store_path(const fs::path& prefix) { return prefix.string() + ".media.h5"; }
fs::path parts_path(const fs::path& prefix) { return prefix.string() + ".media.parts"; }

BuildResult build_store(const BuildSettings& s, Communicator& world, const Note& note,
                        const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::unique_ptr<Work> work;
  std::optional<RunLock> lock;
  collective_check(world, [&] {
    const std::string missing = missing_libraries();
    require(missing.empty(), Exit::config, "this build cannot decode images, because it lacks {}; install them and configure again (`make`)",
            missing);
    work = std::make_unique<Work>(s);
    if (world.rank() != 0) return;
    prepare_parts(s, work->blocks.folder());
    LockSettings settings;
    settings.notify = note, settings.choice = "PREFIX";
    lock.emplace(parts_path(s.prefix), settings);
  });
  BuildResult result;
  collective_check(world, [&] { make_blocks(*work, world, result, progress); });
  for (const auto member : {&BuildResult::blocks, &BuildResult::kept}) result.*member = std::int64_t(world.sum(double(result.*member)));
  collective_check(world, [&] {
    if (world.rank() != 0) return;
    join_blocks(*work, result);
    lock.reset();
    std::error_code error;
    fs::remove_all(parts_path(s.prefix), error);
    require(!error, Exit::io, "{}: cannot be removed: {}; the store is complete, so remove it yourself", parts_path(s.prefix).string(),
            error.message());
  });
  return result;
}

}  // namespace gyr::media
