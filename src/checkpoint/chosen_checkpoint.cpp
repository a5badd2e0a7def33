// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/chosen_checkpoint.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "src/base/input_file.hpp"
#include "src/checkpoint/folder.hpp"
#include "src/checkpoint/header.hpp"
#include "src/checkpoint/manifest.hpp"

namespace gyr {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_name = 1024;  // maximum size of the files `latest` and `best` in bytes

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// The checkpoint that the file `latest` or `best` names; empty if the file names none, and is therefore some other file.
fs::path named_by(const fs::path& record) {
  const std::string text = text_or_nothing(record, most_name), name = text.substr(0, text.find('\n'));
  if (!name.starts_with("step_")) return {};
  const fs::path folder = record.has_parent_path() ? record.parent_path() : fs::path(".");
  const auto steps = committed_steps(folder);
  const auto found = std::find_if(steps.begin(), steps.end(), [&](std::int64_t step) { return existing_path(folder, step).filename() == name; });
  require(found != steps.end(), Exit::missing, "{}: names {}, which does not exist there; name another checkpoint", record.string(), name);
  return existing_path(folder, *found);
}

// Folder of checkpoints at `path` or in it; empty if there is none.
fs::path checkpoints_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(path / manifest_name, error)) return {};
  if (fs::is_directory(path / "checkpoints", error)) return path / "checkpoints";
  return without_slash(path).filename() == "checkpoints" || !committed_steps(path).empty() ? without_slash(path) : fs::path();
}

// The checkpoint or Hugging Face folder that a file such as index.h5 or model.safetensors belongs to; empty if there is none.
fs::path model_around(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  for (const char* name : {manifest_name, "config.json"})
    if (fs::exists(folder / name, error)) return folder;
  return {};
}

// Exit::data if `newest` is older than the last of the checkpoints, which existed before it was chosen.
void require_last(const fs::path& folder, const std::vector<std::int64_t>& steps, const std::optional<fs::path>& newest) {
  const auto is_newest = [&](std::int64_t step) { return newest == existing_path(folder, step); };
  if (steps.empty() || (newest && std::none_of(steps.begin(), steps.end() - 1, is_newest))) return;
  const fs::path last = existing_path(folder, steps.back());
  std::string reason = fmt::format("{}: contains another step than its name states", last.string());
  try {
    read_header(last);
  } catch (const Error& error) {
    reason = error.what();
  }
  fail(Exit::data, "{}; this is the newest checkpoint of the folder{}", reason,
       newest ? ", and a run would continue from an older one, which is checked if you name it" : "");
}

}  // namespace

fs::path chosen_checkpoint(const fs::path& path, const Note& note, Damaged damaged) {
  std::error_code error;
  fs::path chosen;
  require(path.extension() != ".gguf" || !fs::is_regular_file(path, error), Exit::data,
          "{}: GGUF files are written for llama.cpp, not read; name the checkpoint or Hugging Face folder that it was made from", path.string());
  if ((path.filename() == "latest" || path.filename() == best_name) && fs::is_regular_file(path, error)) {
    chosen = named_by(path);
  } else if (const fs::path folder = checkpoints_in(path); !folder.empty()) {
    const bool refuses = damaged == Damaged::refused;
    const auto steps = committed_steps(folder);
    const auto newest = newest_checkpoint(folder, refuses ? Note() : note);
    if (refuses) require_last(folder, steps, newest);
    require(newest.has_value(), Exit::missing, "{}: holds no complete checkpoint; name another one, or the folder of a run that has saved one",
            folder.string());
    chosen = *newest;
  } else {
    chosen = model_around(path);
  }
  if (chosen.empty()) return path;
  if (note) note(fmt::format("{}: taking {}", path.string(), chosen.string()));
  return chosen;
}

}  // namespace gyr
