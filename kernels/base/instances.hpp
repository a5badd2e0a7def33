// SPDX-License-Identifier: BSD-3-Clause
// Explicit instantiations: GYR_NAME(T) instantiates the kernels of NAME.hpp for one scalar type, in the namespace in
// which the macro is used. That is gyr for the checked kernels and gyr::backend for those of a backend.
#pragma once

#define GYR_UPDATE(T, RULE)                                                                                                                    \
  template void update_weights<T, RULE>(Device&, const RULE&, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>, const UpdateStates<Acc<T>, RULE>&, \
                                        Tensor1<Acc<T>>, Tensor1<T>);
#define GYR_UPDATES(T) GYR_UPDATE(T, AdamW) GYR_UPDATE(T, Lion) GYR_UPDATE(T, Sgd)

#define GYR_LAMB_STEP(T)                                                                                                                       \
  template void lamb_step<T>(Device&, const Lamb&, Tensor1<const Acc<T>>, Tensor1<const double>, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>, \
                             Tensor1<Acc<T>>, Tensor1<T>);
#define GYR_LAMB_MOMENTS(A) \
  template void lamb_moments<A>(Device&, const Lamb&, Tensor1<const A>, Tensor1<const A>, Tensor1<A>, Tensor1<A>, Tensor1<const A>, Tensor1<double>);
#define GYR_BACKEND_LAMB_MOMENTS(A)                                                                                                                  \
  template void lamb_moments<A>(Device&, const Lamb&, Tensor1<const A>, Tensor1<const A>, Tensor1<A>, Tensor1<A>, Tensor1<const A>, Tensor1<double>, \
                                Tensor1<double>);

#define GYR_MUON_STEP(T) template void muon_step<T>(Device&, const Muon&, Tensor1<const Acc<T>>, Matrix<const Acc<T>>, Matrix<Acc<T>>, Matrix<T>);
#define GYR_MUON_MOMENTUM(A)                                                                                            \
  template void muon_momentum<A>(Device&, const Muon&, Tensor1<const A>, Tensor1<const A>, Tensor1<A>);                 \
  template void muon_direction<A>(Device&, const Muon&, Tensor1<const A>, Matrix<const A>, Matrix<const A>, Matrix<A>); \
  template void divide_by_norm<A>(Device&, Tensor1<const double>, Tensor1<A>);

#define GYR_ELEMENTWISE(T)                                                                         \
  template void fill<T>(Device&, Tensor1<T>, double);                                              \
  template void add<T>(Device&, Matrix<const T>, Matrix<T>);                                       \
  template void multiply<T>(Device&, Matrix<const T>, Matrix<const T>, Matrix<T>);                 \
  template void bias_scale<T>(Device&, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>, Matrix<T>);   \
  template void add_bias<T>(Device&, Tensor1<const Acc<T>>, double, Matrix<T>);                    \
  template void divide_rows<T>(Device&, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, Tensor2<T>); \
  template void bias_backward<T>(Device&, Matrix<const T>, double, Tensor1<Acc<T>>);

#define GYR_CONVERT(S, T) template void convert<S, T>(Device&, Matrix<const S>, Matrix<T>);

#define GYR_ACTIVATION(T)                                                                                     \
  template void glu<T>(Device&, Activation, Tensor2<const T>, double, Tensor2<T>);                            \
  template void glu_backward<T>(Device&, Activation, Tensor2<const T>, Tensor2<const T>, double, Tensor2<T>); \
  template void activate<T>(Device&, Activation, Tensor2<const T>, double, Tensor2<T>);                       \
  template void activate_backward<T>(Device&, Activation, Tensor2<const T>, Tensor2<const T>, double, Tensor2<T>);

#define GYR_ROUTING(A)                                                                                                          \
  template void route<A>(Device&, const Routing&, Tensor1<const A>, Tensor2<A>, Tensor2<std::int32_t>, Tensor2<A>, Tensor1<A>); \
  template void route_backward<A>(Device&, const Routing&, Tensor2<const A>, Tensor2<const std::int32_t>, Tensor2<const A>, Tensor2<A>);

#define GYR_BALANCE(A)                                                            \
  template void add_choices<A>(Device&, Tensor2<const std::int32_t>, Tensor1<A>); \
  template void add_balance_gradient<A>(Device&, const Routing&, Tensor2<const A>, Tensor1<const A>, Tensor1<const A>, double, double, Tensor2<A>);

