// SPDX-License-Identifier: BSD-3-Clause
// Interface of a backend: one function for each function of NAME.hpp, with the same meaning. NAME.cpp checks the
// arguments and records the launch before it calls the backend. Functions that allocate scratch are also called on a
// dry-run device, where they only count it; the others are not called there.
#pragma once

#include <cmath>

#include "kernels/ops/activation.hpp"
#include "kernels/ops/adamw.hpp"
#include "kernels/ops/attention.hpp"
#include "kernels/ops/balance_loss.hpp"
#include "kernels/ops/convolution.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/distance_bias.hpp"
#include "kernels/ops/dropout.hpp"
#include "kernels/ops/elementwise.hpp"
#include "kernels/ops/embedding.hpp"
#include "kernels/ops/expert_rows.hpp"
#include "kernels/ops/gate.hpp"
#include "kernels/ops/gemm.hpp"
#include "kernels/ops/head_norm.hpp"
#include "kernels/ops/int8_matrix.hpp"
#include "kernels/ops/latent_heads.hpp"
#include "kernels/ops/layernorm.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/routing.hpp"
#include "kernels/ops/soft_cap.hpp"
#include "kernels/ops/ssd_chunk.hpp"
#include "kernels/ops/sum.hpp"

namespace gyr::backend {

template <class T>
void attention(Device&, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
               Matrix<const T> v, Carry carry, AttentionState<Acc<T>> state);  // this function records its own launches and allocates scratch memory
template <class A>
void attention_merge(Device&, const AttentionShape& shape, AttentionState<A> other, AttentionState<A> state);
template <class T>
void attention_finish(Device&, const AttentionShape& shape, AttentionState<Acc<T>> state, Tensor2<T> out, Tensor2<Acc<T>> lse,
                      Tensor1<const Acc<T>> sinks);
template <class A>
void attention_sink_terms(Device&, Tensor1<const A> sinks, Tensor2<const A> lse, Tensor2<const A> delta, Tensor2<A> terms);
template <class T>
void attention_delta(Device&, const AttentionShape& shape, Tensor2<const T> dout, Tensor2<const T> out, Tensor2<Acc<T>> delta);
template <class T>
void attention_backward(Device&, const AttentionShape& shape, const Mask& mask, const ScoreRule& scores, Matrix<const T> q, Matrix<const T> k,
                        Matrix<const T> v, Tensor2<const T> dout, Tensor2<const Acc<T>> lse, Tensor2<const Acc<T>> delta, Matrix<Acc<T>> dq,
                        Matrix<Acc<T>> dk,
                        Matrix<Acc<T>> dv);  // this function records its own launches and allocates scratch memory

template <class T>
void drop(Device&, const Dropout&, const TokenPlaces&, Index first_row, Tensor2<const T> x, Tensor2<T> y);

template <class A>
void soft_cap(Device&, double cap, Tensor2<A> x);

template <class A>
void distance_bias(Device&, const DistanceBuckets&, Tensor2<const A> table, Index zero, Tensor2<A> bias);
template <class A>
void distance_bias_backward(Device&, const DistanceBuckets&, Tensor2<const A> dbias, Index zero, Tensor2<A> dtable);

template <class T>
void fill(Device&, Tensor1<T> x, double value);
template <class T>
void add(Device&, Matrix<const T> x, Matrix<T> y);
template <class S, class T>
void convert(Device&, Matrix<const S> x, Matrix<T> y);
template <class T>
void bias_scale(Device&, Tensor1<const Acc<T>> bias, Tensor1<const Acc<T>> scale, Matrix<T> y);
template <class T>
void add_bias(Device&, Tensor1<const Acc<T>> bias, double scale, Matrix<T> y);
template <class T>
void divide_rows(Device&, Tensor2<const Acc<T>> x, Tensor1<const Acc<T>> n, Tensor2<T> y);
template <class T>
void bias_backward(Device&, Matrix<const T> dy, double scale, Tensor1<Acc<T>> dbias);  // this function allocates scratch memory

template <class T>
void convolution(Device&, Index batch, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor3<const T> before, Matrix<T> y,
                 const Documents& documents);  // this function allocates scratch memory
template <class T>
void convolution_backward(Device&, Index batch, Matrix<const T> dy, Matrix<const T> x, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                          Tensor3<const T> before, Matrix<T> dx, Tensor2<Acc<T>> dw, Tensor1<Acc<T>> dbias, Tensor3<T> dbefore,
                          const Documents& documents);  // this function allocates scratch memory
template <class T>
void convolution_tail(Device&, Index batch, Matrix<const T> x, Tensor3<const T> before, Tensor3<T> after);

// gemm and few_rows_gemm are also called in a dry run, where they only allocate scratch.
template <class T, class S>
void gemm(Device&, MatrixOp op_a, Matrix<const T> a, MatrixOp op_b, Matrix<const T> b, Matrix<S> c, const GemmExtents&, double alpha, double beta);
// y = alpha x w' + beta y for at most few_rows rows of x.
template <class T, class S>
void few_rows_gemm(Device&, Matrix<const T> x, Matrix<const T> w, Matrix<S> y, double alpha, double beta);
template <class T, class S>
void few_rows_gemm(Device&, Matrix<const T> x, const Int8Matrix& w, Matrix<S> y, double alpha, double beta);

template <class T>
void quantize(Device&, Matrix<const T> w, const Int8Matrix& to);
// to (count, K) = rows [first, first + count) of w, dequantized to T.
template <class T>
void widen(Device&, const Int8Matrix& w, Index first, Tensor2<T> to);

template <class T>
void glu(Device&, Activation, Tensor2<const T> gate_up, double multiplier, Tensor2<T> y);
template <class T>
void glu_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> gate_up, double multiplier, Tensor2<T> dgate_up);
template <class T>
void activate(Device&, Activation, Tensor2<const T> x, double multiplier, Tensor2<T> y);
template <class T>
void activate_backward(Device&, Activation, Tensor2<const T> dy, Tensor2<const T> x, double multiplier, Tensor2<T> dx);

