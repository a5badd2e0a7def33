// SPDX-License-Identifier: BSD-3-Clause
// The generator of policy training: on the ranks and in the layout of its place, with the weights of the training engine or a
// copy of them. Moves between the ranks (src/parallel/mover.hpp) update the copy before each generation.
#pragma once

#include "kernels/comm/mpi/transport.hpp"
#include "src/engine/generate/service.hpp"
#include "src/engine/step/engine.hpp"
#include "src/parallel/mover.hpp"
#include "src/train/policy_generation.hpp"
#include "src/watch/peer_progress.hpp"

namespace gyr {

// Moves of the weights from the training engine to the copy of the generator.
MovePlan generation_moves(const ModelConfig&, DType precision, const Trained&, const Layout& training, const GenerationPlace&, int ranks_per_node);
// Memory of a rank of the run; nothing if it does not generate, no weights if it borrows them.
GeneratorBytes generation_bytes(const ModelConfig&, const GenerationPlace&, const GeneratorCapacity&, int rank);

class PolicyGenerator {
 public:
  // `world`: the ranks of the run in order. `working`: memory that the engines of the run use in turn, at least
  // generation_bytes().working. `output`: folder of the run, whose heartbeats show the progress of ranks that generate. Collective over
  // the run, as all functions but write().
  PolicyGenerator(ModelState& trained, GenerationPlace, const GeneratorCapacity&, MPI_Comm world, const Arena& working, ProgressRecord&,
                  const std::filesystem::path& output = {});
  // On a rank that only generates. The first two arguments describe the training engine on other ranks.
  PolicyGenerator(const EngineConfig&, const Layout& training, GenerationPlace, const GeneratorCapacity&, MPI_Comm world, const Arena& working,
                  ProgressRecord&, const std::filesystem::path& output);
  ~PolicyGenerator();

  bool holds_copy() const { return moves_.has_value(); }
  void update();  // makes the copy equal to the weights of training; call it before generating
  // Answers on every rank of the run, by the present weights or the copy. The working memory is free before and after.
  // Errors of GenerationService::serve.
  std::vector<GeneratedText> generate(const std::vector<Request>&, const Sampling&);
  // The two halves of generate(): the ranks that generate write the answers, and then all ranks receive them.
  void write(const std::vector<Request>&, const Sampling&);
  std::vector<GeneratedText> shared();

 private:
  PolicyGenerator(ModelState* trained, GenerationPlace, MPI_Comm world, const Arena& working, ProgressRecord&, const std::filesystem::path& output);
  void begin(const ModelConfig&, DType precision, const Trained&, const Layout& training, const GeneratorCapacity&, MPI_Comm world, ProgressRecord&);
  Index common_message_bytes() const;
  void await_answers();
  Device& device() { return trained_ ? trained_->device() : generator_->device(); }

  ModelState* const trained_;  // null on a rank that only generates
  const GenerationPlace place_;
  const Arena& working_;
  ProgressRecord& progress_record_;
  PeerProgress peers_;  // of the ranks that generate
  const WaitPolicy patience_;
  MPI_Comm mesh_;                        // of the ranks that generate
  std::unique_ptr<Communicator> world_;  // of all ranks of the run
  Index message_bytes_ = 0;              // of a move; less than a few kB: messages do not fit in the working memory
  std::optional<MovePlan> moves_;        // empty: the weights are borrowed
  std::unique_ptr<Grid> grid_;           // null on ranks that do not generate, as the two below
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<GenerationService> service_;
  std::vector<GeneratedText> texts_;  // written, and not yet handed over
};

}  // namespace gyr
