// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/checkpoint_config.hpp"

#include "src/base/limits.hpp"

namespace gyr {

CheckpointConfig read_checkpoint(Section& s) {
  CheckpointConfig c;
  c.every = s.get("every", 0, "steps between checkpoints; 0: only at the end").unit("steps").at_least(0).at_most(most_steps);
  c.keep = s.get("keep", 2, "newest checkpoints that stay").positive().at_most(1 << 20);
  c.keep_every =
      s.get("keep_every", 0, "checkpoints of multiples of so many steps stay for ever; 0: none").unit("steps").at_least(0).at_most(most_steps);
  c.files = s.get("files", "rank", "who writes a file: every rank, the first rank of each node for all of it, or a single rank for all")
                .one_of({"rank", "node", "single"});
  c.async = s.get("async", false, "the steps go on while a copy in memory is written; the copy takes as much as the rank's file");
  c.deflate = s.get("deflate", 0, "compression; 0: none. Weights hardly shrink").at_least(0).at_most(9);
  c.verify = s.get("verify", true, "read every file again before its checkpoint counts");
  c.read = s.get("read", "all", "ranks with the same weights each read them, or one reads and tells the others").one_of({"all", "broadcast"});
  return c;
}

}  // namespace gyr
