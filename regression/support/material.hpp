// SPDX-License-Identifier: BSD-3-Clause
// Files that the tests of commands use, made by the commands themselves once per test program: text, tokenizer, token
// files, deck, and a model trained for a few steps.
#pragma once

#include <nlohmann/json.hpp>

#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"

namespace gyr::testing {

class Material {
 public:
  static const Material& get();

  Words train(const std::filesystem::path& output, const Words& changes = {}) const;  // arguments of a training run that writes into `output`
  std::filesystem::path text() const { return folder_ / "text.txt"; }
  std::filesystem::path tokenizer() const { return folder_ / "tokenizer.json"; }
  std::filesystem::path prefix() const { return folder_ / "text"; }
  std::filesystem::path deck() const { return folder_ / "deck.yaml"; }
  std::filesystem::path output() const { return folder_ / "out"; }  // output folder of the training run
  std::filesystem::path trained() const { return checkpoint(output(), steps); }
  static std::filesystem::path checkpoint(const std::filesystem::path& output, int step);
  static std::filesystem::path shard(const std::filesystem::path& checkpoint) { return checkpoint / "shard_00000.h5"; }  // the first rank's shard
  static constexpr int steps = 60, vocab_size = 300, seq_length = 32;

 private:
  Material();
  Folder folder_;
};

// Parses a JSON file; the result is discarded (is_discarded()) if the file is missing or invalid.
nlohmann::json json_in(const std::filesystem::path& file);
// Lines of one kind in metrics.jsonl of a run.
std::vector<nlohmann::json> metrics(const std::filesystem::path& output, const std::string& kind);

// Loss of every step in metrics.jsonl of a run. If a step was run several times, the last one counts.
std::map<int, double> losses(const std::filesystem::path& output);

// Expects that both runs have `steps` steps with equal losses, and bitwise identical final checkpoints.
void expect_bitwise_equal_runs(const std::filesystem::path& a, const std::filesystem::path& b, int steps);

}  // namespace gyr::testing
