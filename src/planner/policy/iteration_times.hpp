// SPDX-License-Identifier: BSD-3-Clause
// Predicted seconds of the calls of an iteration of policy training. They follow each other, also on different ranks, so that
// the iteration takes their sum.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/config/placed_models.hpp"
#include "src/planner/policy/generation_times.hpp"
#include "src/planner/predict/stage_runs.hpp"

namespace gyr {

// Bytes of a rank: kept during the whole iteration, and needed by one call at a time.
struct CallMemory {
  Index kept = 0, working = 0;
  Index sum() const { return kept + working; }
};

// Parts of an iteration that reports add up.
enum class CallPart { move, generation, training, others };

struct PlannedCall {
  CallPart part = CallPart::others;
  std::string name;
  std::string model;  // whose weights the call keeps: empty for the trained model, "generation" for a copy of it
  Mesh mesh;
  std::optional<Layout> layout = {};  // on the ranks of the mesh; empty: the call has no layout
  double seconds = 0;
  bool trains = false;                  // optimizer steps
  double tokens = 0;                    // new tokens of a generation, otherwise tokens of prompts and answers that it reads; 0: none
  std::vector<CallMemory> memory = {};  // by pipeline stage: of this call alone on the rank that needs most
  Index bytes() const;                  // of the stage that needs most
};

struct IterationTimes {
  AnswerCounts answers;
  Index windows = 0;      // of a minibatch, each of train.seq_length tokens
  bool overlaps = false;  // generation runs beside the other calls (rl.staleness: 1 on separate ranks)
  std::vector<PlannedCall> calls;

  double seconds() const;  // from one iteration to the next
  double seconds(CallPart) const;
};

// Begin and end of the calls. Generation may run beside training (rl.staleness: 1):
//   iteration k from (k - 1) T:   move, then generation of the answers of iteration k + 1, beside all other calls for those of iteration k
// T: seconds from one iteration to the next
struct CallSpan {
  std::size_t call = 0;  // index in IterationTimes::calls
  int answers = 1;       // iteration whose answers the call writes or reads, counting from 1; the move: that which begins
  double begin = 0, end = 0;
};

struct CallTimeline {
  std::vector<CallSpan> spans;
  int iterations = 1;  // that are drawn
  double seconds = 0;  // of all of them
};

// One iteration, or two if generation runs beside training.
CallTimeline call_timeline(const IterationTimes&);

// Answers that times are predicted for: rl.plan, or the prompts of the data and the longest answers.
AnswerCounts planned_answers(const RunConfig&);
// Windows that hold the answers of a minibatch, without those that fill up micro-batches.
Index windows_of_minibatch(const RunConfig&, const AnswerCounts&);

// Cache of the dry runs of calls, for runs that differ in their layouts only.
struct CallRuns {
  GenerationRuns generation;
  std::map<std::string, StageRuns> steps, forwards;  // by name of the model; the trained one has none
};

// Calls of a run on a layout of training, with planned_answers(). `runs`: null: no cache is shared.
class IterationCalls {
 public:
  IterationCalls(const RunConfig&, const Layout& training, const AnswerCounts&, const PassMachine&, std::shared_ptr<CallRuns> runs = nullptr);

  Index windows() const { return windows_; }  // of a minibatch
  PlannedCall generation(const GenerationPlace&) const;
  PlannedCall move(const GenerationPlace&) const;
  std::vector<PlannedCall> rewards() const;
  std::vector<PlannedCall> scores() const;  // by models beside the trained one
  std::optional<PlannedCall> old_log_probs() const;
  std::vector<PlannedCall> training_of_critic() const;
  PlannedCall training() const;

 private:
  bool is_reward_model(const PlacedModel&) const;
  PlannedCall forward(const std::string& name, const std::string& model, const EngineConfig&, const LayoutOnMesh&) const;
  PlannedCall training(const std::string& name, const std::string& model, EngineConfig, const Layout&) const;

  const RunConfig& run_;
  const PolicyConfig& rl_;
  const Layout& training_;
  Mesh everywhere_;  // ranks that train
  PassMachine machine_;
  std::shared_ptr<CallRuns> runs_;
  std::vector<PlacedModel> models_;
  AnswerCounts answers_;
  Index windows_;
};

IterationTimes iteration_times(const RunConfig&, const Layout& training, const PassMachine&, std::shared_ptr<CallRuns> runs = nullptr);

}  // namespace gyr
