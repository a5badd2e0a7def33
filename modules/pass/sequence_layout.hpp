// SPDX-License-Identifier: BSD-3-Clause
// Placement of the tokens of a pass: B sequences, of each of which this rank has T tokens; token t of sequence b is row b T + t.
// n context-parallel ranks share sequences of n T tokens in one of two orders:
//   contiguous   rank i has tokens i T to (i + 1) T - 1
//   zigzag       rank i has blocks i and 2n - 1 - i of 2n equal blocks, so that all ranks have equal work under a causal mask
// If sequences are shorter than n T, the last tokens are padding: no token sees them and they have no labels. For bidirectional attention, padding is
// a document of its own. Several documents may be packed into a sequence; their positions count from their own start.
#pragma once

#include <array>

#include "kernels/device/documents.hpp"
#include "kernels/ops/dropout.hpp"

namespace gyr {

enum class SequenceOrder { contiguous, zigzag };
// Context parallelism of attention: ring attention (ring_attention.hpp), all-to-all between heads and tokens (Ulysses,
// head_exchange.hpp), or load-balanced context parallelism (DistFlashAttention, balanced_attention.hpp).
enum class ContextMode { ring, heads, balanced };
inline constexpr std::array<const char*, 3> context_mode_names{"ring", "heads", "balanced"};
inline const char* name_of(ContextMode mode) { return context_mode_names[std::size_t(mode)]; }

// Layers R in generation: the chunks of the text that end in a pass, and the neighbours that its tokens see. The pass is
// the prompt of one sequence, or one token of each sequence.
struct EndingChunks {
  std::vector<Index> lengths = {}, sequences = {};  // tokens of each chunk that ends, and its sequence
  std::vector<Index> begun = {};                    // (batch) tokens of the sequence's present chunk before this pass
  std::vector<Index> neighbours = {};               // (batch, k) lengths of the neighbours that the last token sees; 0: missing
};

struct SequenceLayout {
  Index batch = 0, seq_length = 0;  // number of sequences, and of tokens of each on this rank
  Index first_sequence = 0;         // with a state store: sequence b uses its entry first_sequence + b
  std::vector<Index> past = {};     // (batch) tokens already in the KV cache; empty: none
  SequenceOrder order = SequenceOrder::contiguous;
  Index ranks = 1, rank = 0;     // context-parallel ranks that share each sequence, and this rank's index
  SequenceNumbers numbers = {};  // numbers of the sequences in the run, by which dropout is drawn
  Index full_tokens = 0;         // tokens of a sequence on all ranks, without padding; 0: sequences are not shared
  ContextMode mode = ContextMode::ring;
  Tensor1<const std::int32_t> positions = {};  // (rows) position of each row in its sequence or document, in device memory
  Documents documents = {};                    // document positions of the rows; empty: no sequence has packed documents
  // Only if RoPE frequencies depend on the sequence length: tokens of each row's sequence, the past included, or of its
  // document. Only if positions have several components, by which rows are rotated: those of each row, row by row. In
  // both cases: the row numbers 0 to rows - 1. All are in device memory.
  Tensor1<const std::int32_t> lengths = {}, components = {}, row_indices = {};

  Index rows() const { return batch * seq_length; }
  bool shared() const { return ranks > 1; }
  Index full_length() const { return shared() ? full_tokens : seq_length; }  // number of tokens of a sequence on all ranks, without padding
  // Number of blocks of contiguous tokens that a rank has of every sequence. All blocks have the same length.
  Index blocks() const { return order == SequenceOrder::zigzag && shared() ? 2 : 1; }
  Index block_length() const { return seq_length / blocks(); }
  // Index, within the unsharded sequence, of block i of a rank.
  Index block(Index of_rank, Index i) const;
  Index past_of(Index b) const { return past.empty() ? 0 : past[b]; }
  // Position of token t of this rank in its sequence, without the past.
  Index place(Index t) const;
  // The same for all rows, in the form that kernels use.
  TokenPlaces places() const;
  // True if this rank computes attention for queries of other ranks. full_documents then has the documents of the
  // tokens of all ranks, in sequence order.
  bool computes_for_other_ranks() const { return shared() && mode != ContextMode::ring; }
  Documents full_documents = {};
  // Decoder: for each row, the counts of visible encoder tokens before and after the index that equals the row's own
  // position; empty: all encoder tokens are visible.
  Documents visible_encoder_range = {};
  // Vision tower: for each row of the text, the row of the images that takes its place; for each row of the images, that row of
  // the text. -1: none.
  Tensor1<const std::int32_t> spliced = {};
  std::vector<Index> source_lengths = {};  // with a state store: encoder input length of each sequence
  EndingChunks chunks = {};                // with a state store and layers R
};

// Tokens of a sequence on each of `ranks` context-parallel ranks, with padding.
Index shared_length(SequenceOrder, Index seq_length, Index ranks);

// Positions of all rows, after the past. With `packed`, the positions of packed documents, returns these after a check:
// each is 0 or one more than the previous one.
std::vector<std::int32_t> positions_of(const SequenceLayout&, std::span<const std::int32_t> packed);

// `packed`: positions in documents of concatenated sequences of seq_length tokens. Returns how many tokens of its
// document follow each row.
std::vector<std::int32_t> tokens_ahead(std::span<const std::int32_t> packed, Index seq_length);

}  // namespace gyr
