// SPDX-License-Identifier: BSD-3-Clause
// The next-token logits of all passages in one HDF5 file, whatever grid computes them:
//   /logits   (rows, vocab_size)  row by row what the model says after each token; float32, or float64 of a model in fp64
//   /tokens   (rows)              the tokens read, int32
//   /labels   (rows)              the token that follows, int32; -100 where none is asked for
//   /offsets  (passages + 1)      passage i is the rows from offsets[i] to before offsets[i+1], int64
#pragma once

#include <filesystem>
#include <optional>

#include "src/engine/model/stage.hpp"
#include "src/evaluation/batches.hpp"
#include "src/evaluation/passage.hpp"
#include "src/hdf5/file.hpp"
#include "src/parallel/grid.hpp"

namespace gyr {

class LogitsFile {
 public:
  // The file appears when it is whole. Collective, as is all of this; Exit::io on every rank where it fails on the first.
  LogitsFile(const std::filesystem::path& file, Grid&, const Passages&, Index vocab_size, DType precision);
  ~LogitsFile();

  // Collects what the last stage's head computes from now on.
  void attach(Stage&);
  // The batch that each data coordinate has computed since the last call; null where one had none.
  void write(Device&, const std::vector<const Batch*>&);
  void finish();

 private:
  void make();
  void write_batch(Device&, int data, const Batch&);

  std::filesystem::path file_, temporary_;
  Grid& grid_;
  const Passages& passages_;
  Index vocab_size_, first_column_ = 0, columns_ = 0;  // this rank's of the vocabulary
  std::vector<std::int64_t> offsets_;
  DType dtype_;               // of the logits
  std::vector<double> seen_;  // this rank's columns, row by row
  std::optional<hdf5::File> out_;
  std::optional<hdf5::Dataset> logits_;
};

}  // namespace gyr
