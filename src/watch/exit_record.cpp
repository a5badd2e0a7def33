// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/exit_record.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "src/base/json.hpp"
#include "src/base/limits.hpp"

namespace gyr {

namespace {

struct Name {
  int number;
  const char* text;
};
// Signals whose default action ends the process.
constexpr Name names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},     {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
                          {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},       {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
                          {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
                          {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGIO, "SIGIO"},
                          {SIGSYS, "SIGSYS"}};

}  // namespace

std::string signal_name(int number) {
  for (const Name& name : names)
    if (name.number == number) return name.text;
  return fmt::format("signal {}", number);
}

std::filesystem::path exit_record_path(const std::filesystem::path& output, int attempt) {
  return output / fmt::format("exit_record.{}.json", attempt);
}

std::filesystem::path new_exit_record_path(const std::filesystem::path& output, int attempt) {
  return exit_record_path(output, attempt).concat(".new");
}

bool write_exit_record(const std::filesystem::path& file, const ExitRecord& o) noexcept {
  try {
    const Json json = {{"host", o.host}, {"pid", o.pid}, {"rank", o.rank}, {"signal", o.signal}, {"code", o.code}, {"time", o.time}};
    const std::string text = json_text(json) + "\n";
    std::error_code ignored;
    std::filesystem::create_directories(file.parent_path(), ignored);
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return false;
    const bool written = ::write(fd, text.data(), text.size()) == ssize_t(text.size());
    return ::close(fd) == 0 && written;
  } catch (const std::exception&) {
    return false;
  }
}

std::optional<ExitRecord> read_exit_record(const std::filesystem::path& file) {
  const Json json = json_of_file(file);
  if (!json.is_object()) return {};
  const auto pid = integer_in(json, "pid"), rank = integer_in(json, "rank"), code = integer_in(json, "code");
  const double time = number_in(json, "time");
  const std::string host = text_in(json, "host");
  if (host.empty() || !pid || !rank || !code || std::isnan(time)) return {};
  return ExitRecord{host, int(*pid), int(std::clamp<std::int64_t>(*rank, -1, most_ranks)), text_in(json, "signal"), int(*code), time};
}

std::string manner(const ExitRecord& o) {
  return o.signal.empty() ? fmt::format("exited with code {} without an error message", o.code) : "was killed by " + o.signal;
}

}  // namespace gyr
