// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/folder.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>

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

// The step of a name that this program gives, which is the only way to write it.
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

// Renamed first: a folder is removed file by file, and must not look like a whole checkpoint meanwhile.
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

void require_own(const fs::path& path, const CheckpointHeader& header, const RunIdentity& run) {
  require(run.owns(header), Exit::data, "{}: {}, and this folder belongs to run {}{}", path.string(),
          header.run.empty() ? "does not say which run it is of" : "is of run " + printable(header.run), run.id,
          run.unmarked_until < 0 ? "" : fmt::format(", whose checkpoints say so from step {} on", run.unmarked_until + 1));
}

// What cannot be read, or does not say whose it is, is taken for the run's own.
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
      require(header.step == *step, Exit::data, "{}: holds step {}", path.string(), header.step);
      if (run) require_own(path, header, *run);
      return path;
    } catch (const Error& error) {
      if (note) note(fmt::format("passed over: {}", error.what()));
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

std::vector<std::string> prune(const fs::path& folder, std::int64_t step, const Retention& retention, const std::string& run) {
  std::vector<std::string> left;
  const auto remove = [&](const fs::path& path) {
    if (const auto error = remove_checkpoint(path)) left.push_back(fmt::format("{}: cannot be removed: {}", path.string(), error.message()));
  };
  if (fs::exists(checkpoint_path(folder, step))) remove(old_path(folder, step));  // what an older program wrote of the same step
  if (retention.keep <= 0) return left;
  const auto steps = committed_steps(folder);
  int kept = 0;
  for (auto old = steps.rbegin(); old != steps.rend(); ++old) {
    if (*old > step || (kept >= retention.keep && retention.keep_every > 0 && *old % retention.keep_every == 0)) continue;
    const fs::path path = existing_path(folder, *old);
    if (*old < step && is_of_another_run(path, run)) continue;
    if (kept++ >= retention.keep) remove(path);
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

void require_space(const fs::path& folder, Index bytes) {
  struct statvfs status;
  if (::statvfs(folder.c_str(), &status) != 0) return;  // not every file system says how much is free; a write without room fails later
  const double free = double(status.f_bavail) * double(status.f_frsize);
  require(free >= double(bytes), Exit::io, "{}: a checkpoint takes {:.3f} GB and {:.3f} GB are free; make room or keep fewer checkpoints",
          folder.string(), double(bytes) * 1e-9, free * 1e-9);
}

namespace {

constexpr std::string_view folder_text = R"(Checkpoints of gyrfalcon
========================

step_00000010/       the run after step 10: complete, because it bears this name
  manifest.json      which file holds which boxes of which tensor, with sizes and checksums (XXH3, as `xxhsum -H3` prints them);
                     the deck, the seed, step, samples and tokens, what program wrote it, and the id of its run: --resume goes on
                     from checkpoints with the id in ../run.json, and passes over others
  shard_00000.h5 ... the numbers, each once; it does not matter how many files there are and who wrote them
  index.h5           every tensor whole, under its plain name, as a view of the shards beside it
step_00000020.tmp/   a save that is under way or was killed; the next save removes it
latest               name of the newest checkpoint

Reading in Python, from any folder:

    import h5py
    f = h5py.File("step_00000010/index.h5")
    f["model/layers/0/mamba/in_proj/weight"][...]       # Hugging Face's name, dots as groups, without a leading "model."
    f["optimizer/first_moment/layers/0/mamba/D"][...]   # AdamW's moments; optimizer/master of weights in bfloat16
    f.attrs["step"], f.attrs["deck"]

`h5ls -r step_00000010/index.h5` lists it, `h5dump -d /model/final_layernorm/weight` prints a tensor. bfloat16 is stored as a 16-bit float
that describes itself, and h5py reads it as numbers. Where a shard is missing the view shows NaN: `gyrfalcon info --check step_00000010`
compares every file with the manifest. Move or copy a checkpoint as a whole folder.

    gyrfalcon info step_00000010 --statistics
    gyrfalcon diff step_00000010 step_00000020
    gyrfalcon reshard step_00000010 OUT --files 1       # one file, from which shard_00000.h5 alone shows every tensor whole
    gyrfalcon train DECK --resume                       # on any grid; passes over what is damaged or of another run
    gyrfalcon train DECK --anew                         # another run in this folder: the old one moves to ../set_aside
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
