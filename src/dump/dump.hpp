// SPDX-License-Identifier: BSD-3-Clause
// One training step's numbers for people, whole and named whatever grid computes them: a folder in the format of checkpoints, so that h5py
// reads its index.h5 and `info` and `diff` work on it.
//   /activations/PATH   (sample of the step, token, channel)
//   /gradients/PATH     of the loss with respect to activations of the residual stream, shaped like them, and to weights
//   /model/PATH         the weights that the step used
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
  // Of the engine's next training step, of `samples` sequences, into FOLDER/step_N where N is header.step. What a tensor's path matches one
  // of the patterns `what` (weight_pattern.hpp) is taken. Collective, as the step itself is; Exit::io on every rank where it fails on one,
  // and nothing is left of it. The first rank says what became of it, also where the step then ends in an error of its own.
  Dump(const std::filesystem::path& folder, const CheckpointHeader& header, std::vector<std::string> what, ModelState&, Index samples, Note say = {});
  ~Dump() override;

  void micro_batch(int micro) override { micro_ = micro; }
  void observe(Observed, const std::string& name, const AnyMatrix& numbers, Index first_row, Index columns, std::span<const Held>) override;
  void gradients_are_reduced() override;  // writes them and the weights, and commits

 private:
  StoredTensor activation(Observed, const std::string& name, DType, Index columns) const;
  const std::byte* packed(const AnyMatrix& numbers, Index first, Index count);
  void write_weights();
  Manifest whole(const std::vector<std::string>& parts) const;
  void log_dump(const Manifest&, double seconds) const;

  std::vector<std::string> what_;
  ModelState& state_;
  Index samples_, micro_ = 0;
  Note say_;
  std::vector<PlacedTensor> weights_;  // and their gradients
  CheckpointHeader header_;
  std::unique_ptr<Transaction> transaction_;  // on the first rank
  std::optional<DumpFile> file_;
  std::optional<Error> failed_;  // while the step went on
  double seconds_ = 0;
  std::vector<std::byte> copy_;  // of numbers that the host cannot read
  std::vector<std::byte> packed_;
};

}  // namespace gyr
