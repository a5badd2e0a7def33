// SPDX-License-Identifier: BSD-3-Clause
// A chunk (virtual pipeline stage): consecutive layers of the model. The first chunk of the model also has the
// embedding, the last one the head. A pipeline rank holds one or more chunks. A slot holds what the forward of one
// micro-batch saves in a chunk for its backward.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "modules/layers/embedding.hpp"
#include "modules/model/bundle_shapes.hpp"
#include "modules/model/front.hpp"
#include "modules/model/layer.hpp"
#include "modules/objectives/objective.hpp"
#include "src/engine/config/offload_config.hpp"
#include "src/engine/config/recompute.hpp"
#include "src/engine/memory/offload.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

// Input of an encoder for all sequences of a micro-batch, row b * length + t. The first lengths[b] rows of a sequence are
// its input, the others padding. Empty lengths: no padding.
// With retrieval, the length is that of all k neighbours of the l chunks of a text, each of r tokens: the n-th neighbour of
// chunk c of sequence b has the tokens from ((n B + b) l + c) r on, and lengths[(n B + b) l + c].
// With a vision tower, the rows of a sequence are those of its images, one image after the other.
struct EncoderInput {
  Index length = 0;  // 0: there is no input
  std::vector<Token> tokens = {};
  std::vector<Index> lengths = {};
  NamedHostValues values = {};  // fields of the encoder's front (front.hpp)
};

// Tokens of one micro-batch, row b * seq_length + t. labels[r]: training target of row r (objective.hpp), or
// ignored_label. positions[r]: position of row r in its document if documents are packed, which do not see each other;
// empty: every sequence is one document. All ranks with the same data coordinate get the same micro-batch.
struct MicroBatch {
  Index batch = 0, seq_length = 0;
  std::vector<Token> tokens, labels;
  std::vector<std::int32_t> positions = {};
  Index first_sample = 0;  // index, within the run, of the first sequence; the others follow it
  // Tokens of each sequence without padding, by which dynamic RoPE scales it; empty: no padding. Packed documents are
  // scaled by their own lengths.
  std::vector<Index> lengths = {};
  EncoderInput source = {};
  NamedHostValues values = {};  // fields of the objective (named_values.hpp), for all sequences
};

// This rank's tokens of a micro-batch, with their positions.
struct Text {
  SequenceLayout sequences = {};
  // positions: of each local row; full_positions: within documents, for the full sequences of all context-parallel
  // ranks
  std::vector<std::int32_t> positions = {}, full_positions = {};
  std::vector<std::int32_t> ahead = {}, full_ahead = {};  // number of tokens after each row in its document: for local rows; for the full sequences
  Tensor1<Token> tokens = {};
  NamedDeviceValues values = {};  // encoder input: fields of its front
};

// A micro-batch in a chunk, with the tensors that its forward saves. The frame itself holds tensors that all layers
// use; nested frames hold those of each part (embedding, layer, head).
struct Slot {
  // Forward-only slot: its memory is a stack.
  explicit Slot(Arena memory) : arena(std::move(memory)) {}
  // Training slot: a tape (recorded memory plan) gives the place of each tensor.
  Slot(Tape memory, bool dry_run) : tape(std::move(memory)), arena(Arena::make(Memory::activations, 0, dry_run)) { arena.follow(&*tape); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // Frees everything at the end of a micro-batch.
  void clear() {
    if (offload) offload->clear();
    frame.clear();
    if (tape) tape->rewind();
  }

  std::optional<Tape> tape;
  Arena arena;
  Frame frame{arena, "micro-batch"};
  Text text = {}, source = {};  // text: decoder or only text; source: encoder input, if the pass has one
  // cross-attention: for each decoder row, counts of visible source tokens before and after the index that equals the
  // row's position
  std::vector<std::int32_t> visible_begins = {}, visible_ends = {};
  Labels labels = {};
  Tensor1<const DrawnAt> drawn_at = {};      // (1) step and first sample, which determine dropout; empty without dropout
  Bundle stream = {}, gradient = {};         // stream: input of the chunk, then its output; gradient: of the output, then of the input
  std::vector<Bundle> inputs = {};           // input of each layer of the chunk, which its backward reads
  std::optional<OffloadQueue> offload = {};  // host copies of saved activations; empty: nothing is offloaded
};

// Tokens that one generation pass reads.
struct GivenText {
  SequenceLayout sequences = {};
  std::span<const Token> tokens = {};
  std::span<const Index> lengths = {};  // neighbours: length of each sequence; otherwise empty
};

class Chunk {
 public:
  // Declares the weights of layers `layers` of the model. `table`: the embedding matrix, if a tied head is on the same
  // rank. `stream_parts`: number of ranks over which the rows of the residual stream are sharded (sequence parallelism;
  // otherwise 1).
  Chunk(const ModelConfig&, Span layers, Parameters&, Parameter* table, int stream_parts, const RecomputeConfig&, const OffloadConfig& = {});

