// SPDX-License-Identifier: BSD-3-Clause
// Configuration of a model, in Falcon-H1's terms. Field names follow Hugging Face's config.json where it has an
// equivalent.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "kernels/ops/activation.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/gate.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/routing.hpp"
#include "kernels/ops/vision/patches.hpp"
#include "modules/settings/limits.hpp"
#include "modules/weights/adapter.hpp"

namespace gyr {

class Section;
class Objective;
std::shared_ptr<const Objective> next_token();  // default objective, next-token prediction (objective.hpp)

// Relative position bias, added to attention scores by the distance from query to key (T5), see distance_bias.hpp.
struct RelativeBiasConfig {
  Index buckets = 0;  // number of buckets of distances; 0: no relative position bias
  Index max_distance = 128;
};

struct AttentionConfig {
  Index num_heads = 8, num_kv_heads = 2, head_dim = 64;  // number of query heads, of key/value heads, of channels per head
  double rope_theta = 1e11;                              // base of the rotary position embedding (RoPE)
  RopeScaling rope_scaling = {};
  RotarySections rotary_sections = {};  // components of a row's position (M-RoPE), and the channel pairs that each rotates
  double rotary_fraction = 1;           // fraction of each head's channels that RoPE rotates, the first ones; 0: no RoPE
  bool bias = false, qkv_bias = false;  // true: biases on q, k, v and o; on q, k and v only
  bool qk_norm = false;                 // true: RMSNorm of each query and key head before RoPE
  bool qk_norm_all_heads = false;       // true: that norm is over all query channels, and over all key channels, of a row (OLMo 2)
  bool causal = true;                   // false: bidirectional, every token attends to its full document
  Index window = 0;     // sliding window in tokens, the query's own included, on both sides if not causal; 0: none. Set from WindowConfig
  double soft_cap = 0;  // soft cap of attention scores by tanh; 0: none
  RelativeBiasConfig relative_bias = {};
  bool sinks = false;        // attention sinks: one learned score per head that joins the softmax but has no value
  bool output_gate = false;  // true: the attention output is multiplied by sigmoid(gate_proj(h)) before o_proj
  double in_multiplier = 1, key_multiplier = 1, out_multiplier = 1;

  Index rotary_dim() const { return Index(double(head_dim) * rotary_fraction); }
};

// Multi-head latent attention, whose keys and values are projected from a few channels that all heads share, see
// latent_attention.hpp.
struct LatentConfig {
  Index num_heads = 16, head_dim = 128, rope_dim = 64, v_head_dim = 128;  // heads; non-rotary, rotary and value dimensions per head
  Index q_rank = 0, kv_rank = 512;                                        // rank of the query latent, 0: none; rank of the key/value latent
  double rope_theta = 1e4;
  RopeScaling rope_scaling;
  double norm_eps = 1e-6;
  double score_growth = 0;  // with RoPE scaling, scores are scaled by (score_growth / 10 ln(factor) + 1)^2
  bool bias = false;        // biases of q_a_proj, kv_a_proj_with_mqa and o_proj
  bool neighbours = true;   // RoPE rotates pairs of adjacent channels; false: channels half of the rotary dimensions apart

  Index qk_head_dim() const { return head_dim + rope_dim; }
};

// Settings of layers with sliding-window attention.
struct WindowConfig {
  Index size = 4096;      // sliding window in tokens
  double rope_theta = 0;  // RoPE base of these layers; 0: base and scaling of AttentionConfig
  bool rotary = true;     // false: no RoPE in these layers (NoPE, SmolLM3)
};

enum class SsmNorm { none, gate_first, norm_first };

struct MambaConfig {
  Index num_heads = 24, head_dim = 64, num_groups = 1, state_size = 128, conv_kernel = 4, chunk_size = 128;
  SsmNorm norm = SsmNorm::none;
  bool conv_bias = true, in_bias = false, out_bias = false;
  double dt_low = 0, dt_high = std::numeric_limits<double>::infinity();  // minimum and maximum to which the SSM time step is clamped
  double dt_init_low = 1e-3, dt_init_high = 0.1;                         // range of the initial time steps
  double in_multiplier = 1, out_multiplier = 1;
  std::array<double, 5> multipliers{1, 1, 1, 1, 1};  // factors on z, x, B, C and dt
  bool decay_conv = true;                            // true: weight decay applies to the convolution's weights

