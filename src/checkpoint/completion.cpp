// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/completion.hpp"

#include <chrono>

#include "src/base/fault_point.hpp"
#include "src/base/output_file.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace {
using Clock = std::chrono::steady_clock;
}

Completion::Completion(Communicator& world, const std::filesystem::path& folder, const SaveOptions& options, Manifest manifest,
                       std::unique_ptr<Transaction> transaction, Write write)
    : world_(world), options_(options), manifest_(std::move(manifest)), transaction_(std::move(transaction)),
      writing_(start([write = std::move(write)](Result& r) { r.file = write(); })) {
  saved_.step = manifest_.header.step;
  saved_.path = checkpoint_path(folder, saved_.step);
}

std::future<Completion::Result> Completion::start(std::function<void(Result&)> work) const {
  return std::async(std::launch::async, [work = std::move(work)] {
    const Clock::time_point begin = Clock::now();
    Result result;
    work(result);
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return result;
  });
}

bool Completion::all_ready(const std::future<Result>& work) {
  const bool ready = work.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
  return world_.sum(ready) == world_.size();
}

Completion::Result Completion::agreed(std::future<Result>& work) {
  Result mine;
  try {
    collective_check(world_, [&] { mine = work.get(); });
  } catch (...) {  // collective_check throws on every rank
    transaction_.reset();
    world_.barrier();
    throw;
  }
  return mine;
}

// Gathers the manifest entries of all shard files on the first rank.
void Completion::collect(const std::optional<ManifestFile>& mine) {
  for (std::string& text : gather_texts(world_, mine ? text_of(*mine) : ""))
    if (!text.empty()) manifest_.files.push_back(manifest_file(text, "another rank"));
}

void Completion::commit(Result& result) {
  if (!transaction_) return;
  const std::int64_t step = saved_.step;
  const std::string run = manifest_.header.run;
  const std::filesystem::path folder = saved_.path.parent_path();
  transaction_->commit(std::move(manifest_));
  OutputFile latest(folder / "latest");  // file with the name of the newest checkpoint, for users and for runs whose checkpoints carry no run id
  latest.append(saved_.path.filename().string() + "\n");
  latest.commit();
  fault_point("latest", world_.rank(), step);
  describe_folder(folder);
  result.notes = prune(folder, step, options_.retention, run);
  fault_point("pruned", world_.rank(), step);
}

bool Completion::advance() {
  if (!written_) {
    if (!all_ready(writing_)) return false;
    const Result mine = agreed(writing_);
    fault_point("agreed", world_.rank(), saved_.step);
    saved_.bytes = manifest_.bytes();
    saved_.files = int(world_.sum(mine.file ? 1 : 0));
    saved_.write_seconds = world_.max(mine.seconds);
    collect(mine.file);
    committing_ = start([this](Result& r) { commit(r); });
    written_ = true;
  }
  if (!all_ready(committing_)) return false;
  Result mine = agreed(committing_);
  saved_.write_seconds += world_.max(mine.seconds);
  saved_.notes = std::move(mine.notes);
  transaction_.reset();
  return true;
}

}  // namespace gyr
