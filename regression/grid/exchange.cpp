// SPDX-License-Identifier: BSD-3-Clause
// Collectives of communicators: every part arrives where plain loops put it, for any group, type and counts. The
// counted bytes are those of the parts.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "regression/support/grids.hpp"
#include "regression/support/testing.hpp"

namespace gyr::testing::exchange_suite {
namespace {

const std::vector<Axes> groups{Axis::data, Axis::pipeline, Axis::tensor, all_but(Axis::data), all_but(Axis::pipeline), all_but(Axis::tensor),
                               all_axes};

// Element counts that rank `from` sends to rank `to`. They are the same on all ranks, and one in three is zero.
class Counts {
 public:
  Counts(std::mt19937& random, int ranks) : ranks_(ranks), counts_(ranks * ranks) {
    for (Index& n : counts_) n = random() % 3 == 0 ? 0 : Index(random() % 40);
  }
  Index operator()(int from, int to) const { return counts_[from * ranks_ + to]; }
  std::vector<Index> sent_by(int rank) const {
    return list([&](int other) { return (*this)(rank, other); });
  }
  std::vector<Index> received_by(int rank) const {
    return list([&](int other) { return (*this)(other, rank); });
  }

 private:
  template <class Count>
  std::vector<Index> list(Count&& count) const {
    std::vector<Index> all;
    for (int other = 0; other < ranks_; ++other) all.push_back(count(other));
    return all;
  }
  int ranks_;
  std::vector<Index> counts_;
};

// Element i of the data that rank `from` sends to rank `to`. It is exact in every type.
template <class T>
T element(int from, int to, Index i) {
  return T(float((from * 64 + to * 8 + i) % 251));
}

// Values in device memory, so that the device's communication library moves them.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values)
      : arena_(Memory::activations, Index(values.size() * sizeof(T)) + 256), tensor_(arena_.tensor<T>(Index(values.size()))) {
    copy_to_device(values.data(), tensor_);
  }
  Tensor1<T> tensor() const { return tensor_; }
  std::vector<T> values() const {
    std::vector<T> all(tensor_.span());
    copy_to_host(tensor_, all.data());
    return all;
  }

