// SPDX-License-Identifier: BSD-3-Clause
// What llama.cpp calls the classes of models that it and we have, the key-values it wants of each and which tensors our weights become. A file of
// families/ defines some and registers them. Names and changes of numbers are those of llama.cpp's own converter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "modules/model/model_config.hpp"
#include "src/base/note.hpp"
#include "src/gguf/format.hpp"

namespace gyr::gguf {

// A tensor to be: the numbers of one weight, or of several one behind the other, and what becomes of them on the way.
struct PlannedTensor {
  std::string name;
  std::vector<std::string> weights;  // of the model
  Shape shape;
  Index rows_together = 1;  // rows of the weight that change() sees at a time, or a multiple
  // Changes (rows, columns) numbers of a weight, the first row of which is its `first`-th; null: they stay.
  std::function<void(Index first, Index rows, Index columns, float*)> change = {};
  std::vector<float> values = {};  // in place of weights
};

class Keys {
 public:
  explicit Keys(std::string architecture) : prefix_(std::move(architecture) + ".") {}
  void set(const std::string& key, Value value);                                           // replaces an earlier one
  void own(const std::string& key, Value value) { set(prefix_ + key, std::move(value)); }  // behind the name of the architecture
  void count(const std::string& key, Index number);                                        // own, u32
  void real(const std::string& key, double number) { own(key, float(number)); }
  const std::vector<KeyValue>& all() const { return values_; }

 private:
  std::string prefix_;
  std::vector<KeyValue> values_;
};

// Says no to what llama.cpp computes otherwise, and tells what it passes over.
struct Scruples {
  std::string model, architecture;
  Note note;
  // Exit::config.
  void demand(bool fits, const std::string& what) const {
    require(fits, Exit::config, "{}: llama.cpp's {} has no {}; export-hf writes a folder that has", model, architecture, what);
  }
};

struct Architecture {
  const char* family;  // class of transformers
  const char* name;    // in llama.cpp
  Index layers;        // of ours that are one of theirs
  void (*check)(const ModelConfig&, const Scruples&);
  void (*keys)(const ModelConfig&, Keys&);
  // What is particular about the tensor that a weight becomes: `part` is its name without "model.layers.N.", `layer` our N or -1.
  void (*adapt)(const ModelConfig&, Index layer, const std::string& part, PlannedTensor&) = nullptr;
  std::vector<PlannedTensor> (*extra)(const ModelConfig&) = nullptr;  // tensors that are no weights, or a weight once more
};

const std::vector<Architecture>& architectures();
// Exit::config naming the class where llama.cpp has none such, or we do not know how.
const Architecture& architecture_of(const std::string& family, const std::string& model);

// All tensors in the model's order.
std::vector<PlannedTensor> tensors_of(const ModelConfig&, const Architecture&);

// ---- for families ----

// Keys that most of them have: of widths, heads, experts and positions.
void put_widths(const ModelConfig&, Index layers, Keys&);  // layers: of theirs
void put_attention(const ModelConfig&, Keys&);
void put_rotary(const AttentionConfig&, Keys&);
void put_experts(const MoeConfig&, Keys&);
void put_mixer(const MambaConfig&, Keys&);
// Which layers look through a window, where it is not all but every n-th.
void put_windows(const ModelConfig&, Index every, Keys&);

// Rotary positions that llama.cpp has; windows that it passes over; a mixer as it has it.
void check_rotary(const AttentionConfig&, const Scruples&);
void check_no_windows(const ModelConfig&, const Scruples&);
void check_mixer(const MambaConfig&, const Scruples&);

// Row by row x = factor(row) x, in single precision.
std::function<void(Index, Index, Index, float*)> scaled(std::function<float(Index row)> factor);
// Mixers' tensors: A = -exp(A_log), widths that were one dimension as two.
void adapt_mixer(const MambaConfig&, const std::string& part, PlannedTensor&);
// Rows of heads, whose channels j and j + width/2 turn together, so that these are neighbours.
void make_neighbours(Index head_dim, PlannedTensor&);
// What llama3's scaling divides frequencies by, as a tensor; none of other scalings.
std::vector<PlannedTensor> rotary_factors(const ModelConfig&);

}  // namespace gyr::gguf
