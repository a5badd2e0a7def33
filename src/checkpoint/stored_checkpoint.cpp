// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/stored_checkpoint.hpp"

#include <algorithm>
#include <numeric>

#include "src/base/input_file.hpp"
#include "src/base/runs_near.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/tensor_set.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_open = 16;                        // maximum number of files kept open; a rank may need parts of thousands of files
constexpr std::size_t most_manifest = std::size_t(4) << 30;  // maximum size of a manifest in bytes

// Compares the size with the manifest: truncated and empty files are found without reading them.
void check_size(const fs::path& path, Index bytes) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  require(!error, Exit::data, "{}: is missing from its checkpoint: {}", path.string(), error.message());
  require(Index(size) == bytes, Exit::data, "{}: has {} bytes, but the manifest requires {}", path.string(), size, bytes);
}

// Compares every byte of a file in the folder with the manifest's checksum.
void check_file(const fs::path& folder, const ManifestFile& file, const Manifest& m) {
  check_size(folder / file.name, file.bytes);
  const SummedFile summed(folder / file.name);
  if (summed.sum() == file.sum) return;
  for (const StoredBox& box : file.boxes)
    require(summed.sum(box.extents) == box.stored_sum, Exit::data, "{}:{}: its content is damaged: {} does not match its checksum", summed.name(),
            printable(box.dataset), printable(m.tensors[box.tensor].hf_name));
  fail(Exit::data, "{}: is damaged outside of its tensors: it does not match its checksum", summed.name());
}

void check_view(const fs::path& folder, const ManifestFile& view) {
  check_size(folder / view.name, view.bytes);
  const SummedFile index(folder / view.name);
  require(index.sum() == view.sum, Exit::data, "{}: does not match its checksum; the tensors in the shards are not affected", index.name());
}

}  // namespace

StoredCheckpoint::StoredCheckpoint(const fs::path& path, Expect expect) : path_(path), name_(path.string()) {
  std::error_code error;
  const auto status = fs::status(path, error);
  require(fs::exists(status), Exit::missing, "{}: cannot be opened: there is no such checkpoint{}", name_,
          fs::exists(name_ + ".idx", error) ? fmt::format("; `gyrfalcon data info {}` shows token files", name_) : "");
  fs::is_directory(status) ? open_folder() : open_file(expect);
  pieces_.resize(manifest_.tensors.size());
  for (std::size_t f = 0; f < manifest_.files.size(); ++f)
    for (const StoredBox& box : manifest_.files[f].boxes) pieces_[box.tensor].push_back({f, &box});
  by_path_.resize(manifest_.tensors.size());
  std::iota(by_path_.begin(), by_path_.end(), std::size_t(0));
  std::sort(by_path_.begin(), by_path_.end(), [&](std::size_t a, std::size_t b) { return tensors()[a].path < tensors()[b].path; });
}

void StoredCheckpoint::open_folder() {
  const fs::path manifest = path_ / manifest_name;
  std::error_code error;
  const bool foreign = fs::exists(path_ / "config.json", error) || fs::exists(path_ / "model.safetensors", error);
  require(!foreign || fs::exists(manifest, error), Exit::data,
          "{}: is a Hugging Face folder, and a checkpoint is needed here; make one of it first with `gyrfalcon import-hf {} CHECKPOINT`", name_,
          name_);
  const bool damaged = fs::exists(path_ / "index.h5", error);
  require(fs::exists(manifest, error), damaged ? Exit::data : Exit::missing,
          "{}: is neither a complete checkpoint nor a Hugging Face folder: {} does not exist{}", name_, manifest.string(),
          damaged ? "" : runs_near(path_));
  manifest_ = manifest_of(text_of_file(manifest, most_manifest), manifest.string());
  for (const ManifestFile& file : manifest_.files) check_size(path_ / file.name, file.bytes);
}

void StoredCheckpoint::open_file(Expect expect) {
  const hdf5::File file = hdf5::File::open(path_);
  has_header_ = expect == Expect::checkpoint || (file.has("format") && file.text("format") == checkpoint_format);
  if (has_header_) manifest_.header = read_header(file);
  ManifestFile& entry = manifest_.files.emplace_back();
  entry.name = path_.filename().string();
  path_ = path_.parent_path();
  for (const std::string& name : file.datasets()) {
    const hdf5::Dataset dataset = file.dataset(name);
    require(!has_header_ || dataset.checksummed(), Exit::data, "{}: carries no checksums; this program did not write it", dataset.name());
    const std::string hf_name = dataset.has("hf_name") ? dataset.text("hf_name") : "";
    entry.boxes.push_back({manifest_.tensors.size(), name, full_box(dataset.shape()), 0, {}, 0});
    const std::string meaning = dataset.has("dtype_semantic") ? dataset.text("dtype_semantic") : std::string(name_of(dataset.dtype()));
    const std::string long_name = dataset.has("long_name") ? dataset.text("long_name") : name;
    manifest_.tensors.push_back({name, hf_name, long_name, dataset.dtype(), dataset.shape(), meaning});
  }
  if (has_header_) check_tensor_set(manifest_.tensors, name_);
}

