// SPDX-License-Identifier: BSD-3-Clause
// Where the tokens of a pass stand: B sequences, of each of which this rank has T tokens, row b T + t. Of n ranks that share sequences of n T
// tokens
//   contiguous   rank i has tokens i T to (i + 1) T - 1
//   zigzag       rank i has blocks i and 2n - 1 - i of 2n equal ones: under a causal mask all of them look at equally many keys
// Where sequences are shorter than n T, the last tokens are mere padding: nothing sees them and they have no labels. Attention that looks ahead finds
// documents there, the padding being others than the text.
// Documents may be packed into a sequence one behind the other, and count their positions from their own begin.
#pragma once

#include <array>

#include "kernels/device/documents.hpp"
#include "kernels/ops/dropout.hpp"

namespace gyr {

enum class SequenceOrder { contiguous, zigzag };
// How attention meets tokens of other ranks: keys go round (ring_attention.hpp), heads are exchanged against tokens (head_exchange.hpp), or ranks
// with few keys to see help those with many (balanced_attention.hpp).
enum class ContextMode { ring, heads, balanced };
inline constexpr std::array<const char*, 3> context_mode_names{"ring", "heads", "balanced"};
inline const char* name_of(ContextMode mode) { return context_mode_names[std::size_t(mode)]; }

struct SequenceLayout {
  Index batch = 0, seq_length = 0;  // on this rank
  Index first_sequence = 0;         // with a state store, sequence b is number first_sequence + b of it ...
  std::vector<Index> past = {};     // (batch) ... and has seen so many tokens before; none: nothing came before
  SequenceOrder order = SequenceOrder::contiguous;
  Index ranks = 1, rank = 0;  // that share each sequence ...
  Index whole = 0;            // ... of so many tokens without padding; 0: nobody shares it
  ContextMode mode = ContextMode::ring;
  Tensor1<const std::int32_t> positions = {};  // (rows) of every row in its sequence or document, where kernels run
  Documents documents = {};                    // of the rows, where some are packed

  Index rows() const { return batch * seq_length; }
  bool shared() const { return ranks > 1; }
  Index whole_length() const { return shared() ? whole : seq_length; }  // of a sequence, on all ranks
  // Blocks of neighbouring tokens: of every sequence so many on a rank, one behind the other and equally long.
  Index blocks() const { return order == SequenceOrder::zigzag && shared() ? 2 : 1; }
  Index block_length() const { return seq_length / blocks(); }
  // Number, among those of the whole sequence in their order, of block i that some rank has.
  Index block(Index of_rank, Index i) const;
  Index past_of(Index b) const { return past.empty() ? 0 : past[b]; }
  // Where token t of this rank stands in its sequence, behind what is past.
  Index place(Index t) const;
  // The same of rows, as kernels ask for it.
  TokenPlaces places() const;
  // Of all ranks' tokens in their order, where this rank computes with queries of others.
  bool computes_for_other_ranks() const { return shared() && mode != ContextMode::ring; }
  Documents whole_documents = {};
  // Behind an encoder: how far each row sees along the source, as if its keys began where the queries do; empty: all of it.
  Documents visible_encoder_range = {};
  std::vector<Index> source_lengths = {};  // with a state store: tokens of the source of each sequence
};

// Tokens of a sequence on each of so many ranks.
Index shared_length(SequenceOrder, Index seq_length, Index ranks);

// Positions of every row: places behind what is past. Given those of packed documents, the same after a check: from token to token one more, or 0.
std::vector<std::int32_t> positions_of(const SequenceLayout&, std::span<const std::int32_t> packed);

// Of whole sequences of so many tokens, one behind the other, the tokens of each row's document behind it.
std::vector<std::int32_t> tokens_ahead(std::span<const std::int32_t> packed, Index seq_length);

}  // namespace gyr