template <class A>
void route(Device&, const Routing&, Tensor1<const A> bias, Tensor2<A> scores, Tensor2<std::int32_t> chosen, Tensor2<A> weights, Tensor1<A> lse);
template <class A>
void route_backward(Device&, const Routing&, Tensor2<const A> scores, Tensor2<const std::int32_t> chosen, Tensor2<const A> dweights,
                    Tensor2<A> dlogits);

template <class A>
void add_choices(Device&, Tensor2<const std::int32_t> chosen, Tensor1<A> n);
template <class A>
void add_balance_gradient(Device&, const Routing&, Tensor2<const A> scores, Tensor1<const A> lse, Tensor1<const A> n, double balance, double z,
                          Tensor2<A> dlogits);

void group_rows(Device&, Tensor2<const std::int32_t> chosen, const ExpertRows&);
template <class T>
void gather_rows(Device&, const ExpertRows&, Tensor2<const T> x, Tensor2<T> y);
template <class T>
void combine_rows(Device&, const ExpertRows&, Tensor2<const T> x, Add, Tensor2<T> y);
template <class T>
void weighted_glu(Device&, Activation, const ExpertRows&, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w, Tensor2<T> y);
template <class T>
void weighted_glu_backward(Device&, Activation, const ExpertRows&, Tensor2<const T> dy, Tensor2<const T> gate_up, Tensor2<const Acc<T>> w,
                           Tensor2<T> dgate_up, Tensor2<Acc<T>> dw);
template <class T>
void add_weighted_bias(Device&, Tensor1<const std::int32_t> slot, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias, Tensor2<T> y);
template <class T>
void weighted_bias_backward(Device&, Tensor1<const std::int32_t> slot, Tensor2<const T> dy, Tensor2<const Acc<T>> w, Tensor1<const Acc<T>> bias,
                            Tensor2<Acc<T>> dw, Tensor2<T> terms);

template <class T>
void rmsnorm(Device&, Tensor2<const T> x, Tensor1<const Acc<T>> g, double eps, Tensor2<T> y, Tensor1<Acc<T>> rstd, double offset);
template <class T>
void rmsnorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> rstd, Add, Tensor2<T> dx,
                      Tensor1<Acc<T>> dg, double offset);  // this function allocates scratch memory

template <class T>
void layernorm(Device&, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> b, double eps, Tensor2<T> y, Tensor1<Acc<T>> mean,
               Tensor1<Acc<T>> rstd);
template <class T>
void layernorm_backward(Device&, Tensor2<const T> dy, Tensor2<const T> x, Tensor1<const Acc<T>> g, Tensor1<const Acc<T>> mean,
                        Tensor1<const Acc<T>> rstd, Add, Tensor2<T> dx, Tensor1<Acc<T>> dg, Tensor1<Acc<T>> db);  // allocates scratch memory

template <class T>
void head_norm(Device&, Matrix<const T> x, Tensor1<const Acc<T>> g, double eps, Matrix<T> y, Matrix<Acc<T>> rstd, double offset);
template <class T>
void head_norm_backward(Device&, Matrix<const T> dy, Matrix<const T> x, Tensor1<const Acc<T>> g, Matrix<const Acc<T>> rstd, Matrix<T> dx,
                        Tensor1<Acc<T>> dg, double offset);  // this function allocates scratch memory