  Index inner() const { return num_heads * head_dim; }
  Index channels() const { return inner() + 2 * num_groups * state_size; }  // number of channels of the convolution: x, B and C
  Index projected() const { return 2 * inner() + 2 * num_groups * state_size + num_heads; }
};

// Gated delta net, see gated_delta_net.cpp.
struct DeltaConfig {
  Index num_heads = 16, num_key_heads = 8, head_dim = 64, key_dim = 64, conv_kernel = 4, chunk_size = 64;

  Index inner() const { return num_heads * head_dim; }                      // channels of the values
  Index channels() const { return inner() + 2 * num_key_heads * key_dim; }  // channels of the convolution: q, k and v
};

// Gated short convolution (LFM2), see short_convolution.cpp. Its channels are those of the residual stream.
struct ShortConvConfig {
  Index kernel = 3;   // width of the causal convolution in tokens
  bool bias = false;  // biases of in_proj, the convolution and out_proj
};

struct MlpConfig {
  Index intermediate_size = 2048;
  Activation activation = Activation::silu;
  bool gated = true;  // true: down(a(gate) up), with a the activation; false: down(a(up))
  bool bias = false;
  double gate_multiplier = 1, down_multiplier = 1;
};

// Criterion by which an expert without capacity for all its choices keeps some: the first ones, or those with the
// largest weights.
enum class DropPolicy { position, probability };

struct MoeConfig {
  Index experts = 8, intermediate_size = 2048, shared_intermediate_size = 0;  // inner channels of each expert; of the shared expert, 0: none
  Index latent_size = 0;  // channels of the latent that routed experts read and write; 0: they read and write the stream
  Routing routing;
  Activation activation = Activation::silu;       // activation of the experts
  bool gated = true;                              // false: experts are down(a(up)), the shared one included
  double shared_multiplier = 1;                   // factor on the output of the shared expert
  bool router_bias = false, expert_bias = false;  // bias of router logits; biases of gate, up and down in all experts, the shared one included
  bool shared_gate = false;                       // true: the shared expert's output is multiplied by the sigmoid of a score
  bool bias = false;                              // e_score_correction_bias, added to scores for the choice only
  double bias_update_rate = 0;                    // change of that bias per step, see expert_balance.hpp
  double capacity_factor = 0;                     // expert capacity as a multiple of the even load, see expert_capacity.hpp; 0: no limit
  DropPolicy drop_policy = DropPolicy::position;
  double aux_loss = 0, z_loss = 0;  // coefficients of the load-balancing loss and of the z-loss of each layer, see balance_loss.hpp
};

// Retrieval (layers R): a row reads the neighbours of the last chunk that has ended before or with it, passages that were
// retrieved for that chunk, see retrieval.hpp.
struct RetrievalConfig {
  Index chunk = 64, neighbours = 2;  // m: tokens of a chunk; k: neighbours of each chunk
  std::string encoder = "*X-*-";     // layers of the encoder of neighbours; X attends to the chunk
  double dropout = 0.1;              // in the encoder: of attention weights, and of what layers add to the stream

  Index neighbour_length() const { return 2 * chunk; }  // r: tokens of a neighbour: a chunk of the database and its continuation
  // Tokens of all neighbours of a text.
  Index source_length(Index tokens) const { return tokens / chunk * neighbours * neighbour_length(); }
};

enum class VisionTower { clip, siglip };

// Vision tower, the layers before the symbol V: a Vision Transformer over the patches of each image, whose rows take the places
// of image tokens in the text, see patch_front.cpp and image_rows.cpp. Names are those of vision_config in LLaVA's config.json.
struct VisionConfig {
  VisionTower tower = VisionTower::clip;
  Index hidden_size = 1024, num_heads = 16, intermediate_size = 4096;
  Index image_size = 336, patch_size = 14;  // pixels per side of an image, and of a patch
  Activation activation = Activation::quick_gelu;
  double norm_eps = 1e-5;
  bool drops_first_row = true;  // the first row of an image does not enter the text (vision_feature_select_strategy = default)
  Activation projector_activation = Activation::gelu;
  bool projector_bias = true;
  std::int32_t image_token = 0;  // token of the text whose place a row of an image takes (image_token_id)
  Index images = 1;              // largest number of images of a sequence, for which memory is planned
  Index unused_layers = 0;       // layers after those of the pattern, which are stored and exported, but not computed
  PixelScale pixels{{.48145466, .4578275, .40821073}, {.26862954, .26130258, .27577711}};

