// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/trainer.hpp"

#include "src/config/generation_ranks.hpp"
#include "src/parallel/collective_check.hpp"
#include "src/train/checkpoint_space.hpp"
#include "src/train/engine_config.hpp"
#include "src/train/folder_ownership.hpp"
#include "src/train/policy_generation.hpp"
#include "src/train/policy_steps.hpp"
#include "src/train/run_paths.hpp"
#include "src/train/training_loop.hpp"

namespace gyr {

namespace {

RunIdentity folder_taken(RunFolder& folder, const RunConfig& run, const TrainOptions& options, Grid& grid) {
  RunIdentity identity;
  collective_check(grid.world(), [&] {
    if (grid.position() == 0) identity = take_folder(folder, run, options);
  });
  return identity;
}

// Bytes of each memory category, maximum over ranks.
std::vector<std::pair<std::string, Index>> most_memory(const Capacity& mine, Communicator& world) {
  std::vector<double> bytes(memory_categories);
  for (int i = 0; i < memory_categories; ++i) bytes[i] = double(mine.bytes(Memory(i)));
  const std::vector<double> all = world.gather(bytes);
  std::vector<std::pair<std::string, Index>> most;
  for (int i = 0; i < memory_categories; ++i) most.emplace_back(name_of(Memory(i)), 0);
  for (std::size_t i = 0; i < all.size(); ++i) most[i % memory_categories].second = std::max(most[i % memory_categories].second, Index(all[i]));
  return most;
}

RunStart::Changes changes_of(const TrainOptions& options) {
  return options.accept_changes ? RunStart::Changes::reported : RunStart::Changes::weighed;
}

// Begins the run in its folder, unless the start is refused; nothing in the folder has been changed before.
void accept(RunStart& start, const RunParts& parts, const TrainOptions& options) {
  Index done = 0;
  if (options.resume) done = start.check_resume(changes_of(options));
  else if (!options.start_over) start.check_begin();
  collective_check(parts.grid.world(), [&] {
    if (parts.lead()) report_checkpoint_space(parts.run, parts.deck, parts.grid.layout(), options.start_over, done);
    if (parts.lead()) begin_in_folder(parts.folder, parts.run, options);
  });
  parts.watch.attach(parts.run.output);
}

void log_start(RunLog& log, const RunConfig& run, const Layout& layout, const RunData& data, const Resources& r, const std::string& graphs) {
  log.print_line(fmt::format("grid {}, {} in {}, maximum memory per rank {}", r.grid, parameters_text(run), run.train.precision,
                             bytes_text(double(r.memory_bytes))));
  if (const std::string text = separate_generation_text(run, layout); !text.empty()) log.print_line(text);
  if (r.ranks > 1) log.print_line("communication between ranks: " + r.transport);
  if (!graphs.empty()) log.print_line("CUDA graphs: " + graphs);
  if (!run.parallel.islands.empty()) log.print_line("islands: " + text_of(layout, run.parallel.islands));
  for (const std::string& line : lines_about(run, data)) log.print_line(line);
}

// The run on the ranks that train.
void train_on(const RunRanks& ranks, const RunConfig& run, const std::string& deck, const TrainOptions& options, Watch& watch) {
  Timers timers(engine_timer_names(scoring_of(run)));
  Trace trace(run.trace, traces_of(run));
  Grid grid(layout_of(run, training_ranks(run, ranks.me.ranks).size()), ranks.training, ranks.patience, &watch.progress_record());
  const EngineConfig config = engine_config(run, grid.layout());
  const RunData data = open_data(run, grid);  // errors in the data show up before planning, which may take long
  const auto engine = training_engine(run, config, data, grid, ranks, timers, watch.progress_record());

  RunFolder run_folder;
  RunFolder& folder = options.folder ? *options.folder : run_folder;
  const RunIdentity identity = folder_taken(folder, run, options, grid);
  const RunParts parts{run, deck, grid, watch, timers, trace, *engine, folder, {run.train.walltime, options.begin}};
  RunStart start(parts, identity);
  // With --anew, all initial weights are read first: if they are damaged, the old run stays in its place.
  std::optional<CheckpointHeader> begun;
  if (options.start_over) begun = start.begin();
  accept(start, parts, options);
  const CheckpointHeader at = begun ? *begun : options.resume ? start.resume(changes_of(options)) : start.begin();

  const GemmRate peak = engine->gemm_rate();
  const auto saver = engine->saver();
  const double memory = grid.world().max(double(engine->capacity().total() + saver->buffer_bytes()));
  Resources resources{ranks.me.ranks, peak.best, Index(memory), grid.world().transport_name(), grid.layout().text(), ranks.me.attempt};
  resources.memory = most_memory(engine->capacity(), grid.world());
  std::optional<RunLog> log;  // log of the run; empty except on the first rank
  collective_check(grid.world(), [&] {
    if (!parts.lead()) return;
    write_identity(run.output, identity);
    log_start(log.emplace(run, at, resources), run, grid.layout(), data, resources, engine->graphs());
    if (const std::string text = uncertainty_of(peak); !text.empty()) log->print_line(text);
    log->expect(options);
  });
  RunLog* const reported = log ? &*log : nullptr;
  Saving saving(parts, *saver, reported, at.step);
  TrainingLoop(parts, data, *step_source(parts, data, reported), start, saving, reported, at).run();
}

}  // namespace

void train(const RunConfig& run, const std::string& deck, const TrainOptions& options, MPI_Comm world) {
  on_run_ranks(run, options.attempt, world, [&](const RunRanks& ranks, Watch& watch) { train_on(ranks, run, deck, options, watch); });
}

}  // namespace gyr
