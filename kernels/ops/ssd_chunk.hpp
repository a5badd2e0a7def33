// SPDX-License-Identifier: BSD-3-Clause
// The scan of ssd.hpp in three pieces, for ranks that hold parts of one sequence. Only the second needs what lies before, and is linear:
//   chunk states   L_c = sum_s exp(s_Q - s_s) dt_s x_s B_s'   what chunk c adds to the state from its own tokens,   g_c = exp(s_Q) its decay
//   passing        S_{c+1} = g_c S_c + L_c                    from the state that enters to the state that leaves, chunk by chunk
//   outputs        y_l = exp(s_l) S_c C_l + sum_{s<=l} exp(s_l - s_s) (C_l . B_s) dt_s x_s + D x_l
//   s_l = sum_{k<=l} A dt_k within the chunk and l's document; S_c enters chunk c; other letters as in ssd.hpp
// Ranks side by side: each computes its chunk states and from them its own state and total decay (ssd_own_state). With these of the ranks
// before it, S <- decay S + own, it knows the state that enters, passes it on and has its outputs. The adjoint runs the same way from the end.
//
// Where states lie: states(b, c), of (B, chunks, H P N), is the state that enters chunk c. What leaves chunk c is what enters c + 1 and
// lies there; what leaves the last chunk is last(b), of (B, H P N), which may be empty where it is not needed.
#pragma once

#include <span>

#include "kernels/ops/ssd.hpp"

namespace gyr {

// saved.dt, the decay (B, chunks, H) of each chunk, and L_c where the state that leaves chunk c will be. saved.states(b, 0) is not written.
template <class T>
void ssd_chunk_states(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<Acc<T>> last,
                      Tensor3<Acc<T>> decay);

// Of the whole sequence: own = sum_c (g_{c+1} g_{c+2} ...) L_c, the last state if a zero state entered (needs `last`), and total = g_0 g_1 ..
template <class A>
void ssd_own_state(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total /*(B, H)*/,
                   Tensor2<A> own /*(B, H P N)*/);

// What a run of tokens does to a state of (H P N):  S <- decay S + own, decay by head.
template <class A>
struct StateStep {
  const A *decay, *own;
};
// The state behind steps that follow each other from a zero state; they read device memory.
template <class A>
void ssd_state_after(Device&, const SsdShape&, std::span<const StateStep<A>>, Tensor2<A> state /*(1, H P N)*/);

// Chunk states become the states that enter. initial: zeros where empty.
template <class A>
void ssd_pass_states(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last);

// From the states that enter and the chunks' own tokens.
template <class T>
void ssd_outputs(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<T> y /*(B T, H P)*/);

// The gradient of the state that enters chunk c, as far as it comes from the chunk's outputs, by head:  dstates(b, c) = sum_l exp(s_l) dy_l C_l'
template <class T>
void ssd_outputs_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                          Tensor3<Acc<T>> dstates /*(B, chunks, H P N)*/);

// Of the whole sequence: own = sum_c (g_0 .. g_{c-1}) dstates(b, c), the gradient of the state that enters it if the state that leaves it has
// none. The total decay is that of ssd_own_state.
template <class A>
void ssd_own_state_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> own /*(B, H P N)*/);

// dS_c += g_c dS_{c+1}, from the last chunk, behind which is dlast (zeros where empty), to the first: dstates(b, 0) is the initial state's.
template <class A>
void ssd_pass_states_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates);

// From the gradients of all outputs and states to those of tokens and weights.
template <class T>
void ssd_chunk_states_backward(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>> saved, Tensor2<const T> dy,
                               Tensor3<const Acc<T>> dstates, Tensor2<const Acc<T>> dlast, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>);

}  // namespace gyr
