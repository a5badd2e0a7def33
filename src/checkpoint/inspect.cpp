// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/inspect.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "src/base/input_file.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"

namespace gyr {

namespace {

// Reads a tensor's values as doubles, in slabs of full HDF5 chunks.
class Slabs {
 public:
  Slabs(const StoredCheckpoint& from, const StoredTensor& tensor)
      : from_(from), tensor_(tensor), row_(elements(tensor.shape) / tensor.shape[0]), rows_(tensor.shape[0]),
        step_(slab_rows(tensor.dtype, tensor.shape, Index(16) << 20)) {}

  Index rows() const { return rows_; }
  Index step() const { return step_; }
  std::vector<double> read(Index first, Index count) const {
    std::vector<std::byte> stored(count * row_ * size_of(tensor_.dtype));
    std::vector<double> values(count * row_);
    from_.read_rows(tensor_, first, count, stored.data());
    convert_to_double(tensor_.dtype, stored.data(), Index(values.size()), values.data());
    return values;
  }

 private:
  const StoredCheckpoint& from_;
  const StoredTensor& tensor_;
  Index row_, rows_, step_;
};

struct Statistics {
  double low = std::numeric_limits<double>::infinity(), high = -low, squares = 0;
  Index not_finite = 0;
};

Statistics statistics_of(const StoredCheckpoint& from, const StoredTensor& tensor) {
  const Slabs slabs(from, tensor);
  Statistics s;
  for (Index first = 0; first < slabs.rows(); first += slabs.step())
    for (const double x : slabs.read(first, std::min(slabs.step(), slabs.rows() - first))) {
      if (!std::isfinite(x)) {
        ++s.not_finite;
        continue;
      }
      s.low = std::min(s.low, x), s.high = std::max(s.high, x);
      s.squares += x * x;
    }
  return s;
}

// The checkpoint next to this one that checkpoint.keep_best keeps; empty if there is none.
std::string best_text(std::filesystem::path checkpoint, std::int64_t step) {
  checkpoint = std::filesystem::absolute(checkpoint).lexically_normal();
  const auto best = best_checkpoint((checkpoint.has_filename() ? checkpoint : checkpoint.parent_path()).parent_path());
  if (!best) return "";
  return fmt::format("{}, validation loss {:.4f}", best->step == step ? "this checkpoint" : checkpoint_path({}, best->step).string(), best->loss);
}

// `checkpoint`: its folder or file.
std::string header_text(const CheckpointHeader& h, const std::filesystem::path& checkpoint) {
  Table table({{"", false, 24}, {"", false, 92}});
  table.row({"format", "checkpoint, version " + printable(h.version)});
  table.row({"written", printable(h.created + " by " + h.writer)});
  if (!h.run.empty()) table.row({"run", printable(h.run)});
  table.row({"step", fmt::format("{}", h.step)});
  if (const std::string best = best_text(checkpoint, h.step); !best.empty()) table.row({"best of the run", best});
  table.row({"tokens seen", fmt::format("{}", h.tokens)});
  table.row({"samples seen", fmt::format("{}", h.samples)});
  table.row({"seed", fmt::format("{}", h.seed)});
  table.row({"precision", h.precision});
  table.row({"layout", fmt::format("{} rank{}: {}", h.world, h.world == 1 ? "" : "s", h.layout)});
  table.row({"provenance", h.provenance});
  return table.str(false);
}

std::string files_text(const Manifest& m) {
  Table table({{"file", false, 40}, {"bytes", true}, {"boxes", true}, {"xxh3"}});
  for (const ManifestFile& f : m.files) table.row({f.name, fmt::format("{}", f.bytes), fmt::format("{}", f.boxes.size()), hex(f.sum)});
  return fmt::format("\n{}", table.str());
}

std::vector<const StoredTensor*> by_path(const StoredCheckpoint& stored) {
  std::vector<const StoredTensor*> list;
  for (const StoredTensor& t : stored.tensors()) list.push_back(&t);
  std::sort(list.begin(), list.end(), [](const StoredTensor* a, const StoredTensor* b) { return a->path < b->path; });
  return list;
}

// Compares a checkpoint with its checksums and returns one line about the result. Exit::data if something is damaged or
// has no checksums.
std::string verify_checksums(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    const StoredCheckpoint stored(path);
    stored.check_files(), stored.check_index();
    return "every file matches its checksum";
  }
  if (check_against_manifest(path)) return "the file matches its checksum in the manifest next to it";
  const StoredCheckpoint stored(path, Expect::tensors);
  const Index tensors = Index(stored.tensors().size()), without = stored.check_chunks();
  require(without == 0, Exit::data, "{}: {} of its {} tensors carry no checksums, and no manifest next to it names the file: it cannot be checked",
          stored.name(), without, tensors);
  return fmt::format("all {} tensors match the checksums inside the file", tensors);
}

}  // namespace

