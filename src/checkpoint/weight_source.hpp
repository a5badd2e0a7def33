// SPDX-License-Identifier: BSD-3-Clause
// Where the weights of a model come from: a checkpoint, or a folder of Hugging Face's. A rank reads its own rows and columns of them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "kernels/base/box.hpp"
#include "modules/model/model_config.hpp"
#include "modules/weights/weight.hpp"

namespace gyr {

// A tensor of a file.
struct TensorReader {
  std::string name;  // FILE:TENSOR, for messages
  DType dtype = DType::f32;
  Shape shape;
  // The elements of each part's `from` become those of `to` in the row-major `array` at `data`, in `dtype`. Both have the same order.
  std::function<void(std::span<const BoxPair> parts, void* data, const Shape& array)> read_parts;

  void read(const Box& box, void* data, const Shape& array, const Box& there) const {
    const BoxPair part{box, there};
    read_parts({&part, 1}, data, array);
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::string name() const = 0;  // of the file or folder
  // What the source calls a weight of the model, and all that it holds of models, sorted.
  virtual std::string key(const std::string& weight) const = 0;
  virtual std::vector<std::string> keys() const = 0;
  // A weight that is there. Of several copies the most exact one for values of type `wanted`. Exit::data where it is no weight.
  virtual TensorReader open(const std::string& weight, DType wanted) const = 0;
  // Compares files with the checksums that the source has of them, if any, and what is stored twice: the part of rank `rank` of `ranks`.
  // Exit::data, Exit::config.
  virtual void check(int rank, int ranks) const { static_cast<void>(rank), static_cast<void>(ranks); }
};

// Exit::config naming the first tensor unless the source holds every one of `weights` in its shape, and no other.
void check_weights(const WeightSource&, const std::vector<Weight>& weights);

}  // namespace gyr
