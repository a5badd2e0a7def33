// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <optional>

#include "regression/support/cases.hpp"
#include "regression/support/folder.hpp"

namespace gyr::testing {

// A temporary folder that rank 0 creates and removes, and whose path all ranks have.
class SharedFolder {
 public:
  SharedFolder() {
    std::string path(4096, '\0');
    if (rank() == 0) own_.emplace(), path.replace(0, own_->path().string().size(), own_->path().string());
    sync_ranks();
    MPI_Bcast(path.data(), int(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = path.c_str();
  }
  ~SharedFolder() { sync_ranks(); }
  static int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::optional<Folder> own_;
  std::filesystem::path path_;
};

}  // namespace gyr::testing
