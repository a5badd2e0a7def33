// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/folder.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "src/base/input_file.hpp"
#include "src/base/output_file.hpp"
#include "src/checkpoint/numbers.hpp"
#include "src/checkpoint/run_identity.hpp"
#include "src/checkpoint/stored_checkpoint.hpp"
#include "src/parallel/collective_check.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step_", old_suffix = ".h5", unfinished_suffix = ".tmp";

fs::path old_path(const fs::path& folder, std::int64_t step) { return checkpoint_path(folder, step) += old_suffix; }

// Step in a checkpoint's name; nullopt for any name that this program would not give to that step.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (name.ends_with(old_suffix)) name.remove_suffix(old_suffix.size());
  if (!name.starts_with(prefix)) return {};
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return {};
  if (checkpoint_path({}, step) != name) return {};
  return step;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  require(!error || error == std::errc::no_such_file_or_directory, Exit::io, "{}: cannot be listed: {}", folder.string(), error.message());
  return names;
}

// Renames first: a folder is removed file by file and must not look like a complete checkpoint meanwhile.
std::error_code remove_checkpoint(const fs::path& path) {
  std::error_code error;
  const fs::path dying = fs::path(path) += unfinished_suffix;
  fs::remove_all(dying, error);
  if (!error) fs::rename(path, dying, error);
  if (!error) fs::remove_all(dying, error);
  return error == std::errc::no_such_file_or_directory ? std::error_code() : error;
}

}  // namespace

fs::path checkpoint_path(const fs::path& folder, std::int64_t step) { return folder / fmt::format("{}{:08}", prefix, step); }

fs::path existing_path(const fs::path& folder, std::int64_t step) {
  const fs::path path = checkpoint_path(folder, step), old = old_path(folder, step);
  return !fs::exists(path) && fs::exists(old) ? old : path;
}

std::vector<std::int64_t> committed_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

namespace {

void require_same_run(const fs::path& path, const CheckpointHeader& header, const RunIdentity& run) {
  require(run.owns(header), Exit::data, "{}: {}, but this folder belongs to run {}{}", path.string(),
          header.run.empty() ? "carries no run id" : "belongs to run " + printable(header.run), run.id,
          run.unmarked_until < 0 ? "" : fmt::format(", whose checkpoints carry its id from step {} on", run.unmarked_until + 1));
}

// A checkpoint that cannot be read or carries no run id counts as the run's own.
bool is_of_another_run(const fs::path& path, const std::string& run) {
  if (run.empty() || path.extension() == old_suffix) return false;
  try {
    const std::string its = read_header(path).run;
    return !its.empty() && its != run;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<fs::path> newest_checkpoint(const fs::path& folder, const Note& note, std::int64_t before, const RunIdentity* run) {
  const auto steps = committed_steps(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= before) continue;
    const fs::path path = existing_path(folder, *step);
    try {
      const CheckpointHeader header = read_header(path);
      require(header.step == *step, Exit::data, "{}: contains step {}, unlike its name", path.string(), header.step);
      if (run) require_same_run(path, header, *run);
      return path;
    } catch (const Error& error) {
      if (note) note(fmt::format("skipped checkpoint {}", error.what()));
    }
  }
  return {};
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder, Communicator& world, const Note& note, std::int64_t before,
                                          const RunIdentity* run) {
  double step = -1;
  collective_check(world, [&] {
    if (world.rank() != 0) return;
    if (const auto path = newest_checkpoint(folder, note, before, run)) step = double(*step_of(path->filename().string()));
  });
  step = world.gather({&step, 1}).front();
  if (step < 0) return {};
  return existing_path(folder, std::int64_t(step));
}

namespace {

constexpr std::size_t most_record = 1024;  // maximum size of the file in bytes
constexpr const char* loss_label = "validation loss ";

}  // namespace

std::optional<BestCheckpoint> best_checkpoint(const fs::path& folder) {
  const std::string text = text_or_nothing(folder / best_name, most_record), name = text.substr(0, text.find('\n'));
  BestCheckpoint best;
  if (text.size() == name.size() || std::sscanf(text.c_str() + name.size() + 1, (std::string(loss_label) + "%lf").c_str(), &best.loss) != 1)
    return {};
  const auto steps = committed_steps(folder);
  const auto found = std::find_if(steps.begin(), steps.end(), [&](std::int64_t step) { return checkpoint_path({}, step) == name; });
  if (found == steps.end()) return {};
  best.step = *found;
  return best;
}

void write_best(const fs::path& folder, const BestCheckpoint& best) {
  OutputFile file(folder / best_name);
  file.append(fmt::format("{}\n{}{}\n", checkpoint_path({}, best.step).string(), loss_label, best.loss));
  file.commit();
}

std::vector<std::string> prune(const fs::path& folder, std::int64_t step, const Retention& retention, const std::string& run) {
  std::vector<std::string> left;
  const auto remove = [&](const fs::path& path) {
    if (const auto error = remove_checkpoint(path)) left.push_back(fmt::format("{}: cannot be removed: {}", path.string(), error.message()));
  };
  // removes the single-file checkpoint of the same step, which an older version wrote
  if (fs::exists(checkpoint_path(folder, step))) remove(old_path(folder, step));
  if (retention.keep <= 0) return left;
  const auto steps = committed_steps(folder);
  const auto best = best_checkpoint(folder);
  int kept = 0;
  for (auto old = steps.rbegin(); old != steps.rend(); ++old) {
    if (*old > step || (kept >= retention.keep && retention.keep_every > 0 && *old % retention.keep_every == 0)) continue;
    const fs::path path = existing_path(folder, *old);
    if (*old < step && is_of_another_run(path, run)) continue;
    if (kept++ >= retention.keep && !(best && *old == best->step)) remove(path);
  }
  return left;
}

void remove_unfinished(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(unfinished_suffix) || !step_of(std::string_view(name).substr(0, name.size() - unfinished_suffix.size()))) continue;
    std::error_code error;
    fs::remove_all(folder / name, error);
    require(!error, Exit::io, "{}: cannot be removed: {}", (folder / name).string(), error.message());
  }
}

