// SPDX-License-Identifier: BSD-3-Clause
#include "src/config/train_config.hpp"

#include <cstdlib>

#include "kernels/ops/gemm.hpp"
#include "modules/model/model_config.hpp"
#include "src/base/limits.hpp"
#include "src/watch/stop.hpp"

namespace gyr {

namespace {

std::vector<BatchStep> read_ramp(const std::vector<std::string>& entries) {
  std::vector<BatchStep> ramp;
  for (const std::string& entry : entries) {
    BatchStep step{};
    char* end = nullptr;
    step.tokens = std::strtod(entry.c_str(), &end);
    const bool number = end != entry.c_str() && *end == ':';
    if (number) step.batch = std::strtoll(end + 1, &end, 10);
    require(number && *end == 0 && step.batch > 0 && step.batch <= most_sequences && step.tokens >= 0 &&
                (ramp.empty() || ramp.back().tokens < step.tokens),
            Exit::config, "train.ramp: '{}' is not 'TOKENS:SEQUENCES' with rising tokens, as in [\"0:16\", \"1e6:64\"]", entry);
    ramp.push_back(step);
  }
  return ramp;
}

GemmLibrary read_gemm_library(Section& s) {
  auto gemm_library =
      s.get("products", "auto",
            "GEMM library on CPUs; auto: chosen by processor and shape. Libraries sum in different orders. gyrfalcon profile times them")
          .one_of({"auto", "cblas", "onednn"})
          .effect(Effect::none);
  const std::string name = gemm_library.value();
  const auto library = name == "cblas" ? GemmLibrary::cblas : name == "onednn" ? GemmLibrary::onednn : GemmLibrary::automatic;
  gemm_library.must("a library that this build has", available(library)).value();
  return library;
}

}  // namespace

std::string read_init_from(Section& train) {
  return train
      .get("init_from", "",
           "weights to start from: Hugging Face folder, checkpoint, or folder of a run (its newest checkpoint); model keys default to its shape")
      .effect(Effect::none)
      .value();
}

namespace {

Setting<bool> branch_setting(Section& train) {
  return train
      .get("branch", false,
           "go on from the checkpoint train.init_from with its optimizer state, step and position in the data, in a folder of its own: for "
           "several final decays of one long run")
      .effect(Effect::none);
}

}  // namespace

bool is_of_start(std::string_view path) { return path == "train.init_from" || path == "train.init_head" || path == "train.branch"; }

bool read_branch(Section& train) { return branch_setting(train).value(); }

void check_branch(const TrainConfig& c, std::int64_t saved) {
  require(!c.branch || saved < c.steps, Exit::config,
          "train.branch = true: {} was saved after step {}, and train.steps = {} counts from the start of its run, so no step is left; set "
          "train.steps above {}",
          c.init_from, saved, c.steps, saved);
}

namespace {

void read_amounts(Section& s, const std::optional<PlannedSteps>& planned, TrainConfig& c) {
  c.steps = s.get("steps", planned ? planned->steps : 1000, "number of optimizer steps; policy training: iterations x epochs x minibatches of rl")
                .at_least(0)
                .at_most(most_steps);
  c.global_batch_size = s.get("global_batch_size", planned ? planned->global_batch_size : 8,
                              "sequences per optimizer step, over all ranks; policy training: the most windows that its answers need")
                            .positive()
                            .at_most(most_sequences);
  require(!planned || (c.steps == planned->steps && c.global_batch_size >= planned->global_batch_size), Exit::config,
          "{}: with train.objective: policy the steps follow from rl.iterations x rl.epochs x rl.minibatches = {}, and the batch from rl.prompts x "
          "rl.num_generations / rl.minibatches = {}; remove these keys",
          s.settings_text({"steps", "global_batch_size"}), planned ? planned->steps : 0, planned ? planned->global_batch_size : 0);
}

}  // namespace

TrainConfig read_train(Section& s, const std::string& precision, Index seq_length, const std::optional<PlannedSteps>& planned) {
  TrainConfig c;
  c.init_from = read_init_from(s);
  auto head = s.get("init_head", "stored", "head of the initial weights: the stored one, or a new random one on top of their trunk (weights model.*)")
                  .one_of({"stored", "new"})
                  .effect(Effect::none);
  c.new_head = head.must("stored if train.init_from is empty", head.value() == "stored" || !c.init_from.empty()).value() == "new";
  auto branch = branch_setting(s);
  c.branch = branch
                 .must("true needs --init-from CHECKPOINT (train.init_from), and train.init_head = stored",
                       !branch.value() || (!c.init_from.empty() && !c.new_head))
                 .value();
  c.precision = s.get("precision", precision, "arithmetic; bf16: mixed precision with bf16 storage and GEMMs, fp32 accumulation and master weights")
                    .one_of({"fp32", "fp64", "bf16"});
  c.fp8 = get_word(s, "fp8", Fp8Recipe::none, {"none", "tensor", "blocks", "mxfp8"},
                   "FP8 GEMMs of linear layers in training, emulated: operands are rounded with one scale per tensor, per block of 128 or of 32 (MX) "
                   "elements");
  c.gemm_library = read_gemm_library(s);
  read_amounts(s, planned, c);
  c.micro_batch_size =
      s.get("micro_batch_size", 1, "sequences per micro-batch of a data-parallel rank").positive().at_most(most_sequences).effect(Effect::none);
  c.seq_length = s.get("seq_length", seq_length, "tokens per sequence; 32k is 32768").unit("tokens").positive().at_most(longest);
  c.ramp = read_ramp(s.get("ramp", std::vector<std::string>{},
                           "global batch by consumed tokens: list of TOKENS:SEQUENCES; the last one stays; empty: global_batch_size")
                         .value());
  c.eval_every = s.get("eval_every", 0, "steps between evaluations on the validation split; 0: never")
                     .unit("steps")
                     .at_least(0)
                     .at_most(most_steps)
                     .effect(Effect::operation);
  c.eval_batches = s.get("eval_batches", 8, "global batches per evaluation").positive().at_most(most_sequences).effect(Effect::operation);
  c.log_every = s.get("log_every", 1, "steps between log lines").unit("steps").positive().at_most(most_steps).effect(Effect::operation);
  c.seed = std::uint64_t(Index(s.get("seed", 1, "seed of the initial weights").at_least(0)));
  c.walltime = walltime_seconds(
      s.get("walltime", "",
            "time limit of the job, as 6h, 90min or 30s, hh:mm:ss, Slurm's days-hh:mm:ss, or a number of minutes: the run saves and exits with "
            "code 75 before it; empty or 0: none")
          .effect(Effect::operation)
          .value());
  const std::string policy =
      s.get("non_finite", "stop",
            "action for a non-finite loss or gradient: end the run, skip the update, or roll back to the last checkpoint and skip the batch")
          .one_of({"stop", "skip", "rollback"});
  c.non_finite = policy == "skip" ? NonFinite::skip : policy == "rollback" ? NonFinite::rollback : NonFinite::stop;
  c.max_skips =
      s.get("max_skips", 10, "maximum number of consecutive skipped batches; one more ends the run with code 80").at_least(1).at_most(most_steps);
  auto spike =
      s.get("spike", 0.0, "a loss above this multiple of the mean of the last 32 losses is handled like a non-finite one; 0: no limit").at_least(0);
  c.spike = spike.must("0 or above 1", spike.value() == 0 || spike.value() > 1);
  c.check_replicas =
      s.get("check_replicas", 0, "steps between comparisons of the weights of data-parallel replicas, also before each checkpoint; 0: never")
          .unit("steps")
          .at_least(0)
          .at_most(most_steps)
          .effect(Effect::operation);
  return c;
}

}  // namespace gyr
