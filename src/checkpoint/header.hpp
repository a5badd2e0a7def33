// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint says of itself, in its manifest and as attributes of the root of its files, and under which names its tensors go:
//   /model/PATH                      every weight, whole, under its Hugging Face name: dots become groups, a leading "model." is dropped
//   /optimizer/first_moment/PATH     AdamW's moments, in the accumulator's precision
//   /optimizer/second_moment/PATH
//   /optimizer/master/PATH           of weights stored in bfloat16
// and in dumps of a step (src/dump/dump.hpp)
//   /gradients/PATH, /activations/PATH
#pragma once

#include <map>

#include "modules/weights/weight.hpp"
#include "src/engine/model/model_state.hpp"
#include "src/hdf5/file.hpp"
#include "src/parallel/layout.hpp"

namespace gyr {

struct CheckpointHeader {
  // Randomness is counted, not stored: with the seed these are the whole state of a run besides its tensors.
  std::int64_t step = 0, samples = 0, tokens = 0;  // finished optimizer steps; sequences and tokens taken so far
  std::uint64_t seed = 0;
  std::string precision;                               // of the model: float64, float32, bfloat16
  std::string deck;                                    // effective deck, YAML
  std::string provenance = "{}";                       // JSON object: git hash, versions, host
  std::string run;                                     // id of the run that it is a step of; empty: of none, or written by an older program
  std::map<std::string, std::string> companions = {};  // of a model from Hugging Face: small files beside its weights, text by name
  // Filled in when it is written.
  std::string layout = "none";  // of the ranks that wrote it
  std::int64_t world = 1;       // their number
  std::string writer, created;  // program and version; UTC, ISO 8601
  std::string version;          // of the format
};

std::string_view name_of(Content);
std::string path_of(Content, const std::string& weight_name);

inline constexpr const char* checkpoint_format = "gyrfalcon checkpoint";
inline constexpr const char* checkpoint_version = "2.0";  // the first number changes when older programs cannot read it any more

// Version, program and time of a checkpoint that is about to be written.
CheckpointHeader stamped(CheckpointHeader);
// The same, with the ranks that write it and the type of their numbers.
CheckpointHeader stamped(CheckpointHeader, DType precision, const Layout&);
// As attributes; `format` says what kind of file of a checkpoint it is.
void write_header(hdf5::File&, const CheckpointHeader&, const std::string& format);
// Of a checkpoint of format 1.x, which is one file. Exit::data unless it is complete and of a version this program reads.
CheckpointHeader read_header(const hdf5::File&);
// Of a checkpoint in any format.
CheckpointHeader read_header(const std::filesystem::path& checkpoint);
void check_header(const CheckpointHeader&, const std::string& origin);  // Exit::data for impossible numbers

}  // namespace gyr
