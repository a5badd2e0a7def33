// SPDX-License-Identifier: BSD-3-Clause
// How commands that read a model hold the factors of its matrix products.
#pragma once

#include <string>

#include "modules/weights/weight.hpp"
#include "src/commands/command_line.hpp"

namespace gyr {

inline Option* add_weights_option(Command& command, std::string& weights) {
  return command
      .add_option(
          "--weights", weights,
          "stored: matrices as the precision says. int8: those of linear layers and an untied head in whole numbers of one byte, with a scale "
          "for every 64 of a row, off by at most 1/254 of the largest of these; embeddings and the rest stay. On ranks whose shares of columns "
          "are no multiples of 64 the scales are of other neighbours")
      ->one_of({"stored", "int8"})
      ->show_default();
}
inline Factors factors_of(const std::string& weights) { return weights == "int8" ? Factors::int8 : Factors::stored; }

}  // namespace gyr