#define GYR_EXPERT_ROWS(T)                                                                                                                      \
  template void gather_rows<T>(Device&, const ExpertRows&, Tensor2<const T>, Tensor2<T>);                                                       \
  template void combine_rows<T>(Device&, const ExpertRows&, Tensor2<const T>, Add, Tensor2<T>);                                                 \
  template void weighted_glu<T>(Device&, Activation, const ExpertRows&, Tensor2<const T>, Tensor2<const Acc<T>>, Tensor2<T>);                   \
  template void weighted_glu_backward<T>(Device&, Activation, const ExpertRows&, Tensor2<const T>, Tensor2<const T>, Tensor2<const Acc<T>>,     \
                                         Tensor2<T>, Tensor2<Acc<T>>);                                                                          \
  template void add_weighted_bias<T>(Device&, Tensor1<const std::int32_t>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, Tensor2<T>);           \
  template void weighted_bias_backward<T>(Device&, Tensor1<const std::int32_t>, Tensor2<const T>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, \
                                          Tensor2<Acc<T>>, Tensor2<T>);

#define GYR_RMSNORM(T)                                                                                                                          \
  template void rmsnorm<T>(Device&, Tensor2<const T>, Tensor1<const Acc<T>>, double, Tensor2<T>, Tensor1<Acc<T>>, double);                      \
  template void rmsnorm_backward<T>(Device&, Tensor2<const T>, Tensor2<const T>, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>, Add, Tensor2<T>, \
                                    Tensor1<Acc<T>>, double);

#define GYR_LAYERNORM(T)                                                                                                                   \
  template void layernorm<T>(Device&, Tensor2<const T>, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>, double, Tensor2<T>, Tensor1<Acc<T>>, \
                             Tensor1<Acc<T>>);                                                                                             \
  template void layernorm_backward<T>(Device&, Tensor2<const T>, Tensor2<const T>, Tensor1<const Acc<T>>, Tensor1<const Acc<T>>,           \
                                      Tensor1<const Acc<T>>, Add, Tensor2<T>, Tensor1<Acc<T>>, Tensor1<Acc<T>>);

#define GYR_HEAD_NORM(T)                                                                                                                 \
  template void head_norm<T>(Device&, Matrix<const T>, Tensor1<const Acc<T>>, double, Matrix<T>, Matrix<Acc<T>>, double);                \
  template void head_norm_backward<T>(Device&, Matrix<const T>, Matrix<const T>, Tensor1<const Acc<T>>, Matrix<const Acc<T>>, Matrix<T>, \
                                      Tensor1<Acc<T>>, double);

#define GYR_DISTANCE_BIAS(A)                                                                            \
  template void distance_bias<A>(Device&, const DistanceBuckets&, Tensor2<const A>, Index, Tensor2<A>); \
  template void distance_bias_backward<A>(Device&, const DistanceBuckets&, Tensor2<const A>, Index, Tensor2<A>);
#define GYR_DROPOUT(T) template void drop<T>(Device&, const Dropout&, const TokenPlaces&, Index, Tensor2<const T>, Tensor2<T>);

#define GYR_SOFT_CAP(A) template void soft_cap<A>(Device&, double, Tensor2<A>);

#define GYR_GATE(T)                                                                                                                              \
  template void gate<T>(Device&, Matrix<const T>, Matrix<const T>, Tensor2<T>);                                                                  \
  template void gate_backward<T>(Device&, Tensor2<const T>, Matrix<const T>, Matrix<const T>, Tensor2<T>, Matrix<T>);                            \
  template void gated_norm_squares<T>(Device&, GateOrder, Matrix<const T>, Matrix<const T>, Tensor2<Acc<T>>);                                    \
  template void gated_norm<T>(Device&, GateOrder, Matrix<const T>, Matrix<const T>, Tensor1<const Acc<T>>, Tensor2<const Acc<T>>, Index, double, \
                              Matrix<T>);                                                                                                        \
  template void gated_norm_dots<T>(Device&, GateOrder, Matrix<const T>, Matrix<const T>, Matrix<const T>, Tensor1<const Acc<T>>,                 \
                                   Tensor2<const Acc<T>>, Index, double, Tensor2<Acc<T>>, Tensor1<Acc<T>>);                                      \
  template void gated_norm_backward<T>(Device&, GateOrder, Matrix<const T>, Matrix<const T>, Matrix<const T>, Tensor1<const Acc<T>>,             \
                                       Tensor2<const Acc<T>>, Tensor2<const Acc<T>>, Index, double, Matrix<T>, Matrix<T>);

