// SPDX-License-Identifier: BSD-3-Clause
// The shape of a model, in Falcon-H1's terms. Field names follow Hugging Face's config.json where it has one.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "kernels/gate.hpp"
#include "kernels/tensor.hpp"

namespace gyr {

struct AttentionConfig {
  Index heads = 8, key_heads = 2, width = 64;  // query heads, key/value heads, head width
  double theta = 1e11;                         // base of the rotary embedding
  bool bias = false;
  double in_multiplier = 1, key_multiplier = 1, out_multiplier = 1;
};

enum class SsmNorm { none, gate_first, norm_first };

struct MambaConfig {
  Index heads = 24, width = 64, groups = 1, state = 128, taps = 4, chunk = 128;
  SsmNorm norm = SsmNorm::none;
  bool convolution_bias = true, in_bias = false, out_bias = false;
  double dt_low = 0, dt_high = std::numeric_limits<double>::infinity();  // clamp of the time step
  double dt_init_low = 1e-3, dt_init_high = 0.1;                         // initial time steps
  double in_multiplier = 1, out_multiplier = 1;
  std::array<double, 5> multipliers{1, 1, 1, 1, 1};  // of z, x, B, C, dt
  bool decay_convolution = true;                     // weight decay on the convolution's taps

  Index inner() const { return heads * width; }
  Index channels() const { return inner() + 2 * groups * state; }        // through the convolution
  Index projected() const { return 2 * inner() + 2 * groups * state + heads; }
};

struct MlpConfig {
  Index width = 2048;
  bool bias = false;
  double gate_multiplier = 1, down_multiplier = 1;
};

struct ModelConfig {
  std::string pattern;  // a symbol per layer, see layer.hpp
  Index vocabulary = 32784, width = 1024;
  double epsilon = 1e-5;
  bool tied = false;
  double embedding_multiplier = 1, head_multiplier = 1;
  double deviation = 0.02;  // of initial matrices
  std::int32_t padding = -1;  // token whose embedding takes no gradient; none where negative
  AttentionConfig attention;
  MambaConfig mamba;
  MlpConfig mlp;

  Index layers() const { return Index(pattern.size()); }
};

// Exit::config naming the first contradiction: heads that do not divide, odd head width, unknown layer symbol...
void check(const ModelConfig&);

}  // namespace gyr
