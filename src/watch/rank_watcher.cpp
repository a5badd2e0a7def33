// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/rank_watcher.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/comm/mpi/launched.hpp"
#include "src/watch/exit_record.hpp"
#include "src/watch/heartbeat.hpp"
#include "src/watch/outcome.hpp"

namespace gyr {

namespace {

// All signals are blocked, so SIGCHLD is received by sigwaitinfo like the signals that are forwarded to the rank.
int wait_for(pid_t rank, const sigset_t& all) {
  for (int status = 0;;) {
    if (::waitpid(rank, &status, WNOHANG) == rank) return status;
    const int number = ::sigwaitinfo(&all, nullptr);
    if (number > 0 && number != SIGCHLD) ::kill(rank, number);
  }
}

// `before`: text of status.json when this attempt began, which may report the end of an earlier one.
bool has_outcome(const std::filesystem::path& output, const std::string& before) {
  if (outcome_text(output) == before) return false;
  const auto outcome = read_outcome(output);
  return outcome && outcome->state != "running";
}

void report(const std::filesystem::path& exit_record, const std::string& before, pid_t rank, int status) {
  // A rank may exit because another one has died; the record of that one must come first.
  const timespec respect{0, 200'000'000};
  if (WIFEXITED(status)) nanosleep(&respect, nullptr);
  if (has_outcome(exit_record.parent_path(), before)) return;
  write_exit_record(exit_record, {host_name(), rank, rank_from_environment(), WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "",
                                  WIFEXITED(status) ? WEXITSTATUS(status) : 0, double(wall_nanoseconds()) * 1e-9});
}

[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  ::prctl(PR_SET_DUMPABLE, 0);  // the rank has written a core file already
  ::signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  ::kill(::getpid(), number);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::_exit(128 + number);  // process 1 of a container is not ended by its own signals
}

[[noreturn]] void keep(pid_t rank, const sigset_t& all, const std::filesystem::path& exit_record, const std::string& before,
                       const std::atomic<bool>& agreed) {
  const int status = wait_for(rank, all);
  if (WIFSIGNALED(status) || !agreed.load()) report(exit_record, before, rank, status);
  end_like(status);
}

void become_rank(pid_t rank_watcher) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != rank_watcher) ::_exit(127);  // the watcher process had ended before prctl was called
}

}  // namespace

Kept::Kept(const std::filesystem::path& exit_record) {
  if (exit_record.empty()) return;
  void* page = ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  agreed_ = new (page) std::atomic<bool>(false);
  const std::string outcome = outcome_text(exit_record.parent_path());
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  ::signal(SIGCHLD, SIG_DFL);  // if SIGCHLD is ignored, children vanish without a status
  const pid_t rank_watcher = ::getpid(), rank = ::fork();
  if (rank > 0) keep(rank, all, exit_record, outcome, *agreed_);
  if (rank == 0) become_rank(rank_watcher);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

Kept::~Kept() {
  if (agreed_) ::munmap(agreed_, sizeof(std::atomic<bool>));
}

void Kept::agreed() {
  if (agreed_) agreed_->store(true);
}

}  // namespace gyr
