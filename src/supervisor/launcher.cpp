// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/launcher.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "kernels/base/error.hpp"
#include "kernels/comm/mpi/mpiexec.hpp"

namespace gyr {

namespace {

std::string found_in_path(const Words& names) {
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    std::istringstream folders(path ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      if (const auto file = std::filesystem::path(folder) / name; ::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

Words split(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

Words launch_command(const std::string& launcher, int ranks, const Words& program, WhenOneDies when_one_dies) {
  require(ranks > 0, Exit::usage, "-n {}: at least one rank is needed", ranks);
  Words command;
  if (launcher == "none") {
    require(ranks == 1, Exit::usage, "--launcher none starts one rank, not {}", ranks);
  } else {
    command = split(launcher);
    if (command.empty()) {
      const Mpiexec mine = mpiexec();
      command = {found_in_path(mine.names)};
      command.insert(command.end(), mine.options.begin(), mine.options.end());
    }
    require(!command[0].empty(), Exit::usage, "there is no mpiexec in PATH; name a launcher with --launcher");
    const std::string name = std::filesystem::path(command[0]).filename();
    const bool peers_stay = command.size() == 1 && when_one_dies == WhenOneDies::peers_stay;
    if (peers_stay && name == "srun") command.emplace_back("--kill-on-bad-exit=0");
    if (peers_stay && (name == "mpiexec.hydra" || name == "mpiexec.mpich")) command.emplace_back("-disable-auto-cleanup");
    command.emplace_back("-n");
    command.push_back(std::to_string(ranks));
  }
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace gyr
