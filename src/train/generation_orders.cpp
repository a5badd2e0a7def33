// SPDX-License-Identifier: BSD-3-Clause
#include "src/train/generation_orders.hpp"

#include "src/train/peer_wait.hpp"

namespace gyr {

namespace {

std::unique_ptr<Transport> duplicated(MPI_Comm world) {
  MPI_Comm run;
  MPI_Comm_dup(world, &run);
  return mpi_transport(run, wait_policy_of(world));
}

// An order as numbers: kind, update, step, number of requests, and of each request id, samples, length and tokens.
std::vector<double> values_of(const GenerationOrder& order) {
  std::vector<double> values{double(order.kind), double(order.update), double(order.step), double(order.requests.size())};
  for (const Request& r : order.requests) {
    values.insert(values.end(), {double(r.id), double(r.samples), double(r.prompt.size())});
    values.insert(values.end(), r.prompt.begin(), r.prompt.end());
  }
  return values;
}

GenerationOrder order_of(const std::vector<double>& values) {
  GenerationOrder order{GenerationOrder::Kind(int(values[0])), values[1] != 0, Index(values[2])};
  const double* next = values.data() + 4;
  for (Index left = Index(values[3]); left > 0; --left) {
    Request r;
    r.id = Index(next[0]), r.samples = Index(next[1]);
    const Index length = Index(next[2]);
    for (next += 3; Index(r.prompt.size()) < length; ++next) r.prompt.push_back(Token(*next));
    order.requests.push_back(std::move(r));
  }
  return order;
}

}  // namespace

GenerationOrders::GenerationOrders(Mesh training, Mesh generating, const std::filesystem::path& output, MPI_Comm world,
                                   ProgressRecord& progress_record)
    : training_(std::move(training)), generating_(std::move(generating)), progress_record_(progress_record), peers_(output, training_.ranks),
      world_("orders", duplicated(world), &progress_record), device_(false, 0) {}

GenerationOrders::~GenerationOrders() { send({}); }

void GenerationOrders::send(const GenerationOrder& order) {
  if (world_.rank() != training_.ranks.front()) return;
  std::vector<double> values = values_of(order);
  double size = double(values.size());
  for (const int to : generating_.ranks) {
    world_.start_send<double>(device_, Tensor1<const double>(&size, 1), to).host_wait();
    world_.start_send<double>(device_, Tensor1<const double>(values.data(), Index(values.size())), to).host_wait();
  }
}

GenerationOrder GenerationOrders::receive() {
  const int from = training_.ranks.front();
  const auto arrived = [&](Tensor1<double> values) {
    Event event = world_.start_receive<double>(device_, values, from);
    wait_for(event, peers_, progress_record_);
  };
  progress_record_.phase("wait");
  double size = 0;
  arrived(Tensor1<double>(&size, 1));
  std::vector<double> values(static_cast<std::size_t>(size));
  arrived(Tensor1<double>(values.data(), Index(values.size())));
  return order_of(values);
}

}  // namespace gyr