  bool first() const { return embedding_ != nullptr; }  // true for the first chunk of the model, which has the embedding
  bool last() const { return head_ != nullptr; }
  // Ranges of parameter groups of each part: embedding, each layer in order, head.
  const std::vector<Span>& groups() const { return groups_; }
  Embedding* embedding() { return embedding_.get(); }
  Head* head() { return head_.get(); }

  // Copies this rank's tokens of the micro-batch into an empty slot. Returns the input tensors to receive into; an
  // empty bundle on the first chunk.
  Bundle begin(Device&, Slot&, const SequenceLayout& text, const MicroBatch&, const SequenceLayout& source = {}) const;
  // Uploads the step and sample number that determine the dropout of the micro-batch in the slot.
  void draw(Device&, Slot&, const DrawnAt&) const;
  // Runs the forward of parts [first, last) of groups(), continuing where the previous call ended. The head adds the
  // loss sum over labelled rows to `loss` on the device. With `scales` (head.hpp) it also computes the gradient of
  // scale * loss; without, `scores`, if given, receives the score of every row. The slot's stream is then the output.
  void forward(Pass&, Slot&, const Span& parts, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* scores = nullptr);
  // Returns the tensors to receive the gradient of the output into; on the last chunk the slot already holds it. Frees
  // the output, which must have been sent.
  Bundle begin_backward(Slot&) const;
  // Runs the backward of parts [first, last) in reverse order, continuing where the previous call ended. The slot's
  // gradient changes from that of their output to that of their input. Weight gradients are added up; with
  // MatrixGradients::later those of matrices are left to backward_weights. Parts of the first chunk below the lowest
  // trained weight are skipped.
  void backward(Pass&, Slot&, const Span& parts, MatrixGradients);
  // Adds the gradients of matrices that backward has left out (MatrixGradients::later).
  void backward_weights(Pass&, Slot&, const Span& parts);

  // Generation: copies the tokens into the slot, like begin above. `source`: encoder input, given only when its
  // sequence begins.
  Bundle begin(Device&, Slot&, const GivenText& text, const GivenText& source = {}) const;
  // Runs the layers of the chunk with the generation state of the pass (KV cache, SSM state) and saves nothing for a
  // backward. The slot's stream is then the output.
  void run_through(Pass&, Slot&);
  // Frame of the head in a slot.
  Frame& head_frame(Slot& slot) const { return slot.frame.nested(int(groups_.size()) - 1, "head"); }

