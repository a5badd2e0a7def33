// SPDX-License-Identifier: BSD-3-Clause
// --weights: storage of weight matrices in commands that read a model.
#pragma once

#include <string>

#include "modules/weights/weight.hpp"
#include "src/commands/command_line.hpp"

namespace gyr {

inline Option* add_weights_option(Command& command, std::string& weights) {
  return command
      .add_option(
          "--weights", weights,
          "Storage of weight matrices. stored: in --precision. int8: those of linear layers and an untied head as 8-bit integers with one scale per "
          "64 elements of a row (error at most 1/254 of the largest of these); embeddings and other weights stay in --precision. If a rank's shard "
          "of columns is not a multiple of 64, its groups of 64 differ from those of one rank")
      ->one_of({"stored", "int8"})
      ->show_default();
}
inline Factors factors_of(const std::string& weights) { return weights == "int8" ? Factors::int8 : Factors::stored; }

}  // namespace gyr
