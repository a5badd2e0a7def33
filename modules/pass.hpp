// SPDX-License-Identifier: BSD-3-Clause
// What a layer needs besides its weights while one micro-batch passes: device, store, the tensor axis and the tokens' layout.
#pragma once

#include "kernels/axis.hpp"
#include "kernels/documents.hpp"
#include "modules/activation_store.hpp"
#include "modules/state_store.hpp"

namespace gyr {

// `batch` sequences of `length` new tokens each, row b * length + t.
// With a state store, sequence b is number first_sequence + b of it and has seen past[b] tokens before.
struct Sequences {
  Index batch = 0, length = 0;
  Index first_sequence = 0;
  std::vector<Index> past;  // (batch), or none: nothing came before

  Index rows() const { return batch * length; }
  Index past_of(Index b) const { return past.empty() ? 0 : past[b]; }
};

template <class T>
struct Pass {
  Device& dev;
  ActivationStore& saved;
  Axis& tensor;
  Sequences sequences;
  StateStore* state = nullptr;        // generation only
  Tensor2<const Acc<T>> cosine, sine; // (rows, head width / 2) of every token's position; empty without attention
  Documents documents = {};           // packed ones; not in generation
};

}  // namespace gyr