namespace {

// Table of all tensors, with their number of elements below it.
std::string tensors_text(const StoredCheckpoint& stored, bool statistics) {
  std::vector<TableColumn> columns{{"tensor", false, 80}, {"shape", true}, {"type", false}};
  if (statistics) columns.insert(columns.end(), {{"min", true}, {"max", true}, {"rms", true}, {"not finite", true}});
  Table table(columns);
  for (const StoredTensor* tensor : by_path(stored)) {
    std::vector<std::string> cells{tensor->path, text_of(tensor->shape), std::string(name_of(tensor->dtype))};
    if (statistics) {
      const Statistics s = statistics_of(stored, *tensor);
      const Index finite = elements(tensor->shape) - s.not_finite;
      for (const double x : {s.low, s.high, std::sqrt(s.squares / double(finite))}) cells.push_back(finite ? fmt::format("{:.4g}", x) : "-");
      cells.push_back(fmt::format("{}", s.not_finite));
    }
    table.row(std::move(cells));
  }
  return "\n" + table.str();
}

std::string counts_text(const StoredCheckpoint& stored) {
  Index values = 0, weights = 0;
  for (const StoredTensor& tensor : stored.tensors()) {
    const Index count = elements(tensor.shape);
    values += count;
    if (tensor.path.starts_with("/model/")) weights += count;
  }
  return fmt::format("\n{}, {} elements, {} of them weights\n", counted(Index(stored.tensors().size()), "tensor"), values, weights);
}

// Header of the checkpoint that a file belongs to: its own, or that of the manifest next to it, after a line that names the
// file's role. Empty for any other file.
std::string header_of(const std::filesystem::path& path, const StoredCheckpoint& stored) {
  if (stored.has_header()) return header_text(stored.header(), path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::error_code error;
  if (!std::filesystem::exists(folder / manifest_name, error)) return "";
  try {
    const StoredCheckpoint checkpoint(folder);
    const std::string file = path.filename().string();
    const auto& index = checkpoint.manifest().index;
    const auto& files = checkpoint.manifest().files;
    const bool shard = std::any_of(files.begin(), files.end(), [&](const ManifestFile& f) { return f.name == file; });
    if (!shard && !(index && index->name == file)) return "";
    return fmt::format("{}: {} of the checkpoint {}\n\n", printable(path.string()),
                       shard ? fmt::format("one of {}", counted(Index(files.size()), "shard")) : "view of every unsharded tensor", folder.string()) +
           header_text(checkpoint.header(), folder);
  } catch (const Error&) {  // the file is described by itself; --check reports what is damaged
    return "";
  }
}

}  // namespace

std::string describe_checkpoint(const std::filesystem::path& path, const Description& wanted) {
  const std::string checked = wanted.check ? verify_checksums(path) + "\n" : "";  // checksums of a manifest are compared before HDF5 opens the file
  const StoredCheckpoint stored(path, Expect::tensors);
  std::string text = header_of(path, stored);
  if (stored.manifest().index) text += files_text(stored.manifest());
  if (!wanted.check || wanted.statistics) text += tensors_text(stored, wanted.statistics);
  return text + counts_text(stored) + checked;
}

namespace {

struct Distance {
  double absolute = 0, largest = 0;
  double relative() const { return absolute == 0 ? 0 : std::isinf(absolute) ? absolute : absolute / largest; }
};

Distance distance(const StoredCheckpoint& a, const StoredTensor& ta, const StoredCheckpoint& b, const StoredTensor& tb) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Slabs slabs_a(a, ta), slabs_b(b, tb);
  Distance d;
  for (Index first = 0; first < slabs_a.rows(); first += slabs_a.step()) {
    const Index count = std::min(slabs_a.step(), slabs_a.rows() - first);
    const auto x = slabs_a.read(first, count), y = slabs_b.read(first, count);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) {
        if (std::isfinite(x[i])) d.largest = std::max(d.largest, std::abs(x[i]));
      } else if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
        d.absolute = infinity;
      } else {
        d.largest = std::max({d.largest, std::abs(x[i]), std::abs(y[i])});
        d.absolute = std::max(d.absolute, std::abs(x[i] - y[i]));
      }
    }
  }
  return d;
}