  bool has_class_row() const { return tower == VisionTower::clip; }
  Index patch_values() const { return image_channels * patch_size * patch_size; }
  Index patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  Index rows() const { return patches() + Index(has_class_row()); }  // rows of an image in the tower
  Index first_row() const { return Index(drops_first_row); }         // first of the rows that enter the text
  Index rows_in_text() const { return rows() - first_row(); }
  Index rows_of_sequence() const { return images * rows(); }
};
VisionConfig vision_defaults(VisionTower);  // values of openai/clip-vit-large-patch14-336, or of google/siglip-so400m-patch14-384

// Dropout probabilities of the model in training, see kernels/ops/dropout.hpp.
struct DropoutConfig {
  // Dropout of the embedding output, of what branches add to the residual stream, of attention weights, and of a classifier's input.
  double embedding = 0, residual = 0, attention = 0, head = 0;

  bool any() const { return embedding > 0 || residual > 0 || attention > 0 || head > 0; }
};

enum class NormType { rms, layer, layer_no_bias };

// before: in front of branches and the head. after: after the embedding and every residual sum. both: before, and also
// on each branch's output. output: on each branch's output, and in front of the head.
enum class NormPlacement { before, after, both, output };

// Configuration of a stack of layers, where it differs from that of the model.
struct StackConfig {
  Index hidden_size = 1024;
  NormType norm = NormType::rms;
  double rms_norm_eps = 1e-5;
  AttentionConfig attention = {};
  MlpConfig mlp = {};
};

struct ModelConfig {
  std::string pattern;  // one symbol per layer, see layer.hpp
  Index vocab_size = 32784, hidden_size = 1024;
  Index positions = 0;        // learned absolute positions, added to the embedding; 0: none
  Index type_vocab_size = 0;  // token types, added to the embedding; all tokens have type 0 except with sentence-order prediction; 0: none
  NormType norm = NormType::rms;
  NormPlacement norm_placement = NormPlacement::before;
  bool embed_norm = false;  // the first norm is applied to the embedding output, not in front of the first branches
  double norm_offset = 0;   // added to RMSNorm weights before they multiply, also in the q and k norms
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  double embedding_multiplier = 1, lm_head_multiplier = 1;
  double lm_head_soft_cap = 0;               // soft cap of logits by tanh; 0: none
  LinearLayers linear = LinearLayers::full;  // GEMMs of the linear layers of attention, SSM and MLP
  double init_std = 0.02;                    // standard deviation of initial weight matrices
  std::int32_t pad_token_id = -1;            // padding token, whose embedding gets no gradient; negative: none
  std::int32_t decoder_start_token_id = 0;   // first token of the decoder input after an encoder
  std::string encoder_front = "tokens";      // what makes the first rows of an encoder, see front.hpp
  std::optional<StackConfig> encoder = {};   // configuration of the layers before the symbol >; none: that of the other layers
  AttentionConfig attention;
  WindowConfig window;
  MambaConfig mamba;
  DeltaConfig delta;
  ShortConvConfig short_conv;
  MlpConfig mlp;
  MoeConfig moe;
  LatentConfig latent;
  RetrievalConfig retrieval;
  VisionConfig vision;
  DropoutConfig dropout;
  LoraConfig lora;
  std::shared_ptr<const Objective> objective = next_token();  // training objective
  LossTerms loss_terms = {};                                  // terms that training adds to the loss

  Index layers() const { return Index(pattern.size()); }
  // True if RoPE scales each sequence by its own length (rope_type dynamic).
  bool has_dynamic_rope() const { return attention.rope_scaling.type == RopeScaling::dynamic || latent.rope_scaling.type == RopeScaling::dynamic; }
  bool norms_output() const { return norm_placement == NormPlacement::both || norm_placement == NormPlacement::output; }
  bool has_embed_norm() const { return embed_norm || norm_placement == NormPlacement::after; }
};

// Exit::config naming the first contradiction: heads that do not divide, an odd rotary dimension, an unknown layer
// symbol, ...
void check(const ModelConfig&);
// Keys model.*: those of the model are declared here, those of its layers next to the layers (layer.hpp). The pattern
// is model.pattern or, if model.layers is given, that of hybrid_pattern.hpp; Exit::config if both are given and differ.
ModelConfig read_model_config(Section&, const ModelConfig& defaults);

// True if the output side reads the embedding matrix: a tied head, or multi-token prediction. Defined with the objectives.
bool shares_embedding(const ModelConfig&);
// True if tokens have token types of their own (sentence-order prediction). Otherwise every token has the first type. Defined with the objectives.
bool reads_types(const ModelConfig&);

}  // namespace gyr
