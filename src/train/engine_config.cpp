// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/engine_config.hpp"

#include "src/base/precision.hpp"

namespace gyr {

EngineConfig engine_config(const RunConfig& run, const Layout& layout) {
  require(!run.offload.find_alpha, Exit::config,
          "activation.alpha = auto: only gyrfalcon plan, train and verify determine it; give a fraction of 0 to 1 here");
  EngineConfig c;
  c.model = run.model;
  c.precision = precision_of(run.train.precision);
  c.gemm_library = run.train.gemm_library;
  c.fp8 = run.train.fp8;
  c.planned_gpu = run.planned_gpu;
  c.optimizer = run.optimizer;
  c.micro_batch_size = run.train.micro_batch_size;
  c.seq_length = run.lengths().text, c.source_length = run.lengths().source;
  c.micros = int(run.largest_batch() / (layout.size(Axis::data) * run.train.micro_batch_size));
  c.recompute = run.recompute, c.offload = run.offload;
  c.schedule = run.parallel.schedule();
  c.reduce_dtype = run.parallel.reduce_dtype;
  c.seed = run.train.seed;
  c.must_be_finite = run.train.non_finite == NonFinite::stop;
  return c;
}

}  // namespace gyr
