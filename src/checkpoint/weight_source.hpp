// SPDX-License-Identifier: BSD-3-Clause
// Interface of a source of model weights: a checkpoint or a Hugging Face folder. A rank reads only its own rows and
// columns.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "kernels/base/box.hpp"
#include "modules/model/model_config.hpp"
#include "modules/weights/weight.hpp"

namespace gyr {

// Access to a tensor in a file.
struct TensorReader {
  std::string name;  // name for messages, FILE:TENSOR
  DType dtype = DType::f32;
  Shape shape;
  // Copies the elements of each part's box `from` (in the tensor) to its box `to` (in the row-major `array` at `data`),
  // in `dtype`. Both boxes have the same element order.
  std::function<void(std::span<const BoxPair> parts, void* data, const Shape& array)> read_parts;

  void read(const Box& box, void* data, const Shape& array, const Box& there) const {
    const BoxPair part{box, there};
    read_parts({&part, 1}, data, array);
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::string name() const = 0;  // name of the file or folder
  // key(): the source's name of a model weight. keys(): names of all weights in the source, sorted.
  virtual std::string key(const std::string& weight) const = 0;
  virtual std::vector<std::string> keys() const = 0;
  // Opens a weight that the source has. If it is stored in several precisions, opens the most exact copy for values of
  // type `wanted`. Exit::data if the tensor cannot be a weight.
  virtual TensorReader open(const std::string& weight, DType wanted) const = 0;
  // Compares files with the source's checksums, if it has any, and compares weights that are stored twice. Rank `rank`
  // of `ranks` checks its part of the files. Exit::data, Exit::config.
  virtual void check(int rank, int ranks) const { static_cast<void>(rank), static_cast<void>(ranks); }
};

// Exit::config naming the first tensor unless the source holds exactly `weights`, each in its shape.
void check_weights(const WeightSource&, const std::vector<Weight>& weights);

}  // namespace gyr
