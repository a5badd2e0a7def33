// SPDX-License-Identifier: BSD-3-Clause
#include "src/selftest/exchanges.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <list>
#include <numeric>
#include <thread>

#include "kernels/base/error.hpp"
#include "src/selftest/tournament.hpp"

namespace gyr::selftest {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int repetitions = 3;
constexpr double limits_of_round = 20;  // time limits until a rank that does not end its round is given up

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

char byte_of(int from, int to, std::size_t i) { return char((std::size_t(from) * 31 + std::size_t(to) * 17 + i * 7) & 0xff); }

// A message in either direction, whose buffers live until both have arrived.
struct Messages {
  std::vector<char> sent, received;
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  bool arrived() {
    int all = 0;
    MPI_Testall(2, requests, &all, MPI_STATUSES_IGNORE);
    return all != 0;
  }
};

bool wait_for(const std::function<bool()>& ended, double limit) {
  const Clock::time_point begin = Clock::now();
  while (!ended()) {
    if (seconds_since(begin) > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

class Pairs {
 public:
  Pairs(MPI_Comm world, const ExchangeOptions& options, const Fault& fault) : world_(world), options_(options), fault_(fault) {
    MPI_Comm_rank(world, &rank_);
  }

  Exchange exchange(int partner) {
    Exchange e{partner, true, std::numeric_limits<double>::infinity()};
    const bool dead = fault_.hits(rank_, FaultKind::dead_link);
    // Both ranks start all repetitions, so that every message finds its receiver. After a failed one, they are not waited for.
    for (int i = 0; i < repetitions; ++i) {
      // A dead link is pretended by messages that start after the partner's time limit.
      if (dead && i == 0) std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * options_.seconds));
      const Clock::time_point begin = Clock::now();
      Messages& m = start(partner);
      e.right = e.right && wait_for([&] { return m.arrived(); }, options_.seconds) && is_right(m, partner) && !dead;
      double seconds = seconds_since(begin);
      if (fault_.hits(rank_, FaultKind::slow_link) || fault_.hits(partner, FaultKind::slow_link)) seconds *= 4;
      if (e.right) e.seconds = std::min(e.seconds, seconds);
    }
    if (!e.right) e.seconds = 0;
    return e;
  }
  // Waits for the messages of exchanges beyond their time limit, which MPI needs to end.
  void drain() {
    for (Messages& m : all_)
      if (!wait_for([&] { return m.arrived(); }, limits_of_round * options_.seconds))
        fail(Exit::device, "a message of the self-test never arrived; MPI cannot end");
  }

 private:
  Messages& start(int partner) {
    std::erase_if(all_, [](Messages& m) { return m.requests[0] == MPI_REQUEST_NULL && m.requests[1] == MPI_REQUEST_NULL; });
    Messages& m = all_.emplace_back();
    m.sent.resize(options_.bytes), m.received.resize(options_.bytes);
    const int shift = fault_.hits(rank_, FaultKind::wrong_link) ? 1 : 0;
    for (std::size_t i = 0; i < m.sent.size(); ++i) m.sent[i] = char(byte_of(rank_, partner, i) + shift);
    MPI_Irecv(m.received.data(), int(m.received.size()), MPI_CHAR, partner, 0, world_, &m.requests[0]);
    MPI_Isend(m.sent.data(), int(m.sent.size()), MPI_CHAR, partner, 0, world_, &m.requests[1]);
    return m;
  }
  bool is_right(const Messages& m, int partner) const {
    for (std::size_t i = 0; i < m.received.size(); ++i)
      if (m.received[i] != byte_of(partner, rank_, i)) return false;
    return true;
  }

  MPI_Comm world_;
  const ExchangeOptions& options_;
  const Fault& fault_;
  int rank_ = 0;
  std::list<Messages> all_;
};

// Both ranks of a pair must agree that an exchange failed, because only one of them may have seen it.
void share_failures(MPI_Comm world, Findings& f) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(world, &ranks), MPI_Comm_rank(world, &rank);
  std::vector<char> failed(std::size_t(ranks), 0), by_others(std::size_t(ranks), 0);
  for (const Exchange& e : f.exchanges) failed[std::size_t(e.partner)] = !e.right;
  MPI_Alltoall(failed.data(), 1, MPI_CHAR, by_others.data(), 1, MPI_CHAR, world);
  for (Exchange& e : f.exchanges) e.right = e.right && !by_others[std::size_t(e.partner)];
}

}  // namespace

void exchange_in_pairs(MPI_Comm world, const ExchangeOptions& options, const Fault& fault, Findings& f,
                       const std::function<void(int, int)>& progress) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(world, &ranks), MPI_Comm_rank(world, &rank);
  const std::vector<int> rounds = chosen_rounds(ranks, options.most_rounds, options.seed);
  Pairs pairs(world, options, fault);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (const int partner = partner_of(rank, rounds[i], ranks); partner >= 0) f.exchanges.push_back(pairs.exchange(partner));
    MPI_Request ended;  // a late rank of one round must not fail its partner of the next one
    MPI_Ibarrier(world, &ended);
    const auto all_ended = [&] {
      int flag = 0;
      MPI_Test(&ended, &flag, MPI_STATUS_IGNORE);
      return flag != 0;
    };
    require(wait_for(all_ended, limits_of_round * options.seconds), Exit::device, "a rank did not end round {} of {} of the exchanges in pairs",
            i + 1, rounds.size());
    progress(int(i + 1), int(rounds.size()));
  }
  pairs.drain();
  share_failures(world, f);
}

void exchange_together(MPI_Comm world, Findings& f) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(world, &ranks), MPI_Comm_rank(world, &rank);
  constexpr std::size_t length = 1 << 16;
  std::vector<double> sums(length);
  for (std::size_t i = 0; i < length; ++i) sums[i] = double(rank + 1) * double(i % 1024);
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), int(length), MPI_DOUBLE, MPI_SUM, world);
  const double factor = double(ranks) * double(ranks + 1) / 2;
  for (std::size_t i = 0; i < length; ++i) f.collectives_right = f.collectives_right && sums[i] == factor * double(i % 1024);
  std::vector<int> sent(std::size_t(ranks), 0), received(std::size_t(ranks), -1);
  for (int to = 0; to < ranks; ++to) sent[std::size_t(to)] = rank * ranks + to;
  MPI_Alltoall(sent.data(), 1, MPI_INT, received.data(), 1, MPI_INT, world);
  for (int from = 0; from < ranks; ++from) f.collectives_right = f.collectives_right && received[std::size_t(from)] == from * ranks + rank;
}

}  // namespace gyr::selftest
