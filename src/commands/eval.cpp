// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon eval CHECKPOINT --data PREFIX: loss and perplexity over token files.
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "src/checkpoint/checkpoint.hpp"
#include "src/commands/command.hpp"
#include "src/commands/trained_run.hpp"
#include "src/precision.hpp"
#include "src/runtime.hpp"
#include "src/trainer.hpp"

namespace gyr {

namespace {

struct Arguments {
  std::string checkpoint, split, precision;
  std::vector<std::string> prefixes;
  Index sequences = 0, length = 0;
  int tensor = 0;
};

template <class T>
void evaluate(const Arguments& a, const RunConfig& run, Runtime& runtime) {
  DatasetOptions data;
  for (const std::string& prefix : a.prefixes.empty() ? run.data.prefixes : a.prefixes) data.corpora.push_back({prefix, std::nullopt});
  require(!data.corpora.empty(), Exit::usage, "the checkpoint's deck names no data: give --data PREFIX");
  data.split = a.prefixes.empty() ? run.data.split : "1";
  data.which = a.prefixes.empty() ? (a.split == "test" ? Split::test : a.split == "train" ? Split::train : Split::validation) : Split::train;
  data.seq_len = a.length > 0 ? a.length : run.train.length;
  data.seed = run.data.seed;
  data.vocab_size = run.model.vocabulary;
  const Dataset dataset(data);
  Index windows = 0;
  for (Index i = 0; i < dataset.corpora(); ++i) windows += dataset.per_epoch(i);

  const int tensor = a.tensor > 0 ? a.tensor : std::gcd(runtime.ranks(), run.parallel.tensor);
  require(runtime.ranks() % tensor == 0, Exit::config, "--tensor {} does not divide the {} ranks", tensor, runtime.ranks());
  const int replicas = runtime.ranks() / tensor;
  Grid grid(grid_layout(replicas, 1, tensor, {{0, run.model.layers()}}), runtime.world(), patience_of(runtime.world()));
  EngineConfig config;
  config.model = run.model;
  config.length = data.seq_len;
  config.training = false;
  const Capacity capacity = predicted_capacity<T>(config, grid.layout(), grid.position());
  Timers timers(engine_timer_names());
  Engine<T> engine(config, grid, &capacity, timers);
  load_weights<T>(a.checkpoint, grid, engine.stage());

  // Every window once, unless fewer were asked for; the last round may be short, and idle replicas then score nothing.
  const Index count = a.sequences > 0 ? std::min(a.sequences, windows) : windows;
  double loss = 0;
  Index tokens = 0;
  for (Index first = 0; first < count; first += replicas) {
    const auto [sum, n] = engine.evaluate([&](int) {
      const Index mine = first + grid.coordinate("data");
      MicroBatch m = read_micro_batch(dataset, std::min(mine, count - 1), 1, config.length);
      if (mine >= count) std::fill(m.labels.begin(), m.labels.end(), ignored_label);
      return m;
    }, 1);
    loss += sum, tokens += n;
  }
  if (runtime.rank() != 0) return;
  loss /= double(tokens);
  std::printf("loss %.6f | perplexity %.4f | %ld tokens of %ld sequences\n", loss, std::exp(loss), long(tokens), long(count));
}

int run(const Arguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const RunConfig run = trained_run(a.checkpoint);
        with_scalar(a.precision.empty() ? run.train.precision : a.precision,
                    [&]<class T>(std::type_identity<T>) { evaluate<T>(a, run, runtime); });
      },
      true);
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  a->split = "validation";
  CLI::App* c = app.add_subcommand("eval", "Loss and perplexity of a checkpoint over token files");
  c->add_option("checkpoint", a->checkpoint, "Checkpoint")->required();
  c->add_option("--data", a->prefixes, "PREFIX of PREFIX.bin and PREFIX.idx, evaluated whole; without it the split of the training data");
  c->add_option("--split", a->split, "Which split of the training data")->check(CLI::IsMember({"train", "validation", "test"}))->capture_default_str();
  c->add_option("--sequences", a->sequences, "Most sequences to score; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_option("--length", a->length, "Tokens in a sequence; 0: as trained")->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_option("--tensor", a->tensor, "Ranks that share the model; 0: as in training, as far as the ranks allow. The others share the sequences")->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_option("--precision", a->precision, "fp32, fp64 or bf16; without it as trained")->check(CLI::IsMember({"fp32", "fp64", "bf16"}));
  c->callback([a, &action] { action = [a] { return run(*a); }; });
}

}  // namespace gyr
