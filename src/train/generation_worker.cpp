// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/generation_worker.hpp"

#include "src/base/quantity.hpp"
#include "src/config/generation_ranks.hpp"
#include "src/fault/process_fault.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/policy_generator.hpp"

namespace gyr {

namespace {

// The generator of a rank without training, and its memory.
struct Worker {
  const Layout training;
  const EngineConfig config;
  const GenerationPlace place;
  const GeneratorCapacity limits;
  const GeneratorBytes bytes;
  const Arena working;
  std::unique_ptr<PolicyGenerator> generator = {};

  Worker(const RunConfig& run, const Identity& me)
      : training(layout_of(run, training_ranks(run, me.ranks).size())), config(engine_config(run, training)), place(generation_place(run, training)),
        limits(generator_capacity(run, longest_prompt(run), place.layout)), bytes(generation_bytes(config.model, place, limits, me.rank)),
        working(Memory::activations, checked(run, me.rank)) {}

  // Bytes of the working memory. Exit::config if this rank needs more than memory.device_bytes.
  Index checked(const RunConfig& run, int rank) const {
    const Index all = bytes.weights + bytes.working;
    require(
        run.device_bytes == 0 || all <= run.device_bytes, Exit::config,
        "rank {} only generates and needs {}, but memory.device_bytes allows {}; decode fewer answers at once (rl.generate.sequences_together), or "
        "divide the weights by rl.generate.tensor or pipeline",
        rank, bytes_text(double(all)), bytes_text(double(run.device_bytes)));
    return bytes.working;
  }
};

}  // namespace

void generate_on_orders(const RunConfig& run, const Identity& me, GenerationOrders& orders, MPI_Comm world, Watch& watch) {
  ProgressRecord& progress_record = watch.progress_record();
  Worker worker(run, me);
  ProcessFault fault(run.fault, me);
  const Sampling sampling = answer_sampling(run);
  bool is_attached = false;
  for (GenerationOrder order = orders.receive(); order.kind != GenerationOrder::Kind::stop; order = orders.receive()) {
    switch (order.kind) {
      case GenerationOrder::Kind::make:
        progress_record.phase("start");
        worker.generator = std::make_unique<PolicyGenerator>(worker.config, worker.training, worker.place, worker.limits, world, worker.working,
                                                             progress_record, run.output);
        break;
      case GenerationOrder::Kind::write:
        if (!std::exchange(is_attached, true)) watch.attach(run.output);  // the folder belongs to the run since its first step
        progress_record.step(order.step);
        fault.inject(order.step);
        progress_record.phase("generate");
        if (order.update) worker.generator->update();
        worker.generator->write(order.requests, sampling);
        break;
      case GenerationOrder::Kind::hand_over: worker.generator->shared(); break;
      case GenerationOrder::Kind::stop: break;
    }
  }
}

}  // namespace gyr
