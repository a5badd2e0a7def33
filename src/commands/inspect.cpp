// SPDX-License-Identifier: BSD-3-Clause
// gyrfalcon info, diff and reshard: inspect a checkpoint, compare two checkpoints, rewrite a checkpoint with another
// number of files.
#include <cstdio>
#include <memory>

#include "modules/cost/flops.hpp"
#include "src/base/quantity.hpp"
#include "src/checkpoint/inspect.hpp"
#include "src/checkpoint/reshard.hpp"
#include "src/commands/command.hpp"
#include "src/commands/guard.hpp"
#include "src/commands/notes.hpp"
#include "src/pretrained/pretrained.hpp"

namespace gyr {

namespace {

void check_weights(const std::string& checkpoint) {
  if (const std::string note = check_weights_of_deck(checkpoint); !note.empty()) print_note(note);
}

// Size of the model in a checkpoint as one line; empty if the file has no deck of a run.
std::string model_line(const std::filesystem::path& checkpoint) {
  constexpr std::size_t most = 40;  // symbols of a pattern
  try {
    const ModelConfig m = run_of(checkpoint).model;
    return fmt::format("model         {} parameters: {} layers ({}), hidden size {}, vocabulary of {} tokens\n",
                       metric_text(double(parameter_count(m)), ""), m.layers(),
                       m.pattern.size() > most ? m.pattern.substr(0, most) + "..." : m.pattern, m.hidden_size, m.vocab_size);
  } catch (const Error&) {
    return "";  // shards and files of other programs have none
  }
}

std::string chosen(const std::string& path) { return chosen_checkpoint(path, print_note).string(); }

// An HDF5 file is inspected by itself, even if it is a shard of a checkpoint.
std::string inspected(const std::string& path, Damaged damaged = Damaged::skipped) {
  std::error_code error;
  const std::filesystem::path file(path);
  return file.extension() == ".h5" && std::filesystem::is_regular_file(file, error) ? path : chosen_checkpoint(path, print_note, damaged).string();
}

}  // namespace

void add_info(Command& app, Action& action) {
  struct Arguments {
    std::string file;
    Description wanted;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("info", "Show header, files and tensors of a checkpoint");
  c->add_option("file", a->file, "Checkpoint, folder of a run (its newest checkpoint), or any HDF5 file with tensors")->required();
  c->add_flag("--check", a->wanted.check,
              "Verify the checksum of every file instead of listing the tensors: a shard against the manifest, a file of format 1 against the "
              "checksums inside it");
  c->add_flag("--statistics", a->wanted.statistics, "Read every tensor and show its range, root mean square and count of non-finite elements");
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        const std::string file = inspected(a->file, a->wanted.check ? Damaged::refused : Damaged::skipped),
                          text = describe_checkpoint(file, a->wanted);
        if (a->wanted.check) check_weights(file);
        std::printf("%s%s", model_line(file).c_str(), text.c_str());
      });
    };
  });
}

void add_diff(Command& app, Action& action) {
  struct Arguments {
    std::string a, b, tolerances;
    double tolerance = 0;
  };
  auto a = std::make_shared<Arguments>();
  Command* c = app.add_command("diff", "Compare two checkpoints; exit code 65 if a difference exceeds its tolerance");
  c->add_option("a", a->a, "Checkpoint, folder of a run (its newest checkpoint), or any HDF5 file with tensors")->required();
  c->add_option("b", a->b, "Checkpoint, folder of a run (its newest checkpoint), or any HDF5 file with tensors")->required();
  c->add_option("--tolerance", a->tolerance, "Maximum difference, relative to the largest magnitude in the tensor")->not_negative()->show_default();
  c->add_option("--tolerances", a->tolerances, "File of lines PATTERN ABSOLUTE RELATIVE; the last pattern that matches a tensor applies");
  c->callback([a, &action] {
    action = [a] {
      bool within = true;
      const int code = guarded([&] {
        std::vector<Tolerance> tolerances{{"*", 0, a->tolerance}};
        if (!a->tolerances.empty())
          for (const Tolerance& t : read_tolerances(a->tolerances)) tolerances.push_back(t);
        const Difference d = diff_checkpoints(inspected(a->a), inspected(a->b), tolerances);
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
  Command* c = app.add_command("reshard", "Rewrite a checkpoint with another number of files");
  c->add_option("checkpoint", a->from, "Checkpoint, in this or an older format, or folder of a run (its newest checkpoint)")->required();
  c->add_option("to", a->to, "Folder of the new checkpoint, as in checkpoints/step_00000010")->required();
  c->add_option("--files", a->files, "Number of files, of nearly equal size")->between(1, 99999)->show_default();
  c->add_option("--deflate", a->options.deflate, "HDF5 deflate compression level; 0: no compression")->between(0, 9)->show_default();
  c->callback([a, &action] {
    action = [a] {
      return guarded([&] {
        const std::string from = chosen(a->from);
        check_weights(from);
        const Resharded r = reshard(from, a->to, a->files, a->options);
        std::printf("%s: %.1f MB in %d file%s\n", a->to.c_str(), double(r.bytes) / 1e6, r.files, r.files == 1 ? "" : "s");
      });
    };
  });
}

}  // namespace gyr
