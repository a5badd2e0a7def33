// SPDX-License-Identifier: BSD-3-Clause
// Ranks simulated in one process: a transport whose messages go through mailboxes. A send is done only when its receive
// has been started, as for large MPI messages, so that programs that rely on buffering never end.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "kernels/base/error.hpp"
#include "kernels/device/transport.hpp"

namespace gyr::testing {

class Mailboxes {
 public:
  struct Message {
    const void* data;
    void* place;
    Index bytes;
    std::shared_ptr<bool> done = std::make_shared<bool>(false);
  };

  // Starts a send or, with a place, a receive.
  std::shared_ptr<bool> start(int from, int to, Message message) {
    Channel& channel = channels_[{from, to}];
    (message.place ? channel.receives : channel.sends).push_back(message);
    while (!channel.sends.empty() && !channel.receives.empty()) {
      const Message sent = channel.sends.front(), received = channel.receives.front();
      ensure(sent.bytes == received.bytes, "a message of {} bytes is received as {} bytes", sent.bytes, received.bytes);
      std::memcpy(received.place, sent.data, std::size_t(sent.bytes));
      *sent.done = *received.done = true;
      channel.sends.pop_front(), channel.receives.pop_front();
      bytes_[{from, to}] += sent.bytes;
      largest_ = std::max(largest_, sent.bytes);
    }
    return message.done;
  }
  const std::map<std::pair<int, int>, Index>& bytes() const { return bytes_; }  // by sender and receiver
  Index largest() const { return largest_; }                                    // bytes of the largest message

 private:
  struct Channel {
    std::deque<Message> sends, receives;
  };
  std::map<std::pair<int, int>, Channel> channels_;
  std::map<std::pair<int, int>, Index> bytes_;
  Index largest_ = 0;
};

// Largest number of messages of a rank in flight.
struct MostInFlight {
  int sends = 0, receives = 0;
};

class MailTransport final : public Transport {
 public:
  MailTransport(Mailboxes& mail, int rank, int size, MostInFlight& most) : mail_(mail), rank_(rank), size_(size), most_(most) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "mailboxes"; }
  Ticket send(const void* data, Index count, DType type, int to, int) override {
    most_.sends = std::max(most_.sends, ++sends_);
    return started(mail_.start(rank_, to, {data, nullptr, count * size_of(type)}), sends_);
  }
  Ticket receive(void* data, Index count, DType type, int from, int) override {
    most_.receives = std::max(most_.receives, ++receives_);
    return started(mail_.start(from, rank_, {nullptr, data, count * size_of(type)}), receives_);
  }
  // A message is found to be done only in every second poll, so that ranks advance at different speeds.
  bool done(Ticket ticket) override {
    if (random_() % 2 || !*started_[std::size_t(ticket)].done) return false;
    --*started_[std::size_t(ticket)].count;
    return true;
  }
  void rest() override {}

  Ticket all_reduce(void*, Index, DType, Reduction) override { return unused(); }
  Ticket reduce_scatter(const void*, void*, Index, DType) override { return unused(); }
  Ticket all_gather(const void*, void*, Index, DType) override { return unused(); }
  Ticket broadcast(void*, Index, DType, int) override { return unused(); }
  Ticket all_to_all(const void*, void*, Index, DType) override { return unused(); }
  Ticket all_to_all(const void*, std::span<const Index>, void*, std::span<const Index>, DType) override { return unused(); }
  Ticket shift(const void*, Index, int, void*, Index, int, DType, int) override { return unused(); }

 private:
  struct Started {
    std::shared_ptr<bool> done;
    int* count;
  };
  Ticket started(std::shared_ptr<bool> done, int& count) {
    started_.push_back({std::move(done), &count});
    return Ticket(started_.size()) - 1;
  }
  [[noreturn]] static Ticket unused() { fail(Exit::internal, "mailboxes have no collectives"); }

  Mailboxes& mail_;
  int rank_, size_;
  MostInFlight& most_;
  int sends_ = 0, receives_ = 0;
  std::deque<Started> started_;
  std::mt19937 random_{unsigned(rank_)};
};

}  // namespace gyr::testing
