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

GemmLibrary read_products(Section& s) {
  auto products = s.get("products", "auto",
                        "library of matrix products on processors: by processor and shape, or always this one, whose sums are in another order; "
                        "gyrfalcon profile times them")
                      .one_of({"auto", "cblas", "onednn"})
                      .effect(Effect::none);
  const std::string name = products.value();
  const auto library = name == "cblas" ? GemmLibrary::cblas : name == "onednn" ? GemmLibrary::onednn : GemmLibrary::automatic;
  products.must("a library that this build has", available(library)).value();
  return library;
}

}  // namespace

std::string read_init_from(Section& train) {
  return train.get("init_from", "", "weights to start from: Hugging Face folder or checkpoint (.h5); model keys default to its shape")
      .effect(Effect::none)
      .value();
}

TrainConfig read_train(Section& s, const std::string& precision, Index seq_length) {
  TrainConfig c;
  c.init_from = read_init_from(s);
  auto head =
      s.get("init_head", "stored", "head of the weights to start from: as it is stored, or a new one, drawn, on their trunk (weights model.*)")
          .one_of({"stored", "new"})
          .effect(Effect::none);
  c.new_head = head.must("stored, where train.init_from names no weights", head.value() == "stored" || !c.init_from.empty()).value() == "new";
  c.precision = s.get("precision", precision, "arithmetic; bf16: bf16 storage and products, fp32 sums and masters").one_of({"fp32", "fp64", "bf16"});
  c.products = read_products(s);
  c.steps = s.get("steps", 1000, "optimizer steps").at_least(0).at_most(most_steps);
  c.global_batch_size = s.get("global_batch_size", 8, "sequences in a step, over all ranks").positive().at_most(most_sequences);
  c.micro_batch_size = s.get("micro_batch_size", 1, "sequences in a micro-batch of a rank").positive().at_most(most_sequences).effect(Effect::none);
  c.seq_length = s.get("seq_length", seq_length, "tokens in a sequence").unit("tokens").positive().at_most(longest);
  c.ramp = read_ramp(s.get("ramp", std::vector<std::string>{}, "batch by consumed tokens: TOKENS:SEQUENCES; the last one stays").value());
  c.eval_every = s.get("eval_every", 0, "steps between evaluations on the validation split; 0: never")
                     .unit("steps")
                     .at_least(0)
                     .at_most(most_steps)
                     .effect(Effect::none);
  c.eval_batches = s.get("eval_batches", 8, "global batches of an evaluation").positive().at_most(most_sequences).effect(Effect::none);
  c.log_every = s.get("log_every", 1, "steps between log lines").unit("steps").positive().at_most(most_steps).effect(Effect::none);
  c.seed = std::uint64_t(Index(s.get("seed", 1, "seed of the initial weights").at_least(0)));
  c.walltime = walltime_seconds(
      s.get("walltime", "", "time of the job, hh:mm:ss or minutes: the run saves and ends with code 75 before it is over; empty or 0: none")
          .effect(Effect::none)
          .value());
  const std::string policy =
      s.get("non_finite", "stop",
            "where loss or gradient is not finite: end the run, leave out the update, or go back to the last checkpoint and leave out the batch")
          .one_of({"stop", "skip", "rollback"});
  c.non_finite = policy == "skip" ? NonFinite::skip : policy == "rollback" ? NonFinite::rollback : NonFinite::stop;
  c.max_skips = s.get("max_skips", 10, "batches left out in a row that end the run with code 80").at_least(1).at_most(most_steps);
  auto spike =
      s.get("spike", 0.0, "a loss so many times the mean of the last 32 is treated as train.non_finite says; 0: any loss is fine").at_least(0);
  c.spike = spike.must("0 or above 1", spike.value() == 0 || spike.value() > 1);
  c.check_replicas = s.get("check_replicas", 0, "steps between comparisons of the weights over the data axis, also before each save; 0: never")
                         .unit("steps")
                         .at_least(0)
                         .at_most(most_steps)
                         .effect(Effect::none);
  return c;
}

}  // namespace gyr
