// SPDX-License-Identifier: BSD-3-Clause
#include "src/supervisor/launcher.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "kernels/base/error.hpp"
#include "kernels/comm/mpi/mpiexec.hpp"
#include "src/job/job.hpp"

namespace gyr {

namespace {

constexpr long most_ranks_per_processor = 64;

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

bool has_host_list() {
  const char* const variables[] = {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"};
  return std::any_of(std::begin(variables), std::end(variables), [](const char* name) { return std::getenv(name) != nullptr; });
}

// Without a scheduler and a list of hosts, mpiexec starts all ranks on this machine. `command`: the launcher's words; its
// options may name hosts.
void require_plausible(int ranks, const Words& command) {
  const std::string name = std::filesystem::path(command[0]).filename();
  const bool starts_here = command.size() == 1 && (name.starts_with("mpiexec") || name.starts_with("mpirun") || name == "orterun");
  if (!starts_here || has_host_list() || !job_of_environment().scheduler.empty()) return;
  const long processors = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)), most = most_ranks_per_processor * processors;
  require(ranks <= most, Exit::usage,
          "-n {}: this machine has {} processor{}, and without a scheduler or a list of hosts at most {} ranks are started on it; lower -n, or name "
          "the hosts in the launcher's options, as in --launcher \"mpiexec -f HOSTFILE\"",
          ranks, processors, processors == 1 ? "" : "s", most);
}

bool starts_ranks(const std::string& word) {
  const std::string name = std::filesystem::path(word).filename();
  return name.starts_with("mpiexec") || name.starts_with("mpirun") || name == "orterun" || name == "prterun" || name == "srun";
}

// A number of ranks in the launcher's own options would start ranks that start ranks.
void require_no_ranks(const std::string& launcher, const Words& command) {
  const auto number_at = [&](std::size_t i) { return i < command.size() && !command[i].empty() && std::isdigit(command[i][0]); };
  std::size_t at = std::find_if(command.begin(), command.end(), starts_ranks) - command.begin();
  for (++at; at < command.size(); ++at) {
    const std::string& word = command[at];
    const bool names = word == "-n" || word == "-np" || word == "--n" || word == "--np" || word == "--ntasks";
    const bool joined = (word.starts_with("-n") && word.size() > 2 && std::isdigit(word[2])) || word.starts_with("--ntasks=");
    if (!joined && !(names && number_at(at + 1))) continue;
    fail(Exit::device, "--launcher \"{}\": the launcher takes -n RANKS PROGRAM after it; leave out {}, and give the number of ranks as -n RANKS",
         launcher, joined ? word : word + " " + command[at + 1]);
  }
}

}  // namespace

Words launch_command(const std::string& launcher, int ranks, const Words& program, WhenOneDies when_one_dies) {
  require(ranks > 0, Exit::usage, "-n {}: at least one rank is needed", ranks);
  Words command;
  if (launcher == "none") {
    require(ranks == 1, Exit::usage, "--launcher none starts one rank, not {}", ranks);
  } else {
    command = split(launcher);
    require_no_ranks(launcher, command);
    if (command.empty()) {
      const Mpiexec mine = mpiexec();
      command = {found_in_path(mine.names)};
      command.insert(command.end(), mine.options.begin(), mine.options.end());
    }
    require(!command[0].empty(), Exit::usage, "there is no mpiexec in PATH; name a launcher with --launcher");
    require_plausible(ranks, launcher.empty() ? Words{command[0]} : command);
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
