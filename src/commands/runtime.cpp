// SPDX-License-Identifier: BSD-3-Clause
#include "src/commands/runtime.hpp"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "kernels/base/printable.hpp"
#include "kernels/base/threads.hpp"
#include "kernels/comm/mpi/launched.hpp"
#include "kernels/comm/mpi/node.hpp"
#include "src/commands/guard.hpp"
#include "src/report/summary.hpp"

namespace gyr {

namespace {

// MPICH installs a SIGUSR1 handler for failed processes that never returns without a launcher, and UCX a SIGHUP handler
// that fills the log (UCX_DEBUG_SIGNO). Restore the previous handlers: in training both signals save and stop the run,
// in other commands they end the process, and under nohup SIGHUP is ignored.
void start_mpi() {
  constexpr int replaced[] = {SIGUSR1, SIGHUP};
  struct sigaction before[std::size(replaced)] = {};
  for (std::size_t i = 0; i < std::size(replaced); ++i) ::sigaction(replaced[i], nullptr, &before[i]);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);  // the checkpoint writer thread makes no MPI calls
  for (std::size_t i = 0; i < std::size(replaced); ++i) ::sigaction(replaced[i], &before[i], nullptr);
}

struct Failure {
  Exit code = Exit::ok;
  std::string text;
};

Failure attempt(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code, error.what()};
  } catch (const std::exception& error) {
    return {code_of(error), error.what()};
  }
}

void broadcast(void* data, int count, MPI_Datatype type, MPI_Comm world) {
  MPI_Request request;
  MPI_Ibcast(data, count, type, 0, world, &request);
  for (int done = 0; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    const struct timespec pause { 0, 20'000 };
    if (!done) ::nanosleep(&pause, nullptr);  // a blocking call would occupy the core of another rank
  }
}

}  // namespace

Runtime::Runtime() {
  start_mpi();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
}

void Runtime::start() {
  require_own_launcher(ranks_);
  crowd_ = machine_load_of(MPI_COMM_WORLD);
  start_threads(crowd_.cores_each(), crowd_.place);
  started_ = true;
}

Runtime::~Runtime() {
  if (started_) end_threads();
  MPI_Finalize();
}

std::string Runtime::thread_advice() const { return gyr::thread_advice(crowd_, rank_threads()); }

std::string thread_advice(const Crowd& c, int threads) {
  if (c.ranks * threads <= c.cores) return "";
  const auto counted = [](int n, const char* what) { return fmt::format("{} {}{}", n, what, n > 1 ? "s" : ""); };
  std::string remedy = threads > 1 ? fmt::format("set OMP_NUM_THREADS={}", std::max(1, c.cores / c.ranks)) : "";
  if (c.ranks > c.cores) remedy += fmt::format("{}start at most {} here", remedy.empty() ? "" : ", or ", counted(c.cores, "rank"));
  return fmt::format("warning: {} x {} run on {} of this machine and slow each other down; {}\n", counted(c.ranks, "rank"),
                     counted(threads, "thread"), counted(c.cores, "processor"), remedy);
}

std::time_t Runtime::shared_time() const {
  const char* const fixed = std::getenv("SOURCE_DATE_EPOCH");
  long long seconds = fixed ? std::atoll(fixed) : static_cast<long long>(std::time(nullptr));
  broadcast(&seconds, 1, MPI_LONG_LONG, world());
  return std::time_t(seconds);
}

std::string Runtime::shared_text(const std::function<std::string()>& make) const {
  Failure failure;
  std::string text;
  if (rank_ == 0) failure = attempt([&] { text = make(); });
  if (failure.code != Exit::ok) text = failure.text;
  int code_and_size[2] = {int(failure.code), int(text.size())};
  broadcast(code_and_size, 2, MPI_INT, world());
  text.resize(std::size_t(code_and_size[1]));
  broadcast(text.data(), code_and_size[1], MPI_CHAR, world());
  if (code_and_size[0] != int(Exit::ok)) throw Error(Exit(code_and_size[0]), text);
  return text;
}

namespace {

void print_line(const Failure& failure, int rank, int ranks) {
  const std::string text = printable_lines(failure.text);
  std::fflush(stdout);
  if (ranks > 1) std::fprintf(stderr, "gyrfalcon: rank %d: %s\n", rank, text.c_str());
  else std::fprintf(stderr, "gyrfalcon: %s\n", text.c_str());
}

// Exit codes of all ranks; empty if some rank does not join the all-gather within the time limit.
std::vector<int> agreed(const Runtime& runtime, Exit mine) {
  const int code = int(mine);
  std::vector<int> codes(runtime.ranks());
  MPI_Request request;
  MPI_Iallgather(&code, 1, MPI_INT, codes.data(), 1, MPI_INT, runtime.world(), &request);
  const auto begin = std::chrono::steady_clock::now();
  // A rank that succeeded waits for the others without limit. A failed rank waits 5 seconds only, because the others
  // may be waiting for it.
  const auto patience = std::chrono::seconds(mine == Exit::ok ? 1 << 30 : 5);
  for (int done = 0; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done && std::chrono::steady_clock::now() - begin > patience) return {};
    const timespec pause{0, 200'000};
    if (!done) nanosleep(&pause, nullptr);
  }
  return codes;
}

}  // namespace

int run_on_all_ranks(const std::function<void(Runtime&)>& body, LastLine last_line) {
  Runtime runtime;
  const Failure failure = attempt([&] {
    runtime.start();
    body(runtime);
  });
  const std::vector<int> codes = agreed(runtime, failure.code);
  if (codes.empty()) {
    print_line(failure, runtime.rank(), runtime.ranks());
    std::fflush(stderr);
    if (last_line != LastLine::never) std::printf("%s\n", gyr::last_line(failure.code).c_str());
    std::fflush(stdout);
    const timespec passed_on{0, 300'000'000};  // launchers drop output that they have not forwarded when a job is aborted
    nanosleep(&passed_on, nullptr);
    MPI_Abort(runtime.world(), int(failure.code));
  }
  const auto first = std::find_if(codes.begin(), codes.end(), [](int c) { return c != 0; });
  const Exit code = first == codes.end() ? Exit::ok : Exit(*first);
  if (code != Exit::ok && runtime.rank() == int(first - codes.begin())) print_line(failure, runtime.rank(), runtime.ranks());
  if (runtime.rank() == 0 && (last_line == LastLine::always || (last_line == LastLine::of_failures && code != Exit::ok))) {
    std::fflush(stderr);
    std::printf("%s\n", gyr::last_line(code).c_str());
    std::fflush(stdout);
  }
  return int(code);
}

}  // namespace gyr
