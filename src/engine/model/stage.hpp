// SPDX-License-Identifier: BSD-3-Clause
// The part of a model on one pipeline rank: its chunks, their weights, and slots for the micro-batches in flight in
// each chunk.
#pragma once

#include <deque>

#include "src/engine/memory/capacity.hpp"
#include "src/engine/model/neighbours_here.hpp"
#include "src/parallel/grid.hpp"
#include "src/parallel/program.hpp"

namespace gyr {

class Stage {
 public:
  // Declares the weights of this rank's layers in this type, and makes the communicators that they need. Collective
  // over the tensor axis.
  Stage(const ModelConfig&, DType, Grid&, Trained = {}, const RecomputeConfig& = {}, Factors = Factors::stored, const OffloadConfig& = {});

  // Allocates weights and gradients. Weight memory also gets rotary tables for this number of positions.
  void allocate(Arena& weights, Arena& gradients, Gradients, Index positions);
  // Loads the weights: `load` fills each of them, and calls Arrived when one is complete.
  void fill(const std::function<void(ParameterList, const Arrived&)>& load);

  // Recipe of the GEMMs of linear layers in passes from now on; generation uses the type of the model.
  void multiply_in(Fp8Recipe recipe) { fp8_ = recipe; }
  // Calls the hook with activations and their gradients from now on; null: no hook.
  void set_hook(Hook* hook) { hook_ = hook; }

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  bool first() const { return chunks_.front()->first(); }  // true if this stage holds the embedding
  bool last() const { return chunks_.back()->last(); }     // true if this stage holds the head
  Chunk& chunk(int i) { return *chunks_[i]; }
  int chunks() const { return int(chunks_.size()); }
  // Parts of all chunks, and the buckets of their weights.
  BucketPlan buckets() const;

  // Makes the forward-only slots of each chunk; a dry run counts without limit.
  void make_slots(const std::vector<SlotMemory>&, bool dry_run);
  // Makes forward-only slots in existing memory, from its start.
  void make_slots(const std::vector<SlotMemory>&, const Arena& memory);
  Slot& slot(int chunk, int i) { return slots_[chunk][i]; }
  std::vector<SlotMemory> slots() const;  // number of slots of each chunk, and peak bytes of its largest slot
  Index slots_capacity() const;           // bytes of all forward-only slots

  // Makes the training slots of each chunk. rehearse: a dry run records their allocations, with this number of slots
  // per chunk, for each capacity in `rooms`. replay: slots use the recorded plan, chunk after chunk in `memory`, with the
  // shared part after the last chunk. Offloaded activations are in host memory.
  void rehearse(const std::vector<int>& counts, const std::vector<Index>& rooms = {});
  void replay(const std::vector<ReplayedSlots>&, const Arena& memory, const Queue&);
  Slot& training_slot(int chunk, int i) { return training_slots_[chunk][i]; }
  std::vector<ReplayedSlots> rehearsed() const;  // training slots with their memory plan, after a dry run
  std::vector<ReplayedSlots> replayed() const;   // training slots per chunk, with the peak bytes used so far

  // Layout of this rank's tokens of such a micro-batch, and of its encoder inputs of this length.
  SequenceLayout sequences(const MicroBatch& batch) const { return grid_.layout().sequences(grid_.position(), batch.batch, batch.seq_length); }
  // The neighbours of the chunks of a text are sequences of their own, which context-parallel ranks do not share. So are images.
  SequenceLayout source_of(const MicroBatch& batch, Index length) const {
    if (length == 0) return {};
    if (reads_images(config_)) return {batch.batch * length / config_.vision.rows(), config_.vision.rows()};
    if (!reads_neighbours(config_)) return grid_.layout().sequences(grid_.position(), batch.batch, length);
    return layout_of_neighbours(sequences(batch), config_.retrieval);
  }
  Pass pass(Device&, Slot&);
  // Pass over the encoder input; none if the slot has no encoder input.
  std::optional<Pass> source_pass(Device&, Slot&);

  // Generation with the stage's only chunk, in slot 0: copies the tokens. Returns the tensors to receive into, if this is not the first stage.
  Bundle begin(Device&, const SequenceLayout&, std::span<const Token> tokens, const GivenText& source = {});
  // Runs the layers with the KV cache and SSM state of `state`. Returns the stage's output.
  Bundle forward(Device&, StateStore& state);
  // On the last stage: this rank's columns of the head's output, (rows, columns_here), of all rows or of the last row
  // of each sequence, in the accumulator's precision.
  enum class Rows { all, last };
  AnyTensor2 logits(Device&, Rows);
  Head& head() { return *chunks_.back()->head(); }
  // The embedding matrix, if this stage shares it with the other end of the pipeline (tied embedding); otherwise null.
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
  Fp8Recipe fp8_ = Fp8Recipe::none;
  std::vector<std::deque<Slot>> slots_, training_slots_;       // forward-only slots and training slots, by chunk
  std::vector<std::vector<std::shared_ptr<Script>>> scripts_;  // recorded allocation scripts of a dry run, by chunk and room
  OffloadConfig offload_;
  HostMemory host_memory_;
  std::unique_ptr<HostCopies> host_copies_;
};

}  // namespace gyr
