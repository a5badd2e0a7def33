// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon info, diff and reshard: looking at checkpoints, comparing them, writing them anew in other files.
#include <cstdio>
#include <memory>

#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/reshard.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"

namespace gyr {

void add_info(Command& app, Action& action) {
  struct Arguments {
    std::string file;
    Description wanted;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("info", "Header, files and tensors of a checkpoint");
  c->add_option("file", a->file, "Checkpoint, or any HDF5 file with tensors")->required();
  c->add_flag("--check", a->wanted.check,
              "Compare every file with its checksum; of a shard that in the manifest beside it, of a file of format 1 those inside it");
  c->add_flag("--statistics", a->wanted.statistics, "Read every tensor: range, root mean square, numbers that are not finite");
  c->callback([a, &action] { action = [a] { return guarded([&] { std::printf("%s", describe_checkpoint(a->file, a->wanted).c_str()); }); }; });
}

void add_diff(Command& app, Action& action) {
  struct Arguments {
    std::string a, b, tolerances;
    double tolerance = 0;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("diff", "Differences of two checkpoints; exit code 65 where they are beyond the tolerance");
  c->add_option("a", a->a, "Checkpoint, or any HDF5 file with tensors")->required();
  c->add_option("b", a->b, "Checkpoint, or any HDF5 file with tensors")->required();
  c->add_option("--tolerance", a->tolerance, "Largest difference allowed, relative to a tensor's largest number")->not_negative()->show_default();
  c->add_option("--tolerances", a->tolerances, "File of lines PATTERN ABSOLUTE RELATIVE; the last that matches a tensor counts");
  c->callback([a, &action] {
    action = [a] {
      bool within = true;
      const int code = guarded([&] {
        std::vector<Tolerance> tolerances{{"*", 0, a->tolerance}};
        if (!a->tolerances.empty())
          for (const Tolerance& t : read_tolerances(a->tolerances)) tolerances.push_back(t);
        const Difference d = diff_checkpoints(a->a, a->b, tolerances);
        std::printf("%s", d.text.c_str());
        within = d.within;
      });
      return code != 0 ? code : within ? 0 : int(Exit::data);
    };
  });
}

void add_reshard(Command& app, Action& action) {
  struct Arguments {
    std::string from, to;
    int files = 1;
    ShardOptions options;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("reshard", "Write a checkpoint anew in another number of files");
  c->add_option("checkpoint", a->from, "Checkpoint, of this or an older format")->required();
  c->add_option("to", a->to, "Folder that the new one becomes, as in checkpoints/step_00000010")->required();
  c->add_option("--files", a->files, "Files of nearly equal size")->between(1, 99999)->show_default();
  c->add_option("--deflate", a->options.deflate, "Compression; 0: none")->between(0, 9)->show_default();
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        const Resharded r = reshard(a->from, a->to, a->files, a->options);
        std::printf("%s: %.1f MB in %d file%s\n", a->to.c_str(), double(r.bytes) / 1e6, r.files, r.files == 1 ? "" : "s");
      });
    };
  });
}

}  // namespace gyr
