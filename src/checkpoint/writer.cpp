// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/writer.hpp"

#include "src/checkpoint/cut.hpp"

namespace gyr {

namespace {

Index row_bytes(const StoredTensor& t) { return elements(t.shape) / t.shape[0] * size_of(t.dtype); }

}  // namespace

CheckpointWriter::CheckpointWriter(const std::filesystem::path& target, const CheckpointHeader& header, std::vector<StoredTensor> tensors, int files,
                                   const ShardOptions& options)
    : manifest_{stamped(header), std::move(tensors), {}, {}}, options_(options), files_(files), bytes_(manifest_.bytes()),
      transaction_(target, manifest_.header, bytes_) {}

void CheckpointWriter::open_file() {
  const std::string name = shard_name(written_);
  shard_.emplace(Transaction::temporary(transaction_.target()) / name, manifest_.header, options_);
}

void CheckpointWriter::close_file() {
  if (!shard_) return;
  manifest_.files.push_back(shard_->finish());
  ++written_;
  shard_.reset();
}

Index CheckpointWriter::part_of(Index row) const {
  return FileSplit{bytes_, files_}.part_of(bytes_done_ + row * row_bytes(manifest_.tensors[tensor_]));
}

Box CheckpointWriter::box_in(Index part) const {
  const StoredTensor& t = manifest_.tensors[tensor_];
  const auto [first, last] = FileSplit{bytes_, files_}.rows_in(part, bytes_done_, row_bytes(t), t.shape[0]);
  Box box = full_box(t.shape);
  box.first[0] = first, box.count[0] = last - first;
  return box;
}

void CheckpointWriter::write(Index first, Index count, const void* rows) {
  ensure(tensor_ < manifest_.tensors.size(), "write() was called for more tensors than the checkpoint lists");
  const StoredTensor& t = manifest_.tensors[tensor_];
  ensure(first == rows_done_ && first + count <= t.shape[0], "{}: rows out of order", t.path);
  const auto* data = static_cast<const std::byte*>(rows);
  while (count > 0) {
    const Index part = part_of(rows_done_);
    if (part != part_) close_file();
    part_ = part;
    if (!shard_) open_file();
    const Box box = box_in(part);
    const Index here = std::min(count, box.first[0] + box.count[0] - rows_done_);
    shard_->write(t, tensor_, box, here, data);
    data += here * row_bytes(t), rows_done_ += here, count -= here;
  }
  if (rows_done_ < t.shape[0]) return;
  bytes_done_ += rows_done_ * row_bytes(t);
  rows_done_ = 0;
  ++tensor_;
}

void CheckpointWriter::commit() {
  ensure(tensor_ == manifest_.tensors.size() && rows_done_ == 0, "{}: tensors are missing", transaction_.target().string());
  close_file();
  transaction_.commit(std::move(manifest_));
}

}  // namespace gyr