#define GYR_ROPE_TABLE(A)                                                               \
  template void rope_table<A>(Device&, double, const RopeScaling&, const Rotation<A>&); \
  template void rope_table_of_rows<A>(Device&, double, const RopeScaling&, const RotaryPositions&, Tensor1<const std::int32_t>, const Rotation<A>&);
#define GYR_BACKEND_ROPE_TABLE(A)                                                   \
  template void rope_table<A>(Device&, const RopeFrequencies&, const Rotation<A>&); \
  template void rope_table_of_rows<A>(Device&, const RopeFrequencies&, const RotaryPositions&, Tensor1<const std::int32_t>, const Rotation<A>&);
#define GYR_ROPE(S, T) \
  template void rope<S, T>(Device&, Rotate, Index, double, const Rotation<Acc<T>>&, Tensor1<const std::int32_t>, Matrix<const S>, Matrix<T>);
#define GYR_LATENT_HEADS(T)                                                                                                                          \
  template void expand_heads<T>(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t>, Matrix<const T>, Matrix<const T>, \
                                Matrix<T>, Matrix<T>, Matrix<T>);                                                                                    \
  template void expand_heads_backward<T>(Device&, const LatentHeads&, const Rotation<Acc<T>>&, Tensor1<const std::int32_t>, Matrix<const Acc<T>>,    \
                                         Matrix<const Acc<T>>, Matrix<const Acc<T>>, Matrix<T>, Matrix<T>, Matrix<T>);
#define GYR_CONVOLUTION(T)                                                                                                                 \
  template void convolution<T>(Device&, Index, Matrix<const T>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, Tensor3<const T>, Matrix<T>, \
                               const Documents&, ConvolutionEnd);                                                                          \
  template void convolution_backward<T>(Device&, Index, Matrix<const T>, Matrix<const T>, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>,    \
                                        Tensor3<const T>, Matrix<T>, Tensor2<Acc<T>>, Tensor1<Acc<T>>, Tensor3<T>, const Documents&,       \
                                        ConvolutionEnd);                                                                                   \
  template void convolution_tail<T>(Device&, Index, Matrix<const T>, Tensor3<const T>, Tensor3<T>);

#define GYR_EMBEDDING(T)                                                                                  \
  template void embedding<T>(Device&, Tensor1<const Token>, Tensor2<const T>, Index, double, Tensor2<T>); \
  template void embedding_backward<T>(Device&, Tensor1<const Token>, Tensor2<const T>, Index, double, Token, Tensor2<Acc<T>>);

#define GYR_LOSS(A)                                                                                                          \
  template void logits_top<A>(Device&, Tensor2<const A>, Index, Tensor1<A>);                                                 \
  template void logits_sums<A>(Device&, Tensor2<const A>, Index, Tensor1<const A>, Tensor1<const Token>, Index, Tensor2<A>); \
  template void logits_argmax<A>(Device&, Tensor2<const A>, Index, Tensor1<const A>, Index, Tensor1<A>);                     \
  template void row_entropies<A>(Device&, Tensor2<const A>, Tensor1<const Token>, Tensor1<double>);                          \
  template void cross_entropy<A>(Device&, Tensor2<const A>, Tensor1<const A>, Tensor1<const Token>, const LossTerms&, Tensor1<double>);

#define GYR_LOSS_BACKWARD(T)                                                                                                                         \
  template void cross_entropy_backward<T>(Device&, Tensor2<const Acc<T>>, Index, Tensor1<const Acc<T>>, Tensor2<const Acc<T>>, Tensor1<const Token>, \
                                          Index, Tensor1<const double>, const LossTerms&, Tensor2<T>, double, const RowWeights&);