namespace {

constexpr std::string_view folder_text = R"(Checkpoints of gyrfalcon
========================

step_00000010/       state of the run after step 10; complete, because the name has no .tmp
  manifest.json      which file holds which boxes of which tensor, with sizes and checksums (XXH3, as `xxhsum -H3` prints them);
                     deck, seed, step, samples, tokens, program version, and the id of the run. --resume uses only
                     checkpoints with the id in ../run.json and skips all others
  shard_00000.h5 ... the tensors' values, each stored once; the number of files and the ranks that wrote them do not matter
  index.h5           every tensor unsharded, under its plain name, as a view of the shards next to it
step_00000020.tmp/   a save that is in progress or was killed; the next save removes it
latest               text file with the name of the newest checkpoint, which only gyrfalcon follows
best                 with checkpoint.keep_best: name and validation loss of the checkpoint with the lowest one

Reading in Python, from any folder:

    import h5py
    f = h5py.File("step_00000010/index.h5")
    f["model/layers/0/mamba/in_proj/weight"][...]       # model.layers.0.mamba.in_proj.weight of Hugging Face
    f["optimizer/first_moment/layers/0/mamba/D"][...]   # Adam moments; optimizer/master: master weights of bfloat16 weights
    f.attrs["step"], f.attrs["deck"]

`h5ls -r step_00000010/index.h5` lists the tensors, `h5dump -d /model/final_layernorm/weight` prints one. bfloat16 is stored as a 16-bit
floating-point type that HDF5 describes in the file, so h5py reads it. If a shard is missing, its elements read as NaN:
`gyrfalcon info --check step_00000010` compares every file with the manifest. Always move or copy the complete folder of a checkpoint.

    gyrfalcon info step_00000010 --statistics
    gyrfalcon diff step_00000010 step_00000020
    gyrfalcon reshard step_00000010 OUT --files 1       # a single shard, which shows every tensor unsharded without index.h5
    gyrfalcon train DECK --resume                       # on any grid; skips damaged checkpoints and those of other runs
    gyrfalcon train DECK --anew                         # starts a new run here: the old one moves to ../set_aside
)";

}  // namespace

void write_readme(const fs::path& folder, std::string_view text) {
  const fs::path readme = folder / "README.md";
  if (fs::exists(readme)) return;
  OutputFile file(readme);
  file.append(text);
  file.commit();
}

void describe_folder(const fs::path& folder) { write_readme(folder, folder_text); }

}  // namespace gyr
