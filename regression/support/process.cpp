// SPDX-License-Identifier: BSD-3-Clause
// If mpiexec is killed, its ranks survive it. The test process is their subreaper: they become its children, and it
// kills and awaits them.
#include "regression/support/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "regression/support/folder.hpp"

extern char** environ;

namespace gyr::testing {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
void pause() {
  const timespec millisecond{0, 1'000'000};
  nanosleep(&millisecond, nullptr);
}

// The environment of this process, without the variables by which a child would take itself for a rank of another MPI
// job.
Words environment(const Options& options) {
  std::map<std::string, std::string> env;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    bool launcher = false;
    for (const char* prefix : {"PMI_", "PMIX_", "MPI_", "MPIR_", "HYDI_", "HYDRA_", "OMPI_", "GYR_"}) launcher |= text.starts_with(prefix);
    if (!launcher && equals != std::string::npos) env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  env.try_emplace("OMP_NUM_THREADS", "1");
  env["COLUMNS"] = "400";  // tables in one part and without wrapped cells, for tests that read them
  for (const auto& [name, value] : options.env) env[name] = value;
  Words list;
  for (const auto& [name, value] : env) list.push_back(name + "=" + value);
  return list;
}

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

std::vector<pid_t> children() {
  std::istringstream list(contents("/proc/self/task/" + std::to_string(getpid()) + "/children"));
  std::vector<pid_t> pids;
  for (pid_t pid; list >> pid;) pids.push_back(pid);
  return pids;
}

// Kills the remaining processes of a job, and then their children in turn.
void end_orphans() {
  for (auto left = children(); !left.empty(); left = children()) {
    for (const pid_t pid : left) kill(pid, SIGKILL);
    for (const pid_t pid : left) waitpid(pid, nullptr, 0);
  }
}

[[noreturn]] void become(const Words& command, const Words& env, const Options& options, const Folder& files) {
  setsid();
  signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
  const auto connect = [&](const char* name, int flags, int fd) { dup2(open((files / name).c_str(), flags, 0600), fd); };
  connect("in", O_RDONLY, 0);
  connect("out", O_WRONLY | O_CREAT | O_APPEND, 1);
  connect("err", O_WRONLY | O_CREAT | O_APPEND, 2);
  if (options.file_limit >= 0) {
    const rlimit limit{rlim_t(options.file_limit), rlim_t(options.file_limit)};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);  // so that write() returns an error, as on a full disk
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  execve(command.front().c_str(), pointers(command).data(), pointers(env).data());
  _exit(127);
}

}  // namespace

Result execute(const Words& command, const Options& options) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const Folder files;
  put_contents(files / "in", options.input);
  const Words env = environment(options);
  const Clock::time_point begin = Clock::now();
  const pid_t pid = fork();
  if (pid == 0) become(command, env, options, files);

  Result result;
  int status = 0;
  rusage usage{};
  bool late = false;
  while (wait4(pid, &status, WNOHANG, &usage) == 0) {
    late = since(begin) > options.limit;
    if (options.meanwhile) options.meanwhile(pid, files / "out");
    result.killed = options.kill_when && options.kill_when();
    if (late || result.killed) {
      kill(-pid, SIGKILL);
      wait4(pid, &status, 0, &usage);
      break;
    }
    pause();
  }
  result.seconds = since(begin);
  end_orphans();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (const timeval& t : {usage.ru_utime, usage.ru_stime}) result.cpu_seconds += double(t.tv_sec) + 1e-6 * double(t.tv_usec);
  result.peak_kib = usage.ru_maxrss;
  result.out = contents(files / "out");
  result.err = contents(files / "err");
  if (late) {
    std::string text;
    for (const std::string& word : command) text += word + " ";
    ADD_FAILURE() << text << "did not end within " << options.limit << " s\n" << result.out << result.err;
  }
  return result;
}

std::string program() {
  const char* const named = std::getenv("GYRFALCON_BINARY");
  return named ? named : GYR_BINARY;
}

Words launcher() {
  std::istringstream text(GYR_MPIEXEC);
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

Result run(const Words& arguments, const Options& options) {
  Words command;
  if (options.ranks > 0) {
    command = launcher();
    command.insert(command.end(), {"-n", std::to_string(options.ranks)});
  }
  command.push_back(program());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return execute(command, options);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string last_line_of(const std::string& text) {
  const auto lines = lines_of(text);
  return lines.empty() ? "" : lines.back();
}

}  // namespace gyr::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 0) return failed;
  std::fprintf(stderr, "no test matches the filter\n");
  return 1;
}
