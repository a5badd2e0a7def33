// SPDX-License-Identifier: BSD-3-Clause
// What a training step hands to every communicator, in closed form from the model's shapes and the layout: written down here a second time,
// without the program's own arithmetic of shares.
#pragma once

#include <map>

#include "src/engine/dry_run/plan.hpp"

namespace gyr {

inline bool operator==(const Traffic& a, const Traffic& b) { return a.calls == b.calls && a.bytes == b.bytes; }
inline void PrintTo(const Traffic& t, std::ostream* out) { *out << t.calls << " calls of " << t.bytes << " bytes"; }

}  // namespace gyr

namespace gyr::testing {

// Traffic by communicator and operation, where there was any.
using Ledger = std::map<std::pair<std::string, Operation>, Traffic>;
Ledger ledger_of(const std::vector<CommunicatorTraffic>&);

// Elements of a rank's weights in the order of the model, each on the next multiple of 64 unless it continues the one before.
struct FlatRun {
  Index extent = 0;
  void next(Index size) { align(), extent += size; }
  void more(Index size) { extent += size; }
  void align() { extent = (extent + 63) / 64 * 64; }
};

// Of the rank at `position`: every weight trained, buckets either smaller than any part of a stage or larger than all of it.
template <class T>
Ledger closed_form(const EngineConfig&, const Layout&, int position);
// What comes to that for all ranks together that cut among themselves what they keep: each reduces its part of what several tensor ranks hold the
// same of, and of a tied matrix.
template <class T>
Ledger closed_form_of_parts(const EngineConfig&, const Layout&, int position);
// Bytes of its gradients, and of its optimizer.
template <class T>
Index gradient_bytes(const EngineConfig&, const Layout&, int position);
template <class T>
Index optimizer_bytes(const EngineConfig&, const Layout&, int position);

inline constexpr Index part_by_part = 1, together = Index(1) << 30;  // Layout::bucket_bytes

// Whether context ranks can exchange the attention heads of a tensor rank against tokens.
bool can_exchange(const ModelConfig&, int tensor, int context, int attention_ranks = 0);

// Whether the layers' heads, groups and channels can be sharded over so many tensor ranks at all.
bool can_shard(const ModelConfig&, int tensor, int attention_ranks = 0);

}  // namespace gyr::testing
