// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints are logical: a manifest names whole tensors and says which file holds which box of them, whatever grid wrote them, and any
// grid reads its own parts. Every number is written once, by the first rank that holds it.
#pragma once

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/weight_source.hpp"
#include "src/engine/model/model_state.hpp"

namespace gyr {

// Who writes files: every rank its own, one rank of each node what its node holds, or one rank everything.
enum class Files { rank, node, single };
Files files_of(const std::string& name);  // "rank", "node", "single"

struct SaveOptions {
  Files files = Files::rank;
  ShardOptions shard{};
  Retention retention{};
  bool async = false;  // the caller waits for a copy in memory only
};

// What became of a save.
struct Saved {
  std::filesystem::path path;
  std::int64_t step = 0;
  Index bytes = 0;                 // of tensors
  int files = 0;                   // with numbers in them
  double blocked_seconds = 0;      // that this rank's caller has waited
  double write_seconds = 0;        // of the slowest writing rank, and of the commit
  std::vector<std::string> notes;  // older checkpoints that could not be removed; known to the first rank
};

class Completion;
class Delivery;
struct PlacedTensor;

// Saves a model's state as FOLDER/step_N, again and again. Everything here is collective over its grid; an error of one rank (Exit::io, disk
// full) is thrown by all, and what was committed before stays as it was.
class StateSaver {
 public:
  virtual ~StateSaver() = default;  // waits for a writing thread; what is not committed by then will not be

  // Saves the present state as step header.step; ends a save that is under way first. With `async` the state may change as soon as this
  // returns, which tells of the save before; otherwise it tells of this one.
  virtual std::optional<Saved> save(CheckpointHeader header) = 0;
  // Takes a save under way further, without waiting: returns what it became, once.
  virtual std::optional<Saved> poll() = 0;
  virtual std::optional<Saved> finish() = 0;  // the same, waiting

  virtual Index buffer_bytes() const = 0;  // of this rank's copy, 0 unless `async`
};

class Saver final : public StateSaver {
 public:
  // `writers`: by position, who writes for it, in place of what `files` means on this machine.
  Saver(std::filesystem::path folder, const SaveOptions&, ModelState&, std::vector<int> writers = {});
  ~Saver() override;
  std::optional<Saved> save(CheckpointHeader header) override;
  std::optional<Saved> poll() override;
  std::optional<Saved> finish() override;
  Index buffer_bytes() const override;

 private:
  using Write = std::function<std::optional<ManifestFile>()>;
  void begin(CheckpointHeader header);
  Write hand_over(const std::filesystem::path& shard, const CheckpointHeader&);
  std::optional<Saved> ended();

  std::filesystem::path folder_;
  SaveOptions options_;
  ModelState& state_;
  std::unique_ptr<const std::vector<PlacedTensor>> tensors_;
  std::vector<StoredTensor> stored_;
  std::unique_ptr<const Delivery> delivery_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<Completion> in_flight_;  // behind the buffer it writes from
  double blocked_seconds_ = 0;
};

// Bytes of the copy that an asynchronous save takes on a rank that writes for itself.
Index save_buffer_bytes(const ModelConfig&, DType precision, const Layout&, int position, const Trained& = {});

// Saves once and waits.
Saved save_checkpoint(const std::filesystem::path& folder, CheckpointHeader header, ModelState&, const SaveOptions& = {});

enum class LoadWhat { weights, everything };

// How ranks that hold the same come by it: each reads for itself, or the first of those along the data axis reads and tells the others.
enum class Reading { all, broadcast };
Reading reading_of(const std::string& name);  // "all", "broadcast"

// What a rank has read.
struct LoadTraffic {
  Index numbers = 0;  // bytes of tensors that it wanted
  Index disk = 0;     // bytes that came from files for them, chunks being read whole
};

// Fills the engine's weights, and with `everything` its moments, from a checkpoint of the same model in any precision. With `weights`
// the moments start at zero. Masters, and weights stored in another precision, come from the checkpoint's masters where it has them.
// The ranks first share the work of comparing all files with their checksums. Collective over the engine's grid; an error on one rank is
// thrown by all. Exit::config naming the first tensor where the checkpoint is of another model, or holds no moments of a weight that is
// trained now (it was frozen then): moments at zero beside a late step's bias correction would take steps of several times the learning rate.
// Moments of weights that are frozen now are not read. Exit::data naming file and tensor where its content is damaged.
CheckpointHeader load_checkpoint(const std::filesystem::path& checkpoint, ModelState&, LoadWhat, Reading = Reading::all, LoadTraffic* = nullptr);

// Exit::config naming the first tensor unless the checkpoint is of a model of these shapes. Not collective.
void check_shapes(const std::filesystem::path& checkpoint, const ModelConfig&);

// The weights alone, of what `open` gives (see pretrained/weights.hpp), with an optimizer that has seen nothing, or into a stage that has
// none. Collective over the grid; errors as above.
using OpenWeights = std::function<std::unique_ptr<WeightSource>()>;
void load_weights_from(const OpenWeights& open, ModelState&);
void load_weights_from(const OpenWeights& open, Grid&, const ModelConfig&, ParameterList, const Arrived& = {});
// This rank's part of each of these weights, and nothing else, is read. Not collective.
void load_weights(const WeightSource&, ParameterList);

}  // namespace gyr
