// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checkpoint_config.hpp"

#include "src/base/limits.hpp"

namespace gyr {

CheckpointConfig read_checkpoint(Section& s) {
  CheckpointConfig c;
  c.every = s.get("every", 1000,
                  "steps between checkpoints, and the most that a failed node costs; 0: only the last. A stop request (SIGTERM, SIGHUP, Ctrl-C, the "
                  "file STOP, train.walltime) always saves")
                .unit("steps")
                .at_least(0)
                .at_most(most_steps);
  c.at_end = s.get("at_end", true, "save a checkpoint after the last step");
  c.keep = s.get("keep", 2, "number of newest checkpoints to keep").positive().at_most(1 << 20);
  c.keep_every =
      s.get("keep_every", 0, "checkpoints at multiples of this step count are kept forever; 0: none").unit("steps").at_least(0).at_most(most_steps);
  c.keep_best = s.get("keep_best", false,
                      "save after each validation whose loss is the lowest so far, and keep that checkpoint; checkpoints/best names it "
                      "(save_best_only, load_best_model_at_end)");
  c.files = s.get("files", "rank", "shard files: one per rank, one per node (written by its first rank), or a single one")
                .one_of({"rank", "node", "single"});
  c.async = s.get("async", false, "training continues while a thread writes a host copy, which needs as much memory as this rank's file");
  c.deflate = s.get("deflate", 0, "deflate (gzip) level of the HDF5 files; 0: none. Weights hardly compress").at_least(0).at_most(9);
  c.verify = s.get("verify", true, "read every file back and compare it before the checkpoint is committed");
  c.read = s.get("read", "all", "loading by data-parallel replicas: all read the files, or one reads and broadcasts").one_of({"all", "broadcast"});
  return c;
}

}  // namespace gyr