// If several tolerance patterns match the path, the last one applies.
const Tolerance& tolerance_of(const std::vector<Tolerance>& list, const std::string& path) {
  for (auto t = list.rbegin(); t != list.rend(); ++t)
    if (fnmatch(t->pattern.c_str(), path.c_str(), 0) == 0) return *t;
  static const Tolerance equal;
  return equal;
}

}  // namespace

std::vector<Tolerance> read_tolerances(const std::filesystem::path& path) {
  require(!std::filesystem::is_directory(path), Exit::missing, "{}: is a folder, not a list of tolerances", path.string());
  std::istringstream file(text_of_file(path, std::size_t(1) << 20));
  std::vector<Tolerance> list;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Tolerance t;
    if (!(words >> t.pattern)) continue;
    const bool values = bool(words >> t.absolute >> t.relative) && t.absolute >= 0 && t.relative >= 0;
    std::string more;
    require(values && !(words >> more), Exit::data,
            "{}:{}: expected PATTERN ABSOLUTE RELATIVE with tolerances >= 0, such as `/model/*/mamba/* 1e-6 1e-5`", path.string(), number);
    list.push_back(t);
  }
  return list;
}

Difference diff_checkpoints(const std::filesystem::path& path_a, const std::filesystem::path& path_b, const std::vector<Tolerance>& tolerances) {
  const StoredCheckpoint a(path_a, Expect::tensors), b(path_b, Expect::tensors);
  std::set<std::string> all;
  for (const StoredCheckpoint* stored : {&a, &b})
    for (const StoredTensor& t : stored->tensors()) all.insert(t.path);
  Table table({{"tensor", false, 80}, {"absolute", true}, {"relative", true}, {"", false, 60}});
  Index equal = 0, beyond = 0;
  for (const std::string& path : all) {
    const StoredTensor *ta = a.find(path), *tb = b.find(path);
    if (!ta || !tb) {
      ++beyond;
      table.row({path, "", "", ta ? "only in the first" : "only in the second"});
      continue;
    }
    if (ta->shape != tb->shape) {
      ++beyond;
      table.row({path, "", "", fmt::format("shape {} against {}", text_of(ta->shape), text_of(tb->shape))});
      continue;
    }
    const Distance d = distance(a, *ta, b, *tb);
    if (d.absolute == 0) {
      ++equal;
      continue;
    }
    const Tolerance& t = tolerance_of(tolerances, path);
    const bool far = !(d.absolute <= t.absolute + t.relative * d.largest);
    beyond += far;
    table.row({path, fmt::format("{:.3e}", d.absolute), fmt::format("{:.3e}", d.relative()), far ? "beyond the tolerance" : ""});
  }
  std::string text;
  if (a.has_header() && b.has_header()) text += fmt::format("step {} against step {}\n", a.header().step, b.header().step);
  if (equal < Index(all.size())) text += table.str();
  text += fmt::format("{} tensors: {} equal, {} beyond the tolerance\n", all.size(), equal, beyond);
  return {text, beyond == 0};
}

}  // namespace gyr
