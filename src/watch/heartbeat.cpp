// SPDX-License-Identifier: BSD-3-Clause
#include "src/watch/heartbeat.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/base/printable.hpp"
#include "src/base/file_system.hpp"
#include "src/base/input_file.hpp"
#include "src/base/limits.hpp"
#include "src/base/quantity.hpp"
#include "src/base/table.hpp"

namespace gyr {

namespace {

constexpr char magic[] = "GYRBEAT1";
constexpr double nano = 1e-9;

template <class Clock>
std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

template <std::size_t N>
void copy(char (&to)[N], std::string_view from) {
  std::memcpy(to, from.data(), std::min(N - 1, from.size()));
}

// Text of a record; unprintable characters are replaced, because any user may have written the file.
template <std::size_t N>
std::string text(const char (&field)[N]) {
  return printable({field, strnlen(field, N)});
}

}  // namespace

std::int64_t wall_nanoseconds() { return nanoseconds<std::chrono::system_clock>(); }

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, sizeof Heartbeat::host - 1);
}

std::string host_of(const Heartbeat& h) { return text(h.host); }
bool ended(const Heartbeat& h) { return text(h.phase) == last_phase; }

Heartbeat heartbeat_of(const Identity& who, const ProgressSnapshot& snapshot, std::int64_t moved, bool alarm) {
  static const std::string host = host_name();
  Heartbeat h{};
  std::memcpy(h.magic, magic, sizeof h.magic);
  h.rank = who.rank, h.ranks = who.ranks, h.attempt = who.attempt, h.pid = getpid();
  h.step = snapshot.step, h.micro = snapshot.micro, h.progress = snapshot.progress;
  h.written = wall_nanoseconds(), h.moved = moved, h.monotonic = nanoseconds<std::chrono::steady_clock>();
  h.waited = snapshot.waited, h.worked = snapshot.worked, h.stepped = snapshot.stepped, h.loss = snapshot.loss, h.sent = snapshot.sent;
  h.number = snapshot.number, h.bytes = snapshot.bytes, h.waiting = snapshot.waiting, h.alarm = alarm;
  copy(h.host, host), copy(h.phase, snapshot.phase), copy(h.task, snapshot.task), copy(h.channel, snapshot.channel),
      copy(h.operation, snapshot.operation);
  return h;
}

HeartbeatFile::HeartbeatFile(const std::filesystem::path& file)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (may_be_shared(file.parent_path()) ? O_DSYNC : 0), 0644)) {}

HeartbeatFile::~HeartbeatFile() {
  if (fd_ >= 0) ::close(fd_);
}

void HeartbeatFile::write(const Heartbeat& h) const {
  if (fd_ < 0) return;
  // a lost record does not matter: the next one follows after watchdog.heartbeat seconds
  [[maybe_unused]] const ssize_t lost = ::pwrite(fd_, &h, sizeof h, off_t(h.rank) * off_t(sizeof h));
}

std::filesystem::path heartbeat_path(const std::filesystem::path& output) { return output / "heartbeat.bin"; }

std::vector<Heartbeat> read_heartbeats(const std::filesystem::path& file) {
  std::vector<Heartbeat> all;
  try {
    const InputFile in(file);
    Heartbeat h;
    for (Index rank = 0; rank < most_ranks && in.read(rank * Index(sizeof h), reinterpret_cast<char*>(&h), sizeof h) == sizeof h; ++rank)
      if (std::memcmp(h.magic, magic, sizeof h.magic) == 0 && h.rank == rank) all.push_back(h);
  } catch (const Error&) {  // there is no file, or users have changed the folder
  }
  int attempt = 0;
  for (const Heartbeat& one : all) attempt = std::max(attempt, one.attempt);
  std::erase_if(all, [&](const Heartbeat& one) { return one.attempt != attempt; });
  return all;
}

ProcessState process_state(const Heartbeat& h) {
  static const std::string here = host_name();
  if (host_of(h) != here) return ProcessState::elsewhere;
  const std::string text = text_or_nothing(fmt::format("/proc/{}/stat", h.pid), 4096);
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X' ? ProcessState::gone : ProcessState::alive;
}

bool any_rank_alive(const std::vector<Heartbeat>& all, std::int64_t now, bool sees_processes) {
  return std::any_of(all.begin(), all.end(), [&](const Heartbeat& h) {
    const double patience = process_state(h) != ProcessState::gone ? 60 : sees_processes ? 0 : 3;
    return !ended(h) && double(now - h.written) * nano < patience;
  });
}

std::string whereabouts(const Heartbeat& h) {
  std::string place = h.step > 0 ? fmt::format("step {}, {}", h.step, text(h.phase)) : text(h.phase);
  if (h.task[0]) place += fmt::format(", {}", text(h.task));
  if (h.task[0] && h.micro >= 0) place += fmt::format(" of micro-batch {}", h.micro);
  if (h.waiting)
    place += fmt::format(", waiting in {} no. {} ({}) on {}", text(h.operation), h.number, counted(h.bytes, "byte"),
                         h.channel[0] ? "the " + text(h.channel) + " communicator" : "a communicator");
  return place;
}

std::string heartbeat_table(const std::vector<Heartbeat>& all, std::int64_t now) {
  Table table({{"rank", true},
               {"host"},
               {"pid", true},
               {"attempt", true},
               {"loss", true},
               {"sent", true},
               {"waited", true},
               {"since heartbeat", true},
               {"since progress", true},
               {"where", false, 96}});
  for (const Heartbeat& h : all)
    table.row({fmt::format("{}", h.rank), text(h.host), fmt::format("{}", h.pid), fmt::format("{}", h.attempt),
               h.stepped > 0 ? fmt::format("{:.4f}", h.loss) : "-", metric_text(double(h.sent), "B"), time_text(h.waited),
               time_text(double(now - h.written) * nano), time_text(double(now - h.moved) * nano), whereabouts(h)});
  return table.str();
}

}  // namespace gyr
