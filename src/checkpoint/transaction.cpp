// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/transaction.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/base/fault_point.hpp"
#include "src/base/file_system.hpp"
#include "src/base/output_file.hpp"
#include "src/checkpoint/checksum.hpp"
#include "src/checkpoint/folder.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr const char* index_format = "gyrfalcon checkpoint index";
// bytes reserved on disk for HDF5 structures, attributes, virtual datasets and manifest (upper bound)
constexpr Index bytes_of_files = Index(2) << 20;
constexpr int leader = 0;  // grid position of the rank that commits

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

ManifestFile write_index(const fs::path& path, const Manifest& m) {
  std::vector<std::vector<hdf5::VirtualPart>> parts(m.tensors.size());
  for (const ManifestFile& file : m.files)
    for (const StoredBox& box : file.boxes)
      parts[box.tensor].push_back({box.box, file.name, file.root.empty() ? box.dataset : "/" + file.root + box.dataset});
  hdf5::File index = hdf5::File::create(path);
  write_header(index, m.header, index_format);
  for (std::size_t t = 0; t < m.tensors.size(); ++t) {
    const StoredTensor& tensor = m.tensors[t];
    hdf5::Dataset dataset = index.create_virtual(tensor.path, tensor.dtype, tensor.shape, parts[t]);
    dataset.set("hf_name", tensor.hf_name);
    dataset.set("long_name", tensor.long_name);
    dataset.set("dtype_semantic", tensor.meaning);
    dataset.set("global_shape", tensor.shape);
    dataset.set("units", std::string("1"));
  }
  index.close();
  sync_file(path);
  const SummedFile file(path);
  return {index_name, file.bytes(), file.sum(), {}};
}

void write_manifest(const fs::path& path, const Manifest& m) {
  OutputFile file(path);
  file.append(text_of(m));
  file.commit();
}

}  // namespace

std::string shard_name(int number) { return fmt::format("shard_{:05}.h5", number); }

Index disk_bytes(Index bytes, Index text) { return bytes + bytes / 256 + 4 * text + bytes_of_files; }

fs::path Transaction::temporary(const fs::path& target) { return fs::path(target) += ".tmp"; }

Transaction::Transaction(const fs::path& target, const CheckpointHeader& header, Index bytes)
    : target_(target.has_filename() ? target : target.parent_path()), folder_(temporary(target_)) {
  std::error_code error;
  const fs::path parent = folder_of(target_);
  fs::create_directories(parent, error);
  require(!error, Exit::io, "{}: cannot be created: {}", parent.string(), error.message());
  fs::remove_all(folder_, error);  // removes the leftover of a killed save
  require_space(parent, disk_bytes(bytes, Index(header.deck.size() + header.provenance.size())), "a checkpoint",
                "free space, choose another folder or, in a training run, lower checkpoint.keep (even with 1, two checkpoints exist during a save)");
  const bool made = fs::create_directory(folder_, error);
  require(made && !error, Exit::io, "{}: cannot be created: {}", folder_.string(), error.message());
}

Transaction::~Transaction() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(folder_, ignored);
}

void Transaction::rename() {
  if (::rename(folder_.c_str(), target_.c_str()) == 0) return;
  const bool taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
  if (taken && renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) return;
  // Without RENAME_EXCHANGE, the older checkpoint is renamed first.
  const fs::path older = fs::path(target_) += ".old.tmp";
  if (taken && ::rename(target_.c_str(), older.c_str()) == 0 && ::rename(folder_.c_str(), target_.c_str()) == 0) {
    std::error_code ignored;
    fs::remove_all(older, ignored);
    return;
  }
  fail(Exit::io, "{}: cannot be renamed to {}: {}", folder_.string(), target_.string(), std::strerror(errno));
}

void Transaction::commit(Manifest manifest) {
  const std::int64_t step = manifest.header.step;
  manifest.index = write_index(folder_ / index_name, manifest);
  fault_point("index", leader, step);
  write_manifest(folder_ / manifest_name, manifest);  // written last: its sync makes all names of the folder durable
  fault_point("manifest", leader, step);
  rename();
  committed_ = true;
  fault_point("renamed", leader, step);
  sync_folder(folder_of(target_));
  std::error_code ignored;
  fs::remove_all(folder_, ignored);  // removes the older checkpoint, if it was exchanged
}

}  // namespace gyr
