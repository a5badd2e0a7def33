// SPDX-License-Identifier: BSD-3-Clause
// Traffic of a training step on every communicator, as closed-form formulas of the model's shapes and the layout. This
// is an independent second derivation that does not use the program's own sharding arithmetic.
#pragma once

#include <map>

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

inline bool operator==(const Traffic& a, const Traffic& b) { return a.calls == b.calls && a.bytes == b.bytes; }
inline void PrintTo(const Traffic& t, std::ostream* out) { *out << t.calls << " calls of " << t.bytes << " bytes"; }

}  // namespace gyr

namespace gyr::testing {

// Calls and bytes by communicator and operation; entries without traffic are left out.
using Ledger = std::map<std::pair<std::string, Operation>, Traffic>;
Ledger ledger_of(const std::vector<CommunicatorTraffic>&);

// Counts the elements of a rank's weights in model order. Each weight starts at a multiple of 64, unless it continues
// the previous one.
struct FlatRun {
  Index extent = 0;
  void next(Index size) { align(), extent += size; }
  void more(Index size) { extent += size; }
  void align() { extent = (extent + 63) / 64 * 64; }
};

// Traffic of the rank at `position`, if every weight is trained and buckets are either smaller than any part of a stage
// or larger than the full stage.
template <class T>
Ledger closed_form(const EngineConfig&, const Layout&, int position);
// Additional traffic over all ranks when states are sharded: each rank reduces its part of the gradients of weights
// that several tensor-parallel ranks replicate, and of a tied matrix.
template <class T>
Ledger closed_form_of_parts(const EngineConfig&, const Layout&, int position);
// Bytes of the rank's gradients, and of its optimizer state.
template <class T>
Index gradient_bytes(const EngineConfig&, const Layout&, int position);
template <class T>
Index optimizer_bytes(const EngineConfig&, const Layout&, int position);

inline constexpr Index part_by_part = 1, one_bucket = Index(1)
                                                      << 30;  // values of Layout::bucket_bytes: one bucket per part, one bucket for everything

// True if the context-parallel ranks can exchange the attention heads of a tensor-parallel rank for tokens (Ulysses
// all-to-all).
bool can_exchange(const ModelConfig&, int tensor, int context, int attention_ranks = 0);

// True if the heads, groups and channels of all layers can be sharded over `tensor` ranks.
bool can_shard(const ModelConfig&, int tensor, int attention_ranks = 0);

}  // namespace gyr::testing
