// SPDX-License-Identifier: BSD-3-Clause
// OUTPUT/heartbeat.bin: one record of 256 bytes per rank, at offset rank * 256, rewritten without MPI every
// watchdog.heartbeat seconds (default 1). Monitoring from outside (gyrfalcon ps, gyrfalcon run, user scripts) reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/progress_record.hpp"

namespace gyr {

// Values are in the machine's byte order (little-endian on all supported machines). Texts end with a zero byte. The number
// at the start of each comment is the byte offset of the first field in the line.
struct Heartbeat {
  char magic[8];                // 0: constant "GYRBEAT1"
  std::int32_t rank, ranks;     // 8: rank and number of ranks in MPI_COMM_WORLD
  std::int32_t attempt, pid;    // 16: attempt: number of this start of the run, from 0; process id on `host`
  std::int64_t step, micro;     // 24: current step; micro-batch of the current task, -1: the task has none
  std::uint64_t progress;       // 40: counter that grows with all work that completes
  std::int64_t written, moved;  // 48: ns since 1970: time of this record; time when progress last grew
  std::int64_t monotonic;       // 64: ns of the host's monotonic clock
  double waited, loss;          // 72: seconds spent waiting for other ranks so far; loss of the last step
  std::int64_t sent;            // 88: bytes that this rank has passed to its communicators so far
  std::uint64_t number;         // 96: sequence number of the current or last operation on the communicator `channel`
  std::int64_t bytes;           // 104: size in bytes of the operation `operation`
  std::int32_t waiting, alarm;  // 112: waiting, 1: the rank waits for `operation`; alarm, 1: the watchdog of this rank has detected a hang
  char host[32];                // 120: host name
  char phase[24], task[24];     // 152: phase of the run; current task
  char channel[16];             // 200: name of the communicator of the current or last operation
  char operation[24];           // 216: name of the current or last operation, such as all_reduce
  double worked, stepped;       // 240: seconds of steps so far: without waiting, with waiting
};
static_assert(sizeof(Heartbeat) == 256);

// Phase of a rank that has ended, successfully or not: its record is its last.
inline constexpr const char* last_phase = "end";
bool ended(const Heartbeat&);

// Properties of a rank that stay constant.
struct Identity {
  int rank = 0, ranks = 1, attempt = 0;
};

Heartbeat heartbeat_of(const Identity&, const ProgressSnapshot&, std::int64_t moved, bool alarm);

class HeartbeatFile {
 public:
  // Opens or creates the file. A file that cannot be opened is silently not written. On a shared file system, records
  // are written through (O_DSYNC), so that other machines see them.
  explicit HeartbeatFile(const std::filesystem::path&);
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;
  void write(const Heartbeat&) const;

 private:
  int fd_;
};

std::filesystem::path heartbeat_path(const std::filesystem::path& output);
// Records in the file, by rank, of the newest attempt; unreadable records are skipped.
std::vector<Heartbeat> read_heartbeats(const std::filesystem::path& file);

enum class ProcessState { alive, gone, elsewhere };
// State of the process that wrote a heartbeat; only processes on this host can be checked. A zombie counts as gone, and so
// does a process that this container cannot see.
ProcessState process_state(const Heartbeat&);

// True if any of these ranks still seems to be alive. A rank counts as alive for 60 s after its last record. If its
// process on this host is gone, that is 3 s, or 0 s if `sees_processes`: the ranks on this host have their process ids
// from the namespace of this process. A rank whose record is its last has ended. `now` in ns since 1970.
bool any_rank_alive(const std::vector<Heartbeat>&, std::int64_t now, bool sees_processes = false);

// "step 12, train, forward of micro-batch 3, waiting for all_reduce 381 of 4096 bytes on tensor"
std::string whereabouts(const Heartbeat&);
// Table with one row per rank, for users; `now` in ns since 1970.
std::string heartbeat_table(const std::vector<Heartbeat>&, std::int64_t now);

std::int64_t wall_nanoseconds();
std::string host_name();
std::string host_of(const Heartbeat&);

}  // namespace gyr