#define GYR_ATTENTION(T)                                                                                                                         \
  template void attention<T>(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T>, Matrix<const T>, Matrix<const T>,   \
                             Carry, AttentionState<Acc<T>>);                                                                                     \
  template void attention_finish<T>(Device&, const AttentionShape&, AttentionState<Acc<T>>, Tensor2<T>, Tensor2<Acc<T>>, Tensor1<const Acc<T>>); \
  template void attention_delta<T>(Device&, const AttentionShape&, Tensor2<const T>, Tensor2<const T>, Tensor2<Acc<T>>);                         \
  template void attention_backward<T>(Device&, const AttentionShape&, const Mask&, const ScoreRule&, Matrix<const T>, Matrix<const T>,           \
                                      Matrix<const T>, Tensor2<const T>, Tensor2<const Acc<T>>, Tensor2<const Acc<T>>, Matrix<Acc<T>>,           \
                                      Matrix<Acc<T>>, Matrix<Acc<T>>);
#define GYR_ATTENTION_MERGE(A)                                                                            \
  template void attention_merge<A>(Device&, const AttentionShape&, AttentionState<A>, AttentionState<A>); \
  template void attention_sink_terms<A>(Device&, Tensor1<const A>, Tensor2<const A>, Tensor2<const A>, Tensor2<A>);

#define GYR_GEMM(T, S) \
  template void gemm<T, S>(Device&, MatrixOp, Matrix<const T>, MatrixOp, Matrix<const T>, Matrix<S>, double, double, const char*);
#define GYR_BACKEND_GEMM(T, S) \
  template void gemm<T, S>(Device&, MatrixOp, Matrix<const T>, MatrixOp, Matrix<const T>, Matrix<S>, const GemmExtents&, double, double);
#define GYR_FEW_ROWS(T, S) template void few_rows_gemm<T, S>(Device&, Matrix<const T>, Matrix<const T>, Matrix<S>, double, double);

#define GYR_QUANTIZE(T) template void quantize<T>(Device&, Matrix<const T>, const Int8Matrix&);
#define GYR_WIDEN(T) template void widen<T>(Device&, const Int8Matrix&, Index, Tensor2<T>);
#define GYR_INT8_LINEAR(T, S) template void linear<T, S>(Device&, Matrix<const T>, const Int8Matrix&, Matrix<S>, double, double);
#define GYR_INT8_FEW_ROWS(T, S) template void few_rows_gemm<T, S>(Device&, Matrix<const T>, const Int8Matrix&, Matrix<S>, double, double);

#define GYR_TERNARY_OF(T)                                                                                                                           \
  template void quantize_weight<T>(Device&, Matrix<const T>, const RowSections&, Tensor1<const Acc<T>>, Ternary, Tensor2<T>);                       \
  template void row_magnitudes<T>(Device&, Matrix<const T>, Tensor1<Acc<T>>);                                                                       \
  template void quantize_rows<T>(Device&, Matrix<const T>, Tensor1<const Acc<T>>, Ternary, Tensor2<T>);                                             \
  template void scale_products<T>(Device&, Tensor2<const Acc<T>>, Tensor1<const Acc<T>>, const RowSections&, Tensor1<const Acc<T>>, double, double, \
                                  Matrix<T>);
#define GYR_TERNARY(T) GYR_TERNARY_OF(T) template void magnitude_sums<T>(Device&, Matrix<const T>, const RowSections&, Tensor1<double>);
#define GYR_BACKEND_TERNARY(T) \
  GYR_TERNARY_OF(T) template void magnitude_sums<T>(Device&, Matrix<const T>, const RowSections&, Tensor1<double>, Tensor1<double>);
#define GYR_TERNARY_SCALES(A) template void weight_scales<A>(Device&, const RowSections&, Tensor1<const double>, Tensor1<A>);

#define GYR_SSD(T)                                                                                                                                   \
  template void ssd<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<const Acc<T>>, Tensor2<T>, SsdSaved<Acc<T>>, \
                       Tensor2<Acc<T>>);                                                                                                             \
  template void ssd_backward<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>>, Tensor2<const T>,         \
                                Tensor2<const Acc<T>>, SsdInputGradient<T>, SsdWeightGradient<Acc<T>>, Tensor2<Acc<T>>);
#define GYR_SSD_STEP(T) \
  template void ssd_step<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, Tensor2<Acc<T>>, Tensor2<T>);
