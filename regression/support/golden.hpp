// SPDX-License-Identifier: BSD-3-Clause
// Tiny models with what transformers' own classes make of them, written by scripts beside the folders: regression/golden/huggingface, of
// Falcon-H1, and regression/golden/families, of the others.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/engine/model/stage.hpp"

namespace gyr::testing {

// In one precision.
struct GoldenNumbers {
  double loss = 0;
  std::vector<double> ahead_losses;                      // of tokens further ahead, by depth, where the model tells them
  std::vector<double> logits;                            // (batch, seq_length, columns), or of texts (batch, columns)
  std::map<std::string, std::vector<double>> gradients;  // by our names of the weights
  // Of the tensor that each lies in: where weights are stored in one, some may have gradients that are zero but for rounding (biases of keys without
  // positions, which move all scores of a query alike).
  std::map<std::string, double> lengths;
};

struct Golden {
  std::string name;
  std::filesystem::path folder;
  ModelConfig model;
  MicroBatch batch;             // labels are next tokens, masked ones or classes; padding stands at the right of every sequence, without labels,
                                // and is a document of its own where a model looks ahead
  std::vector<Index> row;       // row[r]: where row r of the batch lies in the expected logits; -1 where it does not
  GoldenNumbers single, twice;  // fp32 and fp64
  std::vector<Token> prompt, generated;  // greedy, in fp32; none of a model that does not write
};

const std::vector<std::string>& golden_names();         // of Falcon-H1
const std::vector<std::string>& golden_family_names();  // of the other families
const Golden& golden(std::string_view name);
// Sequence b of a batch, with its source where there is one.
MicroBatch one_sequence(const MicroBatch& all, Index b);
// Whether `ranks` tensor ranks can share the model.
bool splits(const ModelConfig&, int ranks);

// The folder's weights in a stage of its own on `grid`; `model` may differ from the folder's in what no weight depends on.
template <class T>
class GoldenReader {
 public:
  GoldenReader(const Golden&, const ModelConfig& model, Grid& grid);
  Stage& stage() { return stage_; }
  Device& device() { return device_; }
  // The largest difference to the expected logits among this rank's columns, as a part of the largest of them, where only the first
  // `length` tokens of every sequence are read.
  double error(const GoldenNumbers& expected, Index seq_length);
  double error(const GoldenNumbers& expected) { return error(expected, g_.batch.seq_length); }

 private:
  void read_with_state(Index seq_length);
  void read_at_once();  // all of it

  const Golden& g_;
  Device device_{false, Index(1) << 22};
  Arena weights_{Memory::weights, Index(1) << 20}, none_{Memory::gradients, 0};
  Stage stage_;
};

// |a - b| over |b|, as vectors.
double distance(std::span<const double> a, std::span<const double> b);
// As parts of another length than that of b.
double distance(std::span<const double> a, std::span<const double> b, double length);

}  // namespace gyr::testing
