// SPDX-License-Identifier: BSD-3-Clause
// Mapping from our models to llama.cpp: the architecture names, the key-values that each architecture needs, and the
// tensors that our weights become. Each file of families/ defines some architectures. Names and value changes follow
// llama.cpp's own converter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/base/note.hpp"
#include "src/gguf/format.hpp"

namespace gyr::gguf {

// A GGUF tensor to be written: the values of one weight, or of several weights concatenated along rows, and the change
// that is applied to them.
struct PlannedTensor {
  std::string name;
  std::vector<std::string> weights;  // names of our weights, concatenated in this order
  Shape shape;
  Index row_multiple = 1;  // change() gets this number of rows of a weight, or a multiple of it, at a time
  // Changes `rows` x `columns` values of a weight in place. `first`: index of the first of these rows in the weight.
  // Null: values are unchanged.
  std::function<void(Index first, Index rows, Index columns, float*)> change = {};
  std::vector<float> values = {};  // constant values of the tensor, if `weights` is empty
};

class Keys {
 public:
  explicit Keys(std::string architecture) : prefix_(std::move(architecture) + ".") {}
  void set(const std::string& key, Value value);                                                    // replaces an earlier value of the key
  void set_prefixed(const std::string& key, Value value) { set(prefix_ + key, std::move(value)); }  // the key with the architecture name as prefix
  void count(const std::string& key, Index number);                                                 // set_prefixed() with a u32 value
  void real(const std::string& key, double number) { set_prefixed(key, float(number)); }
  const std::vector<KeyValue>& all() const { return values_; }

 private:
  std::string prefix_;
  std::vector<KeyValue> values_;
};

// Rejects settings that llama.cpp does not support, and notes those that it ignores.
struct SupportChecks {
  std::string model, architecture;
  Note note;
  // Exit::config unless `fits`. `what` names the unsupported setting.
  void demand(bool fits, const std::string& what) const {
    require(fits, Exit::config, "{}: llama.cpp's {} does not support {}; use export-hf, which writes a Hugging Face folder", model, architecture,
            what);
  }
};

struct Architecture {
  const char* family;  // class name in transformers
  const char* name;    // architecture name in llama.cpp
  Index layers;        // our layers per block of llama.cpp; 2 where attention and MLP are separate layers here
  void (*check)(const ModelConfig&, const SupportChecks&);
  void (*keys)(const ModelConfig&, Keys&);
  // Adapts the tensor of one weight. `part`: the weight's name without "model.layers.N."; `layer`: our N, or -1 outside
  // of layers.
  void (*adapt)(const ModelConfig&, Index layer, const std::string& part, PlannedTensor&) = nullptr;
  std::vector<PlannedTensor> (*extra)(const ModelConfig&) = nullptr;  // further tensors, such as rope_freqs or a separate head; null: none
};

const std::vector<Architecture>& architectures();
// Exit::config, with the class name, if llama.cpp has no such architecture or export-gguf does not support it.
const Architecture& architecture_of(const std::string& family, const std::string& model);

// All tensors of the file, in the order of the model's weights.
std::vector<PlannedTensor> tensors_of(const ModelConfig&, const Architecture&);

// ---- functions for the files of families/ ----

// Keys that most architectures need. `layers`: number of blocks in llama.cpp.
void put_widths(const ModelConfig&, Index layers, Keys&);  // sets widths, vocabulary size, layer count and norm epsilon
void put_attention(const ModelConfig&, Keys&);
void put_rotary(const AttentionConfig&, Keys&);
void put_experts(const MoeConfig&, Keys&);
void put_mixer(const MambaConfig&, Keys&);
// Sliding-window keys. The per-layer pattern is written only if it differs from "all but every `every`-th layer".
void put_windows(const ModelConfig&, Index every, Keys&);

// Reject or note what llama.cpp does not support: rotary scalings, sliding windows, and settings of Mamba-2 mixers.
void check_rotary(const AttentionConfig&, const SupportChecks&);
void check_no_windows(const ModelConfig&, const SupportChecks&);
void check_mixer(const MambaConfig&, const SupportChecks&);

// A change function that multiplies each row by factor(row), in single precision.
std::function<void(Index, Index, Index, float*)> scaled(std::function<float(Index row)> factor);
// Adapts the tensors of a Mamba-2 mixer: A = -exp(A_log), and shapes with one more dimension.
void adapt_mixer(const MambaConfig&, const std::string& part, PlannedTensor&);
// Permutes the rows of each head so that rotary pairs (j, j + head_dim/2) become adjacent rows (2j, 2j + 1).
void interleave_rotary_rows(Index head_dim, PlannedTensor&);
// Tensor of the divisors of llama3's frequency scaling; empty for other scalings.
std::vector<PlannedTensor> rotary_factors(const ModelConfig&);

}  // namespace gyr::gguf
