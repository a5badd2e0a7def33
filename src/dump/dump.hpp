// SPDX-License-Identifier: BSD-3-Clause
// Dump of one training step's tensors for inspection. Tensors are unsharded and named the same on any grid. The folder has the format of a
// checkpoint, so that h5py reads its index.h5 and `info` and `diff` work on it.
//   /activations/PATH   (sample of the step, token, channel)
//   /gradients/PATH     gradients of the loss: with respect to activations of the residual stream, with their shape, and to weights
//   /model/PATH         weights that the step used
#pragma once

#include <memory>

#include "modules/pass/hook.hpp"
#include "src/base/note.hpp"
#include "src/checkpoint/catalogue.hpp"
#include "src/checkpoint/transaction.hpp"
#include "src/dump/dump_file.hpp"
#include "src/engine/model/model_state.hpp"

namespace gyr {

class Dump final : public Hook {
 public:
  // Dumps the engine's next training step, of `samples` sequences, into FOLDER/step_N, where N is header.step. It writes the tensors whose path
  // matches one of the patterns `what` (weight_pattern.hpp). Collective, like the step. If one rank fails, every rank throws Exit::io and no file
  // remains. Rank 0 logs the result, even if the step fails afterwards.
  Dump(const std::filesystem::path& folder, const CheckpointHeader& header, std::vector<std::string> what, ModelState&, Index samples,
       Note note = {});
  ~Dump() override;

  void micro_batch(int micro) override { micro_ = micro; }
  void observe(Observed, const std::string& name, const AnyMatrix& values, Index first_row, Index columns, std::span<const Held>) override;
  void gradients_are_reduced() override;  // writes gradients and weights, and commits the dump

 private:
  StoredTensor activation(Observed, const std::string& name, DType, Index columns) const;
  const std::byte* packed(const AnyMatrix& values, Index first, Index count);
  void write_weights();
  Manifest full(const std::vector<std::string>& parts) const;
  void log_dump(const Manifest&, double seconds) const;

  std::vector<std::string> what_;
  ModelState& state_;
  Index samples_, micro_ = 0;
  Note note_;
  std::vector<PlacedTensor> weights_;  // weights and gradients to write
  CheckpointHeader header_;
  std::unique_ptr<Transaction> transaction_;  // set on rank 0 only
  std::optional<DumpFile> file_;
  std::optional<Error> failed_;  // error during the step, thrown after it
  double seconds_ = 0;
  std::vector<std::byte> copy_;  // host copy of data in device memory
  std::vector<std::byte> packed_;
};

}  // namespace gyr
