// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon generate CHECKPOINT --prompt TEXT: continues prompts with a trained model.
#include <chrono>
#include <cstdio>
#include <memory>

#include "src/checkpoint/checkpoint.hpp"
#include "src/commands/command.hpp"
#include "src/commands/trained_run.hpp"
#include "src/generator.hpp"
#include "src/run_config.hpp"
#include "src/precision.hpp"
#include "src/runtime.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace gyr {

namespace {

struct Arguments {
  std::string checkpoint, tokenizer, precision;
  std::vector<std::string> prompts, stop;
  Sampling sampling;
  bool greedy = false;
};

template <class T>
void generate(const Arguments& a, const RunConfig& run, Runtime& runtime) {
  const std::string file = a.tokenizer.empty() ? run.data.tokenizer : a.tokenizer;
  require(!file.empty(), Exit::usage, "the checkpoint's deck names no tokenizer: give --tokenizer FILE");
  const Tokenizer tokenizer = Tokenizer::load(file);
  std::vector<std::vector<Token>> prompts;
  Index longest = 0;
  for (const std::string& prompt : a.prompts) {
    prompts.push_back(tokenizer.encode(prompt));
    if (prompts.back().empty())
      if (const auto start = tokenizer.eod()) prompts.back().push_back(*start);
    for (const Token token : prompts.back())
      require(token < run.model.vocabulary, Exit::data, "{}: token {} is beyond the model's vocabulary of {}", file, token, run.model.vocabulary);
    longest = std::max<Index>(longest, prompts.back().size());
  }
  Grid grid(grid_layout(1, 1, runtime.ranks(), {{0, run.model.layers()}}), runtime.world(), patience_of(runtime.world()));
  Generator<T> generator(run.model, grid, prompts.size(), longest, longest + a.sampling.tokens);
  load_weights<T>(a.checkpoint, grid, generator.stage());

  std::vector<std::string> texts(prompts.size());
  Index made = 0;
  const auto begin = std::chrono::steady_clock::now();
  generator.generate(prompts, a.sampling, [&](Index i, Token token) {
    made += 1;
    if (token == tokenizer.eod()) return true;
    if (token < tokenizer.size()) texts[i] += tokenizer.decode({{token}});
    for (const std::string& stop : a.stop)
      if (const auto at = texts[i].find(stop); at != std::string::npos) {
        texts[i].resize(at);
        return true;
      }
    return false;
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (runtime.rank() != 0) return;
  for (std::size_t i = 0; i < texts.size(); ++i) std::printf("%s%s%s\n", i ? "\n" : "", a.prompts[i].c_str(), texts[i].c_str());
  std::fprintf(stderr, "%ld tokens in %.2f s: %.1f tokens/s\n", long(made), seconds, double(made) / seconds);
}

int run(const Arguments& a) {
  return run_on_all_ranks(
      [&](Runtime& runtime) {
        const RunConfig run = trained_run(a.checkpoint);
        with_scalar(a.precision.empty() ? run.train.precision : a.precision,
                    [&]<class T>(std::type_identity<T>) { generate<T>(a, run, runtime); });
      },
      false);
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto a = std::make_shared<Arguments>();
  a->sampling.temperature = 0.8;
  CLI::App* c = app.add_subcommand("generate", "Continue prompts with a checkpoint; under mpiexec the ranks share the model (tensor axis)");
  c->add_option("checkpoint", a->checkpoint, "Checkpoint")->required();
  c->add_option("--prompt", a->prompts, "Text to continue; may be given several times")->required()->take_all()->expected(1);
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json; without it the one the checkpoint's deck names");
  c->add_option("--tokens", a->sampling.tokens, "Most new tokens of a prompt")->check(CLI::PositiveNumber)->capture_default_str();
  c->add_option("--temperature", a->sampling.temperature, "Sharpness of the draw; 0 takes the most likely token")
      ->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_flag("--greedy", a->greedy, "The same as --temperature 0");
  c->add_option("--top-k", a->sampling.top_k, "Draw among the k most likely; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  c->add_option("--top-p", a->sampling.top_p, "Draw among the most likely that together reach p")->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  c->add_option("--seed", a->sampling.seed, "Seed of the draws")->capture_default_str();
  c->add_option("--stop", a->stop, "End a text where this appears; may be given several times")->take_all()->expected(1);
  c->add_option("--precision", a->precision, "fp32, fp64 or bf16; without it as trained")->check(CLI::IsMember({"fp32", "fp64", "bf16"}));
  c->callback([a, &action] {
    if (a->greedy) a->sampling.temperature = 0;
    action = [a] { return run(*a); };
  });
}

}  // namespace gyr
