// SPDX-License-Identifier: BSD-3-Clause
// Small models of an encoder and a decoder.
#pragma once

#include "regression/support/cases.hpp"

namespace gyr::testing {

// Of these layers; positions by what scores are added by distance, in so many buckets, or by angles where there are none.
inline ModelConfig encoder_and_decoder(const std::string& pattern, Index buckets) {
  ModelConfig m = named("T2").model;
  m.pattern = pattern;
  m.attention.relative_bias = {buckets, 7};
  if (buckets > 0) m.attention.rotary_fraction = 0;
  m.decoder_start_token_id = 3;
  return m;
}

}  // namespace gyr::testing
