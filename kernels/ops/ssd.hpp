// SPDX-License-Identifier: BSD-3-Clause
// Mamba-2's state-space duality (Dao & Gu 2024): the linear recurrence of each head computed chunk by chunk as matrix products.
//   S_t = exp(A dt_t) S_{t-1} + dt_t x_t B_t',   y_t = S_t C_t + D x_t,   A = -exp(a_log),   dt = clamp(softplus(dt_raw + dt_bias), low, high)
//   B batch, T seq_length (rows b T + t), H num_heads, P head_dim, G num_groups of B and C (head h uses group h / (H/G)), N state_size, Q chunk_size
// The pieces of the scan that ranks which share a sequence need one by one are in ssd_chunk.hpp.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/documents.hpp"

namespace gyr {

struct SsdShape {
  Index batch, seq_length, num_heads, num_groups, head_dim, state_size, chunk_size;
  double dt_low, dt_high;
  Index chunks() const { return (seq_length + chunk_size - 1) / chunk_size; }
};

template <class T>
struct SsdInput {
  Matrix<const T> x;         // (B T, H P)
  Matrix<const T> b, c;      // (B T, G N)
  Matrix<const T> dt_raw;    // (B T, H)
  Documents documents = {};  // each starts from a zero state
};

template <class A>
struct SsdWeights {
  Tensor1<const A> dt_bias, a_log, d;  // (H) each
};

// What backward needs again; the caller owns the memory. states(b, c) is the state that enters chunk c, so states(b, 0) is the initial one.
template <class A>
struct SsdSaved {
  Tensor2<A> dt;      // (B T, H)
  Tensor3<A> states;  // (B, chunks, H P N), state of a head as (P, N)
};

// initial: state before the first token, (B, H P N), zeros where empty; it reaches only a document that began before the sequence. last:
// state after the last token, of its document alone, not written where empty; may be initial's memory. Partial last chunks are exact.
// Exponents are differences and never positive.
template <class T>
void ssd(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>> initial, Tensor2<T> y /*(B T, H P)*/,
         SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last);

// One token of each sequence (T = 1): `state` is the one before it and becomes the one behind it. Nothing is saved.
template <class T>
void ssd_step(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<Acc<T>> state /*(B, H P N)*/,
              Tensor2<T> y /*(B, H P)*/);

template <class T>
struct SsdInputGradient {
  Matrix<T> x, b, c, dt_raw;  // written
};
template <class A>
struct SsdWeightGradient {
  Tensor1<A> dt_bias, a_log, d;  // +=, or empty
};

// The adjoint, chunk by chunk from the end. dlast: gradient of the last state, zero where empty; dinitial: gradient of the initial state,
// not written where empty.
template <class T>
void ssd_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>, Tensor2<Acc<T>> dinitial);

}  // namespace gyr
