// SPDX-License-Identifier: BSD-3-Clause
// Description of an attention call for cuDNN. It uses no cuDNN types, so that plain loops can execute the same call in
// builds without cuDNN.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>

#include "kernels/base/scalar.hpp"

struct CUstream_st;

namespace gyr::cuda {

// B sequences, H query heads, K key/value heads, Tq queries and Tk keys per sequence, E head_dim of queries and keys, V
// head_dim of values. Sequences are contiguous, and the heads of a token are adjacent. A row stride is the distance
// between tokens in elements.
struct FusedAttention {
  Index batch, queries, keys, num_heads, num_kv_heads, head_dim, v_head_dim;
  double scale;
  std::optional<Index> back, ahead;  // key j is visible to query i if  i - j < back  and  j - i <= ahead
  Index q_row, k_row, v_row, o_row;  // row stride of q, k and v; row stride of o and dO
  Index dq_row = 0, dk_row = 0, dv_row = 0;

  auto operator<=>(const FusedAttention&) const = default;
  Index group() const { return num_heads / num_kv_heads; }
};

// stats: log-sum-exp of the scores, (B, H, Tq), contiguous.
struct FusedForward {
  const bf16 *q, *k, *v;
  float *o, *stats;
};
struct FusedBackward {
  const bf16 *q, *k, *v, *o, *dout;
  const float* stats;
  bf16 *dq, *dk, *dv;
};

// Upper bounds of the workspace in bytes. The deterministic backward pass stores a Tq x Tk matrix per head in bf16, in
// tiles of 64 by 128. It also stores row sums, and dk and dv of every query head if several query heads use the same
// key head.
inline Index forward_workspace(const FusedAttention&) { return 4096; }
inline Index backward_workspace(const FusedAttention& a) {
  const auto up = [](Index n, Index to) { return (n + to - 1) / to * to; };
  const Index heads = a.batch * a.num_heads;
  return 2 * heads * up(a.queries, 64) * up(a.keys, 128) + 4 * heads * a.queries +
         (a.group() > 1 ? 2 * heads * a.keys * (a.head_dim + a.v_head_dim) : 0) + 4096;
}

// cuDNN on one stream, with a cache of execution plans by description. run returns false and does nothing if cuDNN has
// no plan that fits into the workspace.
class FusedLibrary {
 public:
  static bool is_there();  // true if this program was built with cuDNN
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
