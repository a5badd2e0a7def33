// SPDX-License-Identifier: BSD-3-Clause
// State of a model on one rank, with gradients and optimizer state, in any precision. Checkpoints, comparisons and
// dumps use this interface.
#pragma once

#include <functional>

#include "kernels/ops/any_tensor.hpp"
#include "modules/model/model_config.hpp"
#include "modules/pass/hook.hpp"
#include "modules/weights/parameter.hpp"
#include "src/engine/config/optimizer_config.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

class ModelState {
 public:
  virtual ~ModelState() = default;

  virtual const ModelConfig& model() const = 0;
  virtual DType precision() const = 0;
  virtual Index seq_length() const = 0;
  virtual Index micro_batch_size() const = 0;
  virtual const OptimizerConfig& optimizer_config() const = 0;
  virtual Grid& grid() = 0;
  virtual Device& device() = 0;

  // Parameters on this rank, in order of declaration.
  virtual ParameterList parameters() const = 0;
  // This rank's part of a weight's content (weight, gradient, state of its rule, or master weight); absent if there is
  // none.
  // Activations are not kept.
  virtual Piece tensor(const Parameter&, Content) const = 0;
  // State to resume from: the master weight if there is one, otherwise the weight itself. The optimizer computes the
  // weight from its master weight.
  Piece updated(const Parameter& p) const {
    const Piece master = tensor(p, Content::master);
    return master ? master : tensor(p, Content::weight);
  }
  Trained trained() const { return optimizer_config().trained(); }
  // Sets the states to zero and copies the weights into the master weights. Does nothing if nothing is trained.
  virtual void reset_optimizer() = 0;

  // Calls the hook in training steps from now on; null: no hook. Not allowed in a dry run.
  virtual void set_hook(Hook*) = 0;
  // Registers a function that is called with this rank's reduced gradients before they are used: for fault injection.
  virtual void on_gradients(std::function<void(const std::vector<AnyTensor>&)>) = 0;
};

}  // namespace gyr
