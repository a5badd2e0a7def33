// SPDX-License-Identifier: BSD-3-Clause
// Second half of a save, after the data was copied to host memory or written to the shard file. Every writing rank
// finishes its file, all ranks agree that all files are on disk, and the first rank commits the folder and removes
// older checkpoints. A background thread does the file work; only the calling thread uses MPI.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/transaction.hpp"

namespace gyr {

class Completion {
 public:
  // Finishes this rank's shard file and returns its manifest entry; nullopt on a rank that writes none.
  using Write = std::function<std::optional<ManifestFile>()>;

  // `manifest` contains header and tensors, no files yet. Only the first rank passes a transaction.
  Completion(Communicator& world, const std::filesystem::path& folder, const SaveOptions&, Manifest manifest, std::unique_ptr<Transaction>, Write);

  // Advances the save without waiting; returns true once the checkpoint is committed. Collective. An error of one rank
  // is thrown on all ranks, and the unfinished checkpoint is removed.
  bool advance();
  const Saved& saved() const { return saved_; }

 private:
  struct Result {
    std::optional<ManifestFile> file;  // entry of this rank's file, if it writes one
    std::vector<std::string> notes;    // failed removals of older checkpoints, on the committing rank
    double seconds = 0;
  };
  std::future<Result> start(std::function<void(Result&)>) const;
  Result agreed(std::future<Result>&);  // this rank's result; throws on all ranks if one failed
  bool all_ready(const std::future<Result>&);
  void collect(const std::optional<ManifestFile>& mine);
  void commit(Result&);

  Communicator& world_;
  SaveOptions options_;
  Manifest manifest_;
  std::unique_ptr<Transaction> transaction_;
  bool written_ = false;
  Saved saved_;
  std::future<Result> writing_, committing_;  // last members: their threads end before the members that they use are destroyed
};

}  // namespace gyr
