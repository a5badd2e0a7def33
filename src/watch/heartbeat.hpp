// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/heartbeat.bin: one record of 256 bytes per rank, at rank * 256, written anew every second without MPI. Whoever looks at a run
// from outside (gyrfalcon ps, the supervisor, a colleague's script) reads it there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/progress_record.hpp"

namespace gyr {

// Numbers as the machine keeps them (little-endian wherever this runs); texts end with a zero byte.
struct Heartbeat {
  char magic[8];                // "GYRBEAT1"
  std::int32_t rank, ranks;     //   8: in MPI_COMM_WORLD
  std::int32_t attempt, pid;    //  16: which start of the run, from 0; process on `host`
  std::int64_t step, micro;     //  24: step under way; micro-batch of the task, -1: none
  std::uint64_t progress;       //  40: grows with everything that gets done
  std::int64_t written, moved;  //  48: ns since 1970: of this record, and when progress last grew
  std::int64_t monotonic;       //  64: ns of the host's monotonic clock
  double waited, loss;          //  72: seconds spent waiting for other ranks so far; loss of the last step
  std::int64_t sent;            //  88: bytes handed to communicators so far
  std::uint64_t number;         //  96: of the operation on its communicator ...
  std::int64_t bytes;           // 104: ... and its size
  std::int32_t waiting, alarm;  // 112: 1: waits for that operation now; 1: the watchdog of this rank has raised the alarm
  char host[32];                // 120
  char phase[24], task[24];     // 152
  char channel[16];             // 200: communicator
  char operation[24];           // 216
  double worked, stepped;       // 240: seconds of steps so far, without and with waiting
};
static_assert(sizeof(Heartbeat) == 256);

// The phase of a rank that is done, well or not: its record is its last.
inline constexpr const char* last_phase = "end";
bool ended(const Heartbeat&);

// What does not change while a rank lives.
struct Identity {
  int rank = 0, ranks = 1, attempt = 0;
};

Heartbeat heartbeat_of(const Identity&, const ProgressSnapshot&, std::int64_t moved, bool alarm);

class HeartbeatFile {
 public:
  // Creates the file where it is not there; no error: a file that cannot be opened is not written. Where other machines may see it, records
  // go there at once.
  explicit HeartbeatFile(const std::filesystem::path&);
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;
  void write(const Heartbeat&) const;

 private:
  int fd_;
};

std::filesystem::path heartbeat_path(const std::filesystem::path& output);
// The records that are there, by rank: of one attempt, the newest; what cannot be read is left out.
std::vector<Heartbeat> read_heartbeats(const std::filesystem::path& file);

// Whether a rank of these still gives signs of life, for one who only looks on: one of this machine whose process is gone does for three beats more,
// any other for a minute. `now` in ns since 1970. A rank whose record is its last has ended.
bool any_rank_alive(const std::vector<Heartbeat>&, std::int64_t now);

// "step 12, train, forward of micro-batch 3, waiting for all_reduce 381 of 4096 bytes on tensor"
std::string whereabouts(const Heartbeat&);
// One row per rank, for people; `now` in ns since 1970.
std::string heartbeat_table(const std::vector<Heartbeat>&, std::int64_t now);

std::int64_t wall_nanoseconds();
std::string host_name();
std::string host_of(const Heartbeat&);

}  // namespace gyr
