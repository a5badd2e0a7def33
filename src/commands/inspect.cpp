// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon info FILE and gyrfalcon diff A B: looking at checkpoints.
#include <cstdio>
#include <memory>

#include "src/checkpoint/inspect.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"

namespace gyr {

void add_info(Command& app, Action& action) {
  struct Arguments {
    std::string file;
    bool statistics = false;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("info", "Header and tensors of a checkpoint");
  c->add_option("file", a->file, "Checkpoint (.h5)")->required();
  c->add_flag("--statistics", a->statistics, "Read every tensor: range, root mean square, numbers that are not finite");
  c->callback([a, &action] {
    action = [a] { return guarded([&] { std::printf("%s", describe_checkpoint(a->file, a->statistics).c_str()); }); };
  });
}

void add_diff(Command& app, Action& action) {
  struct Arguments {
    std::string a, b;
    double tolerance = 0;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("diff", "Differences of two checkpoints; exit code 65 where they are beyond the tolerance");
  c->add_option("a", a->a, "Checkpoint (.h5)")->required();
  c->add_option("b", a->b, "Checkpoint (.h5)")->required();
  c->add_option("--tolerance", a->tolerance, "Largest difference allowed, relative to a tensor's largest number")
      ->not_negative()->show_default();
  c->callback([a, &action] {
    action = [a] {
      bool within = true;
      const int code = guarded([&] {
        const Difference d = diff_checkpoints(a->a, a->b, a->tolerance);
        std::printf("%s", d.text.c_str());
        within = d.within;
      });
      return code != 0 ? code : within ? 0 : int(Exit::data);
    };
  });
}

}  // namespace gyr
