// SPDX-License-Identifier: BSD-3-Clause
// State-space duality (SSD) of Mamba-2 (Dao & Gu 2024): the linear recurrence of each head, computed chunk by chunk
// with GEMMs.
//   S_t = exp(A dt_t) S_{t-1} + dt_t x_t B_t',   y_t = S_t C_t + D x_t,   A = -exp(a_log),   dt = clamp(softplus(dt_raw + dt_bias), low, high)
//   B batch, T seq_length (rows b T + t), H num_heads, P head_dim, G num_groups of B and C (head h uses group h / (H/G)), N state_size, Q chunk_size
// Context-parallel ranks, which share a sequence, call the pieces of the scan one by one: see ssd_chunk.hpp.
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
  Matrix<const T> x;         // input x, shape (B T, H P)
  Matrix<const T> b, c;      // inputs B and C, shape (B T, G N)
  Matrix<const T> dt_raw;    // time steps before bias and softplus, shape (B T, H)
  Documents documents = {};  // each document starts from a zero state
};

template <class A>
struct SsdWeights {
  Tensor1<const A> dt_bias, a_log, d;  // bias of dt, log(-A) and skip weight D, shape (H) each
};

// Tensors saved for backward, in memory of the caller. states(b, c) is the state that enters chunk c, so that states(b,
// 0) is the initial state.
template <class A>
struct SsdSaved {
  Tensor2<A> dt;      // time steps dt, shape (B T, H)
  Tensor3<A> states;  // state that enters each chunk, shape (B, chunks, H P N); the state of a head is (P, N)
};

// initial: state before the first token, (B, H P N), zeros if empty; it affects only a document that began before the
// sequence. last: state after the last token, from the tokens of its document only; not written if empty; may be
// initial's memory. Partial last chunks are exact. Arguments of exp are differences and never positive.
template <class T>
void ssd(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>> initial, Tensor2<T> y /*(B T, H P)*/,
         SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last);

// Decoding: one token of each sequence (T = 1). Updates `state` in place. Nothing is saved.
template <class T>
void ssd_step(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<Acc<T>> state /*(B, H P N)*/,
              Tensor2<T> y /*(B, H P)*/);

template <class T>
struct SsdInputGradient {
  Matrix<T> x, b, c, dt_raw;  // gradients of the inputs, overwritten
};
template <class A>
struct SsdWeightGradient {
  Tensor1<A> dt_bias, a_log, d;  // gradients of the weights, accumulated (+=), or empty
};

// Backward of the scan, chunk by chunk from the end. dlast: gradient of the last state, zeros if empty. dinitial:
// gradient of the initial state, not written if empty.
template <class T>
void ssd_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>, Tensor2<Acc<T>> dinitial);

}  // namespace gyr
