// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/writer.hpp"

namespace gyr {

namespace {
constexpr Index bytes_beside_tensor = 4096;  // HDF5's own structures and attributes, at most
constexpr Index bytes_of_file = Index(1) << 20;

OutputFile output_in_new_folder(const std::filesystem::path& target) {
  std::error_code error;
  const std::filesystem::path folder = target.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  require(!error, Exit::io, "{}: cannot be made: {}", folder.string(), error.message());
  return OutputFile(target);
}
}  // namespace

CheckpointWriter::CheckpointWriter(const std::filesystem::path& target, const CheckpointHeader& header,
                                   const std::vector<StoredTensor>& tensors)
    : target_(target), output_(output_in_new_folder(target)), tensors_left_(tensors.size()) {
  for (const StoredTensor& t : tensors) bytes_ += elements(t.shape) * size_of(t.dtype);
  const Index texts = Index(header.deck.size() + header.provenance.size());
  require_space(target.has_parent_path() ? target.parent_path() : ".",
                bytes_ + bytes_ / 1024 + Index(tensors.size()) * bytes_beside_tensor + texts + bytes_of_file);
  file_.emplace(hdf5::File::create(OutputFile::temporary(target)));
  write_header(*file_, header);
}

void CheckpointWriter::write(const StoredTensor& t, Index first, Index count, const void* rows) {
  if (first == 0) {
    ensure(rows_left_ == 0, "{} follows an unfinished tensor", t.weight_name);
    dataset_.emplace(file_->create_dataset(path_of(t.content, t.weight_name), t.dtype, t.shape));
    dataset_->set("hf_name", t.weight_name);
    dataset_->set("long_name", fmt::format("{} of {}", name_of(t.content), t.weight_name));
    dataset_->set("dtype_semantic", t.meaning.empty() ? std::string(name_of(t.dtype)) : t.meaning);
    rows_left_ = t.shape[0];
    --tensors_left_;
  }
  ensure(first == t.shape[0] - rows_left_ && count <= rows_left_, "{}: rows out of order", t.weight_name);
  dataset_->write_rows(first, count, rows);
  rows_left_ -= count;
  if (rows_left_ == 0) dataset_.reset();
}

void CheckpointWriter::commit() {
  ensure(tensors_left_ == 0 && rows_left_ == 0, "{}: tensors are missing", target_.string());
  file_->set("complete", std::int64_t(1));
  file_->close();
  file_.reset();
  read_header(OutputFile::temporary(target_));
  output_.commit();
}

}  // namespace gyr
