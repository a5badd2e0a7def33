// SPDX-License-Identifier: BSD-3-Clause
// Consecutive layers of the model, with the embedding before the first and the head behind the last of all. A rank of a pipeline holds one
// chunk or several; what a micro-batch leaves in a chunk for its backward lies in a slot.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "modules/layers/embedding.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/objective.hpp"
#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/recompute.hpp"
#include "src/engine/memory/offload.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

// Tokens of one micro-batch, row b * seq_length + t; labels[r] is what row r is scored by (objective.hpp), or ignored_label. positions[r] is the
// place of row r in its document where documents are packed into the sequences: none sees another. Empty: every sequence is one document. Every rank
// of a data coordinate has the same micro-batch.
struct MicroBatch {
  Index batch = 0, seq_length = 0;
  std::vector<Token> tokens, labels;
  std::vector<std::int32_t> positions = {};
  Index first_sample = 0;  // number, in the run, of the first sequence; the others follow it
  // For a model with an encoder: of each sequence the source that it reads, row b * source_length + t, of which the first source_lengths[b] tokens
  // are its text and the others mere padding; none given: all are.
  Index source_length = 0;
  std::vector<Token> source = {};
  std::vector<Index> source_lengths = {};
  // Where the order of a text's halves is told: types of tokens, and labels of rows that tell it, as labels are; none: the first type, no label.
  std::vector<Token> types = {}, order = {};
  TextPairs pairs = {};  // of all sequences, where the objective compares texts
};

// Tokens of a micro-batch that this rank has, and where they stand.
struct Text {
  SequenceLayout sequences = {};
  std::vector<std::int32_t> positions = {}, whole_positions = {};  // of every row; of documents, all ranks' tokens in their order
  std::vector<std::int32_t> ahead = {}, whole_ahead = {};          // tokens of a row's document behind it, the same
  Tensor1<Token> tokens = {};
  Tensor1<Token> types = {};  // empty: all have the first
};

// What a micro-batch is and what its forward keeps: in the frame itself what all layers see, in nested ones what each part keeps.
struct Slot {
  // Forwards alone: a stack.
  explicit Slot(Arena memory) : arena(std::move(memory)) {}
  // Forwards and backwards follow a tape, which tells where everything lies.
  Slot(Tape memory, bool dry_run) : tape(std::move(memory)), arena(Arena::make(Memory::activations, 0, dry_run)) { arena.follow(&*tape); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // The micro-batch has gone.
  void clear() {
    if (swap) swap->clear();
    frame.clear();
    if (tape) tape->rewind();
  }

  std::optional<Tape> tape;
  Arena arena;
  Frame frame{arena, "micro-batch"};
  Text text = {}, source = {};                                       // source: what an encoder reads, where the pass has one
  std::vector<std::int32_t> visible_begins = {}, visible_ends = {};  // how far rows of the text see along the source
  Labels labels = {};
  Tensor1<const DrawnAt> drawn_at = {};   // (1) of dropout, where there is some
  Bundle stream = {}, gradient = {};      // what comes in and then goes out; its gradient on the way back
  std::vector<Bundle> inputs = {};        // what entered each layer
  std::optional<OffloadQueue> swap = {};  // what layers have kept and lies on the host
};

// What generation reads at once.
struct GivenText {
  SequenceLayout sequences = {};
  std::span<const Token> tokens = {};
};

class Chunk {
 public:
  // Declares the weights of the model's layers `layers`. `table`: the embedding's, where a tied head lies on the same rank. The stream that
  // goes in and out is one of so many shares.
  Chunk(const ModelConfig&, Span layers, Parameters&, Parameter* table, int stream_parts, const RecomputeConfig&, const OffloadConfig& = {});

  bool first() const { return embedding_ != nullptr; }  // of the model
  bool last() const { return head_ != nullptr; }
  // Groups of the weights of each part: of the embedding, of each layer in order, of the head.
  const std::vector<Span>& groups() const { return groups_; }
  Embedding* embedding() { return embedding_.get(); }
  Head* head() { return head_.get(); }

  // Brings this rank's tokens of the micro-batch into an empty slot. Where this is not the first chunk, the tensors its input must be received into.
  Bundle begin(Device&, Slot&, const SequenceLayout& text, const MicroBatch&, const SequenceLayout& source = {}) const;
  // What dropout is drawn by, of a micro-batch that has been brought in.
  void draw(Device&, Slot&, const DrawnAt&) const;
  // Runs through the parts [first, last) of groups(), the first of which is the one behind where it ended before. The head adds to `loss`, on the
  // device, the sum over labelled rows, and, where there are scales (head.hpp), keeps the gradient of scale * loss; where there are none, `said`, if
  // given, gets the score of every row. The slot's stream is their output then.
  void forward(Pass&, Slot&, const Span& parts, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* said = nullptr);
  // Where the gradient of the output must be received, except on the last chunk. The output has been sent: its memory is free.
  Bundle begin_backward(Slot&) const;
  // Runs back through the parts [first, last), the last of which is the one below where it ended before: from the slot's gradient
  // of their output to that of their input, and to the gradients of their weights, or of some of them. On the first chunk, parts below the
  // lowest weight that is trained are not run through.
  void backward(Pass&, Slot&, const Span& parts, MatrixGradients);
  // What that has left.
  void backward_weights(Pass&, Slot&, const Span& parts);

