// SPDX-License-Identifier: BSD-3-Clause
// Forward passes of generation on the ranks of one data coordinate. A prompt is read in one pass by the kernels of
// training (prefill). Then sequences are decoded together, one token per pass. Each sequence has a slot: its KV cache and
// SSM state, an entry of the state store. Requests are distributed over slots by the service (service.hpp).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "src/engine/generate/retrieved_chunks.hpp"
#include "src/engine/generate/sampler.hpp"
#include "src/engine/model/model_state.hpp"
#include "src/engine/model/stage.hpp"
#include "src/engine/step/graph_replay.hpp"

namespace gyr {

// Limits that a generator allocates memory for.
struct GeneratorCapacity {
  Index sequences = 1;  // maximum number of sequences that are decoded together
  Index prompt = 1;     // maximum number of tokens of a prompt; every length up to it is accepted
  Index tokens = 0;     // maximum number of new tokens of each sequence
  Factors factors = Factors::stored;
  Index samples = 1;  // maximum number of texts per prompt; above 1, a further slot holds the prompt that is continued
};

// Memory that a generator needs: its own weights, and working memory (scratch, activations and state of the slots).
struct GeneratorBytes {
  Index weights = 0, working = 0;
  Index parameters = 0;  // elements on this rank, including replicated weights and padding
};

class Generator {
 public:
  // The grid's tensor and pipeline axes partition the model. Ranks along its data axis hold the same weights.
  // `working`: bytes_of().working bytes that engines may share, because a generator keeps nothing in it between calls of
  // the service; null: the generator allocates its own.
  Generator(const ModelConfig&, DType, Grid&, const GeneratorCapacity&, const Arena* working = nullptr);
  // Generates with the weights of a training engine, without a copy: every call uses their present values. The grid has
  // the tensor and pipeline axes of the engine's grid, and may be that grid. The engine must outlive the generator.
  // Exit::config if weights cannot be borrowed (Parameters::borrow).
  Generator(ModelState& trained, Grid&, const GeneratorCapacity&, const Arena* working = nullptr);
  // Bytes of working memory of such a generator.
  static Index working_bytes(ModelState& trained, Grid&, const GeneratorCapacity&);
  // Bytes of a generator with weights of its own.
  static GeneratorBytes bytes_of(const ModelConfig&, DType, Grid&, const GeneratorCapacity&);
  // A generator that computes nothing: its device counts the launches of a pass, and the dry grid its traffic.
  static std::unique_ptr<Generator> dry_run(const ModelConfig&, DType, Grid&, const GeneratorCapacity&);
  GeneratorBytes dry_bytes() const;  // of a dry run: what its passes have needed so far
  Index elements() const;            // of all weights on this rank, including replicated ones and padding

  Stage& stage() { return *stage_; }
  Grid& grid() { return grid_; }
  // Waits until the weights of the training engine are complete. Call it after a training step and before the next pass.
  void wait_for_weights();
  const GeneratorCapacity& limits() const { return limits_; }
  bool encodes() const { return encodes_; }  // an encoder reads the prompt, and the text begins with one token

  // Prefill: reads a prompt into a slot, whose former state is cleared. Returns the first tokens of as many texts as
  // there are places, the same on every stage.
  // `request`: its id, for the search for neighbours.
  std::vector<DrawnToken> read(Index slot, std::span<const Token> prompt, const Sampling&, std::span<const DrawPlace> places, Index request = 0);
  // Last token of a slot, number of tokens before it, length of its encoder input, and random number of the next token.
  struct Step {
    Token token = 0;
    Index past = 0, source = 1;
    DrawPlace place = {};
    bool idle = false;  // the slot has no text, and the result is ignored
  };
  // Decodes the next token of slots 0 to n - 1, one per step. Returns one token per slot, the same on every stage.
  std::vector<DrawnToken> decode(std::span<const Step>, const Sampling&);
  // Copies the state of a slot to another one.
  void copy(Index from, Index to) { state_->copy(*device_, from, to), chunks_.copy(from, to); }
  // Layers R: how the neighbours of texts are found from now on; without a call all are missing.
  void retrieve_with(RetrievalOptions options) { retrieval_ = std::move(options); }
  const std::vector<CitedChunk>& cited(Index slot) const { return chunks_.cited(slot); }
  // Slot that holds a prompt with several texts.
  Index prefix_slot() const { return limits_.sequences; }

