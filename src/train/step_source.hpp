// SPDX-License-Identifier: BSD-3-Clause
// Source of the samples of each optimizer step: a corpus, or answers that the model generates (policy_steps.hpp).
#pragma once

#include "src/checkpoint/checkpoint.hpp"
#include "src/engine/step/engine.hpp"
#include "src/train/feed.hpp"

namespace gyr {

struct StepSamples {
  SampleSource source;
  Span samples;                                         // their numbers in the run; the global batch
  std::function<bool(const StepResult&)> refuses = {};  // see StepOrder

  Index batch() const { return samples.size(); }
};

class StepSource {
 public:
  virtual ~StepSource() = default;
  // Samples of step `number`, which follows the state `at`. No sample is in a span of `skip`. Collective over the run.
  virtual StepSamples samples(Index number, const CheckpointHeader& at, const std::vector<Span>& skip) = 0;
  // Runs before this step, after samples(): trains other models with the same samples. Returns metrics of this training by name. Likewise collective.
  virtual std::vector<std::pair<std::string, double>> train_beside(const StepOrder&) { return {}; }
  // Called before a checkpoint is saved: stores what a resumed run needs and cannot compute from the checkpoint. Likewise collective.
  virtual void before_save() {}
};

class CorpusSteps final : public StepSource {
 public:
  CorpusSteps(const RunConfig& run, const Dataset& data) : run_(run), data_(data) {}
  StepSamples samples(Index, const CheckpointHeader& at, const std::vector<Span>& skip) override {
    const Index batch = run_.batch_after(double(at.tokens)), first = RunConfig::next_sample(at.samples, batch, skip);
    return {[this](Index number) { return data_.sample(number); }, {first, first + batch}};
  }

 private:
  const RunConfig& run_;
  const Dataset& data_;
};

}  // namespace gyr
