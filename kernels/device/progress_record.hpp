// SPDX-License-Identifier: BSD-3-Clause
// Progress record of a rank: written by the worker thread and read by the watchdog, with relaxed atomics and without a lock.
// Fields are stored one by one. A reader may see fields of different moments while the rank runs, and consistent ones once it has stopped.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/scalar.hpp"

namespace gyr {

// An operation in progress, as messages name it: operation 381 of communicator `channel`, an all_reduce of 4096 bytes.
struct NamedCall {
  // index of the communicator; -1: none, or one without a registered name
  int channel = -1;
  const char* operation = "";  // name of the operation, a string literal
  Index bytes = 0;
  std::uint64_t number = 0;
};

// Copy of the fields of a ProgressRecord.
struct ProgressSnapshot {
  std::uint64_t progress = 0;  // progress counter, increased whenever something is completed
  std::int64_t step = 0, micro = -1;
  std::string phase, task;
  bool waiting = false;  // true while the rank waits for the operation in the fields below; false: it waited for that operation last
  std::string channel, operation;
  std::uint64_t number = 0;
  Index bytes = 0, sent = 0;
  double waited = 0;               // total seconds spent waiting
  double worked = 0, stepped = 0;  // seconds spent in steps: worked excludes waiting, stepped includes it
  double loss = 0;
};

class ProgressRecord {
 public:
  static constexpr std::size_t name_bytes = 16;

  ProgressRecord() = default;
  ProgressRecord(const ProgressRecord&) = delete;
  ProgressRecord& operator=(const ProgressRecord&) = delete;

  // Worker thread only, like the setters below. Registers a communicator name and returns the id that later calls use,
  // or -1 if the table is full.
  int channel(std::string_view name);
  void step(std::int64_t number) { set(step_, number); }
  void stepped(double seconds, double waited) {
    set(stepped_, stepped_.load(std::memory_order_relaxed) + seconds);
    set(worked_, worked_.load(std::memory_order_relaxed) + seconds - waited);
  }
  void loss(double value) { set(loss_, value); }
  // Names are string literals. micro: index of the micro-batch, -1 for none.
  void phase(const char* name) {
    set(phase_, name);
    task("");
  }
  void task(const char* name, std::int64_t micro = -1) {
    set(task_, name);
    set(micro_, micro);
    advance();
  }
  void advance() { set(progress_, progress_.load(std::memory_order_relaxed) + 1); }
  void send(Index bytes) { set(sent_, sent_.load(std::memory_order_relaxed) + bytes); }

  // Until the end of its block, this object records that the rank waits for `call`. A null progress record records nothing. Time
  // in which the device may compute (Meanwhile::device_computes) does not count as waiting.
  enum class Meanwhile { nothing, device_computes };
  class [[nodiscard]] Waiting {
   public:
    Waiting(ProgressRecord* progress_record, const NamedCall& call, Meanwhile meanwhile = Meanwhile::nothing)
        : progress_record_(progress_record), meanwhile_(meanwhile) {
      if (progress_record_) progress_record_->begin(call), begin_ = Clock::now();
    }
    ~Waiting() {
      if (!progress_record_) return;
      const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
      progress_record_->end(meanwhile_ == Meanwhile::nothing ? passed.count() : 0);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    ProgressRecord* progress_record_;
    Meanwhile meanwhile_;
    Clock::time_point begin_;
  };

  // The functions below are for the watchdog thread only.
  ProgressSnapshot look() const;
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  double waited() const { return 1e-9 * double(waited_.load(std::memory_order_relaxed)); }

 private:
  template <class T>
  static void set(std::atomic<T>& field, T value) {
    field.store(value, std::memory_order_relaxed);
  }
  void begin(const NamedCall& call) {
    set(channel_, call.channel);
    set(operation_, call.operation);
    set(bytes_, call.bytes);
    set(number_, call.number);
    set(waiting_, true);
  }
  void end(std::int64_t nanoseconds) {
    set(waiting_, false);
    set(waited_, waited_.load(std::memory_order_relaxed) + nanoseconds);
    advance();
  }

  static constexpr int most_channels = 32;
  std::array<std::array<char, name_bytes>, most_channels> channels_{};  // each name is written once, before its id is published
  std::atomic<int> channel_count_{0};
  std::atomic<std::uint64_t> progress_{0}, number_{0};
  std::atomic<std::int64_t> step_{0}, micro_{-1}, waited_{0};
  std::atomic<Index> bytes_{0}, sent_{0};
  std::atomic<const char*> phase_{""}, task_{""}, operation_{""};
  std::atomic<int> channel_{-1};
  std::atomic<bool> waiting_{false};
  std::atomic<double> loss_{0}, worked_{0}, stepped_{0};
};

}  // namespace gyr
