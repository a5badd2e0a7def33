// SPDX-License-Identifier: BSD-3-Clause
// Width transfer (muP, Yang et al. 2022): settings that were tuned on a model of width N hold for a wider one of the same
// depth and head dimension. With fan-in n of a hidden matrix (its columns) and the width D of the model:
//   initial std * sqrt(N / n),   learning rate * N / n (adamw, lion),   logits * N / D
// Embeddings, vectors, convolutions and the output matrix keep their initial std and learning rate. Muon scales its own
// updates and keeps its learning rate.
#pragma once

#include <string_view>

#include "modules/weights/weight.hpp"

namespace gyr {

struct ModelConfig;

struct WidthTransfer {
  Index base = 0;  // N; 0: no transfer

  explicit operator bool() const { return base > 0; }
  // Factor on the standard deviation of the initial values.
  double of_init(const Weight&) const;
  // Factor on the learning rate, with the update rule of this name.
  double of_rate(const Weight&, std::string_view rule) const;
};

// True for matrices whose fan-in is a width: not embeddings, output matrices, convolutions or adapters.
bool is_hidden_matrix(const Weight&);

// Sets the factor on the logits. Exit::config if the model has other multipliers, which are another form of width transfer.
void apply(const WidthTransfer&, ModelConfig&);

}  // namespace gyr
