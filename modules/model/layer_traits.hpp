// SPDX-License-Identifier: BSD-3-Clause
// Properties of a layer type that other parts of the program depend on. The type registers them (layer.hpp), so that no
// other file names it.
#pragma once

#include "modules/model/model_config.hpp"

namespace gyr {

struct BundleRows;
struct BundleShape;
struct LayerFlops;
struct TextLengths;

// Tokens that a layer's attention reads: none; all of its sequence; those in a sliding window; all, through compressed
// keys and values (MLA); those of the encoder output; those of the neighbours of a chunk (retrieval).
enum class AttentionKind { none, full, window, latent, cross, neighbours };

struct HeadCounts {
  Index query, shared;  // query heads, and heads of keys and values
};

// Causal convolution of a layer type, which reads the tokens before a block: its width, and the deck key that sets it.
struct ConvolutionWidth {
  Index (*tokens)(const ModelConfig&) = nullptr;  // null: the type has no convolution
  const char* key = "";
};

// Properties of a layer type that layouts, planner, verification and CUDA graphs depend on.
struct LayerTraits {
  AttentionKind attention = AttentionKind::none;
  HeadCounts (*heads)(const ModelConfig&) = nullptr;  // heads that context-parallel ranks exchange (parallel.context_mode: heads)
  bool ssm = false;                                   // Mamba-2 scan
  ConvolutionWidth convolution = {};                  // the type mixes tokens by a convolution, and by a scan
  bool experts = false;                               // each row is processed by some of the experts of model.moe
  bool in_encoder = false;                            // layers before the symbol > may have this type
  bool read_later = false;                            // later layers read what it saves, which is therefore never recomputed or offloaded
  // Tensor that the first layer of this type passes on to the later ones, besides the residual stream (bundle_shapes.hpp); null: none.
  BundleShape (*carried)(const ModelConfig&, DType, const BundleRows&) = nullptr;
  // FLOPs per token of the text that only the first layer of this type has; null: none.
  LayerFlops (*flops_of_first)(const ModelConfig&, const TextLengths&) = nullptr;
  bool same_launches = false;  // kernels have the same arguments in every micro-batch, if experts do not count rows on the host
  bool ternary = false;        // linear layers may be ternary (model.linear) or in FP8 (train.fp8)
  // If attention and SSM may run on separate tensor-parallel ranks (parallel.mixer): symbol of the type that has the
  // other branches only.
  char without_mixers = '\0';

  // True if attention reads another text than that of the layer's rows.
  bool reads_source() const { return attention == AttentionKind::cross || attention == AttentionKind::neighbours; }
  bool mixes_tokens() const { return convolution.tokens || (attention != AttentionKind::none && !reads_source()); }
};

}  // namespace gyr