#define GYR_SSD_PIECES(T)                                                                                                                            \
  template void ssd_chunk_states<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>>, Tensor2<Acc<T>>,      \
                                    Tensor3<Acc<T>>);                                                                                                \
  template void ssd_chunk_states_backward<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>>,              \
                                             Tensor2<const T>, Tensor3<const Acc<T>>, Tensor2<const Acc<T>>, SsdInputGradient<T>,                    \
                                             SsdWeightGradient<Acc<T>>);                                                                             \
  template void ssd_outputs<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>>, Tensor2<T>);               \
  template void ssd_outputs_backward<T>(Device&, const SsdShape&, const SsdInput<T>&, const SsdWeights<Acc<T>>&, SsdSaved<Acc<T>>, Tensor2<const T>, \
                                        Tensor3<Acc<T>>);
#define GYR_SSD_PASSING(A)                                                                                                                  \
  template void ssd_local_state<A>(Device&, const SsdShape&, Tensor3<const A>, Tensor3<const A>, Tensor2<const A>, Tensor2<A>, Tensor2<A>); \
  template void ssd_state_after<A>(Device&, const SsdShape&, std::span<const StateStep<A>>, Tensor2<A>);                                    \
  template void ssd_local_state_backward<A>(Device&, const SsdShape&, Tensor3<const A>, Tensor3<const A>, Tensor2<A>);                      \
  template void ssd_pass_states<A>(Device&, const SsdShape&, Tensor3<const A>, Tensor2<const A>, Tensor3<A>, Tensor2<A>);                   \
  template void ssd_pass_states_backward<A>(Device&, const SsdShape&, Tensor3<const A>, Tensor2<const A>, Tensor3<A>);

// Instantiate a family of kernels, which is one of the macros above, for all scalar types in use.
#define GYR_SCALARS(FAMILY) FAMILY(double) FAMILY(float) FAMILY(bf16)
#define GYR_CONVERSIONS(FAMILY) FAMILY(double, double) FAMILY(float, float) FAMILY(bf16, bf16) FAMILY(float, bf16) FAMILY(bf16, float)
#define GYR_ALL_GEMM(FAMILY) FAMILY(double, double) FAMILY(float, float) FAMILY(bf16, bf16) FAMILY(bf16, float)
#define GYR_ALL_ELEMENTWISE GYR_SCALARS(GYR_ELEMENTWISE) GYR_CONVERSIONS(GYR_CONVERT) GYR_CONVERT(double, float) GYR_CONVERT(float, double)
#define GYR_ALL_UPDATES GYR_SCALARS(GYR_UPDATES)
#define GYR_ALL_LAMB GYR_SCALARS(GYR_LAMB_STEP) GYR_LAMB_MOMENTS(double) GYR_LAMB_MOMENTS(float)
#define GYR_ALL_BACKEND_LAMB GYR_SCALARS(GYR_LAMB_STEP) GYR_BACKEND_LAMB_MOMENTS(double) GYR_BACKEND_LAMB_MOMENTS(float)
#define GYR_ALL_MUON GYR_SCALARS(GYR_MUON_STEP) GYR_MUON_MOMENTUM(double) GYR_MUON_MOMENTUM(float)
#define GYR_ALL_ROPE GYR_ROPE_TABLE(double) GYR_ROPE_TABLE(float) GYR_CONVERSIONS(GYR_ROPE)
#define GYR_ALL_ROUTING GYR_ROUTING(double) GYR_ROUTING(float)
#define GYR_ALL_BALANCE GYR_BALANCE(double) GYR_BALANCE(float)
#define GYR_ALL_BACKEND_ROPE GYR_BACKEND_ROPE_TABLE(double) GYR_BACKEND_ROPE_TABLE(float) GYR_CONVERSIONS(GYR_ROPE)
#define GYR_ALL_LOSS GYR_LOSS(double) GYR_LOSS(float) GYR_SCALARS(GYR_LOSS_BACKWARD)
#define GYR_ALL_ATTENTION GYR_SCALARS(GYR_ATTENTION) GYR_ATTENTION_MERGE(double) GYR_ATTENTION_MERGE(float)
#define GYR_ALL_SSD GYR_SCALARS(GYR_SSD) GYR_SCALARS(GYR_SSD_STEP) GYR_SCALARS(GYR_SSD_PIECES) GYR_SSD_PASSING(double) GYR_SSD_PASSING(float)
