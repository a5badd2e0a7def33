// SPDX-License-Identifier: BSD-3-Clause
// The layers one rank of the pipeline holds, with the embedding on the first stage and the head on the last, and the activations of
// the micro-batches in flight: each has its own slot.
#pragma once

#include <deque>
#include <functional>
#include <span>

#include "modules/embedding.hpp"
#include "modules/head.hpp"
#include "modules/layer.hpp"
#include "src/grid.hpp"

namespace gyr {

// Tokens of one micro-batch, row b * seq_length + t; labels[r] is the token row r must predict, or ignored_label. positions[r] is the place of
// row r in its document where documents are packed into the sequences: none sees another. Empty: every sequence is one document. Every
// rank of a data coordinate has the same micro-batch.
struct MicroBatch {
  Index batch = 0, seq_length = 0;
  std::vector<Token> tokens, labels;
  std::vector<std::int32_t> positions = {};
};

template <class T>
class Stage {
 public:
  // Declares the weights of this rank's layers and makes the tensor blocks they need. Collective over the tensor axis.
  Stage(const ModelConfig&, Grid&, Trained = {});

  // Calls the hook with activations and their gradients from now on; null: no hook.
  void set_hook(Hook<T>* hook) { hook_ = hook; }

  Parameters<T>& parameters() { return parameters_; }
  const ModelConfig& config() const { return config_; }
  bool first() const { return first_; }
  bool last() const { return last_; }
  // Range of the flat gradients that belongs to the embedding, to each layer in order, to the head.
  const std::vector<Span>& ranges() const { return ranges_; }

  // Slots for micro-batches in flight, of `bytes` each; a dry run counts without limit.
  void make_slots(int count, Index bytes, bool dry_run);
  Index slot_bytes() const;  // high-water of the fullest slot
  Index slots_capacity() const;
  int slots() const { return int(slots_.size()); }

  // Brings the micro-batch into its slot. Where this is not the first stage, the tensor its input must be received into.
  Tensor2<T> begin(Device&, int slot, const MicroBatch&);
  // Runs the layers. On the last stage also the head: adds to `loss` the sum over labelled tokens, and, where scale is not 0, keeps the
  // gradient of scale * loss; where it is 0, `each`, if given, gets the score of every row. Returns the stage's output.
  Tensor2<T> forward(Device&, int slot, double scale, double& loss, std::vector<TokenScore>* each = nullptr);
  // Where the gradient of the output must be received, except on the last stage.
  Tensor2<T> begin_backward(int slot);
  // Adds up the gradients of the weights and returns the gradient of the input. `done(part)` is called when the gradients of part
  // (an index into ranges()) have got all that this micro-batch adds. On the first stage, parts below the lowest weight that is trained
  // are not run through.
  Tensor2<T> backward(Device&, int slot, const std::function<void(int)>& done);
  // Forgets a slot that no backward will follow.
  void end(int slot);

  // Generation, in slot 0: brings the tokens in. Where this is not the first stage, the tensor its input must be received into.
  Tensor2<T> begin(Device&, const Sequences&, std::span<const Token> tokens);
  // Runs the layers after what `state` remembers. Returns the stage's output.
  Tensor2<T> forward(Device&, StateStore& state);
  // On the last stage: next-token logits of this rank's vocabulary columns, (rows, vocab_size_here), of all rows or of each sequence's last.
  enum class Rows { all, last };
  Tensor2<Acc<T>> logits(Device&, Rows);
  Head<T>& head() { return *head_; }
  // The embedding's or tied head's weight, where this stage shares it with the other end of the pipeline; otherwise null.
  Parameter* shared_embedding();

 private:
  struct Slot {
    ActivationStore saved;
    Sequences sequences;
    std::vector<std::int32_t> host_positions;  // of every row
    Tensor1<Token> tokens, labels;
    Documents documents;
    Tensor2<Acc<T>> cosine, sine;
    Tensor2<T> input, output;
  };
  Pass<T> pass(Device&, Slot&);
  // The residual stream as it leaves the embedding (layer -1) or a layer of this stage, counted from 0.
  std::string stream_name(Index layer) const;
  Tensor2<T> forward(Pass<T>&, Slot&);
  Tensor2<T> run_through(Pass<T>&, Slot&);
  Tensor2<T> push_input(Slot&);
  void place(Device&, Slot&, std::span<const std::int32_t> packed);

  ModelConfig config_;
  Grid& grid_;
  bool first_, last_;
  Parameters<T> parameters_;
  std::unique_ptr<Embedding<T>> embedding_;
  std::vector<std::unique_ptr<Layer<T>>> layers_;
  std::unique_ptr<Head<T>> head_;
  std::vector<Span> ranges_;
  int lowest_ = 0;  // part where backward may end
  Index first_layer_;
  Hook<T>* hook_ = nullptr;
  std::deque<Slot> slots_;
};

}  // namespace gyr
