// SPDX-License-Identifier: BSD-3-Clause
// Tiny reference models with expected results of transformers' own classes, written by scripts next to the folders.
// regression/golden/huggingface has Falcon-H1 models, and regression/golden/families has those of other families.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr::testing {

// Expected results in one precision.
struct GoldenValues {
  double loss = 0;
  std::vector<double> ahead_losses;                      // losses of multi-token prediction by depth, if the model has it
  std::vector<double> logits;                            // (batch, seq_length, columns), or (batch, columns) for classification of texts
  std::map<std::string, std::vector<double>> gradients;  // gradients by our weight name
  // Norm of the gradient of the stored tensor that contains each weight. Errors are relative to this norm, because
  // single weights of a fused tensor may have gradients that are only rounding. An example are biases of keys without
  // positions: they shift all scores of a query equally.
  std::map<std::string, double> lengths;
};

struct Golden {
  std::string name;
  std::filesystem::path folder;
  ModelConfig model;
  MicroBatch batch;  // labels are next tokens, masked tokens or classes. Every sequence is padded on the right, without labels; in bidirectional
                     // models the padding is a document of its own
  std::vector<Index> row;                // row[r]: row of the expected logits that belongs to row r of the batch; -1 if there is none
  GoldenValues single, twice;            // expected results in fp32 and in fp64
  std::vector<Token> prompt, generated;  // greedy generation in fp32; empty if the model does not generate
};

const std::vector<std::string>& golden_names();         // Falcon-H1 models
const std::vector<std::string>& golden_family_names();  // models of the other families
const Golden& golden(std::string_view name);
// Sequence b of a batch, with its encoder input if there is one.
MicroBatch one_sequence(const MicroBatch& all, Index b);
// True if the model can be sharded over `ranks` tensor-parallel ranks.
bool splits(const ModelConfig&, int ranks);

// Loads the folder's weights into a stage on `grid`. `model` may differ from the folder's model in settings that do not
// affect the weights.
template <class T>
class GoldenReader {
 public:
  GoldenReader(const Golden&, const ModelConfig& model, Grid& grid);
  Stage& stage() { return stage_; }
  Device& device() { return device_; }
  // Largest difference to the expected logits among this rank's columns, relative to the largest expected logit. Only
  // the first `seq_length` tokens of every sequence are read.
  double error(const GoldenValues& expected, Index seq_length);
  double error(const GoldenValues& expected) { return error(expected, g_.batch.seq_length); }

 private:
  void read_with_state(Index seq_length);
  void read_at_once();  // runs the forward pass over the full batch, without a KV cache

  const Golden& g_;
  Device device_{false, Index(1) << 22};
  Arena weights_{Memory::weights, Index(1) << 20}, none_{Memory::gradients, 0};
  Stage stage_;
};

// Relative distance |a - b| / |b| of two vectors.
double distance(std::span<const double> a, std::span<const double> b);
// Distance |a - b| / length.
double distance(std::span<const double> a, std::span<const double> b, double length);

}  // namespace gyr::testing