  // Generation: brings the tokens in, as above; those of a source when its sequence begins.
  Bundle begin(Device&, Slot&, const GivenText& text, const GivenText& source = {}) const;
  // Runs the layers after what the pass's state remembers, and keeps nothing. The slot's stream is the chunk's output then.
  void run_through(Pass&, Slot&);
  // The head's frame in a slot.
  Frame& head_frame(Slot& slot) const { return slot.frame.nested(int(groups_.size()) - 1, "head"); }

 private:
  // The residual stream as it leaves the embedding (layer -1) or a layer of this chunk, counted from 0.
  std::string stream_name(Index layer) const;
  struct Keys {
    static constexpr Key<Tensor1<Token>> labels{"labels"};
    static constexpr Key<Tensor1<DrawnAt>> drawn_at{"step and sample of dropout"};
    static constexpr Key<Tensor1<Token>> picked{"labelled rows"}, picked_labels{"their labels"}, places{"places among labelled rows"};
    static constexpr Key<Tensor2<Token>> ahead{"tokens ahead and their labels"};
    static constexpr Key<Tensor1<Token>> texts{"texts of rows"}, pairs{"labels of pairs"};
    static constexpr Key<Tensor1<double>> references{"references of texts"};
    static constexpr Key<Tensor1<Token>> order{"labels of the order"}, types{"types of tokens"};
    static constexpr Key<Tensor1<std::int32_t>> visible_begins{"where rows begin to see the source"}, visible_ends{"where they see the last of it"};
  };
  // Of a text, and of a source.
  struct TextKeys {
    Key<Tensor1<Token>> tokens;
    Key<Tensor1<std::int32_t>> positions, whole_positions, ahead, whole_ahead;
  };
  static constexpr TextKeys text_keys{{"token ids"}, {"positions"}, {"positions of all ranks"}, {"tokens ahead"}, {"tokens ahead of all ranks"}},
      source_keys{{"token ids of the source"},
                  {"positions of the source"},
                  {"positions of all ranks' source"},
                  {"tokens ahead of the source"},
                  {"tokens ahead of all ranks' source"}};
  // Of what comes in, and of its gradient.
  struct BundleKeys {
    Key<AnyTensor2> x, source, bias;
  };
  static constexpr BundleKeys input_keys{{"input"}, {"source"}, {"bias of distances"}},
      gradient_keys{{"gradient"}, {"gradient of the source"}, {"gradient of the bias of distances"}};
  int part_of(Index layer) const { return int(layer) + int(first()); }  // layer -1: the embedding
  Frame& frame_of(Slot& slot, Index layer) const { return slot.frame.nested(part_of(layer), "part"); }
  void embed(Pass&, Slot&);
  void run_and_keep(Pass&, Slot&, Index part);
  void run(Pass&, Slot&, Index part);
  void score(Pass&, Slot&, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* said);
  Bundle put_input(Slot&) const;
  Bundle put(Slot&, const BundleKeys&) const;
  AnyTensor2 put_stream(Slot&, const SequenceLayout&, const Key<AnyTensor2>&) const;
  // A text on its way in. `both_ways`: it is seen so.
  struct Arriving {
    Text& text;
    const TextKeys& keys;
    bool both_ways;
    std::vector<std::int32_t> documents = {};  // positions of whole sequences in documents, where there are some
  };
  static std::vector<std::int32_t> documents_of(const SequenceLayout&, std::span<const std::int32_t> packed, bool both_ways);
  static std::vector<std::int32_t> documents_of_source(const SequenceLayout&, std::span<const Index> lengths);
  static void place(Device&, Slot&, const Arriving&);
  static void upload_full_positions(Device&, Slot&, const Arriving&);
  void upload_inputs(Device&, Slot&, const Arriving&, std::span<const Token> tokens) const;
  void upload_source_ranges(Device&, Slot&, std::span<const Index> source_lengths) const;
  void label(Device&, Slot&, std::span<const Token> labels) const;
  void upload_mtp_tokens(Device&, Slot&, const MicroBatch&) const;
  void upload_pairs(Device&, Slot&, const TextPairs&) const;
  void label_halves(Device&, Slot&, const MicroBatch&) const;
  // The layer that a part is; null: it is the embedding or the head.
  Layer* layer_of(Index part) const;
  bool in_encoder(Index layer) const { return first_layer_ + layer < layers_of_encoder(config_); }
  Frame& frame_of_source(Frame& frame) const { return frame.nested(0, "source"); }
  // The pass as layer `layer` needs it, and what of the bundles is the layer's: an encoder's stream is the source.
  Pass pass_of(const Pass&, Index layer, const Bundle& stream, const Bundle& gradient) const;
  Bundle part_for(Index layer, const Bundle&) const;
  void take_back(Index layer, const Bundle& part, Bundle&) const;
  void backward_part(Pass&, Slot&, Index part, MatrixGradients);
  void backward_embedding(Pass&, Slot&);
  Recompute recompute_of(Index layer) const {
    const char symbol = config_.pattern[first_layer_ + layer];
    return symbol == encoder_end ? Recompute() : recompute_.of(symbol);  // what it makes is read by all that follow
  }
  void recompute_forward(const Pass&, Slot&, Index layer);
  // What is needed soonest, the last two layers' of the model, stays.
  bool swaps(Index layer) const;
  void swap_out(Pass&, Slot&, Index layer, const void* output);
  bool swap_in(Pass&, Slot&, Index layer);

  ModelConfig config_;
  DType dtype_;
  Index first_layer_;
  Index heads_here_;  // of attention, on this rank
  int stream_parts_;
  RecomputeConfig recompute_;
  OffloadConfig swap_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<Head> head_;
  std::vector<Span> groups_;
  Index lowest_ = 0;  // part where backward may end
};

}  // namespace gyr