 private:
  Arena arena_;
  Tensor1<T> tensor_;
};

template <class T>
struct Buffers {
  std::vector<T> expected;
  OnDevice<T> sent, received;
  Tensor1<const T> data() const { return sent.tensor(); }
  Tensor1<T> place() const { return received.tensor(); }
};

// Data that this rank sends, data that it must receive according to plain loops, and a receive buffer.
template <class T, class Count>
Buffers<T> buffers(int rank, int ranks, Count&& count) {
  std::vector<T> sent, expected;
  for (int other = 0; other < ranks; ++other) {
    for (Index i = 0; i < count(rank, other); ++i) sent.push_back(element<T>(rank, other, i));
    for (Index i = 0; i < count(other, rank); ++i) expected.push_back(element<T>(other, rank, i));
  }
  return {expected, OnDevice<T>(sent), OnDevice<T>(std::vector<T>(expected.size(), T(99.0f)))};
}

template <class T>
bool same(const Buffers<T>& b) {
  const std::vector<T> received = b.received.values();
  return std::equal(b.expected.begin(), b.expected.end(), received.begin(), [](T x, T y) { return float(x) == float(y); });
}

void expect_counted(Communicator& c, Operation op, Index calls, Index bytes, const std::string& where) {
  const bool single_rank = c.size() == 1;
  EXPECT_EQ(c.traffic(op).calls, single_rank ? 0 : calls) << where;
  EXPECT_EQ(c.traffic(op).bytes, single_rank ? 0 : bytes) << where;
  c.clear_traffic();
}

template <class T>
void exchange(Grid& grid, std::mt19937 random) {
  Device dev(false, 0);
  for (const Axes along : groups) {
    Communicator& c = grid.group(along);
    const int rank = c.rank(), ranks = c.size();
    const std::string where = fmt::format("{} of type {}", along.text(), name_of(dtype_of<T>()));
    c.clear_traffic();

    const Index each = 1 + Index(random() % 20);
    auto equal = buffers<T>(rank, ranks, [&](int, int) { return each; });
    c.start_all_to_all<T>(dev, equal.data(), equal.place()).host_wait();
    EXPECT_TRUE(ranks == 1 || same(equal)) << where;
    expect_counted(c, Operation::all_to_all, 1, ranks * each * Index(sizeof(T)), where);

    const Counts counts(random, ranks);
    auto any = buffers<T>(rank, ranks, counts);
    const std::vector<Index> sent = counts.sent_by(rank), received = counts.received_by(rank);
    c.start_all_to_all<T>(dev, any.data(), sent, any.place(), received).host_wait();
    EXPECT_TRUE(ranks == 1 || same(any)) << where;
    expect_counted(c, Operation::all_to_all, 1, std::accumulate(sent.begin(), sent.end(), Index(0)) * Index(sizeof(T)), where);

    // Ring shifts by one rank and by a random number of ranks, with parts of unequal length.
    for (const int by : {1, int(random() % ranks)}) {
      const int to = (rank + by) % ranks, from = (rank + ranks - by) % ranks;
      auto ring = buffers<T>(rank, ranks, [&](int a, int b) { return b == (a + by) % ranks ? 1 + counts(a, b) : 0; });
      c.start_shift<T>(dev, ring.data(), to, ring.place(), from, by).host_wait();
      EXPECT_TRUE(ranks == 1 || same(ring)) << where << " shifted by " << by;
      expect_counted(c, Operation::shift, 1, Index(ring.data().span() * sizeof(T)), where);
    }
  }
}

TEST(exchange, all_to_all_and_shift_match_plain_loops) {
  std::mt19937 random(3);
  for (const Layout& layout : {layout_of(2, 2, 2), layout_of(1, 2, 4), layout_of(8, 1, 1), layout_of(2, 2, 2, {5, 2, 7, 0, 3, 6, 1, 4})}) {
    Grid& grid = *grid_of(layout);
    exchange<double>(grid, random), exchange<float>(grid, random), exchange<bf16>(grid, random), exchange<std::int32_t>(grid, random);
    random.discard(1000);
  }
  sync_ranks();
}

// Sums and maxima of small integers of either sign. They are exact in every type, and the sum differs from the maximum.
template <class T>
void reduce(Grid& grid) {
  Device dev(false, 0);
  const auto number = [](int rank, Index i) { return double((rank * 5 + i * 3) % 11) - 7; };
  for (const Axes along : groups) {
    Communicator& c = grid.group(along);
    for (const Reduction how : {Reduction::sum, Reduction::max}) {
      std::vector<T> mine;
      for (Index i = 0; i < 13; ++i) mine.push_back(T(float(number(c.rank(), i))));
      const OnDevice<T> reduced(mine);
      c.start_all_reduce(dev, reduced.tensor(), how).host_wait();
      mine = reduced.values();
      for (Index i = 0; i < 13; ++i) {
        double expected = number(0, i);
        for (int rank = 1; rank < c.size(); ++rank) {
          const double other = number(rank, i);
          expected = how == Reduction::sum ? expected + other : std::max(expected, other);
        }
        EXPECT_EQ(double(float(mine[i])), expected) << along.text() << " of type " << name_of(dtype_of<T>()) << ", element " << i;
      }
    }
    c.clear_traffic();
  }
}

TEST(exchange, all_reduce_matches_plain_loops) {
  Grid& grid = *grid_of(layout_of(2, 2, 2));
  reduce<double>(grid), reduce<float>(grid), reduce<bf16>(grid);
  sync_ranks();
}

// Several operations are in flight and are waited for in another order.
TEST(exchange, concurrent_operations_do_not_interfere) {
  Communicator& c = grid_of(layout_of(2, 2, 2))->world();
  Device dev(false, 0);
  std::mt19937 random(4);
  std::vector<Counts> counts;
  for (int n = 0; n < 6; ++n) counts.emplace_back(random, c.size());
  std::vector<Buffers<float>> all;
  for (const Counts& n : counts) all.push_back(buffers<float>(c.rank(), c.size(), n));
  std::vector<Event> events;
  for (int n = 0; n < 6; ++n) {
    const std::vector<Index> sent = counts[n].sent_by(c.rank()), received = counts[n].received_by(c.rank());  // counts need not outlive the call
    events.push_back(c.start_all_to_all<float>(dev, all[n].data(), sent, all[n].place(), received));
  }
  for (const int n : {4, 1, 5, 0, 3, 2}) events[n].host_wait();
  for (const auto& b : all) EXPECT_TRUE(same(b));
  c.clear_traffic();
  sync_ranks();
}

TEST(exchange, dry_run_counts_traffic) {
  Grid grid = Grid::dry_run(layout_of(2, 2, 2), 3);
  Communicator& c = grid.group(all_but(Axis::data));
  Device dev(true, 0);
  const Tensor1<const float> data(nullptr, 40);
  const Tensor1<float> scratch(nullptr, 40);
  const std::vector<Index> counts{0, 30, 3, 7};
  c.start_all_to_all<float>(dev, data, scratch).host_wait();
  c.start_all_to_all<float>(dev, data, counts, scratch, counts).host_wait();
  expect_counted(c, Operation::all_to_all, 2, 320, "dry run");
  c.start_shift<float>(dev, data, 1, scratch, 3).host_wait();
  expect_counted(c, Operation::shift, 1, 160, "dry run");
}

// The progress record also counts the bytes of bookkeeping messages.
TEST(exchange, progress_record_counts_bookkeeping_bytes) {
  ProgressRecord progress_record;
  Communicator c("counted", dry_transport(2, 4), &progress_record);
  c.gather(std::vector<double>(5));
  EXPECT_EQ(progress_record.look().sent, 40);
}

// MPI counts elements with int.
TEST(exchange, counts_beyond_int_are_refused) {
  Transport& transport = grid_of(layout_of(2, 2, 2))->world().transport();
  std::vector<Index> few(8, 1), many(8, Index(1) << 29), one = few, negative = few;
  one[7] = Index(std::numeric_limits<int>::max()) + 2;
  negative[2] = -1;
  for (const auto& wrong : {many, one, negative, std::vector<Index>(7, 1)}) {
    EXPECT_THROW(transport.all_to_all(nullptr, wrong, nullptr, few, DType::u8), Error);
    EXPECT_THROW(transport.all_to_all(nullptr, few, nullptr, wrong, DType::u8), Error);
  }
  EXPECT_THROW(transport.all_to_all(nullptr, nullptr, Index(1) << 32, DType::u8), Error);
  sync_ranks();
}

}  // namespace
}  // namespace gyr::testing::exchange_suite
