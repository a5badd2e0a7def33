// SPDX-License-Identifier: BSD-3-Clause
// The next-token logits of all passages in one HDF5 file, whatever grid computes them:
//   /logits   (rows, vocab_size)  logits after each token; float32, or float64 for a model in fp64
//   /tokens   (rows)              tokens read, int32
//   /labels   (rows)              target tokens, int32; -100 for rows that are not scored
//   /offsets  (passages + 1)      passage i has the rows from offsets[i] to before offsets[i+1], int64
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
  // The file appears when it is complete. All functions are collective; Exit::io on every rank if rank 0 fails.
  LogitsFile(const std::filesystem::path& file, Grid&, const Passages&, Index vocab_size, DType precision);
  ~LogitsFile();

  // Collects the logits that the head of the last stage computes from now on.
  void attach(Stage&);
  // Writes one batch per data-parallel rank, computed since the last call; null for a rank without one.
  void write(Device&, const std::vector<const Batch*>&);
  void finish();

 private:
  void make();
  void write_batch(Device&, int data, const Batch&);

  std::filesystem::path file_, temporary_;
  Grid& grid_;
  const Passages& passages_;
  Index vocab_size_, first_column_ = 0, columns_ = 0;  // vocabulary columns of this rank
  std::vector<std::int64_t> offsets_;
  DType dtype_;               // data type of the logits
  std::vector<double> seen_;  // logits of this rank's columns, row by row
  std::optional<hdf5::File> out_;
  std::optional<hdf5::Dataset> logits_;
};

}  // namespace gyr