  Device& device() { return *device_; }
  void fence() { device_->fence(); }  // waits until all enqueued work is done

  // Number of captured CUDA graphs: one for each number of sequences that were decoded together at least twice, and each
  // sampling rule. None if the device has no graphs, or if a layer of this stage launches other kernels from token to
  // token.
  Index graphs() const;
  // Bytes of device memory that this rank holds.
  Index bytes() const;

 private:
  // Prompt lengths that a dry run measures at the start; none: no pass at all.
  enum class Lengths { none, some, all };
  // A generator in a dry run.
  Generator(const ModelConfig&, DType, Grid&, const GeneratorCapacity&, ModelState* trained, Lengths);
  // One with memory of the size that the dry run has measured.
  Generator(std::unique_ptr<Generator> rehearsal, const Arena* working);
  // Maximum tokens of a sequence.
  Index capacity() const { return (encodes_ ? 1 : limits_.prompt) + limits_.tokens; }
  // Maximum tokens of an encoder input, or of the neighbours of a chunk.
  Index source_capacity() const;
  // Slots of texts, and that of a prompt with several texts.
  Index slots() const { return limits_.sequences + (limits_.samples > 1); }
  void make_weights(Index bytes, bool dry_run);
  struct WorkingBytes {
    Index scratch, slot, state;
    Index sum() const { return scratch + slot + state; }
  };
  WorkingBytes working_bytes() const;  // peak bytes of a dry run
  void make_state(Arena memory);
  void rehearse_all(Lengths);
  void rehearse_prompt(Index length);
  // Neighbours of a pass as its encoder input.
  GivenText source_of(const EncoderInput&) const;
  void uncounted(const std::function<void()>& run);  // runs passes of a dry run, which count traffic that is not sent
  // Measures the memory of prompts of this length, and allocates more if one needs more than all lengths before.
  void accept_length(Index length);
  // Reads new tokens of some sequences. Returns one token per place, the same on every stage: from the last row
  // of each sequence, or all from that of the only sequence.
  std::vector<DrawnToken> advance(const SequenceLayout&, std::span<const Token>, const GivenText& source, const Sampling&,
                                  std::span<const DrawPlace> places);
  // Output of this stage for the tokens in its slot; logits only on the last stage, (sequences, columns of this rank).
  struct Made {
    Bundle output = {};
    AnyTensor2 logits = {};
  };
  // Enqueues the pass, and on the last stage the draws.
  Made compute(const DeviceDraws*, const Sampling&);
  // The same as compute, replayed as a CUDA graph if one was captured.
  Made replay_decode(Index sequences, const DeviceDraws*, const Sampling&);
  // Waits for the draws, and repeats uncertain ones on the host.
  std::vector<DrawnToken> tokens_of(const DeviceDraws&, const AnyTensor2& logits, const Sampling&, std::span<const DrawPlace> places);
  // All columns of one row of logits.
  std::vector<double> gather_logits(const AnyTensor2& mine);
  // Sends what the last stage has drawn to every stage.
  void broadcast_from_last_stage(std::vector<DrawnToken>&);
  // Decode pass for a fixed number of sequences and sampling rule, captured as a CUDA graph: one token per sequence.
  using RepeatedPass = std::tuple<Index, double, Index, double, bool>;  // sequences, temperature, top_k, top_p, rollouts
  struct Repeated {
    GraphReplay work;
    const void *tokens = nullptr, *draws = nullptr;  // addresses of the token ids that the graph reads, and of its draws
    Made made = {};
  };

  ModelConfig config_;
  bool encodes_;
  DType dtype_;
  Grid& grid_;
  GeneratorCapacity limits_;
  RetrievalOptions retrieval_;
  RetrievedChunks chunks_;
  ModelState* trained_;  // engine that holds the weights; null: this generator holds them
  std::unique_ptr<Arena> weights_, none_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Generator> rehearsal_;       // the same generator in a dry run, which measures memory
  std::set<Index> rehearsed_;                  // prompt lengths that memory was measured for
  bool repeats_ = false;                       // true: CUDA graphs may be used; false in a dry run
  std::map<RepeatedPass, Repeated> repeated_;  // captured decode passes
};

}  // namespace gyr