const StoredTensor* StoredCheckpoint::find(const std::string& path) const {
  const auto at =
      std::lower_bound(by_path_.begin(), by_path_.end(), path, [&](std::size_t t, const std::string& p) { return tensors()[t].path < p; });
  return at != by_path_.end() && tensors()[*at].path == path ? &tensors()[*at] : nullptr;
}

void StoredCheckpoint::check_files(int first, int of) const {
  if (manifest_.header.version.starts_with("1.") || !has_header_) return;
  for (std::size_t f = std::size_t(first); f < manifest_.files.size(); f += std::size_t(of)) check_file(path_, manifest_.files[f], manifest_);
}

void StoredCheckpoint::check_index() const {
  if (manifest_.index) check_view(path_, *manifest_.index);
}

Index StoredCheckpoint::check_chunks() const {
  Index without = 0;
  std::vector<std::byte> rows;
  for (std::size_t t = 0; t < tensors().size(); ++t) {
    const StoredTensor& tensor = tensors()[t];
    for (const Piece& piece : pieces_[t])
      if (!file(piece.file).dataset(piece.box->dataset).checksummed()) {
        ++without;
        break;
      }
    const Index slab = slab_rows(tensor.dtype, tensor.shape, Index(16) << 20), row = elements(tensor.shape) / tensor.shape[0] * size_of(tensor.dtype);
    for (Index first = 0; first < tensor.shape[0]; first += slab) {
      const Index count = std::min(slab, tensor.shape[0] - first);
      rows.resize(std::size_t(count * row));
      read_rows(tensor, first, count, rows.data());
    }
  }
  return without;
}

bool check_against_manifest(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path("."), manifest = folder / manifest_name;
  std::error_code error;
  if (!fs::exists(manifest, error)) return false;
  const Manifest known = manifest_of(text_of_file(manifest, most_manifest), manifest.string());
  const std::string name = file.filename().string();
  for (const ManifestFile& entry : known.files)
    if (entry.name == name) return check_file(folder, entry, known), true;
  if (!known.index || known.index->name != name) return false;
  check_view(folder, *known.index);
  // the index is a view of all shards, so every shard is checked, too
  for (const ManifestFile& entry : known.files) check_file(folder, entry, known);
  return true;
}

const hdf5::File& StoredCheckpoint::file(std::size_t number) const {
  const auto known = std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.number == number; });
  if (known != open_.end()) {
    open_.splice(open_.begin(), open_, known);
  } else {
    if (open_.size() == most_open) {
      bytes_of_closed_ += open_.back().file.bytes_read();
      open_.pop_back();
    }
    open_.push_front({number, hdf5::File::open(path_ / manifest_.files[number].name)});
  }
  return open_.front().file;
}

void StoredCheckpoint::read(const StoredTensor& tensor, std::span<const BoxPair> parts, void* data, const Shape& array) const {
  for (const auto& [number, box] : pieces_[std::size_t(&tensor - tensors().data())]) {
    std::vector<BoxPair> here;
    for (const BoxPair& part : parts)
      if (const auto both = common(part.from, box->box))
        here.push_back({moved(*both, box->box.first, Shape(box->box.first.size(), 0)), moved(*both, part.from.first, part.to.first)});
    if (here.empty()) continue;
    const hdf5::Dataset dataset = file(number).dataset(box->dataset);
    require(dataset.shape() == box->box.count && dataset.dtype() == tensor.dtype, Exit::data, "{}: differs in shape or type from the manifest",
            dataset.name());
    dataset.read(here, data, array);
    for (const BoxPair& part : here) bytes_read_ += elements(part.from.count) * size_of(tensor.dtype);
  }
}

void StoredCheckpoint::read_rows(const StoredTensor& tensor, Index first, Index count, void* data) const {
  Box rows = full_box(tensor.shape);
  rows.first[0] = first, rows.count[0] = count;
  const BoxPair part{rows, full_box(rows.count)};
  read(tensor, {&part, 1}, data, rows.count);
}

Index StoredCheckpoint::bytes_from_disk() const {
  Index sum = bytes_of_closed_;
  for (const Open& o : open_) sum += o.file.bytes_read();
  return sum;
}

CheckpointHeader read_header(const fs::path& checkpoint) { return StoredCheckpoint(checkpoint).header(); }

}  // namespace gyr
