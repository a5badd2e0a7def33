// SPDX-License-Identifier: BSD-3-Clause
// What one rank of a pipeline holds of a model: its chunks, their weights, and slots for the micro-batches that are under way in each.
#pragma once

#include <deque>

#include "src/engine/memory/capacity.hpp"
#include "src/engine/model/chunk.hpp"
#include "src/parallel/grid.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

class Stage {
 public:
  // Declares the weights of this rank's layers, of this scalar, and makes the tensor blocks they need. Collective over the tensor axis.
  Stage(const ModelConfig&, DType, Grid&, Trained = {}, const RecomputeConfig& = {}, Factors = Factors::stored, const OffloadConfig& = {});

  // Takes memory for weights and gradients, and beside the weights for the angles of so many positions.
  void allocate(Arena& weights, Arena& gradients, Gradients, Index positions);
  // Brings the weights in: `load` fills each of them and then tells that it is there.
  void fill(const std::function<void(ParameterList, const Arrived&)>& load);

  // Calls the hook with activations and their gradients from now on; null: no hook.
  void set_hook(Hook* hook) { hook_ = hook; }

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  bool first() const { return chunks_.front()->first(); }  // whether it holds the embedding
  bool last() const { return chunks_.back()->last(); }     // whether it holds the head
  Chunk& chunk(int i) { return *chunks_[i]; }
  int chunks() const { return int(chunks_.size()); }
  // The parts of all chunks and their buckets.
  BucketPlan buckets() const;

  // Makes slots for the forwards of each chunk; a dry run counts without limit.
  void make_slots(const std::vector<SlotMemory>&, bool dry_run);
  // The same in memory that there is, from its begin.
  void make_slots(const std::vector<SlotMemory>&, const Arena& memory);
  Slot& slot(int chunk, int i) { return slots_[chunk][i]; }
  std::vector<SlotMemory> slots() const;  // their numbers and the high-water of the fullest of each chunk
  Index slots_capacity() const;           // bytes of all

  // Makes slots for forwards with backwards, so many of each chunk: in a dry run they rehearse, else they replay what was rehearsed, one
  // chunk's behind the other's in the memory, with what they share behind the last; what is swapped lies in memory of the host.
  void rehearse(const std::vector<int>& counts);
  void replay(const std::vector<ReplayedSlots>&, const Arena& memory, const Queue&);
  Slot& training_slot(int chunk, int i) { return training_slots_[chunk][i]; }
  std::vector<ReplayedSlots> rehearsed() const;  // planned
  std::vector<ReplayedSlots> replayed() const;   // the bytes that have been used

  // This rank's tokens of such a micro-batch, and of the source.
  SequenceLayout sequences(const MicroBatch& batch) const { return grid_.layout().sequences(grid_.position(), batch.batch, batch.seq_length); }
  SequenceLayout source_of(const MicroBatch& batch) const {
    return batch.source_length > 0 ? grid_.layout().sequences(grid_.position(), batch.batch, batch.source_length) : SequenceLayout();
  }
  Pass pass(Device&, Slot&);
  // That of the source; nothing where the slot has none.
  std::optional<Pass> source_pass(Device&, Slot&);

  // Generation with the one chunk there is, in slot 0: brings the tokens in. Where this is not the first stage, the tensor its input must be
  // received into.
  Bundle begin(Device&, const SequenceLayout&, std::span<const Token> tokens, const GivenText& source = {});
  // Runs the layers after what `state` remembers. Returns the stage's output.
  Bundle forward(Device&, StateStore& state);
  // On the last stage: this rank's columns of what the head predicts, (rows, columns_here), of all rows or of each sequence's last, in the
  // accumulator's precision.
  enum class Rows { all, last };
  AnyTensor2 logits(Device&, Rows);
  Head& head() { return *chunks_.back()->head(); }
  // The embedding's matrix, where this stage shares it with the other end of the pipeline; otherwise null.
  Parameter* shared_embedding();

 private:
  Pass pass_of(Device&, const Text&, bool causal, Hook*);

  struct Keys {
    static constexpr Key<AnyTensor2> last_rows{"last rows"}, logits{"logits"};
  };

  ModelConfig config_;
  Grid& grid_;
  Parameters parameters_;
  std::optional<RotaryTables> rotary_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Hook* hook_ = nullptr;
  std::vector<std::deque<Slot>> slots_, training_slots_;  // of each chunk
  std::vector<std::shared_ptr<Script>> scripts_;          // of each chunk, in a dry run
  OffloadConfig swap_;
  HostMemory host_memory_;
  std::unique_ptr<HostCopies> host_copies_;
};

}  // namespace gyr
