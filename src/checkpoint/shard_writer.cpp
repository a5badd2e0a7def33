// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/shard_writer.hpp"

#include <future>
#include <random>

#include "src/base/output_file.hpp"

namespace gyr {

namespace {

constexpr const char* shard_format = "gyrfalcon checkpoint shard";

// Unique prefix of the dataset paths in this file. HDF5 also searches the current folder for the files of a virtual
// dataset, where another checkpoint may have files of the same names. With this prefix, the index never reads a shard
// of another checkpoint.
std::string unique_root_name() {
  std::random_device random;
  return fmt::format("this_{:08x}{:08x}", random(), random());
}

Index row_bytes(DType type, const Shape& box) { return elements(box) / box[0] * size_of(type); }

}  // namespace

Index slab_rows(DType type, const Shape& box, Index bytes) {
  const Index chunk = hdf5::chunk_rows(type, box);
  return std::max<Index>(1, bytes / (chunk * row_bytes(type, box))) * chunk;
}

ShardWriter::ShardWriter(const std::filesystem::path& file, const CheckpointHeader& header, const ShardOptions& options)
    : path_(file), options_(options), file_(hdf5::File::create(file)) {
  entry_.name = file.filename().string();
  entry_.root = unique_root_name();
  write_header(*file_, header, shard_format);
  file_->name_root(entry_.root);
}

void ShardWriter::begin(const StoredTensor& t, std::size_t number, const Box& box) {
  const int count = boxes_of_[number]++;
  const bool is_complete = box.count == t.shape;
  const std::string name = is_complete ? t.path : fmt::format("{}/{}", t.path, count);
  dataset_.emplace(file_->create_dataset(name, t.dtype, box.count, options_.deflate));
  dataset_->set("hf_name", t.hf_name);
  dataset_->set("long_name", t.long_name);
  dataset_->set("dtype_semantic", t.meaning);
  dataset_->set("global_shape", t.shape);
  dataset_->set("shard_offset", box.first);
  entry_.boxes.push_back({number, name, box, 0, {}, 0});
  sum_.emplace();
}

void ShardWriter::write(const StoredTensor& t, std::size_t number, const Box& box, Index rows, const void* data) {
  if (rows_done_ == 0) begin(t, number, box);
  StoredBox& entry = entry_.boxes.back();
  ensure(entry.tensor == number && entry.box.first == box.first && rows_done_ + rows <= box.count[0], "{}: rows out of order", t.path);
  dataset_->write_rows(rows_done_, rows, data);
  sum_->add(data, rows * row_bytes(t.dtype, box.count));
  rows_done_ += rows;
  if (rows_done_ < box.count[0]) return;
  entry.values_checksum = sum_->value();
  dataset_.reset();
  rows_done_ = 0;
}

namespace {

std::uint64_t checksum_of_values(const hdf5::Dataset& dataset) {
  const Index all = dataset.shape()[0], row = row_bytes(dataset.dtype(), dataset.shape());
  const Index slab = slab_rows(dataset.dtype(), dataset.shape(), Index(8) << 20);
  const std::unique_ptr<std::byte[]> values(new std::byte[std::size_t(std::min(slab, all) * row)]);
  Checksum sum;
  for (Index first = 0; first < all; first += slab) {
    const Index rows = std::min(slab, all - first);
    dataset.read_rows(first, rows, values.get());
    sum.add(values.get(), rows * row);
  }
  return sum.value();
}

}  // namespace

void ShardWriter::find_boxes() {
  const hdf5::File file = hdf5::File::open(path_);
  for (StoredBox& box : entry_.boxes) box.extents = file.dataset(box.dataset).extents();
}

void ShardWriter::read_again() const {
  const hdf5::File file = hdf5::File::open(path_);
  for (const StoredBox& box : entry_.boxes) {
    const hdf5::Dataset dataset = file.dataset(box.dataset);
    require(checksum_of_values(dataset) == box.values_checksum, Exit::io,
            "{}: reads back different from what was written; the disk or its driver is faulty", dataset.name());
  }
}

void ShardWriter::take_sums() {
  const SummedFile file(path_);
  std::vector<std::vector<hdf5::Extent>> extents;
  for (const StoredBox& box : entry_.boxes) extents.push_back(box.extents);
  const SummedFile::Sums sums = file.sums(extents);
  entry_.bytes = file.bytes();
  entry_.sum = sums.total;
  for (std::size_t i = 0; i < entry_.boxes.size(); ++i) entry_.boxes[i].stored_sum = sums.lists[i];
}

ManifestFile ShardWriter::finish() {
  ensure(rows_done_ == 0, "{}: a tensor is missing rows", path_.string());
  file_->close();
  file_.reset();
  find_boxes();
  // Three concurrent tasks: sync the file to disk, checksum its raw bytes, and read its values back through HDF5.
  std::future<void> on_disk = std::async(std::launch::async, [this] { sync_file(path_); });
  std::future<void> summed = std::async(std::launch::async, [this] { take_sums(); });
  if (options_.verify) read_again();
  summed.get();
  on_disk.get();
  return std::move(entry_);
}

}  // namespace gyr
