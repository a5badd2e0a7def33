// SPDX-License-Identifier: BSD-3-Clause
// Rows on their way to the ranks that have the experts chosen for them, and back (expert parallelism; Lepikhin et al., "GShard", 2020). Ranks with
// other tokens deal E experts among themselves, the r-th of n those from r E / n on. A rank's rows lie by expert, and so by rank; what a rank
// receives lies by the rank that it comes from, and there by expert.
#pragma once

#include <cstdint>
#include <numeric>

#include "modules/pass/pass.hpp"

namespace gyr {

class ExpertExchange {
 public:
  // chosen: how many of its rows each rank sends to each expert, rank by rank (n E)
  ExpertExchange(Communicator& ranks, std::vector<Index> chosen);
  // Of `rows` rows of each rank as even as can be: for dry runs, since in all it costs as much as any other.
  static ExpertExchange even(Communicator& ranks, Index experts, Index rows);
  // Asks all ranks, told how many rows there are here of every expert.
  static ExpertExchange ask(Communicator& ranks, const std::vector<std::int32_t>& count);
  // Rows that a rank has memory for: as many as it may receive of n ranks with `rows` rows, each of them for top_k experts, or less by `room`.
  static Index capacity(const ExpertRanks&, Index rows, Index top_k, Index experts);

  const std::vector<Index>& chosen() const { return chosen_; }
  Index received() const { return total_; }    // rows
  std::vector<Index> received_counts() const;  // of each of this rank's experts
  // Of each received row, the number of its expert among this rank's.
  std::vector<std::int32_t> experts() const;
  // Exit::config where a rank, whichever it is, receives more than that: all of them end with the same error.
  void check(Index capacity, double room) const;

  template <class T>
  void send(Device& dev, Tensor2<const T> mine /*(rows,D)*/, Tensor2<T> received /*(received,D)*/) const {
    move(dev, mine, elements(sent_, mine.extent(1)), received, elements(received_, mine.extent(1)));
  }
  template <class T>
  void give_back(Device& dev, Tensor2<const T> received, Tensor2<T> mine) const {
    move(dev, received, elements(received_, mine.extent(1)), mine, elements(sent_, mine.extent(1)));
  }

 private:
  static std::vector<Index> elements(std::vector<Index> rows, Index width) {
    for (Index& n : rows) n *= width;
    return rows;
  }
  template <class T>
  void move(Device& dev, Tensor2<const T> from, const std::vector<Index>& there, Tensor2<T> to, const std::vector<Index>& here) const {
    // Rows that are dropped lie behind the others and stay.
    const auto moved = [](const auto& x, const std::vector<Index>& elements) {
      return rows(flat(x), 0, std::accumulate(elements.begin(), elements.end(), Index(0)));
    };
    ranks_.template start_all_to_all<T>(dev, moved(from, there), there, moved(to, here), here).device_wait(dev);
  }
  Index each() const { return Index(chosen_.size()) / (ranks_.size() * ranks_.size()); }  // experts of a rank
  Index rows_for(int from, int to) const;

  Communicator& ranks_;
  std::vector<Index> chosen_, sent_, received_;  // the last two in rows, by rank
  Index total_ = 0;
};

}  // namespace gyr
