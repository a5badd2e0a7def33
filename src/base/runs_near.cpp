// SPDX-License-Identifier: BSD-3-Clause
#include "src/base/runs_near.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/base/printable.hpp"

namespace gyr {

namespace fs = std::filesystem;

std::string runs_near(const fs::path& folder) {
  constexpr std::size_t most = 4;  // runs that are named
  const auto is_run = [](const fs::path& path) {
    std::error_code no;
    return fs::is_regular_file(path / "metrics.jsonl", no);
  };
  const fs::path above = (folder.has_filename() ? folder : folder.parent_path()).parent_path();
  for (const fs::path& outer : {above, above.parent_path()})  // of OUT/checkpoints and OUT/checkpoints/step_00000010
    if (!outer.empty() && is_run(outer)) return fmt::format("; the folder of the run is {}", printable(outer.string()));
  std::vector<std::string> runs;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    if (is_run(entry->path())) runs.push_back(printable(entry->path().string()));
  std::sort(runs.begin(), runs.end());
  const bool more = runs.size() > most;
  runs.resize(std::min(runs.size(), most));
  return runs.empty() ? "" : fmt::format("; runs below {}: {}{}", printable(folder.string()), fmt::join(runs, ", "), more ? ", ..." : "");
}

}  // namespace gyr
