// SPDX-License-Identifier: BSD-3-Clause
// Timeline of a rank: spans of its work, nested or one after another, and its transfers, from the start to the end of
// the wait for them. Records are small, of fixed size, and in memory that is allocated once; records that do not fit
// are counted and dropped. A null recorder writes nothing and reads no clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

using Moment = std::int64_t;  // nanoseconds of this process's steady clock, not comparable with those of other processes
inline Moment moment_of(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}
inline Moment moment_now() { return moment_of(std::chrono::steady_clock::now()); }

// Subject of recorded work: indices of the model chunk, the micro-batch, the chunk's parts and the bucket of weights;
// -1: not applicable.
struct Subject {
  int chunk = -1, micro = -1;
  int first_part = -1, last_part = -1;  // parts [first, last) of the chunk
  int bucket = -1;
};

class Recorder {
 public:
  struct Work {
    const char* name;  // name of the work, a string literal
    Moment begin, end;
    Subject subject;
  };
  struct Transfer {
    std::uint64_t number;   // number of the transfer, from 1 in the order of the starts
    int channel;            // index of the communicator in channels()
    const char* operation;  // name of the operation, a string literal
    Index bytes;
    bool counted;                         // true if it counts as traffic; operations on host values do not
    Moment begin, end = 0;                // end: time at which it was seen to be done; 0: in progress
    Moment wait_begin = 0, wait_end = 0;  // begin and end of the rank's wait for the transfer; 0: it has not waited yet
  };

  // Holds at most `most` records of each kind.
  explicit Recorder(std::size_t most) : most_(most) { work_.reserve(most), kernels_.reserve(most), transfers_.reserve(most); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Registers a communicator name and returns the id that transfers use.
  int channel(std::string_view name) {
    const auto number = std::size_t(std::find(channels_.begin(), channels_.end(), name) - channels_.begin());
    if (number == channels_.size()) channels_.emplace_back(name);
    return int(number);
  }

  // Records a span of work until the end of the block. A null recorder records nothing.
  class [[nodiscard]] Span {
   public:
    Span(Recorder* recorder, const char* name, const Subject& subject = {}) : recorder_(recorder) {
      if (recorder_) at_ = recorder_->put(recorder_->work_, {name, moment_now(), 0, subject});
    }
    ~Span() {
      if (recorder_ && at_ < recorder_->work_.size()) recorder_->work_[at_].end = moment_now();
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Recorder* recorder_;
    std::size_t at_ = 0;
  };

  // Records the span of a kernel that has ended.
  void kernel(const char* name, Moment begin, Moment end) { put(kernels_, {name, begin, end, {}}); }

  // Refers to a recorded transfer. The transfer's event holds it and records the end of the transfer through it.
  class Handle {
   public:
    Handle() = default;
    void done() const {
      if (Transfer* t = transfer()) t->end = moment_now();
    }

   private:
    friend class Recorder;
    Handle(Recorder* recorder, std::uint64_t number) : recorder_(recorder), number_(number) {}
    Transfer* transfer() const { return recorder_ ? recorder_->find(number_) : nullptr; }

    Recorder* recorder_ = nullptr;  // must outlive this handle
    std::uint64_t number_ = 0;
  };
  // Records that the rank waits for the transfer until the end of the block.
  class [[nodiscard]] Waiting {
   public:
    explicit Waiting(const Handle& handle) : handle_(handle) {
      if (Transfer* t = handle_.transfer()) t->wait_begin = moment_now();
    }
    ~Waiting() {
      if (Transfer* t = handle_.transfer()) t->wait_end = moment_now();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    const Handle handle_;
  };
  Handle transfer(int channel, const char* operation, Index bytes, bool counted) {
    put(transfers_, {++number_, channel, operation, bytes, counted, moment_now()});
    return {this, number_};
  }

  // Work and transfers are in the order of their starts, kernels in the order of their ends.
  const std::vector<Work>& work() const { return work_; }
  const std::vector<Work>& kernels() const { return kernels_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<std::string>& channels() const { return channels_; }
  Index left_out() const { return left_out_; }

  // Discards all records except transfers in progress.
  void clear() {
    std::erase_if(transfers_, [](const Transfer& t) { return t.end != 0; });
    work_.clear(), kernels_.clear();
    left_out_ = 0;
  }

 private:
  template <class Record>
  std::size_t put(std::vector<Record>& records, const Record& record) {
    if (records.size() < most_) records.push_back(record);
    else return ++left_out_, most_;
    return records.size() - 1;
  }
  // Record of a transfer; null if it was dropped or discarded.
  Transfer* find(std::uint64_t number) {
    const auto at = std::lower_bound(transfers_.begin(), transfers_.end(), number, [](const Transfer& t, std::uint64_t n) { return t.number < n; });
    return at != transfers_.end() && at->number == number ? &*at : nullptr;
  }

  const std::size_t most_;
  std::vector<Work> work_, kernels_;
  std::vector<Transfer> transfers_;
  std::vector<std::string> channels_;
  std::uint64_t number_ = 0;
  Index left_out_ = 0;
};

}  // namespace gyr
