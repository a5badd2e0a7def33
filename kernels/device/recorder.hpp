// SPDX-License-Identifier: BSD-3-Clause
// What a rank does in time: spans of its work, each inside another or behind it, and its transfers, from the start to the end of the wait for them.
// Records are small, of fixed size and in memory that is taken once; what does not fit any more is counted and left out. Who does not record has no
// recorder (null): then nothing is written and no clock is read.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/scalar.hpp"

namespace gyr {

using Moment = std::int64_t;  // nanoseconds of this process' steady clock, which says nothing about another's
inline Moment moment_of(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}
inline Moment moment_now() { return moment_of(std::chrono::steady_clock::now()); }

// What work is done on; -1: nothing of the kind.
struct Subject {
  int chunk = -1, micro = -1;
  int first_part = -1, last_part = -1;  // parts [first, last) of the chunk
  int bucket = -1;
};

class Recorder {
 public:
  struct Work {
    const char* name;  // a literal
    Moment begin, end;
    Subject subject;
  };
  struct Transfer {
    std::uint64_t number;   // in order of their starts, from 1
    int channel;            // of channels()
    const char* operation;  // a literal
    Index bytes;
    bool counted;                         // as traffic; numbers of the host are not
    Moment begin, end = 0;                // end: when it was seen to be done; 0: under way
    Moment wait_begin = 0, wait_end = 0;  // what the rank waited; 0: it has not
  };

  // Room for so many records of each kind.
  explicit Recorder(std::size_t most) : most_(most) { work_.reserve(most), kernels_.reserve(most), transfers_.reserve(most); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A name that transfers will refer to by its number.
  int channel(std::string_view name) {
    const auto number = std::size_t(std::find(channels_.begin(), channels_.end(), name) - channels_.begin());
    if (number == channels_.size()) channels_.emplace_back(name);
    return int(number);
  }

  // From here to the end of the block. A null recorder is told nothing.
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

  // Of a span that has ended.
  void kernel(const char* name, Moment begin, Moment end) { put(kernels_, {name, begin, end, {}}); }

  // A transfer under way, as its event knows it.
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

    Recorder* recorder_ = nullptr;  // outlives what it records
    std::uint64_t number_ = 0;
  };
  // From here to the end of the block the rank waits for it.
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

  // In the order of their starts; kernels in that of their ends.
  const std::vector<Work>& work() const { return work_; }
  const std::vector<Work>& kernels() const { return kernels_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<std::string>& channels() const { return channels_; }
  Index left_out() const { return left_out_; }

  // Forgets all but the transfers that are under way.
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
  // Null where it was left out or is forgotten.
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
