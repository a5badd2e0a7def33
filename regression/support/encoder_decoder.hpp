// SPDX-License-Identifier: BSD-3-Clause
// Small encoder-decoder models for tests.
#pragma once

#include "regression/support/cases.hpp"

namespace gyr::testing {

// Model with this layer pattern. Positions enter through a relative bias with `buckets` buckets, or through RoPE if
// `buckets` is 0.
inline ModelConfig encoder_and_decoder(const std::string& pattern, Index buckets) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern;
  m.attention.relative_bias = {buckets, 7};
  if (buckets > 0) m.attention.rotary_fraction = 0;
  m.decoder_start_token_id = 3;
  return m;
}

}  // namespace gyr::testing
