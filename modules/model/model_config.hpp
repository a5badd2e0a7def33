// SPDX-License-Identifier: BSD-3-Clause
// The shape of a model, in Falcon-H1's terms. Field names follow Hugging Face's config.json where it has one.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/tensor.hpp"
#include "kernels/ops/activation.hpp"
#include "kernels/ops/cross_entropy.hpp"
#include "kernels/ops/gate.hpp"
#include "kernels/ops/rope.hpp"
#include "kernels/ops/routing.hpp"
#include "modules/settings/limits.hpp"
#include "modules/weights/adapter.hpp"

namespace gyr {

class Section;
class Objective;
std::shared_ptr<const Objective> next_token();  // the objective (objective.hpp) of models that generate

// Numbers that scores are added by the distance from query to key, see distance_bias.hpp.
struct RelativeBiasConfig {
  Index buckets = 0;  // of distances; 0: scores do not depend on distances
  Index max_distance = 128;
};

struct AttentionConfig {
  Index num_heads = 8, num_kv_heads = 2, head_dim = 64;  // query heads, key/value heads, channels of a head
  double rope_theta = 1e11;                              // base of the rotary embedding
  RopeScaling rope_scaling = {};
  double rotary_fraction = 1;           // of a head's channels that turn, the first ones; 0: no positions
  bool bias = false, qkv_bias = false;  // on q, k, v and o; on q, k and v alone
  bool qk_norm = false;                 // RMSNorm of every head of q and k, before they turn
  bool causal = true;                   // false: every token of a text sees all of it
  Index window = 0;     // tokens that a query sees, its own among them, and as many ahead if not causal; 0: all. No setting here: see WindowConfig
  double soft_cap = 0;  // bound that scores tend to by tanh; 0: none
  RelativeBiasConfig relative_bias = {};
  bool sinks = false;  // a learned score of each head that takes a part of its attention and has no value
  double in_multiplier = 1, key_multiplier = 1, out_multiplier = 1;

  Index rotary_dim() const { return Index(double(head_dim) * rotary_fraction); }
};

// Attention whose keys and values are made of few channels that all heads share, see latent_attention.hpp.
struct LatentConfig {
  Index num_heads = 16, head_dim = 128, rope_dim = 64, v_head_dim = 128;  // of queries and keys those without and with positions; of values
  Index q_rank = 0, kv_rank = 512;                                        // of what queries are made of, 0: the stream; and keys and values
  double rope_theta = 1e4;
  RopeScaling rope_scaling;
  double norm_eps = 1e-6;
  double score_growth = 0;  // where frequencies are lowered, scores grow by (score_growth / 10 ln(factor) + 1)^2
  bool bias = false;        // on the matrices that read the stream but for queries of no rank, and the one that writes it
  bool neighbours = true;   // channels that turn together lie side by side, or else half of all that turn apart

  Index qk_head_dim() const { return head_dim + rope_dim; }
};

// What layers whose attention has a window have of their own.
struct WindowConfig {
  Index size = 4096;
  double rope_theta = 0;  // 0: that of the attention, with its scaling
};

enum class SsmNorm { none, gate_first, norm_first };

struct MambaConfig {
  Index num_heads = 24, head_dim = 64, num_groups = 1, state_size = 128, conv_kernel = 4, chunk_size = 128;
  SsmNorm norm = SsmNorm::none;
  bool conv_bias = true, in_bias = false, out_bias = false;
  double dt_low = 0, dt_high = std::numeric_limits<double>::infinity();  // clamp of the time step
  double dt_init_low = 1e-3, dt_init_high = 0.1;                         // initial time steps
  double in_multiplier = 1, out_multiplier = 1;
  std::array<double, 5> multipliers{1, 1, 1, 1, 1};  // of z, x, B, C, dt
  bool decay_conv = true;                            // weight decay on the convolution's weights