// Shape of the gated RMSNorm, common to its four kernels.
struct NormGroups {
  Index rows, channels, groups, width;  // width: channels of a norm group on this rank
};
template <class T, class A>
NormGroups norm_groups(const Matrix<const T>& y, const Tensor2<A>& squares) {
  const Index groups = squares.extent(1);
  return {y.rows, y.columns, groups, y.columns / groups};
}
// 1 / rms of a group, from its sum of squares over `width` channels.
template <class A>
GYR_FUNCTION A norm_factor(A squares, Index width, double eps) {
  return A(1 / std::sqrt(double(squares) / double(width) + eps));
}
template <class T>
void gate(Device&, Matrix<const T> y, Matrix<const T> z, Tensor2<T> out);
template <class T>
void gate_backward(Device&, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor2<T> dy, Matrix<T> dz);
template <class T>
void gated_norm_squares(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor2<Acc<T>> squares);
template <class T>
void gated_norm(Device&, GateOrder, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w, Tensor2<const Acc<T>> squares, Index width,
                double eps, Tensor2<T> out);
// gated_norm_products allocates scratch memory.
template <class T>
void gated_norm_products(Device&, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Index width, double eps, Tensor2<Acc<T>> products, Tensor1<Acc<T>> dw);
template <class T>
void gated_norm_backward(Device&, GateOrder, Tensor2<const T> dout, Matrix<const T> y, Matrix<const T> z, Tensor1<const Acc<T>> w,
                         Tensor2<const Acc<T>> squares, Tensor2<const Acc<T>> products, Index width, double eps, Tensor2<T> dy, Matrix<T> dz);

template <class A>
void rope_table(Device&, const RopeFrequencies&, const Rotation<A>&);
template <class S, class T>
void rope(Device&, Rotate, Index num_heads, double scale, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const S> x,
          Matrix<T> y);

template <class T>
void expand_heads(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const T> own,
                  Matrix<const T> shared, Matrix<T> q, Matrix<T> k, Matrix<T> v);
template <class T>
void expand_heads_backward(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t> positions, Matrix<const Acc<T>> dq,
                           Matrix<const Acc<T>> dk, Matrix<const Acc<T>> dv, Matrix<T> dq_before, Matrix<T> down, Matrix<T> dshared);

template <class T>
void adamw(Device&, const AdamW&, Tensor1<const Acc<T>> step, Tensor1<const Acc<T>> g, Tensor1<Acc<T>> m, Tensor1<Acc<T>> v, Tensor1<Acc<T>> master,
           Tensor1<T> w);

template <class T>
void embedding(Device&, Tensor1<const Token> tokens, Tensor2<const T> table, Index first, double scale, Tensor2<T> x);
template <class T>
void embedding_backward(Device&, Tensor1<const Token> tokens, Tensor2<const T> dx, Index first, double scale, Token pad_token_id,
                        Tensor2<Acc<T>> dtable);

template <class A>
void logits_top(Device&, Tensor2<const A> logits, Index valid, Tensor1<A> top);
template <class A>
void logits_sums(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Tensor1<const Token> labels, Index first, Tensor2<A> sums);
template <class A>
void logits_argmax(Device&, Tensor2<const A> logits, Index valid, Tensor1<const A> top, Index first, Tensor1<A> found);
template <class A>
void cross_entropy(Device&, Tensor2<const A> sums, Tensor1<const A> top, Tensor1<const Token> labels, const LossTerms&, Tensor1<double> loss);
template <class T>
void cross_entropy_backward(Device&, Tensor2<const Acc<T>> logits, Index valid, Tensor1<const Acc<T>> top, Tensor2<const Acc<T>> sums,
                            Tensor1<const Token> labels, Index first, Tensor1<const double> scale, const LossTerms&, Tensor2<T> dlogits,
                            double soft_cap);

void add_in_order(Device&, Tensor1<const double> x, Tensor1<double> sum);
// Returns the sum as a tensor (1) in scratch memory that the function allocates.
template <class A>
Tensor1<double> sum_of_squares(Device&, Tensor1<const A> x);

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
void ssd_own_state(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> states, Tensor2<const A> last, Tensor2<A> total,
                   Tensor2<A> own);
template <class A>
void ssd_state_after(Device&, const SsdShape&, std::span<const StateStep<A>>, Tensor2<A> state);
template <class A>
void ssd_pass_states(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> initial, Tensor3<A> states, Tensor2<A> last);
template <class A>
void ssd_own_state_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor3<const A> dstates, Tensor2<A> own);
template <class A>
void ssd_pass_states_backward(Device&, const SsdShape&, Tensor3<const A> decay, Tensor2<const A> dlast, Tensor3<A> dstates);

}  // namespace gyr::backend