 private:
  // Name of the residual stream after the embedding (layer -1) or after a layer of this chunk, counted from 0.
  std::string stream_name(Index layer) const;
  struct Keys {
    static constexpr Key<Tensor1<Token>> labels{"labels"};
    static constexpr Key<Tensor1<DrawnAt>> drawn_at{"step and sample of dropout"};
    static constexpr Key<Tensor1<Token>> picked{"labelled rows"}, picked_labels{"labels of labelled rows"}, places{"index among labelled rows"};
    static constexpr Key<Tensor1<std::int32_t>> visible_begins{"visible source tokens before rows"}, visible_ends{"visible source tokens after rows"};
    static constexpr Key<Tensor1<Token>> image_rows{"rows of images in the text"}, rows_of_images{"rows of the text of images"};
  };
  // Frame keys for the tokens of the decoder text, and of the encoder source.
  struct TextKeys {
    Key<Tensor1<Token>> tokens;
    Key<Tensor1<std::int32_t>> positions, full_positions, ahead, full_ahead, lengths, row_indices, components;
  };
  static constexpr TextKeys text_keys{{"token ids"},
                                      {"positions"},
                                      {"positions in full sequences"},
                                      {"tokens after rows"},
                                      {"tokens after rows of full sequences"},
                                      {"lengths of sequences by row"},
                                      {"row numbers"},
                                      {"components of positions"}},
      source_keys{{"token ids of the source"},           {"positions of the source"},
                  {"positions in full sources"},         {"tokens after rows of the source"},
                  {"tokens after rows of full sources"}, {"lengths of sources by row"},
                  {"row numbers of the source"},         {"components of positions of the source"}};
  // Index of a layer of this chunk among its parts (embedding, layers, head); layer -1 is the embedding.
  int part_of(Index layer) const { return int(layer) + int(first()); }
  Frame& frame_of(Slot& slot, Index layer) const { return slot.frame.nested(part_of(layer), "part"); }
  void embed(Pass&, Slot&);
  void run_and_keep(Pass&, Slot&, Index part);
  void run(Pass&, Slot&, Index part);
  void score(Pass&, Slot&, Tensor1<const double> scales, Tensor1<double> loss, ObjectiveScores* scores);
  Bundle put_input(Slot&) const;
  // Tensors that a layer of this chunk, or the part after the last layer, receives: their shapes; new ones, under keys of
  // values or of gradients; and those of a bundle that has more. missing: those that `from` lacks.
  std::vector<BundleShape> shapes(const Slot&, Index layer) const;
  Index rows_before(const Slot&) const;  // encoded neighbours of the chunks before this rank's blocks (neighbour_halo.hpp)
  Bundle put(Slot&, Key<AnyTensor2> BundleTensor::*key, Index layer) const;
  Bundle received(const Slot&, Index layer, const Bundle& from) const;
  std::vector<BundleShape> missing(const Slot&, Index layer, const Bundle& from) const;
  // A text that is copied into a slot. `both_ways`: attention over it is bidirectional.
  struct Arriving {
    Text& text;
    const TextKeys& keys;
    bool both_ways;
    std::vector<std::int32_t> documents = {};  // position in its document of each token of the full sequences; empty: one document each
    std::span<const Index> lengths = {};       // tokens of each sequence without padding; empty: no padding
    std::span<const Token> components = {};    // components of the position of each token of the full sequences; empty: the positions
  };
  static std::vector<std::int32_t> documents_of(const SequenceLayout&, std::span<const std::int32_t> packed, bool both_ways);
  static std::vector<std::int32_t> documents_of_source(const SequenceLayout&, std::span<const Index> lengths);
  static std::vector<std::int32_t> lengths_of_rows(const SequenceLayout&, const Arriving&);
  void place(Device&, Slot&, const Arriving&) const;
  std::vector<std::int32_t> components_of_rows(const SequenceLayout&, const Arriving&) const;
  void upload_rotation(Device&, Slot&, const Arriving&) const;
  static void upload_full_positions(Device&, Slot&, const Arriving&);
  void upload_inputs(Device&, Slot&, const Arriving&, std::span<const Token> tokens) const;
  void upload_source_ranges(Device&, Slot&, std::span<const Index> source_lengths) const;
  void upload_neighbour_ranges(Device&, Slot&, std::span<const Index> lengths) const;
  void label(Device&, Slot&, std::span<const Token> labels) const;
  // Fields that this chunk may read, and the keys of their values in device
  // memory, in the same order.
  struct Fields {
    explicit Fields(std::vector<NamedField>);
    std::vector<NamedField> all;
    std::vector<std::variant<Key<Tensor1<Token>>, Key<Tensor1<double>>, Key<Tensor1<std::uint8_t>>>> keys;
  };
  // `fields`: the same as `declared`, for sequences of the layout's length.
  void upload_values(Device&, Slot&, const Fields& declared, const std::vector<NamedField>& fields, const SequenceLayout&,
                     const NamedHostValues& from, NamedDeviceValues& to) const;
  void upload_source(Device&, Slot&, const EncoderInput&, std::span<const Token> tokens) const;
  std::vector<Token> tokens_to_embed(std::vector<Token>) const;
  void check_without_images(std::span<const Token> tokens) const;
  void upload_image_rows(Device&, Slot&, std::span<const Token> tokens, std::span<const Index> lengths) const;
  // The layer that a part is; null for the embedding and the head.
  Layer* layer_of(Index part) const;
  bool read_later(Index layer) const { return layer_type(config_.pattern[first_layer_ + layer]).traits.read_later; }
  bool in_encoder(Index layer) const { return first_layer_ + layer < layers_of_encoder(config_); }
  Frame& frame_of_source(Frame& frame) const { return frame.nested(0, "source"); }
  // pass_of: the pass for a layer. part_for: the tensors that the layer reads; for an encoder layer the source is the
  // stream. take_back: writes the layer's output back.
  Pass pass_of(const Pass&, Index layer, const Bundle& stream, const Bundle& gradient) const;
  Bundle part_for(Index layer, const Bundle&) const;
  void take_back(Index layer, const Bundle& part, Bundle&) const;
  void backward_part(Pass&, Slot&, Index part, MatrixGradients);
  void backward_embedding(Pass&, Slot&);
  Recompute recompute_of(Index layer) const { return read_later(layer) ? Recompute() : recompute_.of(config_.pattern[first_layer_ + layer]); }
  void recompute_forward(const Pass&, Slot&, Index layer);
  // True if the layer's activations are offloaded. Not offloaded: the last two layers of the model, which the backward
  // needs first, layers without a backward, and those that later layers read from.
  bool offloads(Index layer) const;
  void offload_layer(Pass&, Slot&, Index layer, const void* output);
  bool prefetch_layer(Pass&, Slot&, Index layer);

  ModelConfig config_;
  DType dtype_;
  Index first_layer_;
  Index tensor_ranks_;
  int stream_parts_;
  RecomputeConfig recompute_;
  OffloadConfig offload_;
  Fields fields_, front_fields_;  // of the objective and of the encoder's front
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<Front> front_;  // of the encoder; null if the chunk is not the
                                  // first, or if there is no encoder
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<Head> head_;
  std::vector<Span> groups_;
  Index lowest_ = 0;  // first part that the backward has to run; parts below have no trained weights
};

}  // namespace gyr
