// SPDX-License-Identifier: BSD-3-Clause
#include "src/checkpoint/folder.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>

#include "src/checkpoint/header.hpp"
#include "src/together.hpp"

namespace gyr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step_", suffix = ".h5";

std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const char* first = name.data() + prefix.size();
  const char* last = name.data() + name.size() - suffix.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc() || end != last || step < 0) return {};
  return step;
}

}  // namespace

fs::path checkpoint_path(const fs::path& folder, std::int64_t step) { return folder / fmt::format("{}{:08}{}", prefix, step, suffix); }

std::vector<std::int64_t> committed_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    if (const auto step = step_of(entry->path()); step && entry->path() == checkpoint_path(folder, *step)) steps.push_back(*step);
  require(!error || error == std::errc::no_such_file_or_directory, Exit::io, "{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder, const Note& note, std::int64_t before) {
  const auto steps = committed_steps(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= before) continue;
    const fs::path path = checkpoint_path(folder, *step);
    try {
      const std::int64_t says = read_header(path).step;
      require(says == *step, Exit::data, "{}: holds step {}", path.string(), says);
      return path;
    } catch (const Error& error) {
      if (note) note(fmt::format("passed over: {}", error.what()));
    }
  }
  return {};
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder, Communicator& world, const Note& note, std::int64_t before) {
  double step = -1;
  together(world, [&] {
    if (world.rank() != 0) return;
    if (const auto path = newest_checkpoint(folder, note, before)) step = double(*step_of(*path));
  });
  step = world.gather({&step, 1}).front();
  if (step < 0) return {};
  return checkpoint_path(folder, std::int64_t(step));
}

std::vector<std::string> keep_last(const fs::path& folder, std::int64_t step, int keep) {
  std::vector<std::string> left;
  if (keep <= 0) return left;
  auto steps = committed_steps(folder);
  std::erase_if(steps, [&](std::int64_t other) { return other > step; });
  for (std::size_t i = 0; i + std::size_t(keep) < steps.size(); ++i) {
    std::error_code error;
    const fs::path path = checkpoint_path(folder, steps[i]);
    if (!fs::remove(path, error) && error) left.push_back(fmt::format("{}: cannot be removed: {}", path.string(), error.message()));
  }
  return left;
}

void require_space(const fs::path& folder, Index bytes) {
  struct statvfs status;
  if (::statvfs(folder.c_str(), &status) != 0) return;  // not every file system tells; the write itself will
  const double free = double(status.f_bavail) * double(status.f_frsize);
  require(free >= double(bytes), Exit::io, "{}: a checkpoint takes {:.3f} GB and {:.3f} GB are free; make room or keep fewer checkpoints",
          folder.string(), double(bytes) * 1e-9, free * 1e-9);
}

}  // namespace gyr
