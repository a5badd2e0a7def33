// SPDX-License-Identifier: BSD-3-Clause
// Sharded checkpoints, independent of the grid that wrote them: a manifest lists the full tensors and which file holds
// which box of each. Any grid reads the boxes that it needs. Each element is written exactly once, by one of the ranks
// that hold it.
#pragma once

#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/shard_writer.hpp"
#include "src/checkpoint/weight_source.hpp"
#include "src/engine/model/model_state.hpp"

namespace gyr {

// Number of shard files: one per rank, one per node (written by one rank of it), or a single file.
enum class Files { rank, node, single };
Files files_of(const std::string& name);  // `name`: "rank", "node" or "single"

struct SaveOptions {
  Files files = Files::rank;
  ShardOptions shard{};
  Retention retention{};
  bool async = false;  // write in a background thread; the caller waits only for the copy to host memory
};

// Result of a save.
struct Saved {
  std::filesystem::path path;
  std::int64_t step = 0;
  Index bytes = 0;                 // bytes of all tensors of the checkpoint
  int files = 0;                   // number of shard files
  double blocked_seconds = 0;      // seconds for which the caller on this rank was blocked
  double write_seconds = 0;        // seconds of the slowest writing rank plus the commit; without `async` equal to blocked_seconds
  std::vector<std::string> notes;  // older checkpoints that could not be removed, with reasons; on the first rank only
};

class Completion;
class Delivery;
struct PlacedTensor;

// Saves a model's state repeatedly as FOLDER/step_N. All calls are collective over the model's grid. An error of one
// rank (Exit::io, disk full) is thrown on all ranks. Checkpoints that are already committed stay intact.
class StateSaver {
 public:
  virtual ~StateSaver() = default;  // waits for the background thread; a save whose commit has not started is discarded

  // Saves the current state as step header.step, after finishing a save in progress. With `async`, the state may change
  // once this returns, and the result is that of the previous save. Otherwise the result is that of this save.
  virtual std::optional<Saved> save(CheckpointHeader header) = 0;
  // Advances a save in progress without waiting. Returns its result once, when it is committed.
  virtual std::optional<Saved> poll() = 0;
  virtual std::optional<Saved> finish() = 0;  // waits for the commit of a save in progress and returns its result

  virtual Index buffer_bytes() const = 0;  // bytes of this rank's host copy; 0 unless `async`
};

class Saver final : public StateSaver {
 public:
  // `writers[position]`: position of the rank that writes the data of the rank at `position`; if empty, `files`
  // decides.
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
  std::unique_ptr<Completion> in_flight_;  // declared after buffer_, so that it is destroyed before the buffer it writes from
  double blocked_seconds_ = 0;
};

// Bytes of the host copy of an asynchronous save, on a rank that writes its own file.
Index save_buffer_bytes(const ModelConfig&, DType precision, const Layout&, int position, const OptimizerConfig& = {});

// Bytes of all tensors of a checkpoint.
Index checkpoint_bytes(const ModelConfig&, DType precision, const Layout&, const OptimizerConfig& = {});

// Saves once and waits for the commit.
Saved save_checkpoint(const std::filesystem::path& folder, CheckpointHeader header, ModelState&, const SaveOptions& = {});

enum class LoadWhat { weights, everything };

// Reading of data that several ranks need: every rank reads the files, or the first data-parallel replica reads and
// broadcasts to the others.
enum class Reading { all, broadcast };
Reading reading_of(const std::string& name);  // `name`: "all" or "broadcast"

// Bytes that this rank has read to load a checkpoint.
struct LoadTraffic {
  Index elements = 0;  // bytes of the tensor elements that it requested
  Index disk = 0;      // bytes read from files for them; HDF5 chunks are read in full
};

// Fills the model's weights from a checkpoint of the same model in any precision, and with `everything` also the Adam
// moments. With `weights` the states start at zero. Master weights, and weights stored in another precision, are
// filled from the checkpoint's master weights if it has them. All files are first compared with their checksums; the
// ranks divide this work. Collective over the model's grid; an error on one rank is thrown on all. Exit::config naming
// the first tensor if the checkpoint belongs to another model, or if it lacks the states of a weight that is trained
// now but was frozen then. Zero moments with the bias correction of a late step would take steps several times the
// learning rate. Moments of weights that are frozen now are not read. Exit::data naming file and tensor if the content
// is damaged.
CheckpointHeader load_checkpoint(const std::filesystem::path& checkpoint, ModelState&, LoadWhat, Reading = Reading::all, LoadTraffic* = nullptr);

// The errors of load_checkpoint() for a checkpoint of another model or without the states of a trained weight, without
// reading a tensor. Not collective.
void check_checkpoint(const std::filesystem::path& checkpoint, const ModelState&);
// Exit::config naming the first tensor unless the source has exactly this model's weights in their shapes. Not
// collective.
void check_model(const WeightSource&, const ModelConfig&);

// Loads only the weights, from the source that `open` returns (see pretrained/weights.hpp). The target is a model whose
// optimizer state is reset, or a stage without optimizer. Collective over the grid; errors as above.
using OpenWeights = std::function<std::unique_ptr<WeightSource>()>;
void load_weights_from(const OpenWeights& open, ModelState&);
void load_weights_from(const OpenWeights& open, Grid&, const ModelConfig&, ParameterList, const Arrived& = {});
// Reads only this rank's shard of each of these weights. Not collective.
void load_weights(const WeightSource&, ParameterList);

}  // namespace gyr
