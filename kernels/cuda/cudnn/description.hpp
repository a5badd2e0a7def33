// SPDX-License-Identifier: BSD-3-Clause
// What cuDNN is told of attention, without a word of cuDNN: so that plain loops may execute the same where it is not.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>

#include "kernels/base/scalar.hpp"

struct CUstream_st;

namespace gyr::cuda {

// B sequences, H query heads on K key heads, Tq queries and Tk keys of a sequence, E numbers of a query's and a key's head, V of a value's. Sequences
// lie behind each other, heads of a token beside each other; a row is the numbers from one token to the next.
struct FusedAttention {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
  double scale;
  std::optional<Index> back, ahead;  // query i sees key j where  i - j < back  and  j - i <= ahead
  Index q_row, k_row, v_row, o_row;  // of q, k, v; of o and do
  Index dq_row = 0, dk_row = 0, dv_row = 0;

  auto operator<=>(const FusedAttention&) const = default;
  Index group() const { return num_heads / num_kv_heads; }
};

// stats: log-sum-exp (B, H, Tq), behind each other.
struct FusedForward {
  const bf16 *q, *k, *v;
  float *o, *stats;
};
struct FusedBackward {
  const bf16 *q, *k, *v, *o, *dout;
  const float* stats;
  bf16 *dq, *dk, *dv;
};

// Bytes that it may take besides. Backward: it adds in one order where it holds all that a head's queries and keys have to do with each other, in
// bf16, in tiles of 64 by 128, besides sums of rows, and dk and dv of every query head.
inline Index forward_workspace(const FusedAttention&) { return 4096; }
inline Index backward_workspace(const FusedAttention& a) {
  const auto up = [](Index n, Index to) { return (n + to - 1) / to * to; };
  const Index heads = a.batch * a.num_heads;
  return 2 * heads * up(a.queries, 64) * up(a.keys, 128) + 4 * heads * a.queries +
         (a.group() > 1 ? 2 * heads * a.keys * (a.head_dim + a.v_head_dim) : 0) + 4096;
}

// The library on one stream, with its plans by description. False where it has no plan for one that takes no more than the workspace: nothing is
// done then.
class FusedLibrary {
 public:
  static bool is_there();  // in this program
  static std::string version();

  explicit FusedLibrary(CUstream_st*);
  ~FusedLibrary();
  FusedLibrary(const FusedLibrary&) = delete;
  FusedLibrary& operator=(const FusedLibrary&) = delete;

  bool run(const FusedAttention&, const FusedForward&, void* workspace);
  bool run(const FusedAttention&, const FusedBackward&, void* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gyr::cuda
