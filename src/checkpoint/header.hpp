// SPDX-License-Identifier: BSD-3-Clause
// Metadata of a checkpoint, in its manifest and as attributes of the root of its files, and the paths of its tensors:
//   /model/PATH                      every weight, unsharded, under its Hugging Face name: dots become groups, a leading
//                                    "model." is dropped
//   /optimizer/STATE/PATH            states of the weight's update rule, in the accumulator's precision: first_moment and
//                                    second_moment of AdamW and LAMB, momentum of Lion, momentum_buffer of SGD
//   /optimizer/master/PATH           master weights of weights stored in bfloat16
// and the paths in dumps of a step (src/dump/dump.hpp):
//   /gradients/PATH, /activations/PATH
#pragma once

#include <map>

#include "modules/weights/weight.hpp"
#include "src/engine/model/model_state.hpp"
#include "src/hdf5/file.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct CheckpointHeader {
  // Random numbers are counter-based. Besides the tensors, the seed and these counters are the complete state of a run.
  std::int64_t step = 0, samples = 0, tokens = 0;  // finished optimizer steps; sequences and tokens consumed so far
  std::uint64_t seed = 0;
  std::string precision;                               // precision of the model: float64, float32, bfloat16
  std::string deck;                                    // effective deck of the run as YAML
  std::string provenance = "{}";                       // origin of the run as a JSON object: git hash, versions, host
  std::string run;                                     // id of the run that wrote it; empty: no run, or an older version wrote it
  std::map<std::string, std::string> companions = {};  // small files next to the weights of a Hugging Face model: text by file name
  // These fields are set when the checkpoint is written.
  std::string layout = "none";  // axes and sizes of the grid that wrote it
  std::int64_t world = 1;       // number of ranks that wrote the checkpoint
  std::string writer, created;  // writing program with its version; creation time in UTC, ISO 8601
  std::string version;          // version of the checkpoint format, such as "2.0"
};

std::string path_of(Content, const std::string& weight_name);

inline constexpr const char* checkpoint_format = "gyrfalcon checkpoint";
inline constexpr const char* checkpoint_version = "2.0";  // the major version changes when older programs cannot read the format

// Sets the format version, the program and the time of a checkpoint that is about to be written.
CheckpointHeader stamped(CheckpointHeader);
// The same, and sets the precision and the layout of the writing ranks.
CheckpointHeader stamped(CheckpointHeader, DType precision, const Layout&);
// Writes the header as attributes. `format`: kind of file (checkpoint, shard or index).
void write_header(hdf5::File&, const CheckpointHeader&, const std::string& format);
// Reads the header of a checkpoint of format 1.x, which is a single file. Exit::data unless it is complete and its
// version is readable.
CheckpointHeader read_header(const hdf5::File&);
// Reads the header of a checkpoint of any format.
CheckpointHeader read_header(const std::filesystem::path& checkpoint);
void check_header(const CheckpointHeader&, const std::string& origin);  // throws Exit::data if a counter is negative

}  // namespace gyr
