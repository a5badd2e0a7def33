// SPDX-License-Identifier: BSD-3-Clause
// What follows once a checkpoint's numbers are copied or handed to their file: every writing rank finishes its file, all agree that all
// files are on disk, and the first rank commits the folder and removes older ones. Another thread does the work; the ranks agree in this
// one, since only it speaks MPI.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/transaction.hpp"

namespace gyr {

class Completion {
 public:
  // What this rank writes, if anything.
  using Write = std::function<std::optional<ManifestFile>()>;

  // `manifest` has header and tensors; only the first rank has a transaction.
  Completion(Communicator& world, const std::filesystem::path& folder, const SaveOptions&, Manifest manifest, std::unique_ptr<Transaction>, Write);

  // Goes on as far as that needs no waiting; true when the checkpoint is committed. Collective; an error of one rank is thrown by all, and
  // nothing is left of the checkpoint.
  bool advance();
  const Saved& saved() const { return saved_; }

 private:
  struct Result {
    std::optional<ManifestFile> file;  // of a writing rank
    std::vector<std::string> notes;    // of the committing one
    double seconds = 0;
  };
  std::future<Result> start(std::function<void(Result&)>) const;
  Result agreed(std::future<Result>&);  // this rank's, once no rank has failed
  bool all_ready(const std::future<Result>&);
  void collect(const std::optional<ManifestFile>& mine);
  void commit(Result&);

  Communicator& world_;
  SaveOptions options_;
  Manifest manifest_;
  std::unique_ptr<Transaction> transaction_;
  bool written_ = false;
  Saved saved_;
  std::future<Result> writing_, committing_;  // last member: the threads end before the members that they use are destroyed
};

}  // namespace gyr
