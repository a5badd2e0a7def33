// SPDX-License-Identifier: BSD-3-Clause
// Expert parallelism: rows travel to the ranks that hold their experts, and back, by all-to-all (Lepikhin et al.,
// "GShard", 2020). E experts are distributed over n ranks that process different tokens: rank r has the E / n experts
// from r E / n on. The rows to send are ordered by expert, and therefore by rank. Received rows are ordered by source
// rank, then by expert.
#pragma once

#include <cstdint>
#include <numeric>

#include "modules/pass/pass.hpp"

namespace gyr {

class ExpertExchange {
 public:
  // chosen: number of rows that each rank sends to each expert, in rank order (n E)
  ExpertExchange(Communicator& ranks, std::vector<Index> chosen);
  // Exchange with `rows` rows per rank, routed as evenly as possible. For dry runs: the total cost is that of any other
  // routing.
  static ExpertExchange even(Communicator& ranks, Index experts, Index rows);
  // Gathers the counts of all ranks. count: rows of this rank for each expert.
  static ExpertExchange ask(Communicator& ranks, const std::vector<std::int32_t>& count);
  // Rows that a rank allocates memory for: the maximum that n ranks with `rows` rows and top_k experts per row can send
  // to it, or fewer if ExpertRanks::capacity_factor limits them.
  static Index capacity(const ExpertRanks&, Index rows, Index top_k, Index experts);

  const std::vector<Index>& chosen() const { return chosen_; }
  Index received() const { return total_; }    // number of rows that this rank receives
  std::vector<Index> received_counts() const;  // number of rows received for each of this rank's experts
  // Index of the expert, among this rank's experts, of each received row.
  std::vector<std::int32_t> experts() const;
  // Exit::config if any rank receives more rows than `capacity`. All ranks then fail with the same error. `capacity_factor`:
  // parallel.expert_room, for the message.
  void check(Index capacity, double capacity_factor) const;

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
    // Dropped rows come after all others and are not sent.
    const auto moved = [](const auto& x, const std::vector<Index>& elements) {
      return rows(flat(x), 0, std::accumulate(elements.begin(), elements.end(), Index(0)));
    };
    ranks_.template start_all_to_all<T>(dev, moved(from, there), there, moved(to, here), here).device_wait(dev);
  }
  Index each() const { return Index(chosen_.size()) / (ranks_.size() * ranks_.size()); }  // number of experts per rank
  Index rows_for(int from, int to) const;

  Communicator& ranks_;
  // chosen_: rows that each rank sends to each expert; sent_ and received_: rows exchanged with each rank
  std::vector<Index> chosen_, sent_, received_;
  Index total_ = 0;
};

}  // namespace gyr