  Index inner() const { return num_heads * head_dim; }
  Index channels() const { return inner() + 2 * num_groups * state_size; }  // through the convolution
  Index projected() const { return 2 * inner() + 2 * num_groups * state_size + num_heads; }
};

struct MlpConfig {
  Index intermediate_size = 2048;
  Activation activation = Activation::silu;
  bool gated = true;  // down(a(gate) up), without a gate down(a(up))
  bool bias = false;
  double gate_multiplier = 1, down_multiplier = 1;
};

// Which choices an expert keeps that has no room for all.
enum class DropPolicy { position, probability };

struct MoeConfig {
  Index experts = 8, intermediate_size = 2048, shared_intermediate_size = 0;  // of an expert; of the one that all tokens share, 0: none
  Routing routing;
  Activation activation = Activation::silu;       // of gates
  bool router_bias = false, expert_bias = false;  // on logits; on gate, up and down of experts, the shared one too
  bool bias = false;                              // added to scores for the choice alone
  double bias_update_rate = 0;                    // by how much it moves in a step, see expert_balance.hpp
  double capacity_factor = 0;                     // room of an expert in even shares, see expert_capacity.hpp; 0: for all that choose it
  DropPolicy drop_policy = DropPolicy::position;
  double aux_loss = 0, z_loss = 0;  // what the balance and z terms of every layer are added to the loss with, see balance_loss.hpp
};

// Shares of numbers that a training step sets to zero, see kernels/ops/dropout.hpp.
struct DropoutConfig {
  double embedding = 0, residual = 0, attention = 0, head = 0;  // of what leaves the embedding, what is added to the stream, weights of keys; of what
                                                                // classes are told by

  bool any() const { return embedding > 0 || residual > 0 || attention > 0 || head > 0; }
};

enum class NormType { rms, layer, layer_no_bias };

// In front of branches and the head; behind the embedding and every residual sum in place of these; or in front, and behind what branches add too.
enum class NormPlacement { before, after, both };

struct ModelConfig {
  std::string pattern;  // a symbol per layer, see layer.hpp
  Index vocab_size = 32784, hidden_size = 1024;
  Index positions = 0;        // learned ones, added to the embedding; 0: none
  Index type_vocab_size = 0;  // token types, added to the embedding, of which all tokens have the first but where halves are told apart; 0: none
  NormType norm = NormType::rms;
  NormPlacement norm_placement = NormPlacement::before;
  bool embed_norm = false;  // the first norm stands behind the embedding in place of in front of the first branches
  double norm_offset = 0;   // added to the weights of RMSNorms of rows and heads where they multiply
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  double embedding_multiplier = 1, lm_head_multiplier = 1;
  double lm_head_soft_cap = 0;              // bound that logits tend to by tanh; 0: none
  double init_std = 0.02;                   // of initial matrices
  std::int32_t pad_token_id = -1;           // token whose embedding takes no gradient; none where negative
  std::int32_t decoder_start_token_id = 0;  // that a text begins with behind an encoder
  AttentionConfig attention;
  WindowConfig window;
  MambaConfig mamba;
  MlpConfig mlp;
  MoeConfig moe;
  LatentConfig latent;
  DropoutConfig dropout;
  LoraConfig lora;
  std::shared_ptr<const Objective> objective = next_token();  // what it is trained for
  LossTerms loss_terms = {};                                  // what is added to its loss there

  Index layers() const { return Index(pattern.size()); }
  bool has_embed_norm() const { return embed_norm || norm_placement == NormPlacement::after; }
};

// Exit::config naming the first contradiction: heads that do not divide, odd head_dim, unknown layer symbol...
void check(const ModelConfig&);
// Keys model.*: those of the model here, those of its layers beside these (layer.hpp). The pattern is model.pattern or, where model.layers is
// given, the one of hybrid_pattern.hpp; Exit::config where both are given and differ.
ModelConfig read_model_config(Section&, const ModelConfig& defaults);

// True if the output side reads the embedding matrix: a tied head, or multi-token prediction. Defined with the objectives.
bool shares_embedding(const ModelConfig&);
// True if tokens have token types of their own (sentence-order prediction). Otherwise every token has the first type. Defined with the objectives.
bool reads_types(const ModelConfig&);

}  // namespace gyr
