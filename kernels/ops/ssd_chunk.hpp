// SPDX-License-Identifier: BSD-3-Clause
// The scan of ssd.hpp in three pieces, for context-parallel ranks, which hold parts of one sequence. Only state passing needs data of earlier tokens,
// and it is linear:
//   chunk states   L_c = sum_s exp(s_Q - s_s) dt_s x_s B_s'   the state that chunk c adds from its own tokens,   g_c = exp(s_Q) its decay
//   state passing  S_{c+1} = g_c S_c + L_c                    from the state that enters to the state that leaves, chunk by chunk
//   outputs        y_l = exp(s_l) S_c C_l + sum_{s<=l} exp(s_l - s_s) (C_l . B_s) dt_s x_s + D x_l
//   s_l = sum_{k<=l} A dt_k within the chunk and l's document; S_c enters chunk c; other letters as in ssd.hpp
// Each rank computes its chunk states, and from them its local state and its total decay (ssd_local_state). With those of the earlier ranks,
// S <- decay S + local gives the state that enters the rank. The rank then does its state passing and computes its outputs. Backward runs the same
// way from the end.
//
// Storage of the states: states(b, c), in (B, chunks, H P N), is the state that enters chunk c. The state that leaves chunk c is stored as the one
// that enters c + 1. The state that leaves the last chunk is last(b), in (B, H P N), which may be empty if it is not needed.
#pragma once

#include <span>

#include "kernels/ops/ssd.hpp"

namespace gyr {

// Writes saved.dt, the decay (B, chunks, H) of each chunk, and L_c in place of the state that leaves chunk c.
// saved.states(b, 0) is not written.
template <class T>
void ssd_chunk_states(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last,
                      Tensor3<Acc<T>> decay);

// For all chunks of a sequence: local = sum_c (g_{c+1} g_{c+2} ...) L_c, the last state if the initial state is zero
// (needs `last`), and the total decay total = g_0 g_1 ..
template <class A>
void ssd_local_state(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total /*(B, H)*/,
                     Tensor2<A> local /*(B, H P N)*/);

// Effect of a run of tokens on a state of (H P N):  S <- decay S + local, with one decay per head.
template <class A>
struct StateStep {
  const A *decay, *local;
};
// State after consecutive steps that begin with a zero state. The pointers of the steps are in device memory.
template <class A>
void ssd_state_after(Device&, const SsdShape&, std::span<const StateStep<A>>, Tensor2<A> state /*(1, H P N)*/);

// State passing: replaces the chunk states by the states that enter the chunks. initial: zeros if empty.
template <class A>
void ssd_pass_states(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last);

// Computes the outputs from the states that enter the chunks and the chunks' own tokens.
template <class T>
void ssd_outputs(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<T> y /*(B T, H P)*/);

// Gradient of the state that enters chunk c, from the outputs of that chunk only, by head:  dstates(b, c) = sum_l
// exp(s_l) dy_l C_l'
template <class T>
void ssd_outputs_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                          Tensor3<Acc<T>> dstates /*(B, chunks, H P N)*/);

// For all chunks of a sequence: local = sum_c (g_0 .. g_{c-1}) dstates(b, c), the gradient of the initial state if the
// last state has a zero gradient. The total decay is that of ssd_local_state.
template <class A>
void ssd_local_state_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> local /*(B, H P N)*/);

// dS_c += g_c dS_{c+1}, from the last chunk to the first. The gradient of the last state is dlast (zeros if empty).
// dstates(b, 0) becomes the gradient of the initial state.
template <class A>
void ssd_pass_states_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates);

// Computes the gradients of tokens and weights from the gradients of all outputs and states.
template <class T>
void ssd_chunk_states_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                               Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>);

// Defined by each backend, called with checked arguments after the launch has been recorded.
namespace backend {

// The ssd functions record their own launches, which differ between backends, and allocate scratch, so that their
// callers open a workspace. They do both on a dry-run device as well.
template <class T>
void ssd(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>> initial, Tensor2<T> y, SsdSaved<Acc<T>> saved,
         Tensor2<Acc<T>> last);
template <class T>
void ssd_step(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<Acc<T>> state, Tensor2<T> y);
template <class T>
void ssd_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                  Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>, Tensor2<Acc<T>> dinitial);
template <class T>
void ssd_chunk_states(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last,
                      Tensor3<Acc<T>> decay);
template <class T>
void ssd_outputs(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<T> y);
template <class T>
void ssd_outputs_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                          Tensor3<Acc<T>> dstates);
template <class T>
void ssd_chunk_states_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                               Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>);
template <class A>
void ssd_local_state(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total,
                     Tensor2<A> local);
template <class A>
void ssd_state_after(Device&, const SsdShape&, std::span<const StateStep<A>>, Tensor2<A> state);
template <class A>
void ssd_pass_states(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last);
template <class A>
void ssd_local_state_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> local);
template <class A>
void ssd_pass_states_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates);

}  // namespace backend

}  // namespace gyr
