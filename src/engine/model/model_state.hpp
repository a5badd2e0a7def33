// SPDX-License-Identifier: BSD-3-Clause
// A model on a rank with what training keeps of it, whatever its scalars are: for those who save, load, compare or look.
#pragma once

#include <functional>

#include "kernels/ops/any_tensor.hpp"
#include "modules/model/model_config.hpp"
#include "modules/pass/hook.hpp"
#include "modules/weights/parameter.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

class ModelState {
 public:
  virtual ~ModelState() = default;

  virtual const ModelConfig& model() const = 0;
  virtual DType precision() const = 0;
  virtual Index seq_length() const = 0;
  virtual Index micro_batch_size() const = 0;
  virtual Trained trained() const = 0;
  virtual Grid& grid() = 0;
  virtual Device& device() = 0;

  // This rank's, in order of declaration.
  virtual ParameterList parameters() const = 0;
  // What this rank keeps of a weight and beside it; absent where there is none. Activations are not kept.
  virtual Piece tensor(const Parameter&, Content) const = 0;
  // The numbers that training goes on from: of a weight that has a master those, since the weight itself is made anew from them.
  Piece updated(const Parameter& p) const {
    const Piece master = tensor(p, Content::master);
    return master ? master : tensor(p, Content::weight);
  }
  // Moments of zero, masters from the weights.
  virtual void reset_optimizer() = 0;

  // Calls the hook in training steps from now on; null: no hook. Not in a dry run.
  virtual void set_hook(Hook*) = 0;
  // Called with what this rank keeps of the gradients once they are whole, before they are used: for the injection of faults.
  virtual void on_gradients(std::function<void(const std::vector<AnyTensor>&)>) = 0;
};

}  // namespace gyr
