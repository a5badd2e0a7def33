// SPDX-License-Identifier: BSD-3-Clause
// The generator of policy training: on the ranks and in the layout of its place, with the weights of the training engine or a
// copy of them. Moves between the ranks (src/parallel/mover.hpp) update the copy before each generation.
#pragma once

#include "src/engine/generate/service.hpp"
#include "src/parallel/mover.hpp"
#include "src/train/policy_generation.hpp"

namespace gyr {

// Moves of the weights from the training engine to the copy of the generator.
MovePlan generation_moves(const ModelConfig&, DType precision, const Trained&, const Layout& training, const GenerationPlace&, int ranks_per_node);
// Memory of a rank of the run; nothing if it does not generate, no weights if it borrows them.
GeneratorBytes generation_bytes(const ModelConfig&, const GenerationPlace&, const GeneratorCapacity&, int rank);

class PolicyGenerator {
 public:
  // `world`: the ranks of the run in order. `working`: memory that the engines of the run use in turn, at least
  // generation_bytes().working. Collective over the run, as all functions.
  PolicyGenerator(ModelState& trained, GenerationPlace, const GeneratorCapacity&, MPI_Comm world, const Arena& working, ProgressRecord&);
  ~PolicyGenerator();

  bool holds_copy() const { return moves_.has_value(); }
  void update();  // makes the copy equal to the weights of training; call it before generate()
  // Answers on every rank of the run, by the present weights or the copy. The working memory is free before and after.
  // Errors of GenerationService::serve.
  std::vector<GeneratedText> generate(const std::vector<Request>&, const Sampling&);

 private:
  Index common_message_bytes() const;
  void share(const std::vector<Request>&, std::vector<GeneratedText>&);

  ModelState& trained_;
  const GenerationPlace place_;
  const Arena& working_;
  MPI_Comm mesh_;                        // of the ranks that generate
  std::unique_ptr<Communicator> world_;  // of all ranks of the run
  Index message_bytes_ = 0;              // of a move; less than a few kB: messages do not fit in the working memory
  std::optional<MovePlan> moves_;        // empty: the weights are borrowed
  std::unique_ptr<Grid> grid_;           // null on ranks that do not generate, as the two below
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<GenerationService> service_;
};

}  // namespace gyr
