// SPDX-License-Identifier: BSD-3-Clause
// What the tests of commands work with, made by the commands themselves once per test program: text, tokenizer, token files, deck, and
// a model trained on them for a few steps.
#pragma once

#include <nlohmann/json.hpp>

#include "regression/support/folder.hpp"
#include "regression/support/process.hpp"

namespace gyr::testing {

class Material {
 public:
  static const Material& get();

  Words train(const std::filesystem::path& output, const Words& changes = {}) const;  // arguments of a run into `output`
  std::filesystem::path text() const { return folder_ / "text.txt"; }
  std::filesystem::path tokenizer() const { return folder_ / "tokenizer.json"; }
  std::filesystem::path prefix() const { return folder_ / "text"; }
  std::filesystem::path deck() const { return folder_ / "deck.yaml"; }
  std::filesystem::path output() const { return folder_ / "out"; }  // of the training run
  std::filesystem::path trained() const { return checkpoint(output(), steps); }
  static std::filesystem::path checkpoint(const std::filesystem::path& output, int step);
  static std::filesystem::path shard(const std::filesystem::path& checkpoint) { return checkpoint / "shard_00000.h5"; }  // the first rank's
  static constexpr int steps = 60, vocab_size = 300, seq_length = 32;

 private:
  Material();
  Folder folder_;
};

// What a file says; discarded where it is no JSON, or not there.
nlohmann::json json_in(const std::filesystem::path& file);
// Lines of a kind in a run's metrics.jsonl.
std::vector<nlohmann::json> metrics(const std::filesystem::path& output, const std::string& kind);

// Loss of every step by a run's metrics.jsonl; of a step that was taken several times, the last.
std::map<int, double> losses(const std::filesystem::path& output);

// Both runs have so many steps, the same losses, and the same bits in their last checkpoints.
void expect_bitwise_equal_runs(const std::filesystem::path& a, const std::filesystem::path& b, int steps);

}  // namespace gyr::testing
